"""Checks of this machine for `msgq doctor`, one function for each check.

The checks call the kernel instead of reading its version, because containers filter system calls and distributions
backport features.
"""

import ctypes
import errno
import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgq.common import shm_paths
from msgq.errors import MsgqError
from msgq.impl.backend import BACKEND_MODULES, load_backend

SHM_PATH = Path(shm_paths.SHARED_MEMORY)

_FUTEX_WAITV_NUMBER = 449  # the same number on every architecture that Python runs on, except alpha
_MEMBARRIER_NUMBERS = {"x86_64": 324, "aarch64": 283}
_MEMBARRIER_GLOBAL_EXPEDITED = 1 << 1
_LITTLE_SPACE_BYTES = 16 << 20
_SMALL_SHM_BYTES = 64 << 20  # default of container engines
_FEW_FILES_COUNT = 256

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class DoctorCheck:
    """Result of a check. "error" fails. "warning" works, but slower or with little room."""

    check: str
    status: Literal["ok", "warning", "error"]
    text: str


def check_kernel() -> DoctorCheck:
    """Check that the system is Linux."""
    if platform.system() != "Linux":
        return DoctorCheck("kernel", "error", f"{platform.system()}: msgq needs Linux")
    return DoctorCheck("kernel", "ok", f"Linux {platform.release()}, {platform.machine()}, {os.cpu_count()} CPUs")


def check_futex_waitv() -> DoctorCheck:
    """Check for futex_waitv, which waits for many topics with one system call."""
    if _libc.syscall(_FUTEX_WAITV_NUMBER, None, 0, 0, None, 0) == 0 or ctypes.get_errno() not in (
        errno.ENOSYS,
        errno.EPERM,
    ):
        return DoctorCheck("futex_waitv", "ok", "polls of several topics sleep until a message arrives")
    text = f"{_explain_errno()}: polls of several topics use a fallback; use Linux 5.16 or newer"
    return DoctorCheck("futex_waitv", "warning", text)


def check_membarrier() -> DoctorCheck:
    """Check for membarrier. A publisher calls it once when it starts, so that sends need no memory fence."""
    number = _MEMBARRIER_NUMBERS.get(platform.machine())
    commands = -1 if number is None else _libc.syscall(number, 0, 0, 0)
    if commands >= 0 and commands & _MEMBARRIER_GLOBAL_EXPEDITED:
        return DoctorCheck("membarrier", "ok", "publishers need no second fence")
    reason = (
        f"unknown on {platform.machine()}" if number is None else _explain_errno() if commands < 0 else "not offered"
    )
    text = f"{reason}: publishers execute a second fence for each message; use Linux 4.16 or newer"
    return DoctorCheck("membarrier", "warning", text)


def _explain_errno() -> str:
    return os.strerror(ctypes.get_errno())


def check_shm_space(path: Path = SHM_PATH) -> DoctorCheck:
    """Check size and free space of the shared memory."""
    try:
        space = shutil.disk_usage(path)
    except OSError as error:
        return DoctorCheck("space", "error", f"{path}: {error.strerror}; topics cannot be created")
    text = f"{path}: {space.free >> 20} MiB of {space.total >> 20} MiB free"
    if space.free < _LITTLE_SPACE_BYTES:
        text += "; remove unused endpoints (msgq clean), or enlarge the file system (mount -o remount,size=)"
        return DoctorCheck("space", "error", text)
    if space.total <= _SMALL_SHM_BYTES:
        return DoctorCheck("space", "warning", f"{text}; for a container, set a larger size with --shm-size")
    return DoctorCheck("space", "ok", text)


def check_shm_permissions(path: Path = SHM_PATH) -> DoctorCheck:
    """Check with an unnamed file that this user can create, fill and map a segment."""
    try:
        with tempfile.TemporaryFile(dir=path) as segment:
            os.posix_fallocate(segment.fileno(), 0, 4096)
    except OSError as error:
        text = f"cannot create a segment in {path}: {error.strerror}; set the mode of the directory to 1777"
        return DoctorCheck("permissions", "error", text)
    return DoctorCheck("permissions", "ok", f"this user can create segments in {path}")


def check_inotify() -> DoctorCheck:
    """Check for inotify, with which subscribers detect a starting stock publisher."""
    descriptor = _libc.inotify_init1(os.O_CLOEXEC)
    if descriptor < 0:
        text = f"{_explain_errno()}: new stock publishers are detected late; raise fs.inotify.max_user_instances"
        return DoctorCheck("inotify", "error", text)
    os.close(descriptor)
    return DoctorCheck("inotify", "ok", "new stock publishers are detected at once")


def check_open_files() -> DoctorCheck:
    """Check the limit of descriptors of a process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FEW_FILES_COUNT:
        return DoctorCheck(
            "open files", "warning", f"a process may open only {soft} files; raise the limit (ulimit -n)"
        )
    return DoctorCheck("open files", "ok", f"a process may open {'any number of' if soft < 0 else soft} files")


def check_backends() -> DoctorCheck:
    """Check which backends can be loaded."""
    missing = []
    for name in BACKEND_MODULES:
        try:
            load_backend(name)
        except (ImportError, MsgqError) as error:
            missing.append(f"{name} cannot be loaded: {error}")
    if missing:
        return DoctorCheck("backends", "warning", "; ".join(missing))
    return DoctorCheck("backends", "ok", ", ".join(BACKEND_MODULES))


MACHINE_CHECKS: tuple[Callable[[], DoctorCheck], ...] = (
    check_kernel,
    check_futex_waitv,
    check_membarrier,
    check_shm_space,
    check_shm_permissions,
    check_inotify,
    check_open_files,
    check_backends,
)
