"""Access to the bytes of a recording: the file, or a decompressed copy."""

from __future__ import annotations

import errno
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgq.errors import RecordingError
from msgq.recording.mcap_io.compression import ZSTD_MAGIC, iter_decompressed_blocks
from msgq.recording.mcap_io.record_scanner import open_readonly

_DISK_RESERVE_BYTES = 64 << 20  # bytes that a copy leaves free on its disk


class FileSource:
    """A file to read from. If the whole file is compressed (rosbag2, ``zstd``), readers use a decompressed copy.

    The copy is a file without a name, so it disappears when the process ends. All readers of one file in a process
    share the copy, and the last reader removes it. A source can be pickled: the other process creates its own copy at
    the first use.
    """

    def __init__(self, path: Path) -> None:
        """Set the path. The file is opened at the first use."""
        self.path = path
        self._decompressed_copy: _DecompressedCopy | None = None
        self._is_uncompressed = False

    def __reduce__(self) -> tuple[type[FileSource], tuple[Path]]:
        return FileSource, (self.path,)

    @contextmanager
    def open_descriptor(self) -> Iterator[int]:
        """Yield a descriptor for `os.pread`, valid within the block.

        Raises
        ------
        RecordingError : the file does not exist, is not readable or not a regular file, or the disk has no space for a
            decompressed copy.
        """
        if self._decompressed_copy is None:
            with open_readonly(self.path) as fd:
                if self._is_uncompressed or os.pread(fd, len(ZSTD_MAGIC), 0) != ZSTD_MAGIC:
                    self._is_uncompressed = True
                    yield fd
                    return
                self._decompressed_copy = _find_or_decompress_copy(self.path, fd)
        yield self._decompressed_copy.fd

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

    def __init__(self, path: Path, compressed: int) -> None:
        self.damage_reason = ""
        import tempfile  # few recordings are compressed as a whole

        gc.collect()  # logs are reference cycles; removes the copies of unreachable logs
        directory = tempfile.gettempdir()
        try:
            with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
                self.fd = os.dup(file.fileno())
            weakref.finalize(self, os.close, self.fd)
            with open(os.dup(compressed), "rb") as original:
                self._decompress_file(path, original, directory)
        except OSError as error:
            text = f"a decompressed copy of '{path}' cannot be created in '{directory}': {error.strerror}"
            raise RecordingError(text, errno=error.errno or errno.EIO) from error

    def _decompress_file(self, path: Path, original: BinaryIO, directory: str) -> None:
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


_copies_by_file: weakref.WeakValueDictionary[tuple[int, ...], _DecompressedCopy] = weakref.WeakValueDictionary()
_copy_lock = threading.Lock()


def _find_or_decompress_copy(path: Path, fd: int) -> _DecompressedCopy:
    """Return the decompressed copy of a file.

    If the process already has a copy of the unchanged file, return that copy.
    """
    status = os.fstat(fd)
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    with _copy_lock:
        copy = _copies_by_file.get(key)
        if copy is None:
            copy = _copies_by_file[key] = _DecompressedCopy(path, fd)
        return copy
