"""Files of endpoints by their paths: in shared memory, or on a bus, whose files are in the memory of the process."""

from __future__ import annotations

import os
import stat

from msgq.common.naming import BUS_PREFIX_START
from msgq.impl.base.core import list_private_files


class FileStatus:
    """Status of a file that has a name.

    Attributes:
        number: inode number. A new file of the same name has another number.
        bytes: size.
        owner: user id of the owner.
        mode: permissions.
    """

    __slots__ = ("bytes", "mode", "number", "owner")

    def __init__(self, number: int, size: int, owner: int, mode: int) -> None:
        self.number, self.bytes, self.owner, self.mode = number, size, owner, mode


def list_files(directory: str, *, regular: bool = True) -> list[tuple[str, int]]:
    """Return name and inode number of each file of a directory, unsorted.

    Returns an empty list if the directory does not exist, or belongs to another user.

    Args:
        directory: a directory in shared memory, or the part of a bus's paths before the name.
        regular: True: only regular files. False: all except directories.
    """
    if directory.startswith(BUS_PREFIX_START):
        return [(name, number) for name, number, _, _ in list_private_files(directory)]
    try:
        entries = os.scandir(directory)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []
    with entries:
        return [(entry.name, entry.inode()) for entry in entries if _is_listed(entry, regular)]


def _is_listed(entry: os.DirEntry[str], regular: bool) -> bool:
    return entry.is_file(follow_symlinks=False) if regular else not entry.is_dir(follow_symlinks=False)


def read_file_status(path: str) -> FileStatus | None:
    """Return the status of a file; None: no file has the name, or this user may not look for it."""
    if path.startswith(BUS_PREFIX_START):
        directory, _, name = path.rpartition("/")
        found = (each[1:] for each in list_private_files(directory) if each[0] == name)
        return next((FileStatus(number, size, os.geteuid(), mode) for number, size, mode in found), None)
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return FileStatus(status.st_ino, status.st_size, status.st_uid, stat.S_IMODE(status.st_mode))
