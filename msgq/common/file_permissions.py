"""Sharing of files between users. The owner of a file and the process that opens the file must agree.

The creator of a file decides who may open it: by mode (``mode=``, MSGQ_MODE) and group (MSGQ_GROUP). A process that
opens a file decides whose files it accepts: own files, root's, and those of trusted users (``trust=``, MSGQ_TRUST).
msgq checks the content of trusted users' files like any other content.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import os
import pwd

from msgq.common import settings
from msgq.errors import InvalidValueError, SegmentError

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    import socket


def trusted_users(endpoint: str = "") -> frozenset[int]:
    """Return the ids of users whose files are accepted in addition to own files and root's: ``trust=``, or MSGQ_TRUST.

    Raises:
        InvalidValueError: a user does not exist.
        TypeError: the value is not a str.
    """
    names = settings.get_trust()
    if not isinstance(names, str):
        raise TypeError(f"trust is {type(names).__name__}; give a str of user names or ids, separated by commas")
    if not names:
        return frozenset()
    return frozenset(_find_id(name.strip(" "), False, endpoint) for name in names.split(","))


def _find_id(name: str, is_group: bool, endpoint: str) -> int:
    number = _look_up_id(name, is_group)
    if number is None:
        variable, entity = ("MSGQ_GROUP", "group") if is_group else ("MSGQ_TRUST (trust=)", "user")
        text = f"{variable} has {name!r}, but this machine has no such {entity}; give names or ids"
        raise InvalidValueError(text, endpoint)
    return number


@functools.lru_cache(maxsize=64)
def _look_up_id(name: str, is_group: bool) -> int | None:
    """Return the id of a user or group. A directory service may delay the call."""
    if name.isascii() and name.isdigit() and int(name) < 2**32 - 1:
        return int(name)
    with contextlib.suppress(KeyError, ValueError):  # no such name, or one that cannot be
        return grp.getgrnam(name).gr_gid if is_group else pwd.getpwnam(name).pw_uid
    return None


def resolve_new_file_group(endpoint: str = "") -> int | None:
    """Return the id of the group for new files (MSGQ_GROUP); None: the default group of the system.

    Raises:
        InvalidValueError: the group does not exist.
    """
    name = settings.get_file_group()
    return _find_id(name, True, endpoint) if name else None


def share_file(path: str | int, permissions: int, endpoint: str, name: str) -> None:
    """Set group and mode of a file that this process has just created, regardless of the umask.

    Args:
        path: path of a file, directory, FIFO or socket, in a directory in which other users cannot replace it; or a
            descriptor.
        name: path for the error text.

    Raises:
        SegmentError: this user is not a member of the group.
    """
    requested_group = resolve_new_file_group(endpoint)
    try:
        if requested_group is not None:
            os.chown(path, -1, requested_group)
        os.chmod(path, permissions)
    except OSError as error:
        text = f"cannot set group {requested_group} (MSGQ_GROUP) and mode {permissions:o}: {error.strerror}"
        if error.errno == errno.EPERM and requested_group is not None:
            text += "; run the process as a member of the group"
        raise SegmentError(text, endpoint, name, error.errno) from error


def _make_draft_directory(parent: str, name: str) -> str:
    """Create a directory that only this user can enter.

    New files are completed there before other processes can find them.
    """
    import tempfile  # late: it takes as long as all that a socket needs

    return tempfile.mkdtemp(prefix=f".{name}.", dir=parent)


def bind_unix_socket(listener: socket.socket, path: str, permissions: int, endpoint: str) -> None:
    """Bind a Unix socket, and replace an existing one. The socket is not visible before it has its group and mode.

    Raises:
        OSError: bind(2) or rename(2) failed, for example because another user owns the existing socket.
        SegmentError: as `share_file`.
    """
    draft = _make_draft_directory(os.path.dirname(path), "msgq")
    try:
        listener.bind(f"{draft}/s")
        share_file(f"{draft}/s", permissions, endpoint, path)
        os.rename(f"{draft}/s", path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{draft}/s")
        os.rmdir(draft)
