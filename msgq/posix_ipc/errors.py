"""Errors of posix_ipc, and their translation from errors of work queues."""

from __future__ import annotations

import errno

from msgq.errors import IpcError, MsgqError


class Error(IpcError):
    """Base class of all errors of queues."""


class SignalError(Error):
    """A signal handler ran while a call waited. The `__context__` has the exception of the handler."""


class PermissionsError(Error):
    """The permissions of the queue, or the flags of the object, do not allow the call."""


class ExistentialError(Error):
    """The queue does not exist, or exists already, or the object is closed."""


class BusyError(Error):
    """The queue stayed full or empty until the time-out, or another process has requested a notification."""


#: Class of posix_ipc for an error of a work queue, by its errno.
_ERRORS_BY_ERRNO: dict[int | None, type[Error]] = {
    errno.EAGAIN: BusyError,
    errno.ETIMEDOUT: BusyError,
    errno.EBUSY: BusyError,
    errno.EINTR: SignalError,
    errno.ENOENT: ExistentialError,
    errno.EEXIST: ExistentialError,
    errno.EBADF: ExistentialError,
    errno.EACCES: PermissionsError,
    errno.EPERM: PermissionsError,
}
_SYSTEM_LIMIT_ERRORS = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def translate_error(error: MsgqError) -> Exception:
    """Return the error of posix_ipc for an error of a work queue."""
    if error.errno in (errno.EMSGSIZE, errno.EINVAL):
        return ValueError(str(error))
    if error.errno in _SYSTEM_LIMIT_ERRORS:
        return OSError(error.errno, str(error))
    kind = _ERRORS_BY_ERRNO.get(error.errno, Error)
    text = str(error) if kind is not SignalError else "signal interrupted the wait"
    return kind(text, errno=error.errno)
