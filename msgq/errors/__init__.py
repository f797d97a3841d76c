"""All error classes of msgq.

The classes derive from `MsgqError` and have the attribute `endpoint`. The text names the wrong values and a cure.
Errors of sockets, gates and frame servers derive from `IpcError`, the base class of stock msgq. Errors that correspond
to a built-in error (a bad value, a time-out) derive from that class, too.
"""

from __future__ import annotations

import errno

from msgq.errors.base import IpcError as IpcError
from msgq.errors.base import MsgqError as MsgqError

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any, Self

    from msgq.errors.queue_full import QueueFullError as QueueFullError
else:

    def __getattr__(name):
        """Import the error with the base `queue.Full` at its first use: `queue` takes as much memory as a socket."""
        if name != "QueueFullError":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from msgq.errors.queue_full import QueueFullError

        globals()[name] = QueueFullError
        return QueueFullError

    def __dir__():
        return {*globals(), "QueueFullError"}


class MsgqWarning(UserWarning):
    """Category of all warnings of msgq. The call is valid, but is probably a mistake."""

    def __init__(self, text: str) -> None:
        super().__init__(text)


class PluginError(MsgqError, ImportError):
    """A plug-in of another distribution cannot be used. The text names the distribution and the reason."""


class MissingAttributeError(MsgqError, AttributeError):
    """An object or module does not have this name of another library. The text names the method to use."""


class MultiplePublishersError(IpcError):
    """Another publisher owns the endpoint.

    On the ring, the last publisher that connects takes over, and the next send of the previous publisher raises this
    error. With ZMQ, the first publisher stays, and `connect` of a second publisher raises this error.
    """

    errno = errno.EADDRINUSE


class EndpointNameError(IpcError, ValueError):
    """The name of an endpoint or prefix is invalid: empty, too long, or outside of its directory."""

    errno = errno.EINVAL


