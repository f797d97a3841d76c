"""The bytes of a new file: locked, appended completely or not at all, with a CRC and disk space in advance."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from msgq.common.handler_errors import raise_handler_error
from msgq.errors import ForkedSocketError, RecordingError
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import crc32, preallocate_space, write_and_commit

#: A change of the caller's bookkeeping: a function that is implemented in C.
CommitStep: TypeAlias = Callable[[], object]
_BLOCK_BYTES = 1 << 20
#: Space to allocate before a write that needs more. The kernel writes new data into allocated space in two thirds of
#: the time, because it need not reserve space for each page.
_PREALLOCATED_BYTES = 8 << 20
_SMALL_FILE_BYTES = 1 << 20  # smaller files need no space in advance


class SegmentFile:
    """A new file to which one thread at a time appends bytes.

    Attributes:
        path: path of the file.
        size_bytes: number of written bytes.
        crc: CRC of all written bytes.
    """

    def __init__(self, path: Path) -> None:
        """Create the file, which must not exist.

        Raises:
            RecordingError: the file exists, or cannot be created.
        """
        self.path = path
        self.size_bytes = self.crc = 0
        self._pid = os.getpid()
        self._allocated_bytes = 0  # 0: no space was allocated in advance
        self._can_preallocate = True
        self._has_uncommitted_bytes = False  # True: bytes after `size_bytes` are to be removed
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # held to `close`, so that `recover` does not change a growing file
        except OSError as error:
            raise_handler_error(error)
            hint = "; use another name, or remove the file" if isinstance(error, FileExistsError) else ""
            raise RecordingError(
                f"recording '{path}' cannot be created: {error.strerror}{hint}", errno=error.errno
            ) from error

    def append_bytes(self, *parts: bytes | memoryview[int], steps: Sequence[CommitStep] = ()) -> None:
        """Append all parts. After an error, the file is unchanged.

        `steps`: see `append_parts`.

        Raises:
            ForkedSocketError: this process is a child of the process that created the file.
            RecordingError: the disk is full or failed.
        """
        crc = self.crc
        for part in parts:
            crc = crc32(part, crc)
        self.append_parts(parts, crc, steps)

    def append_parts(
        self, parts: Sequence[bytes | memoryview[int]], crc: int, steps: Sequence[CommitStep] = ()
    ) -> None:
        """Append all parts, as `append_bytes`.

        Args:
            parts: parts to append.
            crc: CRC of the file with all parts.
            steps: bookkeeping of the caller, in functions that are implemented in C. The steps happen together with
                the write, or not at all, because an exception of a signal handler cannot come between them.
        """
        if os.getpid() != self._pid:
            raise ForkedSocketError(
                f"recording '{self.path}' belongs to the parent process; write another file in this process"
            )
        if self._has_uncommitted_bytes:  # an exception of a signal handler has interrupted the cleanup
            self._truncate_file()
        byte_count = sum(map(len, parts))
        self._preallocate_space(byte_count)
        commit: tuple[CommitStep, ...] = (
            partial(setattr, self, "size_bytes", self.size_bytes + byte_count),
            partial(setattr, self, "crc", crc),
            *steps,
            partial(setattr, self, "_has_uncommitted_bytes", False),
        )
        self._has_uncommitted_bytes = True
        try:
            write_and_commit(self._fd, self.size_bytes, parts, commit)
        except OSError as error:
            raise_handler_error(error)  # the next write or `close` truncates the file, if necessary
            self._truncate_file()  # readers cannot find records after an incomplete record
            text = f"{byte_count} bytes cannot be written to '{self.path}': {error.strerror}"
            raise RecordingError(text, errno=error.errno) from error

    def copy_bytes(self, source: ByteReader, offset: int, length: int) -> None:
        """Append bytes of another file with the descriptor `source`. After an error, this file is unchanged.

        Raises:
            EOFError, OSError: the other file cannot be read.
            RecordingError: this file cannot be written.
        """
        before, end = (self.size_bytes, self.crc), offset + length
        try:
            while offset < end:
                data = source.pread(min(_BLOCK_BYTES, end - offset), offset)
                if not data:
                    raise EOFError(
                        f"the source file ends at byte {offset}, {end - offset} bytes before the end of the record"
                    )
                self.append_bytes(data)
                offset += len(data)
        except BaseException:
            self.size_bytes, self.crc = before
            self._truncate_file()
            raise

    def sync_data(self) -> None:
        """Sync the written bytes to the disk."""
        os.fdatasync(self._fd)

    def sync(self) -> None:
        """Sync the written bytes and the metadata of the file to the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Return unused disk space, and close the file."""
        if (
            self._allocated_bytes or self._has_uncommitted_bytes
        ) and os.getpid() == self._pid:  # the parent may have written more than a child knows
            self._try_to_truncate_file()  # after a failure, only the size on the disk differs
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # a forked child would keep the lock with its copy of the descriptor
        os.close(self._fd)

    def _preallocate_space(self, byte_count: int) -> None:
        """Allocate space for the next write and later writes. Without this space, the writes allocate it."""
        end = self.size_bytes + byte_count
        if end > max(self._allocated_bytes, _SMALL_FILE_BYTES) and self._can_preallocate:
            start = max(self._allocated_bytes, self.size_bytes)
            size = max(_PREALLOCATED_BYTES, end - start)
            self._can_preallocate = preallocate_space(self._fd, start, size)
            self._allocated_bytes = start + size
            if not self._can_preallocate:  # a nearly full disk may have allocated its remaining space
                self._try_to_truncate_file()

    def _try_to_truncate_file(self) -> None:
        try:
            self._truncate_file()
        except OSError as error:
            raise_handler_error(error)

    def _truncate_file(self) -> None:
        """Remove bytes and space after the written bytes."""
        os.ftruncate(self._fd, self.size_bytes)
        self._allocated_bytes = 0
        self._has_uncommitted_bytes = False
