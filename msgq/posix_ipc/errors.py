"""The errors of posix_ipc, and which of them stands for an error of a work queue."""

from __future__ import annotations

import errno

from msgq.errors import IpcError, MsgqError


class Error(IpcError):
    """What goes wrong with queues; the others derive from it."""


class SignalError(Error):
    """A signal's handler ran while a call waited. What it raised is the error's context."""


class PermissionsError(Error):
    """The queue, or the way in which it was opened, does not allow it."""


class ExistentialError(Error):
    """There is no such queue, or there is one already, or the object was closed."""


class BusyError(Error):
    """The queue was full or empty for as long as the call could wait; or another process asked to be notified."""


#: What an error of a work queue is here, by its errno.
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
    """Return what posix_ipc raises where a work queue raises `error`."""
    if error.errno in (errno.EMSGSIZE, errno.EINVAL):
        return ValueError(str(error))
    if error.errno in _SYSTEM_LIMIT_ERRORS:
        return OSError(error.errno, str(error))
    kind = _ERRORS_BY_ERRNO.get(error.errno, Error)
    text = str(error) if kind is not SignalError else "a signal ended the wait"
    return kind(text, errno=error.errno)
