"""Files of several users, by consent of both sides.

Who makes a file says who else may open it: by its mode (``mode=``, MSGQ_MODE) and its group (MSGQ_GROUP). Who opens one
says whose files it uses: its own and root's, and those of the users that it trusts (``trust=``, MSGQ_TRUST). The bytes
of a trusted user's file are believed no more than any others.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import grp
import os
import pwd
import stat

from msgq.common import settings
from msgq.errors import InvalidValueError, SegmentError

TYPE_CHECKING = False  # as in __init__.py
if TYPE_CHECKING:
    import socket


def trusted_users(endpoint: str = "") -> frozenset[int]:
    """Return the ids of the users whose files are used beside one's own and root's: MSGQ_TRUST, or ``trust=``.

    Raises
    ------
    InvalidValueError : it names somebody who is no user here.
    TypeError : it is no str.
    """
    names = settings.get_trust()
    if not isinstance(names, str):
        raise TypeError(f"trust is {type(names).__name__}; give a str of user names or ids, separated by commas")
    if not names:
        return frozenset()
    return frozenset(_find_id(name.strip(), False, endpoint) for name in names.split(","))


def _find_id(name: str, is_group: bool, endpoint: str) -> int:
    number = _look_up_id(name, is_group)
    if number is None:
        variable, entity = ("MSGQ_GROUP", "group") if is_group else ("MSGQ_TRUST (trust=)", "user")
        text = f"{variable} has {name!r}, but this machine has no such {entity}; give names or ids"
        raise InvalidValueError(text, endpoint)
    return number


@functools.lru_cache(maxsize=64)
def _look_up_id(name: str, is_group: bool) -> int | None:
    """Return the id of a user or group, which may take a directory service a while."""
    if name.isascii() and name.isdigit() and int(name) < 2**32 - 1:
        return int(name)
    with contextlib.suppress(KeyError, ValueError):  # no such name, or one that cannot be
        return grp.getgrnam(name).gr_gid if is_group else pwd.getpwnam(name).pw_uid
    return None


def is_trusted(user: int, endpoint: str = "") -> bool:
    """Return whether files of this user are used."""
    return user in (os.geteuid(), 0) or user in trusted_users(endpoint)


def check_owner(user: int, endpoint: str, path: str) -> None:
    """Refuse what belongs to a user who is not trusted.

    Raises
    ------
    SegmentError : it says whose it is, and how that one would be trusted.
    """
    if not is_trusted(user, endpoint):
        text = f"belongs to {get_user_name(user)}{trust_hint(user)}"
        raise SegmentError(text, endpoint, path, errno.EACCES)


def trust_hint(user: int) -> str:
    """Return, for an error, what would make this process use files of that user."""
    return f", not to {get_user_name(os.geteuid())} of this process; to use that user's files, set MSGQ_TRUST={user}"


def get_user_name(user: int) -> str:
    """Return "user 1000 (alice)", for people."""
    with contextlib.suppress(KeyError):
        return f"user {user} ({pwd.getpwuid(user).pw_name})"
    return f"user {user}"


def access_hint(path: str) -> str:
    """Return, for an error, what its owner would have to do so that this user may open a file."""
    for place in (path, os.path.dirname(path)):
        with contextlib.suppress(OSError):
            status = os.lstat(place)
            owner, mode = get_user_name(status.st_uid), stat.S_IMODE(status.st_mode)
            text = f"; {place} belongs to {owner}, group {status.st_gid}, and has mode {mode:o}"
            return f"{text}. To share it, its owner sets MSGQ_MODE=660 and a common MSGQ_GROUP before its creation"
    return ""


def owner_hint(path: str) -> str:
    """Return, for an error, who may remove a file, if that is another user."""
    with contextlib.suppress(OSError):
        owner = os.lstat(path).st_uid
        if owner != os.geteuid():
            return f"; it belongs to {get_user_name(owner)}, who can remove it (msgq clean)"
    return ""


def resolve_new_file_group(endpoint: str = "") -> int | None:
    """Return the id of the group that new files get (MSGQ_GROUP); None: the one that the system gives them.

    Raises
    ------
    InvalidValueError : there is no such group.
    """
    name = settings.get_file_group()
    return _find_id(name, True, endpoint) if name else None


def share_file(path: str | int, permissions: int, endpoint: str, name: str) -> None:
    """Give what this process just made its group and its mode, whatever the umask says.

    Parameters
    ----------
    path : of a file, directory, FIFO or socket in a directory where others cannot replace it; or a descriptor.
    name : its path, for the error.

    Raises
    ------
    SegmentError : this user is no member of the group.
    """
    wanted = resolve_new_file_group(endpoint)
    try:
        if wanted is not None:
            os.chown(path, -1, wanted)
        os.chmod(path, permissions)
    except OSError as error:
        text = f"cannot set group {wanted} (MSGQ_GROUP) and mode {permissions:o}: {error.strerror}"
        if error.errno == errno.EPERM and wanted is not None:
            text += "; run the process as a member of the group"
        raise SegmentError(text, endpoint, name, error.errno) from error


def compute_directory_mode(permissions: int) -> int:
    """Return the mode of a directory for files of these permissions.

    Who may read them may enter; who may write them may make some. Then it is sticky: nobody removes another's.
    """
    mode = permissions | (permissions & 0o444) >> 2
    return mode | stat.S_ISVTX if mode & 0o022 else mode


def make_directories(endpoint: str, paths: tuple[str, ...], permissions: int) -> None:
    """Create directories of a prefix, for files of these permissions. Those that are there stay as they are.

    Raises
    ------
    SegmentError : they cannot be made.
    """
    for path in paths:
        if not os.path.lexists(path):
            try:
                _make_directory(path, compute_directory_mode(permissions), endpoint)
            except OSError as error:
                # Another process was faster. If a third one has removed it since, the caller finds that out.
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY) and not os.path.lexists(path):
                    text = f"cannot create directory of the prefix: {error.strerror}"
                    raise SegmentError(text, endpoint, path, error.errno) from error


def _make_directory(path: str, mode: int, endpoint: str) -> None:
    if mode == 0o700:
        os.mkdir(path, mode)
        return
    parent, name = os.path.split(path)  # as files: it has its name when it is complete, so nobody finds it closed
    draft = _make_draft_directory(parent, name)
    try:
        share_file(draft, mode, endpoint, path)
        os.rename(draft, path)  # over another one only if that is empty, and ours
    except BaseException:
        os.rmdir(draft)
        raise


def _make_draft_directory(parent: str, name: str) -> str:
    """Make a directory that only this user can enter, for what is complete before others find it."""
    import tempfile  # late: it takes as long as all that a socket needs

    return tempfile.mkdtemp(prefix=f".{name}.", dir=parent)


def check_directory(status: os.stat_result, in_prefix: str, endpoint: str, path: str) -> None:
    """Refuse what cannot be the directory of a prefix, or in which people who are not trusted may replace files.

    Raises
    ------
    SegmentError : and why.
    """
    if not stat.S_ISDIR(status.st_mode):
        text = f"prefix {in_prefix!r} needs a directory here, but the path is a file; choose another prefix"
        raise SegmentError(text, endpoint, path)
    check_owner(status.st_uid, endpoint, path)
    of_others = status.st_uid not in (os.geteuid(), 0)
    if of_others and status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(status.st_mode)
        text = (
            f"{get_user_name(status.st_uid)} created it with mode {mode:o}, so that "
            "others can replace files; run chmod +t"
        )
        raise SegmentError(text, endpoint, path)


def bind_unix_socket(listener: socket.socket, path: str, permissions: int, endpoint: str) -> None:
    """Bind a Unix socket, in place of what has the path. Nobody finds it before it has its group and mode.

    Raises
    ------
    OSError : as bind(2) and rename(2) give it, when another user's is there for instance.
    SegmentError : as `share`.
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
