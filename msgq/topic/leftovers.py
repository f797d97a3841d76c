"""Leftovers of killed processes that belong to no endpoint: gates, claims of ZMQ publishers, unnamed directories."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator

from msgq.common import shm_paths
from msgq.errors import SegmentError
from msgq.impl.gate.core import gate_owner, unlink_gate
from msgq.kinds.cleanup import FileRemoval, remove_directories

_DRAFT_AGE_S = 60.0  # age from which a draft is a leftover


def remove_dead_gates(
    prefix: str | None, remove: bool = True, is_selected: Callable[[str], bool] = lambda endpoint: True
) -> Iterator[FileRemoval]:
    """Remove the gates of dead controllers. Gates of controllers with unknown liveness stay.

    Args:
        prefix: prefix of the gates; None: all.
        remove: False: only report what would be removed.
        is_selected: returns True for a selected endpoint.
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
    """Remove a gate, unless a newer gate has the path. Return the error, or ""."""
    try:
        unlink_gate(path, inode)
    except SegmentError as error:
        return str(error)
    return ""


def remove_dead_claims(prefix: str | None, remove: bool = True) -> Iterator[FileRemoval]:
    """Remove the claims of dead ZMQ publishers.

    A living publisher locks its claim, and the kernel releases the lock when the process dies. The lock is more
    reliable than a process id. A publisher that starts at the same address during the microseconds of the check is
    refused.

    Args:
        prefix: prefix of the claims; None: all.
        remove: False: only report what would be removed.
    """
    for path in shm_paths.list_zmq_claim_paths():
        if (removal := _remove_dead_claim(path, prefix, remove)) is not None:
            yield removal


def _remove_dead_claim(path: str, prefix: str | None, remove: bool) -> FileRemoval | None:
    """Remove one claim; None: its publisher lives, or it has another prefix. Afterwards the lock is free again."""
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


def remove_topic_directories(prefix: str) -> None:
    """Remove the two directories of a prefix's topics if they are empty.

    Programs other than msgq may expect the directory of the rings. So remove the directories only of a prefix that the
    user names.
    """
    remove_directories(*shm_paths.topic_directories(prefix))


def remove_old_drafts(prefix: str | None, remove: bool = True) -> Iterator[FileRemoval]:
    """Remove this user's empty directories that were created a minute ago and still have no name.

    A process makes a few system calls between the creation of a directory and its renaming, which take microseconds. A
    process that was suspended there for a minute finds its draft removed, and raises SegmentError. It loses nothing,
    because a directory with a file is never removed.

    Args:
        prefix: prefix of the directories; None: all.
        remove: False: only report what would be removed.
    """
    for path, in_prefix in shm_paths.list_draft_directories():
        if prefix not in (None, in_prefix):
            continue
        with contextlib.suppress(OSError):  # not empty, or just renamed
            status = os.lstat(path)
            if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _DRAFT_AGE_S or os.listdir(path):
                continue
            if remove:
                os.rmdir(path)
            yield FileRemoval("", in_prefix, path, 0, "its creator was killed before the directory had a name")
