"""Topics in shared memory: their sockets and files."""

from collections.abc import Coroutine, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.topic import PublisherStats, SubscriberStats, TopicCounts, TopicStats, Tracked
from msgq.impl.base.core import Context, ForkAwareHandle, Waitable
from msgq.impl.sockets.pyzmq_names import Frame

class TopicLock:
    """Holds off everybody who connects to, or removes, a topic: ``with TopicLock(endpoint, prefix) as there: ...``.

    For tools that look and then act; keep it for microseconds. `there` is False when there is no ring: then nothing is
    held, a newcomer may make one at any moment, and nothing may be removed.

    Raises
    ------
    SegmentError : another process holds it for over 5 s.
    """

    def __init__(self, endpoint: str | bytes, in_prefix: str | None = None) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def unlink_topic(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove an endpoint's files. Processes that have them mapped keep what they have, apart from newcomers.

    Parameters
    ----------
    endpoint : the endpoint's name.
    in_prefix : the prefix it lives in; None: the one in force, "": none.

    Returns
    -------
    Whether there was anything to remove.

    Raises
    ------
    SegmentError : a file could not be removed.
    """

def unlink_orphan(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove an endpoint's side segment if there is no ring; safe against everybody who connects meanwhile.

    Processes that still have the ring that was removed keep what they have mapped. The directories of a prefix must be
    there.

    Returns
    -------
    Whether it was removed; not when there is a ring (again), or no side segment (any more).

    Raises
    ------
    SegmentError : it could not be removed, a directory is missing, or another user's.
    """

@disjoint_base
class PubConnection(ForkAwareHandle):
    """The place of a topic's publisher. It is used as `PubSocket`."""

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        schema: Schema | None = None,
        trust: str | None = None,
        tracked: bool | None = None,
        prefix: str | None = None,
    ) -> None:
        """Become the endpoint's publisher; creates the topic if there is none.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        segment_size : bytes of the ring's data area, 128 to 2**32 - 1. A message may take a third of it. 0 takes an
            existing topic as it is, and makes a new one of 1 MiB.
        mode : permissions of the files if they are created, as 0o660; None: MSGQ_MODE, else 0o600.
        schema : what the messages are, kept beside the ring for tools; None leaves a former publisher's in place.
        trust : users, by name or id, with commas, whose files are used as one's own and root's are; "" is nobody. None:
            MSGQ_TRUST.
        tracked : True: each message carries when it was published and what it comes from (tracking.md), from the
            topic's first message on. None takes the topic as it is, False refuses a tracked one.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint.
        StateError : the context was terminated, the socket is connected; or the topic is tracked, or has messages
            that are not, and the other is wanted.
        InvalidValueError : a size, mode or user that is not possible.
        SegmentSizeError : the topic exists with another size.
        LayoutVersionError : another version of this library made the side segment.
        CorruptSegmentError : the files hold foreign bytes.
        MultiplePublishersError : the current publisher has been in the middle of a send for a second, or 16 processes
            that were taken over have not closed their sockets.
        SegmentError : a file cannot be created, opened, locked or mapped: no space, no permission, an owner who
            is not trusted.

        Notes
        -----
        Waits at most 5 s for the topic's lock, and 1 s for a send in progress, with the GIL released; signal handlers
        run meanwhile.
        """

    def unlink(self) -> bool:
        """Remove the topic's files, and return whether they were there.

        This publisher and the subscribers that are connected continue among themselves. Sockets that connect later
        create another topic of the same name.

        Raises
        ------
        EndpointClosedError : the socket is closed, or was never connected.
        SegmentError : no permission.
        """

    def close(self, linger: int | None = None) -> None:
        """Leave; what was published stays readable. Closing twice does nothing.

        Parameters
        ----------
        linger : pyzmq's, milliseconds; with ZMQ as the property `linger`. Nothing is under way here.

        Raises
        ------
        InvalidValueError : `linger` is below -1.
        ConcurrentUseError : another thread is in the middle of a send, or a reservation is open.
        """

