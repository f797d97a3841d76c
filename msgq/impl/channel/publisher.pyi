"""A channel's publisher, and what it lends."""

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

import numpy.typing as npt
from _typeshed import ReadableBuffer
from typing_extensions import Buffer, disjoint_base

from msgq.impl.channel.channelfile import ChannelFile

@disjoint_base
class Publisher:
    """Publishes messages on a channel, beside others. Made by `msgq.Channel.publisher` and `msgq.Node.advertise`.

    It has a pool of slots in a file of its own, and each message lies in one of them: while it is in the channel, and
    as long as a subscriber keeps a view of it. Messages of one publisher are received in the order in which they were
    published; all subscribers see those of all publishers in one order. It never waits for subscribers, nor for another
    publisher, be that stopped or killed at whatever instruction.

    One thread at a time may use a publisher and its loans; a second one gets `ConcurrentUseError` while a large message
    is copied, or a slot is waited for. In a forked child it becomes another publisher of the channel at its first send
    or loan, with a pool of its own, and the parent's continues. A closed one raises `EndpointClosedError`. One that is
    deleted, or open when the process ends, is closed.
    """

    def __new__(cls, file: ChannelFile, name: str, slots: int | None, slot_bytes: int | None, max_bytes: int) -> Self:
        """Join the channel; `Channel.publisher` says how, and checks what is given. `name` is the node's."""

    @property
    def endpoint(self) -> str:
        """The channel's name."""

    @property
    def name(self) -> str:
        """The node's name, which subscribers see."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    @property
    def sent(self) -> int:
        """Messages that it published."""

    @property
    def bytes(self) -> int:
        """Bytes of these messages."""

    @property
    def refused(self) -> int:
        """Messages that were not published, because every slot was in use (`PoolExhaustedError`)."""

    @property
    def evicted(self) -> int:
        """Messages that left the channel before their turn, because their slots were needed for newer ones.

        They are `lost` to those who had not received them. It stays 0 with two slots more than the channel's capacity,
        unless views keep slots, or loans do.
        """

    @property
    def slots(self) -> int:
        """Slots of its pool: so many messages it can have in the channel, in views and on loan together."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of the largest message that fits into a slot; a larger one makes the pool grow."""

    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, *, timeout: float | None = 0.0, origin_time: int = 0
    ) -> int:
        """Publish one message.

        Parameters
        ----------
        data : anything with contiguous bytes, also none at all. It is copied, so it may change as soon as this returns.
        timeout : seconds to wait for a slot when views or loans have all of them; None waits for ever.
        origin_time : when the contents came about, nanoseconds of the host's clock (clock.md). 0: the thread's
            origin (tracking.md), or not told.

        Returns
        -------
        The message's position among all messages of the channel. It grows by one for each.

        Raises
        ------
        PoolExhaustedError : every slot is held by views, or lent, and none came free in time. The text says by whom.
        MessageTooLargeError : the pool would have to be larger than its `max_bytes`.
        TooManyPublishersError : the pool has to grow, and the channel has no row left for the larger one.
        SegmentError : the pool has to grow, and cannot: no space, or the channel was removed.
        SegmentSizeError : another program made a file of the channel smaller.
        CorruptSegmentError : another program wrote into the channel's order of messages.
        InvalidValueError : a time-out that is not possible, when it comes to waiting.
        TypeError, BufferError, ValueError : `data` has no contiguous bytes (what its exporter raises), or is an array
            of Python objects.
        With each of them nothing was sent.

        Notes
        -----
        The cost does not depend on the number of subscribers, and there is no system call unless one of them sleeps.
        The GIL is released while a message of 256 KiB or more is copied, and while a slot is waited for; signal
        handlers run then. Growing takes as long as it takes to make a file of the new size: say `slot_bytes` before.
        """

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /, *, origin_time: int = 0
    ) -> int:
        """Publish several messages.

        Each is published before the next is asked for; up to 256 rows of an array at a time are stamped alike, and wake
        those who sleep once.

        Parameters
        ----------
        messages : what `send` takes, one after another. The rows of an array are messages, too.
        origin_time : that of all of them, as in `send`.

        Returns
        -------
        How many it published.

        Raises
        ------
        As `send` without a time-out. What came before the error is published.
        """

    def loan(self, size: int, /, *, timeout: float | None = 0.0) -> Loan:
        """Lend a slot, to write a message where subscribers will read it.

        ``with publisher.loan(size) as loan:`` publishes at the end of the block, and nothing when that raised. Several
        loans may be open at once; messages are ordered by when they are published.

        Parameters
        ----------
        size : bytes of the message; fewer may be published.
        timeout : as in `send`.

        Returns
        -------
        The loan, whose contents are undefined: what an earlier message left there.

        Raises
        ------
        InvalidValueError : a negative size.
        As `send`, but for `data`.
        """

    def close(self) -> None:
        """Leave. What was published can still be received, as long as it is in the channel. Closing twice does nothing.

        Loans that are open cannot be published any more; the last of them frees the publisher's place.

        Raises
        ------
        ConcurrentUseError : another thread is in the middle of a send.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class Loan(Buffer):
    """A slot of a publisher, as a writable buffer of `len()` bytes: for `memoryview`, and for ``np.frombuffer``.

    `origin_time` may be set until it is published; see `Publisher.send`.

    It serves once: after it was published or discarded, its methods and its buffer raise `StateError`. A loan that is
    deleted is discarded. Memoryviews and arrays keep it, and must be released or deleted before it is published: they
    could change what subscribers read.

    It belongs to its publisher: one thread at a time uses the two, though any thread may write through its buffers.
    After a fork the child's copy raises `ForkedSocketError`, and must not be written.
    """

    def __init__(self) -> None:
        """Raise TypeError: a loan comes from `Publisher.loan`."""

    def __len__(self) -> int: ...
    @property
    def position(self) -> int | None:
        """The message's position among all messages of the channel; None before it is published."""

    origin_time: int

    def publish(self, size: int | None = None) -> int:
        """Publish what was written, and return its position.

        Parameters
        ----------
        size : the first so many bytes; None: all.

        Raises
        ------
        BufferError : a memoryview or an array still looks into the loan. It stays open.
        InvalidValueError : `size` is more than was lent. It stays open.
        StateError : it was published or discarded.
        EndpointClosedError : the publisher was closed.
        ForkedSocketError : it came through a fork.
        SegmentSizeError, CorruptSegmentError : as in `Publisher.send`; the loan is over.
        """

    def discard(self) -> None:
        """Give the slot back without a message; what was published stays so. Raises nothing."""

    # For Python 3.11, NumPy's stubs take no buffers but some built-in ones: `np.frombuffer(loan)` needs Any there.
    if sys.version_info >= (3, 12):
        def __enter__(self) -> Self: ...
    else:
        def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...
