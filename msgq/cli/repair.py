"""What `msgq doctor --fix` does: removes what only the dead left, by the ways that participants use themselves."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import msgq
from msgq import naming
from msgq.cli.clean import users
from msgq.cli.machine import Check
from msgq.errors import IpcError
from msgq.impl.ring import SubSocket
from msgq.impl.segment import TopicLock, unlink_topic
from msgq.stats import topic, topics


def orphans(prefix: str | None) -> list[str]:
    """Return the endpoints with a side segment but no ring."""
    where = naming.checked_prefix(prefix)
    ring, side = Path(naming.ring_path("x", where)), Path(naming.side_path("x", where))
    start, ring_start = side.name.removesuffix("x"), ring.name.removesuffix("x")
    found = [path.name.removeprefix(start) for path in side.parent.glob(f"{start}?*") if _is_file(path)]
    return sorted(name for name in found if not (ring.parent / f"{ring_start}{name}").exists())


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
        if status.st_uid not in (os.geteuid(), 0):
            yield f"{found} belongs to user {status.st_uid}: this user's programs refuse it", True
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
    with naming.chosen(where):
        for endpoint in orphans(where):
            try:
                # Connecting makes a ring and replaces the stale side segment, under the lock that all take. Then it is
                # a topic as any other, and whoever connects meanwhile has a good one.
                with SubSocket() as subscriber:
                    subscriber.connect(msgq.context, endpoint)
                done += _remove(endpoint, where, "had lost its ring")
            except IpcError as error:
                failed.append(str(error))
        for found in topics(where):
            if _has_dead(found.endpoint, where):
                try:
                    done += _remove(found.endpoint, where, "only the dead used it")
                except IpcError as error:
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
