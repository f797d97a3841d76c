"""Shared memory without names, which disappears with its last process."""

from __future__ import annotations

import fcntl
import os
import stat

from msgq.errors import CorruptSegmentError, SegmentError

_HUGE_PAGE_BYTES = 1 << 21
# Not F_SEAL_FUTURE_WRITE: stock's clients map buffers for writing.
_MEMFD_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_READ_ONLY_MODE = 0o444  # a new memfd is 0777: who has a descriptor for reading could open it for writing through /proc
#: Number of forks that led to this process. It is read for each frame, where getpid would be a system call.
fork_count = 0


def _count_fork() -> None:
    global fork_count
    fork_count += 1


os.register_at_fork(after_in_child=_count_fork)


def create_memfd(name: str, size: int, endpoint: str, huge_pages: bool = False, allocated: bool = True) -> int:
    """Return a descriptor of `size` zeroed bytes (whole huge pages, if requested). The size cannot change.

    The descriptor is for reading and writing. Only root, or the owner after a change of its mode, can open another one.

    Args:
        allocated: True: allocate all memory now. False: `allocate` does it later.

    Raises:
        SegmentError: not enough memory, or no free huge page.
    """
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    if huge_pages:
        flags |= os.MFD_HUGETLB | os.MFD_HUGE_2MB
        size = -(-size // _HUGE_PAGE_BYTES) * _HUGE_PAGE_BYTES
    fd = -1
    try:
        fd = os.memfd_create(name, flags)
        os.ftruncate(fd, size)
        if allocated:
            os.posix_fallocate(fd, 0, size)  # fail here, not by SIGBUS while a frame is written
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _MEMFD_SEALS)
        os.fchmod(fd, _READ_ONLY_MODE)
    except BaseException as error:
        if fd >= 0:
            os.close(fd)
        if not isinstance(error, OSError):  # an exception of a signal handler
            raise
        hint = "; reserve huge pages in /proc/sys/vm/nr_hugepages (2 MiB each)" if huge_pages else ""
        text = f"cannot allocate {size} bytes for a buffer: {error.strerror}{hint}"
        raise SegmentError(text, endpoint, errno=error.errno) from error
    return fd


def allocate(fd: int) -> bool:
    """Allocate the memory of a descriptor that `create_memfd` returned. False if there is not enough."""
    try:
        os.posix_fallocate(fd, 0, os.fstat(fd).st_size)
    except OSError:
        return False
    return True


def reopen_read_only(fd: int) -> int:
    """Return another descriptor of the same memory that cannot be mapped for writing."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def check_memfd(fd: int, size: int, sealed: bool, endpoint: str) -> None:
    """Check that a received descriptor has `size` bytes, and (if `sealed`) cannot shrink.

    Raises:
        CorruptSegmentError: a check failed. The text has the reason.
    """
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode) or status.st_size < size:
        text = f"server sent a descriptor of {status.st_size} bytes (mode {status.st_mode:o}), not memory of {size}"
        raise CorruptSegmentError(text, endpoint)
    if sealed and not _get_seals(fd) & fcntl.F_SEAL_SHRINK:
        raise CorruptSegmentError("server sent memory without a seal against shrinking", endpoint)


def is_allocated(fd: int, size: int) -> bool:
    """Return True if all `size` bytes are allocated. A stock server's memory is allocated at the first access."""
    return os.fstat(fd).st_blocks * 512 >= size


def _get_seals(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:  # a file of a disk
        return 0