class UnknownTopicError(IpcError, KeyError):
    """The `SubMaster` or `PubMaster` has no such topic."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class InvalidValueError(IpcError, ValueError):
    """An argument or environment variable has an invalid value, such as a time-out, a size or a mode."""

    errno = errno.EINVAL


class InvalidTypeError(IpcError, TypeError):
    """An argument has a wrong type, such as a time-out as text, or a positional configuration."""

    errno = errno.EINVAL


class SocketOptionError(IpcError, AttributeError):
    """A socket has no such attribute, or the attribute is read-only."""

    errno = errno.EINVAL


class StateError(IpcError):
    """The object does not allow this call now: for example, the socket is connected already, or serves only once."""


class SegmentError(IpcError):
    """A shared-memory file cannot be created, opened or mapped.

    The error number chooses the class: a missing file gives `SegmentNotFoundError`, an existing file
    `SegmentExistsError`, a missing permission `SegmentAccessError`. Each of them is also the built-in error of Python.

    Attributes:
        path: path of the file.
    """

    def __new__(cls, *args: object, **options: object) -> Self:
        """Choose the class by the error number, like `OSError`."""
        number = options.get("errno", args[3] if len(args) > 3 else None)
        chosen: type[Any] = _BY_ERRNO.get(number, cls) if cls is SegmentError else cls
        error: Self = (OSError if issubclass(chosen, OSError) else Exception).__new__(chosen)
        return error

    def __init__(self, message: str, endpoint: str = "", path: str = "", errno: int | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, endpoint, errno)
        self.path = path


class SegmentNotFoundError(SegmentError, FileNotFoundError):
    """The endpoint does not exist, and the call may not create it."""

    errno = errno.ENOENT


class SegmentExistsError(SegmentError, FileExistsError):
    """The endpoint exists, and the call must create it."""

    errno = errno.EEXIST


class SegmentAccessError(SegmentError, PermissionError):
    """This user may not read or write the file, or does not trust its owner."""

    errno = errno.EACCES


#: The classes of a `SegmentError`, by the system's error number.
_BY_ERRNO: dict[object, type[SegmentError]] = {
    errno.ENOENT: SegmentNotFoundError,
    errno.EEXIST: SegmentExistsError,
    errno.EACCES: SegmentAccessError,
    errno.EPERM: SegmentAccessError,
}


class SegmentSizeError(SegmentError):
    """The segment exists with another size, or a stock process truncated the file during use.

    After a truncation, close the socket and connect again.
    """

    errno = errno.EINVAL


class LayoutVersionError(SegmentError):
    """Another version of this library created the side segment."""

    errno = errno.EPROTONOSUPPORT


class CorruptSegmentError(SegmentError):
    """The shared memory contains invalid data: another program wrote there."""

    errno = errno.EUCLEAN


class MessageSizeError(IpcError, ValueError):
    """The size of a message does not fit the call."""

    errno = errno.EINVAL


class MessageTooLargeError(MessageSizeError):
    """A message exceeds a third of the ring, the pool, the limit of ZMQ or of the queue, or the given buffer."""

    errno = errno.EMSGSIZE


class UndecodableMessageError(IpcError, ValueError):
    """A message cannot be decoded by its schema, or has no schema. Only the receives of typed subscribers raise this.

    Attributes:
        data: payload of the message, which is received: the next call continues with the next message.
    """

    errno = errno.EBADMSG
    data = b""


class EndpointClosedError(IpcError):
    """The socket or queue is closed, or was never connected."""

    errno = errno.EBADF


class ChannelMismatchError(SegmentError):
    """The channel has another capacity, limit or setting of timestamps than requested. The text names both."""

    errno = errno.EINVAL


class PoolExhaustedError(IpcError, BlockingIOError):
    """Views or loans occupy all slots of a channel's publisher. The message was not sent.

    `errno` is EAGAIN, also after a time-out.
    """

    errno = errno.EAGAIN


class TooManyViewsError(IpcError):
    """A subscriber of a channel holds `max_views` views. Release a view."""

    errno = errno.EMFILE


class TooManyPublishersError(IpcError):
    """A channel has its maximum number of publishers."""

    errno = errno.EMFILE


class TooManySubscribersError(IpcError):
    """A channel has its maximum number of subscribers, or of subscribers with views."""

    errno = errno.EMFILE


class LostMessagesError(IpcError):
    """A subscriber with ``on_lost="raise"`` lost messages. The next call continues after the loss.

    Attributes:
        lost: number of lost messages since this error was last raised.
    """

    lost = 0


class SchemaMismatchError(IpcError):
    """A channel has another schema than the given one, and `strict_schema` is True."""


class QueueAccessError(IpcError):
    """The handle of a work queue was opened without the right to receive or to send."""

    errno = errno.EBADF


class QueueBusyError(IpcError):
    """An exclusive notification of a work queue is impossible: another process has a notification."""

    errno = errno.EBUSY


class QueueMismatchError(SegmentError):
    """A work queue exists with other sizes than requested. The text names both."""

    errno = errno.EINVAL


class LeaseExpiredError(IpcError):
    """The lease of a job ended before the call. The message is in the queue again."""

    errno = errno.ETIME


class JobFailedError(IpcError):
    """The function of a worker raised an error at each try of the job.

    Attributes:
        reason: type and text of the last error, such as "ValueError: no number".
    """

    reason = ""


class JobCancelledError(IpcError):
    """`JobFuture.cancel` removed the job, so the job has no result."""


class TooManyHandlesError(IpcError):
    """A work queue has 128 open handles, the maximum."""

    errno = errno.EMFILE


class RecordMismatchError(SegmentError):
    """Records exist with another dtype, length or form than requested. The text names both."""

    errno = errno.EINVAL


class RecordIndexError(IpcError, IndexError):
    """The index of a record is invalid: out of range, negative, no whole number, or of a wrong shape."""


class RecordTypeError(IpcError, TypeError):
    """The dtype is not allowed for records, or the values cannot be cast to it. The text shows both dtypes."""


class MultipleWritersError(IpcError):
    """The records are exclusive, and a living handle owns them. The text names its process."""

    errno = errno.EBUSY


class TooManyWritersError(IpcError):
    """Records have 128 writing handles, the maximum."""

    errno = errno.EMFILE


class KeyTakenError(IpcError):
    """A living handle has declared this key of a board. The text names its process."""

    errno = errno.EBUSY


class BoardFullError(IpcError):
    """All keys of the board have been declared. No key is left."""

    errno = errno.ENOSPC


class BoardKeyError(IpcError, KeyError):
    """No process has written this key of the board yet."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class StreamNotFoundError(IpcError, LookupError):
    """The frame server has no stream of this type."""


