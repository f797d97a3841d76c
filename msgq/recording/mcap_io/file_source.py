"""Access to the bytes of a recording: the file, or a decompressed copy."""

from __future__ import annotations

import errno
import gc
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.url_path import RecordingPath, UrlPath
from msgq.errors import RecordingError
from msgq.recording.mcap_io.byte_reader import ByteReader, LocalReader, open_descriptor
from msgq.recording.mcap_io.compression import ZSTD_MAGIC, iter_decompressed_blocks

if TYPE_CHECKING:
    from msgq.recording.mcap_io.object_reader import ObjectReader

_DISK_RESERVE_BYTES = 64 << 20  # bytes that a copy leaves free on its disk


class FileSource:
    """A file to read from. If the whole file is compressed (rosbag2, ``zstd``), readers use a decompressed copy.

    The copy is a file without a name, so it disappears when the process ends. All readers of one file in a process
    share the copy, and the last reader removes it. A source can be pickled: the other process creates its own copy at
    the first use.

    Attributes:
        path: path of the file, as shown in texts.
        absolute_path: absolute path of the file, or its URL.
    """

    def __init__(self, path: RecordingPath, absolute_path: RecordingPath | None = None) -> None:
        """Set the path. The file is opened at the first use.

        Args:
            path: path of the file, as shown in texts.
            absolute_path: path to open; None: `path` in the current working directory, which may change later.
        """
        self.path = path
        self.absolute_path = path.absolute() if absolute_path is None else absolute_path
        self._object_reader: ObjectReader | None = None  # stays open, because each opening is a request
        self._opened_in = 0  # process, because a forked child has no threads that read for it
        self._decompressed_copy: _DecompressedCopy | None = None
        self._is_uncompressed = False

    def __reduce__(self) -> tuple[type[FileSource], tuple[RecordingPath, RecordingPath]]:
        return FileSource, (self.path, self.absolute_path)

    def copy_unopened(self) -> FileSource:
        """Return another source of the same file."""
        return FileSource(self.path, self.absolute_path)

    @contextmanager
    def open_bytes(self) -> Iterator[ByteReader]:
        """Yield the bytes, valid within the block.

        Raises:
            RecordingError: the file does not exist, is not readable or not a regular file, or the disk has no space for
                a decompressed copy.
            StorageError: an object in a store does not exist or is not readable.
        """
        if self._decompressed_copy is None:
            with self._open_original() as reader:
                if self._is_uncompressed or reader.pread(len(ZSTD_MAGIC), 0) != ZSTD_MAGIC:
                    self._is_uncompressed = True
                    yield reader
                    return
                self._decompressed_copy = _find_or_decompress_copy(self.path, reader)
        yield LocalReader(self._decompressed_copy.fd)

    @contextmanager
    def _open_original(self) -> Iterator[ByteReader]:
        if isinstance(self.absolute_path, Path):
            with open_descriptor(self.absolute_path, self.path) as fd:
                yield LocalReader(fd)
            return
        yield self._open_object(self.absolute_path)

    def _open_object(self, path: UrlPath) -> ObjectReader:
        if self._object_reader is None or self._opened_in != os.getpid():
            from msgq.recording.mcap_io.object_reader import ObjectReader  # imports pyarrow

            self._object_reader, self._opened_in = ObjectReader(path), os.getpid()
        return self._object_reader

    def read_ends(self) -> None:
        """Open an object in a store, and read its beginning and its end into memory. A local file is not opened."""
        if isinstance(self.path, UrlPath):
            self._open_object(self.path).read_ends()

    def plan_reads(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Announce the ranges (offset, size) that will be read next. A store then reads ahead."""
        reader = self._object_reader
        if reader is not None and self._opened_in == os.getpid() and not self.reads_decompressed_copy:
            reader.plan_reads(ranges)

    def check_unchanged(self) -> None:
        """Raise `StorageError` if an object in a store was replaced after the first use."""
        if self._object_reader is not None:
            self._object_reader.check_unchanged()

    @property
    def reads_decompressed_copy(self) -> bool:
        """True if the bytes come from a decompressed copy. Known after the first use."""
        return self._decompressed_copy is not None

    @property
    def damage_reason(self) -> str:
        """Reason why the copy contains only a part of the file; "": the copy is complete."""
        return "" if self._decompressed_copy is None else self._decompressed_copy.damage_reason


class _DecompressedCopy:
    """A file without a name. The file disappears with this object."""

    def __init__(self, path: RecordingPath, compressed: ByteReader) -> None:
        self.damage_reason = ""
        import tempfile  # few recordings are compressed as a whole

        gc.collect()  # logs are reference cycles; removes the copies of unreachable logs
        directory = tempfile.gettempdir()
        try:
            with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
                self.fd = os.dup(file.fileno())
            weakref.finalize(self, os.close, self.fd)
            with compressed.open_stream() as original:
                self._decompress_file(path, original, directory)
        except OSError as error:
            raise_handler_error(error)
            text = f"a decompressed copy of '{path}' cannot be created in '{directory}': {error.strerror}"
            raise RecordingError(text, errno=error.errno or errno.EIO) from error

    def _decompress_file(self, path: RecordingPath, original: BinaryIO, directory: str) -> None:
        try:
            for block in iter_decompressed_blocks(original):
                disk = os.statvfs(self.fd)
                if disk.f_bavail * disk.f_frsize < _DISK_RESERVE_BYTES + len(block):
                    size = os.fstat(self.fd).st_size
                    text = (
                        f"recording '{path}' is compressed, "
                        f"and '{directory}' has no room for the decompressed copy ({size} bytes"
                    )
                    text = f"{text} written); set TMPDIR to a larger directory, or decompress the file with zstd -d"
                    raise RecordingError(text, errno=errno.ENOSPC)
                while block:
                    block = block[os.write(self.fd, block) :]
        except ValueError as error:
            self.damage_reason = str(error)


_copies_by_file: weakref.WeakValueDictionary[tuple[object, ...], _DecompressedCopy] = weakref.WeakValueDictionary()
_copy_lock = threading.Lock()


def _find_or_decompress_copy(path: RecordingPath, reader: ByteReader) -> _DecompressedCopy:
    """Return the decompressed copy of a file.

    If the process already has a copy of the unchanged file, return that copy.
    """
    with _copy_lock:
        copy = _copies_by_file.get(reader.version)
        if copy is None:
            copy = _copies_by_file[reader.version] = _DecompressedCopy(path, reader)
        return copy


def open_sources(paths: Iterable[RecordingPath | FileSource]) -> list[FileSource]:
    """Return the sources of files, which are paths or unopened sources.

    The beginnings and ends of objects in stores are read in parallel.

    Raises:
        StorageError: an object does not exist or is not readable.
    """
    sources = [path if isinstance(path, FileSource) else FileSource(path) for path in paths]
    objects = [source for source in sources if isinstance(source.path, UrlPath)]
    if objects:
        from msgq.recording.mcap_io.object_reader import get_read_pool  # imports pyarrow

        for _ in get_read_pool().map(FileSource.read_ends, objects):
            continue
    return sources
