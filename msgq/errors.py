"""Every error that msgq raises, one small tree.

All of them derive from `IpcError`, carry the endpoint as an attribute, and have a text that names the values and says
what to do. Those that are also a built-in kind (a bad value, a time-out) derive from that as well.
"""

from __future__ import annotations

import errno


class IpcError(Exception):
    """Something went wrong between processes.

    Parameters
    ----------
    message : what happened. Stock's only argument stands in its place, and is told from a text by its type: the
        endpoint as bytes, or nothing.
    endpoint, errno : as the attributes.

    Attributes
    ----------
    endpoint : the endpoint's name, or "" when the error concerns none.
    errno : the system's error number, or None.
    """

    errno: int | None = None

    def __init__(
        self, message: str | bytes | None = None, endpoint: str | bytes | None = "", errno: int | None = None
    ) -> None:
        if isinstance(message, bytes):
            message, endpoint = None, message
        name = endpoint.decode(errors="replace") if isinstance(endpoint, bytes) else endpoint or ""
        text = "messaging failure" if message is None else message
        super().__init__(f"{name!r}: {text}" if name else text)
        self.endpoint = name
        if errno is not None:
            self.errno = errno


class MultiplePublishersError(IpcError):
    """Another publisher owns the endpoint.

    On the ring the last one to connect wins, and the others get this at their next send; with ZMQ the first one stays,
    and the others get this when they connect.
    """

    errno = errno.EADDRINUSE


class EndpointNameError(IpcError, ValueError):
    """A name that cannot be an endpoint (or a prefix): empty, too long, or it would leave its directory."""


class UnknownTopicError(IpcError, KeyError):
    """A topic that a `SubMaster` or `PubMaster` was not made for."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class InvalidValueError(IpcError, ValueError):
    """An argument or environment variable that makes no sense: a time-out, a size, a mode."""


class SegmentError(IpcError):
    """A shared-memory file could not be created, opened or mapped.

    Attributes
    ----------
    path : the file.
    """

    def __init__(self, message: str, endpoint: str = "", path: str = "", errno: int | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, endpoint, errno)
        self.path = path


class SegmentSizeError(SegmentError):
    """The segment exists with another size than the one asked for, or a stock process made it smaller during use.

    Then the socket is of no use any more: close it, and connect again.
    """


class LayoutVersionError(SegmentError):
    """The side segment was made by another version of this library."""


class CorruptSegmentError(SegmentError):
    """The bytes in shared memory make no sense: another program wrote there."""


class MessageSizeError(IpcError, ValueError):
    """A message does not have the size that the call needs."""


class MessageTooLargeError(MessageSizeError):
    """A message is larger than a third of the ring or the limit of ZMQ (to send), or the buffer given (to receive)."""


class EndpointClosedError(IpcError):
    """The socket was closed, or never connected."""


class StreamNotFoundError(IpcError, LookupError):
    """A server of frames has no stream of this type."""


class MissingLibraryError(IpcError, ImportError):
    """A library that is optional, and needed for this, is not installed."""


class ForkedSocketError(IpcError):
    """A publisher (with ZMQ, any socket) came through a fork; the parent keeps it, the child must connect its own."""


class ConcurrentUseError(IpcError):
    """A socket was used by two threads at once, or while a reservation is open."""


class WaitTimeoutError(IpcError, TimeoutError):
    """What was waited for did not happen in time."""


class EventTimeoutError(WaitTimeoutError, RuntimeError):
    """An event of an event-gated run was not set in time. A RuntimeError, as stock's is."""


class EventError(IpcError, RuntimeError):
    """An event cannot be used: no handle manages its endpoint, or the handle was closed or replaced by another one."""


class ControllerDiedError(EventError):
    """The process that made the handle of an event died, so that nobody may ever set the event."""


class DeadlockError(IpcError):
    """In virtual time somebody waits for what can never happen. On the real clock the program would hang."""


class RecordingError(IpcError):
    """A recording cannot be written or read: no space, a file that is none, bytes that make no sense."""


class Again(IpcError):
    """`recv` found no message: what pyzmq raises where `receive` returns None."""

    errno = errno.EAGAIN


class BackendNotAvailableError(IpcError, ImportError):
    """The backend that was asked for does not exist, or cannot run here."""
