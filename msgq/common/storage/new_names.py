"""New names of complete files, also on file systems without hard links, such as exFAT."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from msgq.common.handler_errors import raise_handler_error

#: Errors of `link` and of `renameat2` on file systems or systems that lack the operation.
UNSUPPORTED_ERRNOS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1


def give_new_name(path: str | os.PathLike[str], name: str | os.PathLike[str]) -> None:
    """Give a complete file a new name at once, but never the name of another file.

    The file may keep its old name, too, which the caller then removes.

    Args:
        path: present name of the file.
        name: new name, in the same file system.

    Raises:
        FileExistsError: another file has the new name.
        OSError: the file cannot get the name.
    """
    try:
        os.link(path, name)
    except OSError as error:
        raise_handler_error(error)
        if error.errno not in UNSUPPORTED_ERRNOS:
            raise
        _rename_to_new_name(os.fspath(path), os.fspath(name))


def _rename_to_new_name(path: str, name: str) -> None:
    code = _rename_without_replacement(path, name)
    if code in UNSUPPORTED_ERRNOS:
        _reserve_and_rename(path, name)
    elif code:
        raise OSError(code, os.strerror(code), path, None, name)


def _rename_without_replacement(path: str, name: str) -> int:
    """Call `renameat2`, and return 0 or the errno."""
    import ctypes  # few file systems need it

    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return errno.ENOSYS
    code = library.renameat2(_AT_FDCWD, os.fsencode(path), _AT_FDCWD, os.fsencode(name), _RENAME_NOREPLACE)
    return ctypes.get_errno() if code else 0


def _reserve_and_rename(path: str, name: str) -> None:
    """Create an empty file of the new name, and replace it. If the process is killed in between, it stays."""
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        os.replace(path, name)
    except BaseException:
        if os.path.exists(path):  # otherwise, the file has its new name
            Path(name).unlink(missing_ok=True)
        raise
