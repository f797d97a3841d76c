"""Where the bytes of a recording are: in its file, or in a copy of it that is not compressed any more."""

from __future__ import annotations

import errno
import gc
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from msgq.errors import RecordingError
from msgq.recording.mcap_io.compression import ZSTD_MAGIC, iter_decompressed_blocks
from msgq.recording.mcap_io.record_scanner import open_readonly

_DISK_RESERVE_BYTES = 64 << 20  # that a copy leaves on its disk


class FileSource:
    """A file to read from, which may be compressed as a whole (as rosbag2 does it, and ``zstd``): then a copy is made.

    A copy has no name, so that nothing of it is left whatever happens to the process. It goes with the last one that
    reads from it; all that read the same file in a process have the same copy. This can be pickled: where it is loaded,
    the copy is made anew with the first use.
    """

    def __init__(self, path: Path) -> None:
        """Open nothing yet."""
        self.path = path
        self._decompressed_copy: _DecompressedCopy | None = None
        self._is_uncompressed = False

    def __reduce__(self) -> tuple[type[FileSource], tuple[Path]]:
        return FileSource, (self.path,)

    @contextmanager
    def open_descriptor(self) -> Iterator[int]:
        """Give a descriptor to read from with `os.pread`, valid within the block.

        Raises
        ------
        RecordingError : there is no such file, it may not be read, it is no regular file; or there is no room for a
            copy of what is compressed.
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
        """Whether the bytes are those of a copy, which each process makes for itself. Known after the first use."""
        return self._decompressed_copy is not None

    @property
    def damage_reason(self) -> str:
        """Why the copy ends before the file does; "" where it does not."""
        return "" if self._decompressed_copy is None else self._decompressed_copy.damage_reason


class _DecompressedCopy:
    """A file without a name. It is closed, and thereby gone, with this object."""

    def __init__(self, path: Path, compressed: int) -> None:
        self.damage_reason = ""
        gc.collect()  # logs are cycles: the copies of those that nobody has any more are gone now
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
    """Return the copy of a compressed file; one that is there already, if the file is the same still."""
    status = os.fstat(fd)
    key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    with _copy_lock:
        copy = _copies_by_file.get(key)
        if copy is None:
            copy = _copies_by_file[key] = _DecompressedCopy(path, fd)
        return copy
