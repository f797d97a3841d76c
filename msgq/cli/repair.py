"""What `msgq doctor --fix` does: removes what only the dead left, by the ways that participants use themselves."""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgq import naming, sharing
from msgq.cli.clean import users
from msgq.cli.machine import Check
from msgq.cli.remains import clear_orphans
from msgq.errors import IpcError
from msgq.impl.segment import TopicLock, unlink_topic
from msgq.stats import topic, topics


def _is_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def strangers(prefix: str | None) -> Iterator[tuple[str, bool]]:
    """Say of each segment whose owner or mode is unusual what is, and whether nobody here can use it."""
    where = naming.checked_prefix(prefix)
    for found in topics_paths(where):
        try:
            status = os.lstat(found)
        except FileNotFoundError:
            continue
        mode = stat.S_IMODE(status.st_mode)
        if not sharing.trusts(status.st_uid):
            text = f"belongs to {sharing.user_name(status.st_uid)}{sharing.how_to_trust(status.st_uid)}"
            yield f"{found} {text}: until then it is refused", True
        elif mode & 0o022 & ~naming.mode(None, ""):
            text = f"{found} has mode {mode:o}: others may write what they like there (chmod {mode & 0o755:o})"
            yield text, False


def topics_paths(where: str) -> Iterator[Path]:
    """Yield the files of all topics, rings and side segments, also those that cannot be read."""
    for pattern in (naming.ring_path("x", where), naming.side_path("x", where)):
        sample = Path(pattern)
        yield from filter(_is_file, sorted(sample.parent.glob(f"{sample.name.removesuffix('x')}?*")))


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
