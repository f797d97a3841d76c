"""Every error that msgq raises, one small tree.

All of them derive from `MsgqError`, carry the endpoint as an attribute, and have a text that names the values and says
what to do. Those that a socket, a gate or a frame's server can raise derive from `IpcError`, as stock has it: a
program that catches that around sockets catches all of them. Those that are also a built-in kind (a bad value, a
time-out) derive from that as well.
"""

from __future__ import annotations

import errno
import queue

TYPE_CHECKING = False  # as in msgq/__init__.py
if TYPE_CHECKING:
    from typing import Any, Self


class MsgqError(Exception):
    """Something went wrong in msgq.

    Parameters
    ----------
    message : what happened.
    endpoint, errno : as the attributes.

    Attributes
    ----------
    endpoint : the endpoint's name, or "" when the error concerns none.
    errno : the system's error number; None where no number says it.
    """

    errno: int | None = None

    def __init__(self, message: str, endpoint: str | bytes | None = "", errno: int | None = None) -> None:
        name = endpoint.decode(errors="replace") if isinstance(endpoint, bytes) else endpoint or ""
        text = f"{name!r}: {message}" if name else message
        super().__init__(text)
        self.args = (text,)  # OSError.__init__ leaves what __new__ got
        self.endpoint = name
        if errno is not None:
            self.errno = errno


class IpcError(MsgqError):
    """Something went wrong between processes.

    Parameters
    ----------
    message : what happened. Stock's only argument stands in its place, and is told from a text by its type: the
        endpoint as bytes, or nothing.
    endpoint, errno : as the attributes.
    """

    def __init__(
        self, message: str | bytes | None = None, endpoint: str | bytes | None = "", errno: int | None = None
    ) -> None:
        if isinstance(message, bytes):
            message, endpoint = None, message
        super().__init__("messaging failure" if message is None else message, endpoint, errno)


class MultiplePublishersError(IpcError):
    """Another publisher owns the endpoint.

    On the ring the last one to connect wins, and the others get this at their next send; with ZMQ the first one stays,
    and the others get this when they connect.
    """

    errno = errno.EADDRINUSE


class EndpointNameError(IpcError, ValueError):
    """A name that cannot be an endpoint (or a prefix): empty, too long, or it would leave its directory."""

    errno = errno.EINVAL


class UnknownTopicError(IpcError, KeyError):
    """A topic that a `SubMaster` or `PubMaster` was not made for."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class InvalidValueError(IpcError, ValueError):
    """An argument or environment variable that makes no sense: a time-out, a size, a mode. Another value would do."""

    errno = errno.EINVAL


class InvalidTypeError(IpcError, TypeError):
    """An argument of a type that the call does not take: a time-out as text, a configuration by position."""

    errno = errno.EINVAL


class SocketOptionError(IpcError, AttributeError):
    """An attribute that a socket does not have, or that cannot be set."""

    errno = errno.EINVAL


class StateError(IpcError):
    """A call that this object does not take now, whatever its arguments: it is connected already, or serves once."""


class SegmentError(IpcError):
    """A shared-memory file could not be created, opened or mapped.

    With the system's error number for a missing file, an existing one or a missing right, it is a subclass that is also
    Python's own error: `SegmentNotFoundError`, `SegmentExistsError`, `SegmentAccessError`.

    Attributes
    ----------
    path : the file.
    """

    def __new__(cls, *args: object, **options: object) -> Self:
        """Choose the class by the error number, as `OSError` does."""
        number = options.get("errno", args[3] if len(args) > 3 else None)
        chosen: type[Any] = _BY_ERRNO.get(number, cls) if cls is SegmentError else cls
        made: Self = (OSError if issubclass(chosen, OSError) else Exception).__new__(chosen)
        return made

    def __init__(self, message: str, endpoint: str = "", path: str = "", errno: int | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, endpoint, errno)
        self.path = path


class SegmentNotFoundError(SegmentError, FileNotFoundError):
    """There is no such endpoint, and the call may not create it."""

    errno = errno.ENOENT


class SegmentExistsError(SegmentError, FileExistsError):
    """The endpoint exists, and the call was to create it."""

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
    """The segment exists with another size than the one asked for, or a stock process made it smaller during use.

    Then the socket is of no use any more: close it, and connect again.
    """

    errno = errno.EINVAL


class LayoutVersionError(SegmentError):
    """The side segment was made by another version of this library."""

    errno = errno.EPROTONOSUPPORT


class CorruptSegmentError(SegmentError):
    """The bytes in shared memory make no sense: another program wrote there."""

    errno = errno.EUCLEAN


class MessageSizeError(IpcError, ValueError):
    """A message does not have the size that the call needs."""

    errno = errno.EINVAL


class MessageTooLargeError(MessageSizeError):
    """A message is larger than a third of the ring, the limit of ZMQ or a queue's (to send), or the buffer given."""

    errno = errno.EMSGSIZE


class EndpointClosedError(IpcError):
    """The socket or queue was closed, or never connected."""

    errno = errno.EBADF


class ChannelMismatchError(SegmentError):
    """The channel has another configuration than requested: capacity, limits or stamps. The text names both."""

    errno = errno.EINVAL