class PubSocket(PubConnection):
    """Publishes messages on one endpoint.

    There is one publisher an endpoint: the last one to connect wins, and the former gets `MultiplePublishersError` at
    its next send. Subscribers stay connected and lose nothing when a publisher closes, dies, or is replaced.

    One thread at a time may use a socket; a second one gets `ConcurrentUseError`. In a forked child the socket takes
    over at its first send or reservation, as `close` and `connect` would, and the parent's gets
    `MultiplePublishersError` at its next one. Until then, and if it only counts readers, the parent stays the
    publisher. A reservation that is open at the fork is the parent's. Every method but `connect`, `close`, `stats` and
    the properties raises `EndpointClosedError` when the socket is closed or was never connected. A socket that is
    deleted, or still open when the process ends, is closed.
    """

    @property
    def tracked(self) -> bool:
        """Whether each message carries its publish and origin time, 16 bytes more in the ring."""

    @property
    def linger(self) -> int:
        """Milliseconds that messages may take to leave after `close` (compatibility: pyzmq's name): 0, whatever is set.

        A message is in the ring when `send` returns, so nothing is under way. With ZMQ it is 1000 unless it was set,
        and -1 is for ever.
        """

    @linger.setter
    def linger(self, milliseconds: int) -> None: ...
    @property
    def sndhwm(self) -> int:
        """Limit of messages that wait for each subscriber (compatibility: pyzmq's name): 0 (none), whatever is set.

        The ring is the only queue, and `segment_size` its limit. With ZMQ it is `MSGQ_ZMQ_HWM`, unless set before
        `connect`, and `StateError` on a connected socket.
        """

    @sndhwm.setter
    def sndhwm(self, messages: int) -> None: ...
    @property
    def sndtimeo(self) -> int:
        """Milliseconds that a send may wait (compatibility: pyzmq's name): 0, whatever is set. A send never waits."""

    @sndtimeo.setter
    def sndtimeo(self, milliseconds: int) -> None: ...
    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, flags: int = 0, copy: bool = True, *, origin_time: int = 0
    ) -> None:
        """Publish one message.

        Parameters
        ----------
        data : anything with contiguous bytes. It is copied, so it may change as soon as this returns.
        flags : pyzmq's: 0 or NOBLOCK, which are the same. `InvalidValueError` for others, as SNDMORE.
        copy : pyzmq's; `data` is copied in any case.
        origin_time : when that came about which the message is made from, nanoseconds of the host's clock; 0: as this
            thread's origin (tracking.md), and if it has none, now. On a tracked topic only.

        Raises
        ------
        MultiplePublishersError : another publisher took over; nothing was sent.
        MessageTooLargeError : the message takes more than a third of the ring; nothing was sent.
        SegmentError : /dev/shm is full, and the ring has not had all of its memory yet; nothing was sent.
        MessageSizeError : an empty message, while a stock subscriber is attached (it would abort); nothing was sent.
        TypeError, BufferError, ValueError : `data` has no contiguous bytes (what its exporter raises), or is an array
            of Python objects.
        StateError : an `origin_time`, and the topic is not tracked.
        InvalidValueError : an `origin_time` that is negative.

        Notes
        -----
        Never waits for subscribers. Makes no system call unless somebody sleeps, or a stock subscriber is attached, or,
        in the first lap of a ring, to have memory, up to 256 KiB ahead.
        The GIL is kept for messages below 256 KiB, and released while a larger one is copied.
        """

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], *, origin_time: int = 0
    ) -> int:
        """Publish several messages, and return how many.

        Parameters
        ----------
        messages : a list or tuple of buffers, which are published up to 64 at a time; any other iterable of buffers,
            each of which is published before the next is asked for; or a C-contiguous array (or buffer of more than
            one dimension), whose rows along the first axis are the messages.
        origin_time : of all of them, as in `send`. Without any, each is an origin of its own.

        Raises
        ------
        As `send`. What was written before the error is published.
        TypeError : one `bytes` or the like: that is one message, for `send`.
        """

    def reserve(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Write one message in place: ``with pub.reserve(size) as view: ...``.

        Parameters
        ----------
        size : bytes of the message.
        origin_time : as in `send`. (The publish time is that of the end of the block.)

        Returns
        -------
        A context manager. Entering gives a writable view of `size` bytes whose content is undefined; leaving publishes
        them, or nothing when the block raised. The view is released at the end of the block. An array made from it
        stays safe to access, but shows whatever the ring holds by then, and must not be written any more.

        Raises
        ------
        InvalidValueError : a negative size.
        StateError : when entering for the second time.
        When entering, as `send`; when leaving, MultiplePublishersError and EndpointClosedError.

        Notes
        -----
        While the block runs, this socket's other methods raise `ConcurrentUseError`; and a publisher that
        wants to take over waits for its end.
        """

    def loan(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Do what `reserve` does, under the name that channels use.

        Parameters
        ----------
        size : bytes of the message.
        origin_time : as in `send`.
        """

    def all_readers_updated(self) -> bool:
        """Tell whether every living subscriber has read all that was published; False when there is none.

        Compatibility: stock's name; see `wait_for_readers`. Passive subscribers are invisible and do not count.
        """

    def wait_for_readers(self, timeout: float | None = 1.0, interval: float = 0.001, n: int | None = None) -> None:
        """Wait until subscribers are there, or up to date.

        Parameters
        ----------
        timeout : seconds; None waits for ever.
        interval : seconds between two looks.
        n : return when at least so many subscribers are attached, whatever they have read; None: when
            `all_readers_updated`.

        Raises
        ------
        WaitTimeoutError : it did not come about in time. Also a TimeoutError.
        InvalidValueError : a negative time-out or `n`, or an interval that is not above 0.

        Notes
        -----
        Releases the GIL between the looks; signal handlers run.
        """

    def stats(self) -> PublisherStats:
        """Return how much was published on this endpoint by this publisher and its forerunners of this library."""

@disjoint_base
class SubConnection(Waitable):
    """A place in a topic, with a sleep that messages end. It is used as `SubSocket`."""

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: str | bytes = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        passive: bool = False,
        spin_us: int | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> None:
        """Subscribe from now on; creates the topic if there is none, unless `passive`.

        Parameters
        ----------
        context : not terminated.
        endpoint : the topic's name: 1 to 246 bytes of UTF-8 without "/" and NUL.
        address : the publisher's host. This backend is local and does not look at it.
        conflate : receive the newest message only.
        segment_size : bytes of the ring's data area, 128 to 2**32 - 1; 0 takes an existing topic as it is, and makes a
            new one of 1 MiB.
        mode : permissions of the files if they are created, as 0o660; None: MSGQ_MODE, else 0o600.
        passive : watch without a trace: map the topic, which must exist, read-only, and take no place in it. Statistics
            and `wait_for_readers` do not see such a subscriber, and it waits by looking every 0.05 to 1 ms.
        spin_us : microseconds that a wait looks for a message before it sleeps; None: MSGQ_SPIN_US, else 0.
        trust : users, by name or id, with commas, whose files are used as one's own and root's are; "" is nobody. None:
            MSGQ_TRUST.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint.
        StateError : the context was terminated, or the socket is connected.
        InvalidValueError : a size, mode, user or `spin_us` that is not possible.
        SegmentSizeError : the topic exists with another size.
        LayoutVersionError : another version of this library made the side segment.
        CorruptSegmentError : the files hold foreign bytes.
        SegmentError : a file cannot be created, opened, locked or mapped, or its owner is not trusted; for a passive
            subscriber, there is no topic.
        """

class SubSocket(SubConnection):
    """Receives the messages of one endpoint.

    It gets what is published after it connected. Who lags behind by more than the ring holds continues at the newest
    position, and `lost` grows; a message is never torn, repeated, or out of order. Any number may subscribe.

    One thread at a time may use a socket; a second one gets `ConcurrentUseError`, except in `close`. After a fork the
    child's socket goes on from the same message, independent of the parent's. The methods that receive raise
    `EndpointClosedError` when the socket is closed or was never connected, and `CorruptSegmentError` when there are
    bytes in the ring that no publisher writes; the next call then continues at the newest position. A socket that is
    deleted, or still open when the process ends, is closed.
    """

    @property
    def conflate(self) -> bool:
        """Whether `receive` passes over all but the newest message.

        May be set before `connect`, as with pyzmq, and stays; `StateError` on a connected socket.
        """

    @conflate.setter
    def conflate(self, value: bool) -> None: ...
    @property
    def lost(self) -> int | None:
        """Messages that were published after `connect` and passed over, by conflating or by being lapped.

        Exact as long as publishers of this library are at work, across their restarts too. None: unknown, because a
        stock publisher lapped us, which counts nothing.
        """

    @property
    def tracked(self) -> bool:
        """Whether each message carries its publish and origin time. Settled with the first message at the latest."""

    def setTimeout(self, timeout: float) -> None:
        """Choose how long a receive waits, in milliseconds (compatibility: stock's name).

        `receive(timeout=)` takes seconds.

        Parameters
        ----------
        timeout : milliseconds, 0 to 2**31 - 1, fractions rounded up; -1, the default, waits for ever. May be set before
            `connect`, and stays.

        Raises
        ------
        InvalidValueError : any other value.
        """

    def receive(self, non_blocking: bool = False, *, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest if the socket conflates; waits at most `timeout` seconds.

        Parameters
        ----------
        non_blocking : do not wait, whatever the time-out. `InvalidTypeError` for a time.
        timeout : seconds to wait, 0 to 2147483; None: as `setTimeout` says, without end unless it was called.

        Returns
        -------
        A copy of the message. None when there was none in time.

        Raises
        ------
        InvalidValueError, InvalidTypeError : a time-out that is not possible.

        Notes
        -----
        Sleeps with the GIL released; Python's signal handlers run, and what they raise ends the wait. The GIL is also
        released while a message of 256 KiB or more is copied.
        """

    def __iter__(self) -> Self:
        """Iterate over the messages, as `receive` returns them; until none comes within the time-out."""

    def __next__(self) -> bytes: ...
    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Take the next message with its times. The other methods leave them out.

        Parameters
        ----------
        non_blocking : do not wait, whatever the time-out.

        Returns
        -------
        The message, its publish and its origin time in nanoseconds. None when there was none in time.

        Raises
        ------
        StateError : the message that is there has no times: the topic is not tracked. It stays for the next call.

        Notes
        -----
        As `receive`.
        """

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Take the messages that are pending, oldest first.

        Parameters
        ----------
        limit : at most so many; None takes all that were published before the call.
        wait_for_one : when none is pending, wait for the first one, as long as the time-out says.

        Raises
        ------
        InvalidValueError : a negative `limit`.
        """

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Take the next message into memory of the caller's.

        Parameters
        ----------
        buffer : writable, contiguous bytes.
        non_blocking : do not wait, whatever the time-out.

        Returns
        -------
        The size of the message, in bytes; what lies behind it in `buffer` keeps its content, unless a copy was
        overtaken and made anew. None when there was no message in time.

        Raises
        ------
        MessageTooLargeError : the message is larger than the buffer. It is not lost: the next call finds it.
        TypeError, BufferError, ValueError : `buffer` is not writable, or not contiguous (what its exporter raises).
        """

    def receive_array(
        self, dtype: npt.DTypeLike, limit: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the pending messages, each of which is one element, as an array.

        Parameters
        ----------
        dtype : of one message, of a fixed size and without Python objects. The bytes are taken as they are.
        limit : at most so many; None takes all that are there.
        wait_for_one : when none is pending, wait for the first one, as long as the time-out says.

        Returns
        -------
        A new array of shape (messages,): those up to the first that has another size. Empty when there was none.

        Raises
        ------
        MessageSizeError : the first message does not have the size of a `dtype`. It is not lost.
        InvalidValueError : a negative `limit`, or a dtype without bytes of its own.
        """

    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False]) -> Frame: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True) -> bytes | Frame:
        """Do what `receive` does (compatibility: pyzmq's name).

        Parameters
        ----------
        flags : 0, or NOBLOCK.
        copy : False: return a `Frame`, which is bytes with the attributes `bytes` and `buffer`.

        Raises
        ------
        Again : there is no message, or none came in time.
        """

    def recv_into(self, buffer: WriteableBuffer | npt.NDArray[Any], flags: int = 0) -> int:
        """Do what `receive_into` does (compatibility: pyzmq's name). flags: 0, or NOBLOCK.

        Parameters
        ----------
        buffer : as in `receive_into`.
        flags : as in `recv`.

        Raises
        ------
        Again : there is no message, or none came in time.
        """

    @property
    def rcvtimeo(self) -> int:
        """The time-out in milliseconds (compatibility: pyzmq's name)."""

    @rcvtimeo.setter
    def rcvtimeo(self, timeout: float) -> None: ...
    @property
    def rcvhwm(self) -> int:
        """Limit of messages in the subscriber's queue (compatibility: pyzmq's name): 0 (none), whatever is set.

        There is no queue here: the ring is one, and `segment_size` its limit. With ZMQ it is `MSGQ_ZMQ_HWM`, unless set
        before `connect`, and `InvalidValueError` on a connected socket.
        """

    @rcvhwm.setter
    def rcvhwm(self, messages: int) -> None: ...
    @property
    def linger(self) -> int:
        """As that of `PubSocket` (compatibility: pyzmq's name). A subscriber has nothing that could linger."""

    @linger.setter
    def linger(self, milliseconds: int) -> None: ...
    def close(self, linger: int | None = None) -> None:
        """Leave; also by leaving a with block. Closing twice does no harm.

        While another thread waits with it, that one is woken and gets `EndpointClosedError`.

        Parameters
        ----------
        linger : pyzmq's, milliseconds; a subscriber has nothing that could linger.

        Raises
        ------
        InvalidValueError : `linger` is below -1.
        """

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, bytes]: ...
    def stats(self) -> SubscriberStats:
        """Return what this socket has received and lost since it connected."""

@disjoint_base
class TopicObserver:
    """One topic, kept mapped, read-only and without a trace; unmapped with the last reference.

    One thread at a time. When the ring is made anew this goes on with the old one (see `msgq.stats.topic_inodes`).
    """

    def __init__(self, endpoint: str, in_prefix: str) -> None: ...
    @property
    def endpoint(self) -> str:
        """The topic's name."""

    def is_bridged(self) -> bool:
        """Tell whether a bridge publishes it now, that is not known to be dead."""

    def counts(self) -> TopicCounts:
        """Return what moves; takes a microsecond."""

    def stats(self) -> TopicStats:
        """Return all of it, with who takes part and whether they live; see `msgq.stats.topic`."""
