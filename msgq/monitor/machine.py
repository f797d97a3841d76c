"""What this machine offers to msgq: one check a function, for `msgq doctor`.

The kernel is asked by calling, not by its version: containers filter system calls, distributions carry patches back.
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

from msgq.common import naming
from msgq.errors import MsgqError
from msgq.impl.backend import MODULES, load

SHM = Path(naming.SHARED_MEMORY)

_FUTEX_WAITV = 449  # the same number on every architecture that Python runs on, except alpha
_MEMBARRIER = {"x86_64": 324, "aarch64": 283}
_MEMBARRIER_GLOBAL_EXPEDITED = 1 << 1
_LITTLE_SPACE = 16 << 20
_SMALL_SHM = 64 << 20  # what container engines give by default
_FEW_FILES = 256

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Check:
    """One line of the doctor. Only "error" fails; a "warning" works, but slower or not for ever."""

    check: str
    status: Literal["ok", "warning", "error"]
    text: str


def kernel() -> Check:
    """The system: what msgq uses is Linux's alone."""
    if platform.system() != "Linux":
        return Check("kernel", "error", f"{platform.system()}: msgq needs Linux")
    return Check("kernel", "ok", f"Linux {platform.release()}, {platform.machine()}, {os.cpu_count()} CPUs")


def futex_waitv() -> Check:
    """Waiting on many topics at once with one system call."""
    if _libc.syscall(_FUTEX_WAITV, None, 0, 0, None, 0) == 0 or ctypes.get_errno() not in (errno.ENOSYS, errno.EPERM):
        return Check("futex_waitv", "ok", "a poll over many topics sleeps until one of them has a message")
    text = f"{_because()}: a poll over many topics uses a fallback (the kernel has it since 5.16)"
    return Check("futex_waitv", "warning", text)


def membarrier() -> Check:
    """The fence that a starting publisher pays for, so that sends do not."""
    number = _MEMBARRIER.get(platform.machine())
    commands = -1 if number is None else _libc.syscall(number, 0, 0, 0)
    if commands >= 0 and commands & _MEMBARRIER_GLOBAL_EXPEDITED:
        return Check("membarrier", "ok", "publishers need no second fence")
    why = f"unknown on {platform.machine()}" if number is None else _because() if commands < 0 else "not offered"
    text = f"{why}: publishers execute a second fence for each message (the kernel has it since 4.16)"
    return Check("membarrier", "warning", text)


def _because() -> str:
    return os.strerror(ctypes.get_errno())


def shm_space(path: Path = SHM) -> Check:
    """Size and free space of the memory that topics live in."""
    try:
        space = shutil.disk_usage(path)
    except OSError as error:
        return Check("space", "error", f"{path}: {error.strerror}; topics have nowhere to live")
    text = f"{path}: {space.free >> 20} MiB of {space.total >> 20} MiB free"
    if space.free < _LITTLE_SPACE:
        text += "; remove what nobody uses (msgq clean), or enlarge it (mount -o remount,size=)"
        return Check("space", "error", text)
    if space.total <= _SMALL_SHM:
        return Check("space", "warning", f"{text}; that is little: give a container more with --shm-size")
    return Check("space", "ok", text)


def shm_permissions(path: Path = SHM) -> Check:
    """Whether this user can make, fill and map a segment; tried with a file that has no name."""
    try:
        with tempfile.TemporaryFile(dir=path) as segment:
            os.posix_fallocate(segment.fileno(), 0, 4096)
    except OSError as error:
        text = f"cannot create a segment in {path}: {error.strerror}; the mode of the directory should be 1777"
        return Check("permissions", "error", text)
    return Check("permissions", "ok", f"this user can create segments in {path}")


def inotify() -> Check:
    """How subscribers notice that a stock publisher starts."""
    descriptor = _libc.inotify_init1(os.O_CLOEXEC)
    if descriptor < 0:
        text = f"{_because()}: stock publishers are noticed late; raise fs.inotify.max_user_instances"
        return Check("inotify", "error", text)
    os.close(descriptor)
    return Check("inotify", "ok", "stock publishers are noticed when they start")


def open_files() -> Check:
    """How many descriptors a process may hold."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FEW_FILES:
        return Check("open files", "warning", f"a process may open {soft} files only (ulimit -n)")
    return Check("open files", "ok", f"a process may open {'any number of' if soft < 0 else soft} files")


def backends() -> Check:
    """Which backends can be loaded here."""
    missing = []
    for name in MODULES:
        try:
            load(name)
        except (ImportError, MsgqError) as error:
            missing.append(f"{name} cannot be loaded: {error}")
    if missing:
        return Check("backends", "warning", "; ".join(missing))
    return Check("backends", "ok", ", ".join(MODULES))


CHECKS: tuple[Callable[[], Check], ...] = (
    kernel,
    futex_waitv,
    membarrier,
    shm_space,
    shm_permissions,
    inotify,
    open_files,
    backends,
)
