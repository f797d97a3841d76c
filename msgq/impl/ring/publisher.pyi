"""The publisher's socket."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from _typeshed import ReadableBuffer
from typing_extensions import disjoint_base

from msgq.figures.topics import PublisherStats
from msgq.impl.ground.context import Context
from msgq.schema import Schema

@disjoint_base
class PubSocket:
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
    def endpoint(self) -> str:
        """The endpoint's name; "" before the first `connect`."""

    @property
    def closed(self) -> bool:
        """Whether the socket is closed, or was never connected."""

    @property
    def tracked(self) -> bool:
        """Whether each message carries its publish and origin time, 16 bytes more in the ring."""

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

        Raises
        ------
        EndpointNameError : the name cannot be an endpoint.
        StateError : the context was terminated, the socket is connected; or the topic is tracked, or has messages
            that are not, and the other is wanted.
        InvalidValueError : a size, mode or user that is not possible.
        SegmentSizeError : the topic exists with another size.
        LayoutVersionError : another version of this library made the side segment.
        CorruptSegmentError : the files hold foreign bytes.
        MultiplePublishersError : the present publisher has been in the middle of a send for a second, or 16 processes
            that were taken over have not closed their sockets.
        SegmentError : a file cannot be created, opened, locked or mapped: no space, no permission, an owner who
            is not trusted.

        Notes
        -----
        Waits at most 5 s for the topic's lock, and 1 s for a send in progress, with the GIL released; signal handlers
        run meanwhile.
        """

    @property
    def linger(self) -> int:
        """Milliseconds that messages may take to leave after `close`, under pyzmq's name: 0, whatever is set.

        A message is in the ring when `send` returns, so nothing is under way. With ZMQ it is 1000 unless it was set,
        and -1 is for ever.
        """

    @linger.setter
    def linger(self, milliseconds: int) -> None: ...
    @property
    def sndhwm(self) -> int:
        """The limit of messages that wait for each subscriber, under pyzmq's name: 0 (none), whatever is set.

        The ring is the only queue, and `segment_size` its limit. With ZMQ it is `MSGQ_ZMQ_HWM`, unless set before
        `connect`, and `StateError` on a connected socket.
        """

    @sndhwm.setter
    def sndhwm(self, messages: int) -> None: ...
    @property
    def sndtimeo(self) -> int:
        """Milliseconds that a send may wait, under pyzmq's name: 0, whatever is set. A send never waits."""

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

    def all_readers_updated(self) -> bool:
        """Tell whether every living subscriber has read all that was published. False when there is none.

        Passive subscribers are invisible and do not count.
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

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
