"""The bytes of a new file: locked, appended completely or not at all, with a CRC and disk space in advance."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgq.errors import ForkedSocketError, RecordingError
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import crc32, preallocate_space

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
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # held to `close`, so that `recover` does not change a growing file
        except OSError as error:
            hint = "; use another name, or remove the file" if isinstance(error, FileExistsError) else ""
            raise RecordingError(
                f"recording '{path}' cannot be created: {error.strerror}{hint}", errno=error.errno
            ) from error

    def append_bytes(self, *parts: bytes | memoryview[int]) -> None:
        """Append all parts. After an error, the file is unchanged.

        Raises:
            ForkedSocketError: this process is a child of the process that created the file.
            RecordingError: the disk is full or failed.
        """
        self.append_parts(parts)
        for part in parts:
            self.crc = crc32(part, self.crc)

    def append_parts(self, parts: Sequence[bytes | memoryview[int]]) -> None:
        """Append all parts, as `append_bytes`. The caller adds the parts to `crc`."""
        if os.getpid() != self._pid:
            raise ForkedSocketError(
                f"recording '{self.path}' belongs to the parent process; write another file in this process"
            )
        byte_count = sum(map(len, parts))
        self._preallocate_space(byte_count)
        try:
            done = os.writev(self._fd, parts)
            if (
                done < byte_count
            ):  # after a signal, the next write succeeds. On a nearly full disk, the next write raises
                pending = memoryview(b"".join(parts))[done:]
                while pending:
                    pending = pending[os.write(self._fd, pending) :]
        except OSError as error:
            self._truncate_file()  # readers cannot find records after an incomplete record
            text = f"{byte_count} bytes cannot be written to '{self.path}': {error.strerror}"
            raise RecordingError(text, errno=error.errno) from error
        self.size_bytes += byte_count

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
        if self._allocated_bytes and os.getpid() == self._pid:  # the parent may have written more than a child knows
            with suppress(OSError):  # only the size on the disk differs
                self._truncate_file()
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
                with suppress(OSError):
                    self._truncate_file()

    def _truncate_file(self) -> None:
        """Remove bytes and space after the written bytes, and continue there."""
        os.ftruncate(self._fd, self.size_bytes)
        os.lseek(self._fd, self.size_bytes, os.SEEK_SET)
        self._allocated_bytes = 0
