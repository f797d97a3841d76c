"""Channels in shared memory: the channel file, publishers with their loans, subscribers with their samples."""

import sys
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Literal, Self, overload

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import Buffer, disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.channel import ChannelMessage, ChannelPublisher, ChannelStats, ChannelSubscriber, PublisherInfo
from msgq.common.stats.endpoint import EndpointCounts
from msgq.impl.base.core import EndpointFile, ForkAwareHandle, PinnedView, Waitable

@disjoint_base
class ChannelFile(EndpointFile):
    """A channel's file, mapped for as long as somebody has this. Made by `open_channel_file`.

    Until it is closed others see that the channel is in use, unless it looks on only. Any thread may use it, in a
    forked child too. What changes the file waits at most 5 s for its lock, with the GIL
    released, and raises `SegmentError` then, or when the channel was removed.
    """

    @property
    def writable(self) -> bool:
        """False: it was opened to look on, and nothing here may change it."""

    @property
    def inode(self) -> int:
        """The file's; a channel that is made anew under the same name has another."""

    @property
    def config(self) -> tuple[int | None, int | None, int | None, bool | None]:
        """Capacity in messages, limits of publishers and subscribers, stamps. None: not set yet.

        Of the subscribers None is also that there may be any number.
        """

    def apply_config(
        self,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        publishes: bool = False,
    ) -> None:
        """Agree on a configuration. The caller has checked the values.

        Parameters
        ----------
        capacity : messages that stay for those who are slower, a power of two, 2 to 8192; None: as others say.
        publishers : limit, 1 to 63; None as above.
        subscribers : limit, 1 to 64; None as above.
        stamps : whether messages have the time of their publishing; None as above.
        publishes : a publisher comes, so what nobody has said gets its default now.

        Raises
        ------
        ChannelMismatchError : somebody said something else before.
        """

    @property
    def messages(self) -> int:
        """How many were published so far, by all publishers."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of who made the channel."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""

    def set_schema(self, schema: Schema, replace: bool) -> Schema:
        """Describe the messages.

        Parameters
        ----------
        schema : to be set.
        replace : also when there is one. Else that stays.

        Returns
        -------
        The one that is there then.
        """

    def describe_viewer(self, row: int) -> str:
        """Return name and pid of who has a bit in pins, or had it last; for texts."""

    def describe_subscribers(self) -> list[str]:
        """Return names and pids of the subscribers that are listed and live; for texts."""

    def close(self) -> None:
        """Say no more that the channel is open here. Nothing is to be made of it afterwards."""

    def stats(self) -> ChannelStats:
        """Return who takes part, what the dead left, and who holds which views; it changes nothing."""

    def counts(self) -> EndpointCounts:
        """Return what moves; takes some microseconds for each subscriber that is listed, and changes nothing."""

    def remove_unreachable_pools(self) -> ChannelStats:
        """Remove the pools of the dead that nobody can reach, and those of no row. Returns what was there before.

        Raises
        ------
        SegmentError : one cannot be removed.
        """

    def unlink(self, wanted: Callable[[ChannelStats], bool] | None = None) -> bool:
        """Remove the channel's files. Who has them mapped goes on, apart from newcomers.

        Parameters
        ----------
        wanted : is asked first, while nobody can join; None: remove them in any case.

        Returns
        -------
        Whether they were removed.

        Raises
        ------
        SegmentError : a file cannot be removed, or the channel was removed before.
        """

def open_channel_file(
    name: str,
    in_prefix: str,
    create: bool | None = False,
    mode: int | None = None,
    trust: str | None = None,
    writable: bool = False,
    creator: str = "",
) -> ChannelFile:
    """Open a channel, by default to look on, or make it.

    Parameters
    ----------
    name : the channel's, checked.
    in_prefix : the prefix it lives in, checked; "": none.
    create : True: only make it; False: only open it; None: either.
    mode : permissions of a new channel's files; None: MSGQ_MODE, or 0o600.
    trust : whose files are used as one's own are; None: MSGQ_TRUST.
    writable : False: only look on.
    creator : who makes it, for people.

    Raises
    ------
    InvalidValueError : `mode` or `trust` makes no sense.
    LayoutVersionError : it was made by another version of this library.
    CorruptSegmentError : the file is no channel.
    SegmentError : it is not there, or is there already, or cannot be opened or made; or its owner is not trusted.
    """

def remove_pool_without_channel(name: str, in_prefix: str, uid: int) -> bool:
    """Remove a pool of a channel that has no file.

    Returns
    -------
    False: it has one, or the pool is gone.
    """

@disjoint_base
class Publisher(ForkAwareHandle):
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

    @property
    def name(self) -> str:
        """The node's name, which subscribers see."""

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

    def stats(self) -> ChannelPublisher:
        """Return its counters, from all its pools; of the pool, the current one. Also of a closed publisher."""

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

