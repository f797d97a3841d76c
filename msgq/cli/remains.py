"""What is left in shared memory: gates of killed controllers, claims of killed ZMQ publishers, halves of topics."""

import contextlib
import errno
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from msgq import naming, sharing
from msgq.errors import SegmentError
from msgq.impl.gatefile import gate_owner, unlink_gate
from msgq.impl.segment import unlink_orphan


@dataclass(frozen=True)
class Remains:
    """A file whose owner is dead. `what` says of whom; `inode` tells it from one that takes its name later."""

    endpoint: str
    prefix: str
    path: str
    what: str
    inode: int
    bytes: int


@dataclass(frozen=True)
class Orphan:
    """A side segment without a ring. `kept` says why it could not be removed, "" if it was. No endpoint: a directory
    for side segments that is empty.
    """

    endpoint: str
    prefix: str
    bytes: int
    kept: str = ""


def files(path_of: Callable[[str, str], str], prefix: str) -> dict[str, os.stat_result]:
    """Return the endpoints that have a plain file of a kind, `naming.ring_path` or `side_path`, and what is said of it.

    Also those that cannot be read.
    """
    sample = Path(path_of("x", prefix))
    start = sample.name.removesuffix("x")
    found = {}
    for path in sorted(sample.parent.glob(f"{start}?*")):
        with contextlib.suppress(OSError):  # just removed
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                found[path.name.removeprefix(start)] = status
    return found


def orphans(prefix: str) -> list[str]:
    """Return the endpoints that have a side segment of a user who is trusted, but no ring."""
    found = [name for name, status in files(naming.side_path, prefix).items() if sharing.trusts(status.st_uid)]
    return [name for name in found if not os.path.lexists(naming.ring_path(name, prefix))]


def orphaned_prefixes() -> list[str]:
    """Return the prefixes with side segments that have no rings, or with nothing but an empty directory for them."""
    return [prefix for prefix in naming.prefixes() if _is_trusted_place(prefix) and (orphans(prefix) or _bare(prefix))]


def _is_trusted_place(prefix: str) -> bool:
    try:
        return sharing.trusts(os.lstat(naming.directories(prefix)[1]).st_uid)
    except FileNotFoundError:
        return False


def _bare(prefix: str) -> bool:
    rings, sides = naming.directories(prefix)
    with contextlib.suppress(OSError):
        return not os.path.lexists(rings) and not os.listdir(sides)
    return False


def clear_orphans(prefix: str, remove: bool = True) -> Iterator[Orphan]:
    """Return, and remove if asked, what a prefix has of side segments without a ring, and the directories they leave.

    Whoever connects meanwhile waits for microseconds, or makes the directories anew. Programs that still use a ring
    that was removed keep what they have mapped: its side segment loses its name as the ring did.
    """
    found = orphans(prefix)
    rings = naming.directories(prefix)[0]
    bare, alone = bool(prefix) and _bare(prefix), bool(prefix) and not os.path.lexists(rings)
    if remove and found and prefix:
        sharing.make_directories("", prefix, naming.mode(None, ""))  # what is locked is the ring's name
    for endpoint in found:
        if (orphan := _clear(endpoint, prefix, remove)) is not None:
            yield orphan
    if remove and alone:
        _remove_directories(*naming.directories(prefix))
    if bare:
        yield Orphan("", prefix, 0)


def _remove_directories(rings: str, sides: str) -> None:
    """Remove the directories of a prefix that ended; not when somebody has come, for the ring comes first."""
    with contextlib.suppress(OSError):  # not empty
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(rings)
        os.rmdir(sides)


def _clear(endpoint: str, prefix: str, remove: bool) -> Orphan | None:
    """Remove one side segment; None when there is nothing to do any more."""
    try:
        size = os.stat(naming.side_path(endpoint, prefix)).st_size
        if remove and not unlink_orphan(endpoint, prefix):
            return None
    except FileNotFoundError:
        return None
    except SegmentError as error:
        return None if error.errno == errno.ENOENT else Orphan(endpoint, prefix, 0, str(error))
    return Orphan(endpoint, prefix, size)


def dead_gates(prefix: str | None) -> Iterator[Remains]:
    """Return the gates of a prefix, or of all if it is None, whose controllers are dead.

    Those of whom that is not known are left out.
    """
    for path in naming.gate_paths():
        in_prefix, _, endpoint = naming.gate_names(path)
        if prefix not in (None, in_prefix):
            continue
        with contextlib.suppress(SegmentError, FileNotFoundError):  # another user's, or just removed
            owner = gate_owner(path)
            if owner is not None and owner[1] is False:
                what = f"a gate whose controller, process {owner[0]}, is dead"
                yield Remains(endpoint, in_prefix, path, what, owner[2], os.stat(path).st_size)


def remove_gate(gate: Remains) -> str:
    """Remove it, unless another one has the name by now. Returns why it could not be, or ""."""
    try:
        unlink_gate(gate.path, gate.inode)
    except SegmentError as error:
        return str(error)
    return ""


def dead_claims(prefix: str | None, remove: bool = False) -> Iterator[Remains]:
    """Return, and remove if asked, the claims of ZMQ publishers that are dead, of a prefix, or of all if it is None.

    A publisher locks its claim for as long as it lives, and the kernel takes the lock back when it dies: that says more
    than a process id would. A publisher that starts at the same address in the microseconds of the look is refused.
    """
    for path in naming.zmq_claims():
        with contextlib.suppress(OSError, ValueError), open(path, "r+") as claim:
            said = json.load(claim)
            in_prefix, _, endpoint = str(said["name"]).rpartition("/")
            if prefix not in (None, in_prefix) or not _lock(claim.fileno()):
                continue
            found = os.fstat(claim.fileno())
            if found.st_nlink:
                if remove:
                    os.unlink(path)
                what = f"the claim of a ZMQ publisher, process {said['pid']}, that is dead"
                yield Remains(endpoint, in_prefix, path, what, found.st_ino, found.st_size)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        raise
    return True
