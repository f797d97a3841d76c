"""What killed controllers and ZMQ publishers leave in shared memory: gates, and claims of addresses."""

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass

from msgq import naming
from msgq.errors import SegmentError
from msgq.impl.gatefile import gate_owner, unlink_gate


@dataclass(frozen=True)
class Remains:
    """A file whose owner is dead. `what` says of whom; `inode` tells it from one that takes its name later."""

    endpoint: str
    path: str
    what: str
    inode: int
    bytes: int


def dead_gates(prefix: str) -> Iterator[Remains]:
    """Return the gates of a prefix whose controllers are dead; those of whom that is not known are left out."""
    for path in naming.gate_paths():
        in_prefix, _, endpoint = naming.gate_names(path)
        if in_prefix != prefix:
            continue
        with contextlib.suppress(SegmentError, FileNotFoundError):  # another user's, or just removed
            owner = gate_owner(path)
            if owner is not None and owner[1] is False:
                what = f"a gate whose controller, process {owner[0]}, is dead"
                yield Remains(endpoint, path, what, owner[2], os.stat(path).st_size)


def remove_gate(gate: Remains) -> None:
    """Remove it, unless another one has the name by now."""
    unlink_gate(gate.path, gate.inode)


def dead_claims(prefix: str, remove: bool = False) -> Iterator[Remains]:
    """Return, and remove if asked, the claims of ZMQ publishers that are dead.

    A publisher locks its claim for as long as it lives, and the kernel takes the lock back when it dies: that says more
    than a process id would. A publisher that starts at the same address in the microseconds of the look is refused.
    """
    for path in naming.zmq_claims():
        with contextlib.suppress(OSError, ValueError), open(path, "r+") as claim:
            said = json.load(claim)
            in_prefix, _, endpoint = str(said["name"]).rpartition("/")
            if in_prefix != prefix or not _lock(claim.fileno()):
                continue
            found = os.fstat(claim.fileno())
            if found.st_nlink:
                if remove:
                    os.unlink(path)
                what = f"the claim of a ZMQ publisher, process {said['pid']}, that is dead"
                yield Remains(endpoint, path, what, found.st_ino, found.st_size)


def _lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        raise
    return True
