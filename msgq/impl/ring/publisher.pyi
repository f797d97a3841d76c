"""The publisher's socket."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy.typing as npt
from _typeshed import ReadableBuffer

from msgq.common.stats.topic import PublisherStats
from msgq.impl.ring.pub_connection import PubConnection

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
        data : anything with contiguous bytes. It is copy_message, so it may change as soon as this returns.
        flags : pyzmq's: 0 or NOBLOCK, which are the same. `InvalidValueError` for others, as SNDMORE.
        copy : pyzmq's; `data` is copy_message in any case.
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
        The GIL is kept for messages below 256 KiB, and released while a larger one is copy_message.
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
