"""Bytes of a recording in an object store, read by ranges.

A request takes about as long as a megabyte, so few requests matter more than few bytes: small reads share pages, and
blocks that will be read are read ahead by several requests at the same time. The library of the store repeats requests
after errors of the server and after throttling.
"""

from __future__ import annotations

import errno
import io
import os
from collections import OrderedDict, deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from msgq.common.storage.url_path import UrlPath
from msgq.errors import StorageError

if TYPE_CHECKING:
    from pyarrow import NativeFile

_PAGE_BYTES = 4096
_TAIL_BYTES = 40 << 10  # the summary of a segment of 256 MiB has 30 kB; 10 GB of recordings need less than 2 MB
_PAGES_MAX = 16
_PARALLEL_READS_MAX = 8
_READ_AHEAD_BYTES_MAX = 64 << 20
_READ_THREADS_MAX = 16
_STREAM_BUFFER_BYTES = 1 << 20
_VERSION_KEYS = ("etag", "generation", "last-modified")


class ObjectReader:
    """Bytes of an object. One thread at a time.

    Attributes:
        size_bytes: number of bytes.
        version: size, tag and time of the change, as far as the store has them.
    """

    def __init__(self, path: UrlPath) -> None:
        """Open the object.

        Raises:
            StorageError: the object does not exist, or the store cannot be read.
        """
        self._path = path
        try:
            self._file = self._open_file()
            self.size_bytes = int(self._file.size())
            self.version = self._read_version(self._file)
        except OSError as error:
            raise self._path.explain_error(error) from None
        self._tail_offset = max(0, self.size_bytes - _TAIL_BYTES)
        self._tail = b""
        self._pages: OrderedDict[int, bytes] = OrderedDict()
        self._read_ahead: ReadAhead | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the object, and drop what was read ahead."""
        self.plan_reads(())
        self._file.close()

    def _open_file(self) -> NativeFile:
        files, path = self._path.open_file_system()
        return files.open_input_file(path)

    def _read_version(self, file: NativeFile) -> tuple[object, ...]:
        described = {name.lower(): value for name, value in (file.metadata() or {}).items()}
        tags = tuple(described[name] for name in _VERSION_KEYS if name in described)
        return (str(self._path), file.size(), tags or self._path.describe_file().mtime_ns)

    def check_unchanged(self) -> None:
        """Ask the store whether the object is still the same.

        Raises:
            StorageError: the object was replaced or removed since it was opened, or the store cannot be read.
        """
        try:
            with self._open_file() as file:
                version = self._read_version(file)
        except OSError as error:
            raise self._path.explain_error(error) from None
        if version != self.version:
            text = f"recording '{self._path}' was replaced while it was read; open it again"
            raise StorageError(text, errno=errno.ESTALE)

    def plan_reads(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce the ranges (offset, size) that will be read next, in this order. Replaces an earlier plan.

        After the last of these ranges, the reader checks that the object is unchanged.
        """
        if self._read_ahead is not None:
            self._read_ahead.close()
        planned = deque(ranges)
        self._read_ahead = ReadAhead(self, planned) if planned else None

    def pread(self, size: int, offset: int, /) -> bytes:
        """Return `size` bytes from an offset, fewer at the end of the object.

        Raises:
            StorageError: the store cannot be read, or the object was replaced.
        """
        planned = None if self._read_ahead is None else self._read_ahead.take_range(offset, size)
        if planned is not None:
            return planned
        size = min(size, self.size_bytes - offset)
        if size <= 0:
            return b""
        if offset >= self._tail_offset:
            self._tail = self._tail or self.read_range(self._tail_offset, self.size_bytes - self._tail_offset)
            return self._tail[offset - self._tail_offset :][:size]
        return self.read_range(offset, size) if size >= _PAGE_BYTES else self._read_from_pages(offset, size)

    def read_ends(self) -> None:
        """Read the beginning and the end, which have the header and the summary of a recording."""
        for offset in (0, max(0, self.size_bytes - 1)):
            self.pread(1, offset)

    def read_range(self, offset: int, size: int) -> bytes:
        """Read a range from the store. Any thread may call this method."""
        try:
            data = bytes(self._file.read_at(size, offset))
        except OSError as error:
            raise self._path.explain_error(error) from None
        if len(data) < size:  # pyarrow's S3 returns bytes of any value instead, which `check_unchanged` finds later
            text = f"recording '{self._path}' became shorter while it was read; open it again"
            raise StorageError(text, errno=errno.ESTALE)
        return data

    def _read_from_pages(self, offset: int, size: int) -> bytes:
        first, last = offset // _PAGE_BYTES, (offset + size - 1) // _PAGE_BYTES
        pages = b"".join(map(self._read_page, range(first, last + 1)))
        start = offset - first * _PAGE_BYTES
        return pages[start : start + size]

    def _read_page(self, number: int) -> bytes:
        if number in self._pages:
            self._pages.move_to_end(number)
            return self._pages[number]
        self._pages[number] = self.read_range(number * _PAGE_BYTES, _PAGE_BYTES)  # a page ends before the tail does
        if len(self._pages) > _PAGES_MAX:
            self._pages.popitem(last=False)
        return self._pages[number]

    def open_stream(self) -> BinaryIO:
        """Return the whole object as a stream."""
        stream: Any = io.BufferedReader(_ObjectStream(self), _STREAM_BUFFER_BYTES)
        return stream  # type: ignore[no-any-return]