class PoolExhaustedError(IpcError, BlockingIOError):
    """A publisher of a channel has no free slot: views or loans hold them all. Nothing was sent.

    `errno` is EAGAIN, also after a time-out.
    """

    errno = errno.EAGAIN


class TooManyViewsError(IpcError):
    """A subscriber of a channel keeps as many views as it may; release one."""

    errno = errno.EMFILE


class TooManyPublishersError(IpcError):
    """A channel has as many publishers as it may."""

    errno = errno.EMFILE


class TooManySubscribersError(IpcError):
    """A channel has as many subscribers, or subscribers that take views, as it may."""

    errno = errno.EMFILE


class LostMessagesError(IpcError):
    """A subscriber with ``on_lost="raise"`` has lost messages. The next call goes on behind them.

    Attributes
    ----------
    lost : messages, since this was raised last.
    """

    lost = 0


class SchemaMismatchError(IpcError):
    """A channel has another schema than the one given, which was to be strict."""


class QueueFullError(IpcError, queue.Full):
    """A work queue had no room for a message in the time given. The message was not sent.

    It may come although the queue was never full at one instant: the places were looked at one after the other.
    `errno` is ETIMEDOUT when the call waited, else EAGAIN.
    """

    errno = errno.EAGAIN


class QueueAccessError(IpcError):
    """A work queue was opened without the right to receive, or to send, that the call needs."""

    errno = errno.EBADF


class QueueBusyError(IpcError):
    """A notification of a work queue that was to be the only one: another process has one."""

    errno = errno.EBUSY


class QueueMismatchError(SegmentError):
    """A work queue exists with other sizes than those asked for. The text names both."""

    errno = errno.EINVAL


class LeaseExpiredError(IpcError):
    """A job was acknowledged or given back too late: its lease was over, and its message went back to the queue."""

    errno = errno.ETIME


class TooManyHandlesError(IpcError):
    """A work queue is open as often as it may be: 128 times."""

    errno = errno.EMFILE


class RecordMismatchError(SegmentError):
    """Records exist with another dtype, length or kind than the one asked for. The text names both."""

    errno = errno.EINVAL


class RecordIndexError(IpcError, IndexError):
    """An index of records that is none: out of range, negative, no whole number, of another shape."""


class RecordTypeError(IpcError, TypeError):
    """A dtype that records cannot have, or values of a dtype that theirs cannot take. The text shows both."""


class MultipleWritersError(IpcError):
    """Records that only one handle may write are another's, which lives. The text names its process."""

    errno = errno.EBUSY


class TooManyWritersError(IpcError):
    """Records have as many writing handles as they may: 128."""

    errno = errno.EMFILE


class KeyTakenError(IpcError):
    """A key of a board is declared by another handle, which lives. The text names its process."""

    errno = errno.EBUSY


class BoardFullError(IpcError):
    """A board has no key left that nobody ever declared."""

    errno = errno.ENOSPC


class BoardKeyError(IpcError, KeyError):
    """A key of a board under which nobody has ever written."""

    __str__ = Exception.__str__  # KeyError's shows the text in quotes


class StreamNotFoundError(IpcError, LookupError):
    """A server of frames has no stream of this type."""


class MissingLibraryError(MsgqError, ImportError):
    """A library that is optional, and needed for this, is not installed. No socket needs one but by its backend."""


class ForkedSocketError(IpcError):
    """A call, reservation, loan, job, recorder or server of frames belongs to the parent. Begin it again in the child.

    On the fake backend, all sockets and handles that were made before the fork are the parent's.
    """


class ConcurrentUseError(IpcError):
    """A socket was used by two threads at once, or while a reservation is open."""

    errno = errno.EBUSY


class WaitTimeoutError(IpcError, TimeoutError):
    """What was waited for did not happen in time."""

    errno = errno.ETIMEDOUT


class InterruptedWaitError(IpcError, InterruptedError):
    """A signal's handler ran during a wait that ends then (msgq.posix_ipc). What it raised is the cause."""

    errno = errno.EINTR


class EventTimeoutError(WaitTimeoutError, RuntimeError):
    """An event of an event-gated run was not set in time. A RuntimeError, as stock's is."""


class EventError(IpcError, RuntimeError):
    """An event cannot be used: no handle manages its endpoint, or the handle was closed or replaced by another one."""


class ControllerDiedError(EventError):
    """The process that made the handle of an event died, so that nobody may ever set the event."""

    errno = errno.EOWNERDEAD


class DeadlockError(IpcError):
    """In virtual time somebody waits for what can never happen. On the real clock the program would hang.

    An `IpcError`, as the waits of sockets raise it.
    """

    errno = errno.EDEADLK


class RecordingError(MsgqError):
    """A recording cannot be written or read: no space, a file that is none, bytes that make no sense.

    No `IpcError`: it concerns files, and no socket.
    """


class SparkError(MsgqError):
    """Spark, or the Java that it runs on, refused what was asked of it. No socket can raise it."""


class Again(IpcError, BlockingIOError):
    """`recv` found no message: what pyzmq raises where `receive` returns None."""

    errno = errno.EAGAIN


class BackendNotAvailableError(IpcError, ImportError):
    """The backend that was asked for does not exist, or cannot run here.

    An `IpcError`, as making and connecting a socket raise it.
    """