@disjoint_base
class Subscriber(Waitable):
    """Receives the messages of a channel. Made by `msgq.Channel.subscriber` and `msgq.Node.subscribe`.

    It gets the messages of all publishers in one order, none twice and none torn. Who is slower than the channel's
    capacity allows loses the oldest ones, and `lost` says exactly how many. Any number may subscribe; the first 64 are
    listed with their names, and 64 at most take views. A passive one leaves no trace at all: it copies, and waits by
    looking every 0.05 to 1 ms.

    Time-outs are seconds: 0 looks once, None waits for ever. All methods that receive raise `EndpointClosedError` when
    it is closed, also by another thread while they wait, and ::

        LostMessagesError     messages were lost, with ``on_lost="raise"``; the next call goes on behind them
        CorruptSegmentError   another program wrote into the channel; the next call goes on behind that
        SegmentSizeError      another program made a file of the channel smaller: close it, and open it again
        SegmentError          the pool of a message cannot be opened. It is lost, unless memory or descriptors ran out

    One thread at a time may use it; a second one gets `ConcurrentUseError`, except in `close`. After a fork the child's
    goes on from the same message, with places of its own; views that came along are the parent's. One that is deleted,
    or open when the process ends, is closed.
    """

    def stats(self) -> ChannelSubscriber:
        """Return its counters. `lost` includes what the next receive will report. Also of a closed subscriber."""

    @property
    def name(self) -> str:
        """The node's name."""

    @property
    def max_views(self) -> int:
        """How many views it may hold at once."""

    @property
    def passive(self) -> bool:
        """Whether it only looks on."""

    @property
    def received(self) -> int:
        """Messages that it has received."""

    @property
    def lost(self) -> int:
        """Messages since it joined that it will never receive: overwritten, retracted, or passed over by conflating.

        One's own messages that are left out count neither here nor as received.
        """

    @property
    def resets(self) -> int:
        """How often publishers overtook it by more than the capacity."""

    @property
    def position(self) -> int:
        """Position of the message that it looks for next; 0 before the channel has a capacity."""

    @property
    def views_held(self) -> int:
        """Views that it keeps."""

    @property
    def last(self) -> ChannelMessage | None:
        """What is known of the message received last; None before the first one."""

    @overload
    def receive(self, timeout: None = None) -> bytes: ...
    @overload
    def receive(self, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest if it conflates.

        Parameters
        ----------
        timeout : seconds to wait for one; 0 looks once, None waits for ever.

        Returns
        -------
        A copy of the message. None when there was none in time.

        Raises
        ------
        InvalidValueError : a time-out that is not possible.

        Notes
        -----
        Sleeps with the GIL released; signal handlers run, and what they raise ends the wait. The GIL is also released
        while a message of 256 KiB or more is copied.
        """

    @overload
    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: None = None) -> int: ...
    @overload
    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: float | None = None) -> int | None:
        """Take the next message into memory of the caller's.

        Parameters
        ----------
        buffer : writable, contiguous bytes.
        timeout : as in `receive`.

        Returns
        -------
        The size of the message, in bytes; what lies behind it in `buffer` keeps its content, unless a copy was
        overtaken and made anew. None when there was no message in time.

        Raises
        ------
        MessageTooLargeError : the message is larger than the buffer. It stays for the next call.
        TypeError, BufferError, ValueError : `buffer` is not writable, or not contiguous (what its exporter raises).
        """

    def receive_many(self, limit: int | None = None) -> list[bytes]:
        """Take the messages that are there, oldest first, and wait for none.

        Parameters
        ----------
        limit : at most so many; None takes all that were published before the call.

        Returns
        -------
        Copies of the messages; with ``on_lost="raise"`` those before a loss, which the next call raises.

        Raises
        ------
        InvalidValueError : a negative `limit`.
        """

    def receive_array(
        self,
        dtype: npt.DTypeLike,
        limit: int | None = None,
        *,
        timeout: float | None = 0.0,
        publishers: list[PublisherInfo] | None = None,
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the messages that are there, each of which is one element, as an array.

        Parameters
        ----------
        dtype : of one message, of a fixed size and without Python objects. The bytes are taken as they are.
        limit : at most so many; None takes all that were published before the call.
        timeout : seconds to wait for the first one; 0 looks once, None waits for ever.
        publishers : a list to which who published each of them is added.

        Returns
        -------
        A new array of shape (messages,). It ends before a message of another size, and before a loss, so that its
        elements are consecutive; empty when nothing was there.

        Raises
        ------
        MessageSizeError : the first message does not have the size of a `dtype`. It stays for the next call.
        InvalidValueError : a negative `limit`, or a dtype without bytes of its own.
        """

    @overload
    def receive_view(self, timeout: None = None) -> Sample: ...
    @overload
    # Any instead of None: `with subscriber.receive_view(timeout=1.0) as sample` is the usual call.
    def receive_view(self, timeout: float | None = None) -> Sample | Any:
        """Take the next message without a copy.

        The first call takes one of the channel's 64 places for subscribers with views.

        Parameters
        ----------
        timeout : as in `receive`.

        Returns
        -------
        A view of the message, which does not change while the view is held. None when there was none in time.

        Raises
        ------
        TooManyViewsError : it holds `max_views` of them; release one.
        TooManySubscribersError : 64 others take views. `receive` works still.
        StateError : it is passive, and cannot hold anything.
        """

    def arecv(self) -> Coroutine[Any, Any, bytes]:
        """Return a copy of the next message, in a task of an asyncio loop. It waits only if there is none.

        A cancelled call takes nothing. One task at a time may wait.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits for it.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, bytes]: ...

@disjoint_base
class Sample(PinnedView):
    """A message in the memory of its publisher, as a read-only buffer of `len()` bytes. From `Subscriber.receive_view`.

    Its bytes stay what they are until it is released: by `release`, at the end of a ``with`` block, or when it and all
    memoryviews and arrays that were made from it are gone. It may outlive the subscriber, the publisher and the
    channel. Afterwards its buffer raises `EndpointClosedError`.

    While it is held, its publisher has one slot less. Any thread may use and release it. In a forked child it can be
    read for as long as the parent holds it, and releasing it does nothing.
    """

    @property
    def position(self) -> int:
        """The message's position among all messages of the channel."""

    @property
    def publish_time(self) -> int:
        """When it was published, nanoseconds of the host's clock (clock.md); 0: the channel has no stamps."""

    @property
    def origin_time(self) -> int:
        """When its contents came about, as its publisher said, nanoseconds of the host's clock; 0: it did not."""

    @property
    def publisher(self) -> PublisherInfo:
        """Who published it."""

    def __bool__(self) -> Literal[True]: ...
    # For Python 3.11, NumPy's stubs take no buffers but some built-in ones: `np.frombuffer(sample)` needs Any there.
    if sys.version_info >= (3, 12):
        def __enter__(self) -> Self: ...
    else:
        def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def open_publisher(
    file: ChannelFile, name: str, slots: int | None, slot_bytes: int | None, max_bytes: int
) -> Publisher:
    """Join the channel as a publisher of the node `name`. `Channel.publisher` has checked the arguments."""

def open_subscriber(
    file: ChannelFile,
    name: str,
    history: int,
    max_views: int,
    conflate: bool,
    newest: bool,
    raises: bool,
    own: bool,
    spin_us: int | None,
) -> Subscriber:
    """Join the channel as a subscriber of the node `name`. `Channel.subscriber` has checked the arguments.

    `newest`: after a lap, continue at the newest position. `raises`: raise `LostMessagesError` for each loss.
    """