class _ObjectStream(io.RawIOBase):
    """An object as a stream, with the errors of its reader."""

    def __init__(self, reader: ObjectReader) -> None:
        self._reader, self._position = reader, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._reader.size_bytes}[whence]
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        data = self._reader.pread(len(buffer), self._position)
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)


class ReadAhead:
    """Ranges of an object that threads read before they are needed, in the order of their use."""

    def __init__(self, reader: ObjectReader, ranges: deque[tuple[int, int]]) -> None:
        """Set the ranges. The first use starts the threads."""
        self._reader, self._waiting = reader, ranges
        self._started: OrderedDict[tuple[int, int], Future[bytes]] = OrderedDict()
        self._window = 1  # ranges that may be read at the same time

    def take_range(self, offset: int, size: int) -> bytes | None:
        """Return the bytes of a range; None: the range is not the next one of the plan.

        Raises:
            StorageError: as `ObjectReader.pread`.
        """
        if next(chain(self._started, self._waiting), None) != (offset, size):
            return None
        self._start_reads()
        _, read = self._started.popitem(last=False)
        data = read.result()
        if not self._started and not self._waiting:
            self.close()
            self._reader.check_unchanged()
        return data

    def _start_reads(self) -> None:
        """Start reads: one at first, because many callers need the first range only, then twice as many each time."""
        room = _READ_AHEAD_BYTES_MAX - sum(size for _, size in self._started)
        while self._waiting and len(self._started) < self._window:
            offset, size = self._waiting[0]
            if size > room and self._started:
                break
            self._started[self._waiting.popleft()] = get_read_pool().submit(self._reader.read_range, offset, size)
            room -= size
        self._window = min(2 * self._window, _PARALLEL_READS_MAX)

    def close(self) -> None:
        """Drop what was not taken, and wait for running reads."""
        self._waiting.clear()
        for read in self._started.values():
            read.cancel()
        wait(self._started.values())
        self._started.clear()


_read_pools: list[ThreadPoolExecutor] = []  # the pool of this process, if it has one
os.register_at_fork(after_in_child=_read_pools.clear)


def get_read_pool() -> ThreadPoolExecutor:
    """Return the threads that read objects for all readers of the process."""
    if not _read_pools:
        _read_pools.append(ThreadPoolExecutor(_READ_THREADS_MAX, "msgq read ahead"))
    return _read_pools[0]
