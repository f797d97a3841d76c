"""Bytes of a recording by their offsets: of a local file, or of an object in a store."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.url_path import RecordingPath
from msgq.errors import RecordingError


class ByteReader(Protocol):
    """Bytes of a file by their offsets."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes."""

    @property
    def version(self) -> tuple[object, ...]:
        """Value that changes with the content of the file."""

    def pread(self, size: int, offset: int, /) -> bytes:
        """Return `size` bytes from an offset, fewer at the end of the file. Raises OSError."""

    def open_stream(self) -> BinaryIO:
        """Return the whole file as a stream."""


class LocalReader:
    """Bytes of a local file. The descriptor must stay open."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def size_bytes(self) -> int:
        """Number of bytes now."""
        return os.fstat(self._fd).st_size

    @property
    def version(self) -> tuple[object, ...]:
        """File, size, and time of the last change."""
        status = os.fstat(self._fd)
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def pread(self, size: int, offset: int, /) -> bytes:
        """Return `size` bytes from an offset, fewer at the end of the file."""
        return os.pread(self._fd, size, offset)

    def open_stream(self) -> BinaryIO:
        """Return the whole file as a stream."""
        return open(os.dup(self._fd), "rb")


@contextmanager
def open_descriptor(path: Path, shown_path: RecordingPath | None = None) -> Iterator[int]:
    """Yield a descriptor for reading a local file. `shown_path`: path in errors; None: `path`.

    Raises:
        RecordingError: the file does not exist, is not readable, or is a pipe, a device or a directory.
    """
    shown = path if shown_path is None else shown_path
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # O_NONBLOCK: do not wait for a pipe's writer
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise RecordingError(f"'{shown}' is not a regular file; name an MCAP file")
            yield fd
        finally:
            os.close(fd)
    except OSError as error:
        raise_handler_error(error)
        text = f"recording '{shown}' cannot be read: {error.strerror}"
        raise RecordingError(text, errno=error.errno or errno.EIO) from error


@contextmanager
def open_bytes(path: RecordingPath) -> Iterator[ByteReader]:
    """Yield the bytes of a file, valid within the block.

    Raises:
        RecordingError: the file does not exist or is not readable, or a local path is a pipe, a device or a directory.
    """
    if isinstance(path, Path):
        with open_descriptor(path) as fd:
            yield LocalReader(fd)
    else:
        from msgq.recording.mcap_io.object_reader import ObjectReader  # imports pyarrow, which local files do not need

        with ObjectReader(path) as reader:
            yield reader
