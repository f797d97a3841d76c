"""A file without a name, which gets one when it is whole: who is killed meanwhile leaves nothing."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_NO_TMPFILE_ERRNOS = (
    errno.EOPNOTSUPP,
    errno.EISDIR,
    errno.ENOENT,
    errno.EINVAL,
)  # file systems that have no such files


class AtomicFile:
    """The file.

    Attributes
    ----------
    fd : to read and write it.
    readable_path : a path that opens it, for this process.
    """

    def __init__(self, folder: Path, hidden: Path) -> None:
        """Create it. hidden : its name where the file system does not have files without one."""
        self._temporary_path: Path | None = None
        try:
            self.fd = os.open(folder, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o644)
        except OSError as error:
            if error.errno not in _NO_TMPFILE_ERRNOS:
                raise
            self.fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            self._temporary_path = hidden
        self.readable_path = self._temporary_path or Path(f"/proc/self/fd/{self.fd}")

    def link_as_path(self, path: Path) -> None:
        """Give it a name that no other file has.

        Raises
        ------
        FileExistsError : another file has it.
        """
        os.fsync(self.fd)
        self._link_file(path)

    def replace_file(self, path: Path, hidden: Path) -> None:
        """Let it take the place of a file, at once. A kill between the two steps leaves it as `hidden`, whole."""
        before = path.stat()
        os.fchmod(self.fd, before.st_mode & 0o7777)
        with suppress(PermissionError):
            os.fchown(self.fd, before.st_uid, before.st_gid)
        os.fsync(self.fd)
        if self._temporary_path is None:
            hidden.unlink(missing_ok=True)
            self._link_file(hidden)
            self._temporary_path = hidden
        self._temporary_path.replace(path)
        self._temporary_path = None

    def _link_file(self, path: Path) -> None:
        # Given a folder's descriptor, Python follows the link of /proc to the file.
        os.link(self.readable_path, path, src_dir_fd=self.fd if self._temporary_path is None else None)

    def close(self) -> None:
        """Let go of it; without a name it is gone."""
        if self._temporary_path is not None:
            self._temporary_path.unlink(missing_ok=True)
        os.close(self.fd)


@contextmanager
def open_atomic_file(beside: Path) -> Iterator[AtomicFile]:
    """Give a new file for the folder of a path.

    Raises
    ------
    OSError : it cannot be created there.
    """
    file = AtomicFile(beside.parent, make_temporary_name(beside))
    try:
        yield file
    finally:
        file.close()


def make_temporary_name(path: Path) -> Path:
    """Return what a file is called that is not whole yet, or not in its place."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
