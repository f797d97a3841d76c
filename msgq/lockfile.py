"""Files that are locked for as long as their holder lives; the kernel takes the lock back when it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os


def locked(path: str) -> int:
    """Return a descriptor of the file, locked, created if need be; -1 when another has locked it.

    The holder writes who it is. It lets go by `unlock`; a file that a dead holder left is taken as it is.

    Raises
    ------
    OSError : it cannot be opened.
    """
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), os.stat(path)):
                    return lock
        except BlockingIOError:
            os.close(lock)
            return -1
        except BaseException:
            os.close(lock)
            raise
        os.close(lock)  # its former holder removed it just now: that lock means nothing any more


def unlock(path: str, lock: int) -> None:
    """Remove the file that `locked` returned a descriptor of, unless it is another's by now, and let go of the lock."""
    with contextlib.suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(lock), os.stat(path)):
            os.unlink(path)
    fcntl.flock(lock, fcntl.LOCK_UN)  # closing is not enough: a child that was forked meanwhile may have a copy
    os.close(lock)
