"""What `msgq doctor --fix` does: removes what only the dead left, by the ways that participants use themselves."""

import errno
import os
import stat
from collections.abc import Iterator

from msgq import naming, sharing
from msgq.cli.clean import users
from msgq.cli.machine import Check
from msgq.cli.remains import clear_orphans, files
from msgq.errors import IpcError
from msgq.impl.segment import TopicLock, unlink_topic
from msgq.stats import topic, topics


def strangers(prefix: str | None) -> Iterator[tuple[str, bool]]:
    """Say of each segment whose owner or mode is unusual what is, and whether nobody here can use it."""
    where = naming.checked_prefix(prefix)
    kinds = (naming.ring_path, naming.side_path)
    segments = [(path_of(name, where), status) for path_of in kinds for name, status in files(path_of, where).items()]
    for found, status in segments:
        mode = stat.S_IMODE(status.st_mode)
        if not sharing.trusts(status.st_uid):
            text = f"belongs to {sharing.user_name(status.st_uid)}{sharing.how_to_trust(status.st_uid)}"
            yield f"{found} {text}: until then it is refused", True
        elif status.st_uid == os.geteuid() and mode & 0o022 & ~naming.mode(None, ""):
            text = f"{found} has mode {mode:o}: others may write what they like there (chmod {mode & 0o755:o})"
            yield text, False


def repair(prefix: str | None) -> Check:
    """Remove orphaned side segments, and topics that only the dead use; never what somebody may be using."""
    where = naming.checked_prefix(prefix)
    done, failed = [], []
    for orphan in clear_orphans(where):
        if orphan.kept:
            failed.append(orphan.kept)
        elif orphan.endpoint:
            done.append(f"removed {orphan.endpoint}: had lost its ring")
    for found in topics(where):
        try:
            if _has_dead(found.endpoint, where):
                done += _remove(found.endpoint, where, "only the dead used it")
        except IpcError as error:
            if error.errno != errno.ENOENT:  # somebody else removed it meanwhile
                failed.append(str(error))
    text = "; ".join(done + failed) or "nothing to repair"
    return Check("repair", "wrong" if failed else "ok", text)


def _has_dead(endpoint: str, where: str) -> bool:
    found = topic(endpoint, where)
    named = [one.participant for one in found.subscribers]
    named += [found.publisher] if found.publisher is not None else []
    return any(one.alive is False for one in named)


def _remove(endpoint: str, where: str, why: str) -> list[str]:
    """Remove a topic unless somebody may use it; returns what was done."""
    with TopicLock(endpoint, where):  # who connects now waits, and then makes the topic anew
        if any(users(topic(endpoint, where))):
            return []
        unlink_topic(endpoint, where)
    return [f"removed {endpoint}: {why}"]