class MissingLibraryError(MsgqError, ImportError):
    """An optional library is missing. Sockets need no such library, except for their backend."""


class SubinterpreterError(MsgqError, ImportError):
    """A subinterpreter imported msgq, whose handles and signal handlers belong to the whole process."""


class ForkedSocketError(IpcError):
    """The object (socket, reservation, loan, job, recorder, frame server) belongs to the parent process.

    Create the object again in the child. If a signal handler forked the child while its parent joined or removed a
    channel, repeat the call in the child. On the fake backend, all sockets and handles from before the fork belong to
    the parent.
    """


class ConcurrentUseError(IpcError):
    """Two threads use a socket at the same time, or a reservation is open."""

    errno = errno.EBUSY


class WaitTimeoutError(IpcError, TimeoutError):
    """The awaited event did not happen in time."""

    errno = errno.ETIMEDOUT


class InterruptedWaitError(IpcError, InterruptedError):
    """A signal handler ended a wait of msgq.posix_ipc. An exception of the handler is the error's `__cause__`."""

    errno = errno.EINTR


class EventTimeoutError(WaitTimeoutError, RuntimeError):
    """An event of an event-gated run was not set in time. Also a RuntimeError, as in stock msgq."""


class EventError(IpcError, RuntimeError):
    """An event is unusable: no handle manages its endpoint, or the handle was closed or replaced."""


class ControllerDiedError(EventError):
    """The process that created the handle of an event died. No other process sets the event."""

    errno = errno.EOWNERDEAD


class DeadlockError(IpcError):
    """In virtual time, a node waits for an event that can never happen. On the real clock, the program would hang.

    An `IpcError`, because waits of sockets raise this error.
    """

    errno = errno.EDEADLK


class SimulationFailedError(MsgqError, AssertionError):
    """An order of a simulation failed, or not all orders were tried.

    The text compares the events of the failing order with a passing order. The failure itself is the error's
    `__cause__`. Not an `IpcError`, because no socket raises it.
    """


class RecordingError(MsgqError):
    """A recording cannot be written or read: no space, another file format, or invalid data.

    Not an `IpcError`, because the error concerns files and no socket.
    """


class UnknownEndpointError(RecordingError, KeyError):
    """The recording has no messages of this endpoint. The text names the most similar endpoint, or all endpoints."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class StorageError(RecordingError):
    """An object store cannot be read or written, or an object was replaced while it was read."""


class SparkError(MsgqError):
    """Spark or its Java refused the request. No socket raises this error."""


class Again(IpcError, BlockingIOError):
    """`recv` found no message (pyzmq's name). `receive` returns None instead."""

    errno = errno.EAGAIN


class BackendNotAvailableError(IpcError, ImportError):
    """The backend does not exist, or cannot run here.

    An `IpcError`, because creating and connecting a socket raise this error.
    """


#: Names of `from msgq.errors import *`, which would omit the error that `__getattr__` imports.
__all__ = [*(name for name, value in globals().items() if isinstance(value, type)), "QueueFullError"]
