"""What a participant of a topic needs: mapped files, words, row locks, identities and the clock.

Everything here follows layout.md and topic-protocol.md in docs/internals; no code of msgq is used. Python has no atomic
instructions, so `atomics.c` beside this module is compiled once with the machine's C compiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import secrets
import shlex
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

SHM = Path("/dev/shm")
WORD = 8
MASK_32 = 0xFFFFFFFF
MASK_64 = 0xFFFFFFFFFFFFFFFF
FIRST_POLL_S = 1.0  # topic-protocol.md, "Sleeping and waking": a sleeper polls after 1 s, then three times as late

_OFD_GETLK, _OFD_SETLK = 36, 37
_FLOCK = struct.Struct("hhqqi4x")
# Functions of atomics.c: bits of the word, number of values, result.
_ATOMICS: dict[str, tuple[int, int, type | None]] = {
    "load64": (64, 0, ctypes.c_uint64),
    "load32": (32, 0, ctypes.c_uint32),
    "store64": (64, 1, None),
    "exchange64": (64, 2, ctypes.c_int),
    "exchange32": (32, 2, ctypes.c_int),
}


class CorruptFileError(Exception):
    """A file contains what no writer that follows the protocol can have written."""


@cache
def atomics() -> ctypes.CDLL:
    """Compile and load the atomic instructions."""
    source = Path(__file__).with_name("atomics.c")
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/atomics.so"
        subprocess.run(
            [*shlex.split(os.environ.get("CC", "gcc")), "-O1", "-shared", "-fPIC", "-o", library, source], check=True
        )
        functions = ctypes.CDLL(library)
    for name, (bits, values, result) in _ATOMICS.items():
        function = getattr(functions, name)
        function.argtypes = [ctypes.c_void_p, *[ctypes.c_uint64 if bits == 64 else ctypes.c_uint32] * values]
        function.restype = result
    functions.futex_wait.argtypes = [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int64]
    functions.futex_wake.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return functions


class SharedFile:
    """A file in /dev/shm that is mapped for reading and writing."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        status = os.fstat(descriptor)
        self.inode, self.size = status.st_ino, status.st_size
        self.map = mmap.mmap(descriptor, self.size)
        self._anchor = ctypes.c_char.from_buffer(self.map)
        self._address = ctypes.addressof(self._anchor)
        self._atomics = atomics()

    @classmethod
    def open(cls, path: Path) -> SharedFile:
        return cls(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC))

    @classmethod
    def create_unnamed(cls, size: int, mode: int = 0o600) -> SharedFile:
        """Create a file of zeros that has no name yet, with its mode and all of its memory (layout.md, "New files")."""
        descriptor = os.open(SHM, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, mode)
        os.fchmod(descriptor, mode)
        os.posix_fallocate(descriptor, 0, size)
        return cls(descriptor)

    def link(self, path: Path) -> None:
        """Give the file its name; FileExistsError if another process was faster."""
        os.link(f"/proc/self/fd/{self.descriptor}", path, src_dir_fd=self.descriptor, follow_symlinks=True)

    def is_named(self, path: Path) -> bool:
        """Whether the name still leads to this file."""
        try:
            return os.stat(path).st_ino == self.inode
        except FileNotFoundError:
            return False

    def close(self) -> None:
        del self._anchor
        self.map.close()
        os.close(self.descriptor)

    def load(self, offset: int) -> int:
        return int(self._atomics.load64(self._at(offset)))

    def store(self, offset: int, value: int) -> None:
        self._atomics.store64(self._at(offset), value & MASK_64)

    def exchange(self, offset: int, expected: int, value: int) -> bool:
        """Replace a word if it has the expected value; whether it had."""
        return bool(self._atomics.exchange64(self._at(offset), expected, value))

    def load32(self, offset: int) -> int:
        return int(self._atomics.load32(self._at(offset, 4)))

    def exchange32(self, offset: int, expected: int, value: int) -> bool:
        return bool(self._atomics.exchange32(self._at(offset, 4), expected, value))

    def futex_wait(self, offset: int, value: int, seconds: float) -> None:
        """Sleep while a word of 32 bits has this value, for at most so long."""
        self._atomics.futex_wait(self._at(offset, 4), value, max(0, int(seconds * 1e9)))

    def futex_wake(self, offset: int) -> None:
        """Wake all sleepers."""
        self._atomics.futex_wake(self._at(offset, 4), 0x7FFFFFFF)

    def read(self, offset: int, size: int) -> bytes:
        return self.map[offset : offset + size]

    def write(self, offset: int, data: bytes) -> None:
        self.map[offset : offset + len(data)] = data

    def _at(self, offset: int, size: int = WORD) -> int:
        if not (0 <= offset <= self.size - size and offset % size == 0):
            raise CorruptFileError(f"no word at byte {offset} of {self.size}")
        return self._address + offset


