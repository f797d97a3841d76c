"""Files without a name, which get a name when they are complete. A killed process leaves no partial file."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.new_names import UNSUPPORTED_ERRNOS, give_new_name

_NO_TMPFILE_ERRNOS = (
    errno.EOPNOTSUPP,
    errno.EISDIR,
    errno.ENOENT,
    errno.EINVAL,
)  # file systems that have no such files

_BLOCK_BYTES = 1 << 20


class AtomicFile:
    """A file that is not visible until it gets a name.

    Attributes:
        fd: descriptor for reading and writing.
        readable_path: path that opens the file in this process.
    """

    def __init__(self, folder: Path, hidden: Path) -> None:
        """Create the file. `hidden`: its name on file systems that require one."""
        self._hidden_path = hidden
        self._temporary_path: Path | None = None
        try:
            self.fd = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise_handler_error(error)
            if error.errno not in _NO_TMPFILE_ERRNOS:
                raise
            self.fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            self._temporary_path = hidden
        self.readable_path = self._temporary_path or Path(f"/proc/self/fd/{self.fd}")

    def link_as_path(self, path: Path) -> None:
        """Give the file a new name.

        Raises:
            FileExistsError: another file has this name.
        """
        os.fsync(self.fd)
        if not self._try_to_link(path):
            give_new_name(self._require_temporary_path(), path)

    def replace_file(self, path: Path, hidden: Path) -> None:
        """Replace the file at `path` atomically.

        If the process is killed during the call, the complete file may stay as `hidden`.
        """
        self._copy_owner_and_mode(path)
        if self._temporary_path is None:
            hidden.unlink(missing_ok=True)
            if self._try_to_link(hidden):
                self._temporary_path = hidden
            else:
                self._require_temporary_path()
                self._copy_owner_and_mode(path)
        self._require_temporary_path().replace(path)
        self._temporary_path = None

    def _copy_owner_and_mode(self, path: Path) -> None:
        """Give the file the owner and the mode of another file, and sync it to the disk."""
        before = path.stat()
        os.fchmod(self.fd, before.st_mode & 0o7777)
        with suppress(PermissionError):
            os.fchown(self.fd, before.st_uid, before.st_gid)
        os.fsync(self.fd)

    def _try_to_link(self, path: Path) -> bool:
        """Give a file without a name its first name. Return False if it has one, or the file system has no links."""
        if self._temporary_path is not None:
            return False
        try:
            # Given a folder's descriptor, Python follows the link of /proc to the file.
            os.link(self.readable_path, path, src_dir_fd=self.fd)
        except OSError as error:
            raise_handler_error(error)
            if error.errno not in UNSUPPORTED_ERRNOS:
                raise
            return False
        return True

    def _require_temporary_path(self) -> Path:
        """Return the temporary name. A file without a name is copied, because it can only get one by a link."""
        if self._temporary_path is None:
            named = os.open(self._hidden_path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            self._temporary_path = self._hidden_path
            try:
                offset = 0
                while block := os.pread(self.fd, _BLOCK_BYTES, offset):
                    offset += os.pwrite(named, block, offset)
                os.fsync(named)
                os.dup2(named, self.fd, inheritable=False)
            finally:
                os.close(named)
        return self._temporary_path

    def close(self) -> None:
        """Close the file. A file without a name disappears."""
        if self._temporary_path is not None:
            self._temporary_path.unlink(missing_ok=True)
        os.close(self.fd)


@contextmanager
def open_atomic_file(beside: Path) -> Iterator[AtomicFile]:
    """Yield a new file for the folder of a path.

    Raises:
        OSError: the file cannot be created in this folder.
    """
    file = AtomicFile(beside.parent, make_temporary_name(beside))
    try:
        yield file
    finally:
        file.close()


def make_temporary_name(path: Path) -> Path:
    """Return the temporary name of a file that is incomplete or not in its final place."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
