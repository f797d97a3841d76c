"""What dead controllers and ZMQ publishers leave beside endpoints: gates and claims."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator

from msgq.common import shm_paths
from msgq.errors import SegmentError
from msgq.impl.gate.core import gate_owner, unlink_gate
from msgq.kinds.cleanup import FileRemoval


def remove_dead_gates(
    prefix: str | None, remove: bool = True, is_selected: Callable[[str], bool] = lambda endpoint: True
) -> Iterator[FileRemoval]:
    """Remove the gates whose controllers are dead.

    Those of whom that is not known are left out.

    Parameters
    ----------
    prefix : of the gates; None: every one.
    remove : False: only say what would be done.
    is_selected : says of an endpoint whether its gates are meant.
    """
    for path in shm_paths.list_gate_paths():
        in_prefix, _, endpoint = shm_paths.parse_gate_path(path)
        if prefix not in (None, in_prefix) or not is_selected(endpoint):
            continue
        with contextlib.suppress(SegmentError, FileNotFoundError):  # another user's, or just removed
            owner = gate_owner(path)
            if owner is not None and owner[1] is False:
                description = f"gate of a dead controller (process {owner[0]})"
                size = os.stat(path).st_size
                failure = _remove_gate(path, owner[2]) if remove else ""
                yield FileRemoval(endpoint, in_prefix, path, size, failure or description, not failure)


def _remove_gate(path: str, inode: int) -> str:
    """Remove it, unless another one has the name by now. Returns why it could not be, or ""."""
    try:
        unlink_gate(path, inode)
    except SegmentError as error:
        return str(error)
    return ""


def remove_dead_claims(prefix: str | None, remove: bool = True) -> Iterator[FileRemoval]:
    """Remove the claims of ZMQ publishers that are dead.

    A publisher locks its claim for as long as it lives, and the kernel takes the lock back when it dies: that says more
    than a process id would. A publisher that starts at the same address in the microseconds of the look is refused.

    Parameters
    ----------
    prefix : of the claims; None: every one.
    remove : False: only say what would be done.
    """
    for path in shm_paths.list_zmq_claim_paths():
        if (removal := _remove_dead_claim(path, prefix, remove)) is not None:
            yield removal


def _remove_dead_claim(path: str, prefix: str | None, remove: bool) -> FileRemoval | None:
    """Remove one claim; None: it is a living publisher's, or of another prefix. Its lock is free again afterwards."""
    with contextlib.suppress(OSError, ValueError), open(path, "r+") as claim:
        claim_record = json.load(claim)
        in_prefix, _, endpoint = str(claim_record["name"]).rpartition("/")
        if prefix not in (None, in_prefix) or not _try_lock_file(claim.fileno()):
            return None
        status = os.fstat(claim.fileno())
        if status.st_nlink:
            if remove:
                os.unlink(path)
            description = f"claim of a dead ZMQ publisher (process {claim_record['pid']})"
            return FileRemoval(endpoint, in_prefix, path, status.st_size, description)
    return None


def _try_lock_file(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            return False
        raise
    return True