@contextlib.contextmanager
def file_lock(file: SharedFile) -> Iterator[None]:
    """Hold `flock` of a file: the lock under which participants join."""
    fcntl.flock(file.descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(file.descriptor, fcntl.LOCK_UN)


def align(number: int) -> int:
    return -(-number // WORD) * WORD


def padded(text: str, size: int) -> bytes:
    """UTF-8 of exactly `size` bytes, with NULs at its end."""
    return text.encode()[:size].ljust(size, b"\0")


def unpadded(data: bytes) -> str:
    return data.split(b"\0", 1)[0].decode()


def as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


# --- Locks of rows: common-protocol.md, "Life" ------------------------------------------------------------------------


class RowLock:
    """A lock on one byte of a file that ends with this process: an open-file-description lock."""

    def __init__(self, path: Path, byte: int) -> None:
        """Take the lock. BlockingIOError: another participant holds it."""
        self._descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.fcntl(self._descriptor, _OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0))
        except OSError as error:
            os.close(self._descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise BlockingIOError(f"byte {byte} of {path} is locked") from error
            raise

    def release(self) -> None:
        os.close(self._descriptor)


def lock_free_row(path: Path, rows: Iterable[int], first_byte: int = 0) -> tuple[int, RowLock] | None:
    """Lock the first of these rows whose owner does not live. None: all are taken."""
    for row in rows:
        try:
            return row, RowLock(path, first_byte + row)
        except BlockingIOError:
            continue
    return None


def is_byte_locked(path: Path, byte: int) -> bool:
    """Whether a participant holds the lock of a row. The file is opened for each question, so forks do not matter."""
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, byte, 1, 0)
        return bool(_FLOCK.unpack(fcntl.fcntl(descriptor, _OFD_GETLK, question))[0] != fcntl.F_UNLCK)
    finally:
        os.close(descriptor)


# --- Identity of a participant: layout.md -----------------------------------------------------------------------------


def write_identity(file: SharedFile, row: int, uid: int) -> None:
    """Write the first 64 bytes of a row, `uid` last. The caller holds the row's lock, so `locked_uid` is `uid`."""
    file.store(row, 0)
    start_time = int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])
    pid_namespace = os.stat("/proc/self/ns/pid").st_ino
    name = Path("/proc/self/comm").read_text().strip()
    file.write(row + 8, struct.pack("<4Q", os.getpid(), threading.get_native_id(), start_time, pid_namespace))
    file.write(row + 40, padded(name, 16))
    file.store(row + 56, uid)
    file.store(row, uid)


def random_word() -> int:
    return secrets.randbits(64) | 1


# --- The host's clock: clock.md and layout.md -------------------------------------------------------------------------

_CLOCK_MAGIC = 0x314B434C43515347


@cache
def _clock_offset_ns() -> int:
    path = SHM / "msgqclock"
    with contextlib.suppress(FileExistsError):
        if not path.exists():
            file = SharedFile.create_unnamed(64, 0o444)
            file.write(0, struct.pack("<QQq", _CLOCK_MAGIC, 1, time.time_ns() - time.monotonic_ns()))
            file.link(path)
            file.close()
    magic, version, offset_ns = struct.unpack("<QQq", path.read_bytes()[:24])
    if (magic, version) != (_CLOCK_MAGIC, 1):
        raise CorruptFileError(f"{path} is not a clock of version 1")
    return int(offset_ns)


def host_time_ns() -> int:
    """Nanoseconds since the epoch by the host's clock."""
    return time.monotonic_ns() + _clock_offset_ns()


# --- Time-outs: topic-protocol.md, "Sleeping and waking" --------------------------------------------------------------


class Deadline:
    """A time-out, and how long the next sleep may be: 1 s, then three times as long each time."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds
        self._poll_s = FIRST_POLL_S / 3

    def next_sleep(self) -> float:
        """Return the seconds of the next sleep; 0: the time is over."""
        self._poll_s *= 3
        remaining = float("inf") if self._end is None else self._end - time.monotonic()
        return max(0.0, min(self._poll_s, remaining))
