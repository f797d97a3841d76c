"""Channels in shared memory: channel files, publishers with loans, subscribers with samples."""

import sys
from collections.abc import Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex, final, overload

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import Buffer, disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.channel import ChannelMessage, ChannelPublisher, ChannelStats, ChannelSubscriber, PublisherInfo
from msgq.common.stats.endpoint import EndpointCounts
from msgq.impl.base.core import EndpointFile, ForkAwareHandle, PinnedView, Waitable

#: Limits of the capacity of a channel, and of the slots of a pool.
CAPACITY_MAX: int
SLOTS_MAX: int
SLOT_BYTES_MAX: int

@disjoint_base
class ChannelFile(EndpointFile):
    """The mapped file of a channel, created by `open_channel_file`.

    Until `close`, other processes see that the channel is in use, unless the file was opened as an observer.

    Threads: any thread may use the file, in the process that opened the file and in forked children.

    Methods that change the file wait up to 5 s for its lock, with the GIL released. If the lock is not free after 5 s,
    or the channel was removed, these methods raise `SegmentError`.
    """

    @property
    def writable(self) -> bool:
        """False if the file was opened as an observer. Observers must not change the file."""

    @property
    def inode(self) -> int:
        """Inode of the file. A new channel with the same name has another inode."""

    @property
    def config(self) -> tuple[int | None, int | None, int | None, bool | None]:
        """Capacity in messages, limits of publishers and subscribers, and whether messages have a publish time.

        None: not set yet. A subscriber limit of None also means that the number is unlimited.
        """

    def apply_config(
        self,
        capacity: int | None = None,
        publishers: int | None = None,
        subscribers: int | None = None,
        stamps: bool | None = None,
        publishes: bool = False,
    ) -> None:
        """Complete the configuration. The caller has checked the values.

        Args:
            capacity: messages kept for slow subscribers, a power of two from 2 to 8192; None: keep the existing value.
            publishers: maximum number, 1 to 63; None: keep the existing value.
            subscribers: maximum number, 1 to 64; None: keep the existing value.
            stamps: True if messages have a publish time; None: keep the existing value.
            publishes: True if the caller is a publisher: set missing values to their defaults.

        Raises:
            ChannelMismatchError: a value differs from the existing one.
        """

    @property
    def messages(self) -> int:
        """Number of messages published by all publishers."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and process id of the creator."""

    @property
    def created_ns(self) -> int:
        """Creation time, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages, or None."""

    def set_schema(self, schema: Schema, replace: bool) -> Schema:
        """Set the schema of the messages.

        Args:
            schema: the new schema.
            replace: True: replace an existing schema. False: keep it.

        Returns:
            The schema after the call.
        """

    def describe_viewer(self, row: int) -> str:
        """Return the name and process id of a viewer row's current or last owner, for messages to users."""

    def close(self) -> None:
        """Close the file, which then accepts no publishers and subscribers. Existing ones stay open.

        Afterwards, the statistics are those of the moment of the close.
        """

    def stats(self) -> ChannelStats:
        """Return the participants, leftovers of dead processes, and held views. Changes nothing."""

    def counts(self) -> EndpointCounts:
        """Return the counters. The call takes some microseconds for each subscriber with a row, and changes nothing."""

    def remove_unreachable_pools(self) -> ChannelStats:
        """Remove unreachable pools of dead publishers, and pools without a row.

        Returns the statistics before the removal.

        Raises:
            SegmentError: a pool cannot be removed.
        """

    def unlink(self, wanted: Callable[[ChannelStats], bool] | None = None) -> bool:
        """Remove the files of the channel.

        Processes that have mapped the files can still exchange messages with each other.

        Args:
            wanted: called with the statistics while the lock is held; the files are removed only if `wanted` returns
                True. None: always remove.

        Returns:
            True if the files were removed.

        Raises:
            SegmentError: a file cannot be removed, or the channel was removed before.
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
    """Open a channel, by default as an observer, or create it.

    Args:
        name: name of the channel, already checked.
        in_prefix: prefix of the channel, already checked; "": no prefix.
        create: True: create a new file; False: open an existing file; None: open the file, or create it if it does not
            exist.
        mode: permissions of a new channel's files; None: MSGQ_MODE, or 0o600.
        trust: users whose files are accepted in addition to own files and root's; None: MSGQ_TRUST.
        writable: False: open the channel as an observer.
        creator: name of the creator, shown to users.

    Raises:
        InvalidValueError: `mode` or `trust` is invalid.
        LayoutVersionError: another version of msgq created the channel.
        CorruptSegmentError: the file is not a channel.
        SegmentError: the channel is missing or exists already, cannot be opened or created, or its owner is not
            trusted.
    """

def check_config(capacity: object, publishers: object, subscribers: object, name: str) -> None:
    """Check settings of a channel; None: not given.

    Raises:
        InvalidValueError: a setting is out of range.
    """

def check_publisher_settings(slots: object, slot_bytes: object, max_bytes: object, name: str) -> None:
    """Check settings of a publisher on the channel `name`. As `check_config`."""

def check_subscriber_settings(
    history: object, max_views: object, on_lapped: object, on_lost: object, name: str
) -> None:
    """Check settings of a subscriber to the channel `name`. As `check_config`."""

def remove_pool_without_channel(name: str, in_prefix: str, uid: int) -> bool:
    """Remove a pool whose channel has no file.

    Returns:
        False if the channel has a file, or the pool was removed before.
    """

@disjoint_base
class Publisher(ForkAwareHandle):
    """Publishes messages on a channel, together with other publishers.

    `msgq.Channel.publisher` and `msgq.Node.advertise` create publishers.

    A publisher has a pool of slots in its own file. Each message occupies one slot while the message is in the channel,
    and while a subscriber holds a view of the message. Subscribers receive the messages of one publisher in publishing
    order, and all subscribers see all messages in the same order. A publisher never waits for other processes, even if
    these processes are stopped or killed, unless you call `wait_for_room`.

    Threads: one thread at a time may use a publisher, but any thread may publish or discard its loans. While one thread
    copies a large message or waits for a slot or room, a second thread gets `ConcurrentUseError`.

    Fork: a forked child's copy of the publisher is a separate publisher. At its first send or loan, this publisher
    joins the channel with a new pool. The parent's publisher continues.

    Lifetime: a closed publisher raises `EndpointClosedError`. Deleted publishers close, and open publishers close when
    the process ends.
    """

    @property
    def _file(self) -> ChannelFile: ...
    def _observe(self) -> None:
        """Tell the bus about each message from now on. Only in a simulation."""

    def _read_published(self) -> list[tuple[int, Any, int, int, int]]:
        """Return the newest message for the bus: position, payload, next position, publish time, origin time."""

    def _can_take_slot(self) -> bool:
        """Return True if a wait for a slot is over. Only on a bus."""

    def _has_room(self, messages: int) -> bool:
        """Return True if a wait for room is over. Only on a bus."""

    def _abandon_handle(self) -> None:
        """End the publisher as the death of its process does: its row and pool stay. Only on a bus."""

    @property
    def name(self) -> str:
        """Name of the node, shown to subscribers."""

    @property
    def sent(self) -> int:
        """Number of published messages."""

    @property
    def bytes(self) -> int:
        """Total bytes of the published messages."""

    @property
    def refused(self) -> int:
        """Number of messages not published because all slots were in use (`PoolExhaustedError`)."""

    @property
    def evicted(self) -> int:
        """Number of messages evicted early because newer messages needed their slots.

        If a subscriber had not received an evicted message, the subscriber counts the message as `lost`. The number
        stays 0 if the pool has two slots more than the channel's capacity, unless views or loans hold slots.
        """

    def stats(self) -> ChannelPublisher:
        """Return the counters of all pools of this publisher, and the size of the current pool.

        Works after `close`, too.
        """

    @property
    def slots(self) -> int:
        """Number of slots of the pool, shared by messages in the channel, views and loans."""

    @property
    def slot_bytes(self) -> int:
        """Bytes of the largest message that fits into a slot. A larger message grows the pool."""

    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, *, timeout: float | None = 0.0, origin_time: int = 0
    ) -> int:
        """Publish one message.

        Args:
            data: any object with contiguous bytes. The object may be empty. `send` copies the bytes, so you may change
                `data` afterwards.
            timeout: seconds to wait for a slot if views or loans hold all slots; None waits forever.
            origin_time: time of the event that caused the message, in nanoseconds of the host's clock (clock.md). 0:
                the origin of this thread (tracking.md), or none.

        Returns:
            Position of the message among all messages of the channel. Each message increments the position by one.

        Raises:
            PoolExhaustedError: views or loans held all slots until the timeout. The error text names the owners of the
                views and loans.
            MessageTooLargeError: the pool would exceed its `max_bytes`.
            TooManyPublishersError: the pool must grow, and the channel has no row for the larger pool.
            SegmentError: the slot is used for the first time, and `/dev/shm` has no memory for the slot. Or the pool
                must grow, but memory is full or the channel was removed.
            SegmentSizeError: another program truncated a file of the channel.
            CorruptSegmentError: another program wrote to the channel's order of messages.
            InvalidValueError: the timeout is invalid. If the call need not wait, `timeout` is not checked.
            TypeError, BufferError, ValueError: `data` has no contiguous bytes, or is an array of Python objects.

        Notes:
            If `send` raises, the message was not sent. The cost does not depend on the number of subscribers. `send`
            makes a system call to wake a sleeping subscriber, and to allocate memory of slots before their first use.
            The GIL is released during the copy of 256 KiB or more, and during the wait for a slot. Signal handlers run
            during the wait. To grow, the pool creates a new file. To avoid growth, set `slot_bytes`.
        """

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /, *, origin_time: int = 0
    ) -> int:
        """Publish several messages.

        Each message is published before the iterator is asked for the next message. Rows of an array are published in
        groups of up to 256, with one publish time and one wake for each group.

        Args:
            messages: an iterable of objects that `send` accepts, or an array whose rows are the messages.
            origin_time: origin of all messages, as in `send`.

        Returns:
            Number of published messages.

        Raises:
            Exception: the same errors as `send` without a timeout. Messages before the error are published.
        """

    def wait_for_room(self, messages: int = 1, *, timeout: float | None = None) -> bool:
        """Wait until further messages overwrite no message that a subscriber has not received yet.

        Use this call before messages that are published faster than subscribers receive them.

        Args:
            messages: number of messages that you will publish before you wait again. If several publishers publish at
                the same time, give the number of messages that all of them publish together before each of them waits
                again.
            timeout: seconds to wait for slow subscribers; 0: do not wait; None: wait without a limit.

        Returns:
            True if the next `messages` messages add to the `lost` of no subscriber that is listed below. False: a
            subscriber left no room until the timeout.

        Raises:
            InvalidValueError: `messages` is less than 1, or more than the channel's capacity or the publisher's slots.
                Or the timeout is invalid. If the call need not wait, `timeout` is not checked.
            EndpointClosedError: the publisher is closed, or was closed during the wait.
            SegmentSizeError: another program truncated a file of the channel.

        Notes:
            The first 64 subscribers of the channel count, also those that conflate, and those of this process. Dead
            subscribers, passive subscribers and subscribers without a row do not count, and neither do messages before
            a subscriber joined (`history`). A stopped subscriber leaves no room until the timeout.

            The promise needs that all publishers of the channel wait. It ends with a message for which the pool must
            grow.

            If the channel has room, the call usually compares two positions. If the known room is used up, the call
            loads the cursors of the subscribers. Subscribers wake no publisher, so a waiting publisher first yields its
            core and then takes naps of 50 us to 1 ms. The GIL is released during the naps, and signal handlers run
            after each nap.
        """

    def loan(self, size: int, /, *, timeout: float | None = 0.0) -> Loan:
        """Lend a slot, so that you can write a message in place.

        ``with publisher.loan(size) as loan:`` publishes the message at the end of the block. If the block raises, no
        message is published. Several loans may be open at the same time. Subscribers receive the messages of several
        loans in the order of their publishing.

        Args:
            size: bytes of the message. You may publish fewer bytes.
            timeout: as in `send`.

        Returns:
            The loan. The loan contains bytes of an earlier message. Overwrite all bytes that you publish.

        Raises:
            InvalidValueError: the size is negative. All errors of `send`, except errors about `data`.
        """

    def close(self) -> None:
        """Leave the channel.

        Published messages stay readable while they are in the channel. A second close has no effect.

        Open loans cannot be published afterwards. The publisher's row is released when the last loan ends.

        Raises:
            ConcurrentUseError: another thread sends.
        """

@disjoint_base
class Loan(Buffer):
    """A slot of a publisher as a writable buffer, for `memoryview` and ``np.frombuffer``.

    `len()` returns the size in bytes.

    You may set `origin_time` before publishing; see `Publisher.send`.

    A loan is published or discarded once. After a loan has ended, the methods and the buffer of this loan raise
    `StateError`. A deleted loan is discarded. Before you publish a loan, release or delete its memoryviews and arrays.
    Otherwise, writes through these objects could change the published message.

    Threads: any thread may publish or discard a loan, and write through its buffers; the first call ends the loan.

    Fork: the child's copy of a loan raises `ForkedSocketError`. Do not write to the buffer of this copy.
    """

    def __init__(self) -> None:
        """Raise TypeError. Use `Publisher.loan`."""

    def __len__(self) -> int: ...
    def __setitem__(self, index: slice | SupportsIndex, value: Buffer | npt.NDArray[Any] | int, /) -> None:
        """Write into the message: ``loan[:] = data``. A slice and its data have the same number of bytes.

        Raises:
            InvalidValueError: the slice and the data have different sizes, or a value for one byte is not 0 to 255.
            InvalidTypeError: the data has no contiguous bytes.
            StateError: the loan has ended.
        """

    @property
    def position(self) -> int | None:
        """Position of the message among all messages of the channel; None: the message is not published."""

    origin_time: int

    def publish(self, size: int | None = None) -> int:
        """Publish the message, and return its position.

        Args:
            size: number of bytes to publish, from the start of the loan; None: all.

        Raises:
            BufferError: a memoryview or an array still uses the loan. The loan stays open.
            InvalidValueError: `size` exceeds the loan. The loan stays open.
            StateError: the loan was published or discarded before.
            EndpointClosedError: the publisher is closed.
            ForkedSocketError: the loan belongs to the parent process.
            SegmentSizeError, CorruptSegmentError: as in `Publisher.send`. The loan has ended.
        """

    def discard(self) -> None:
        """Return the slot without publishing. No effect after `publish`. Raises nothing."""

    # On Python 3.11, NumPy's stubs accept only some built-in buffers, so `np.frombuffer(loan)` needs Any there.
    if sys.version_info >= (3, 12):
        def __enter__(self) -> Self: ...
    else:
        def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@final
class ArrivalView:
    """What has arrived at a subscriber in a simulation.

    The messages are in the channel as soon as they are published. The subscriber sees only those that have arrived.
    """

    @property
    def conflates(self) -> bool:
        """True if the subscriber receives only the newest message."""

    def add_arrival(self, position: int) -> None:
        """Let the subscriber receive the message; once more if it has arrived before."""

    def add_drop(self, position: int) -> None:
        """Let the subscriber lose the message in its turn."""

    def lap(self, end: int) -> None:
        """Let the subscriber lose all unread messages before `end`, as if they were overwritten."""

@disjoint_base
class Subscriber(Waitable):
    """Receives the messages of a channel.

    `msgq.Channel.subscriber` and `msgq.Node.subscribe` create subscribers.

    A subscriber receives the messages of all publishers in one order. No message is received twice, and none is torn.
    If a subscriber falls behind by more than the channel's capacity, the subscriber loses the oldest messages. `lost`
    is the exact number of lost messages. Any number of subscribers may join. The statistics list the names of the first
    64 subscribers. At most 64 subscribers can take views. A passive subscriber writes nothing to the channel. A passive
    subscriber can only copy messages, and its waits poll every 0.05 to 1 ms.

    Timeouts are in seconds: 0 checks once, None waits forever. If the subscriber is closed, methods that receive raise
    `EndpointClosedError`. This includes a close by another thread during a wait. These methods also raise ::

        LostMessagesError     messages were lost, with ``on_lost="raise"``. The next call continues after the lost
                              messages
        CorruptSegmentError   another program wrote to the channel. The next call continues after the invalid data
        SegmentSizeError      another program truncated a file of the channel: close the channel and open it again
        SegmentError          the pool of a message cannot be opened. The message is lost, unless memory or
                              descriptors ran out

    Threads: one thread at a time may use a subscriber, and a second thread gets `ConcurrentUseError`. Any thread may
    call `close`.

    Fork: in a forked child, the subscriber continues at the same message as a separate subscriber. Inherited views
    belong to the parent.

    Lifetime: deleted subscribers close, and open subscribers close when the process ends.
    """

    @property
    def _file(self) -> ChannelFile: ...
    def _open_view(self) -> ArrivalView:
        """Show only what arrives from now on, besides what is published already. Only in a simulation."""

    def _receive_now(self) -> bytes | None:
        """Return the next message; None: no message is there."""

    def _default_timeout_ns(self) -> None:
        """Return the timeout of a receive without an argument: none."""

    def stats(self) -> ChannelSubscriber:
        """Return the counters. `lost` includes losses that the next receive will report. Works after `close`, too."""

    @property
    def name(self) -> str:
        """Name of the node."""

    @property
    def max_views(self) -> int:
        """Maximum number of views held at once."""

    @property
    def passive(self) -> bool:
        """True if the subscriber is passive: the subscriber writes nothing to the channel."""

    @property
    def received(self) -> int:
        """Number of received messages."""

    @property
    def lost(self) -> int:
        """Number of messages missed since the join: overwritten, retracted, or skipped by conflating.

        If own messages are excluded (``own=False``), these messages count neither as lost nor as received.
        """

    @property
    def resets(self) -> int:
        """Number of times that publishers lapped the subscriber."""

    @property
    def position(self) -> int:
        """Position of the next message; 0 before the channel has a capacity."""

    @property
    def views_held(self) -> int:
        """Number of held views."""

    @property
    def last(self) -> ChannelMessage | None:
        """Information about the message received last; None: no message received yet."""

    @overload
    def receive(self, timeout: None = None) -> bytes: ...
    @overload
    def receive(self, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest message if the subscriber conflates.

        Args:
            timeout: seconds to wait; 0 checks once, None waits forever.

        Returns:
            A copy of the message, or None at the timeout.

        Raises:
            InvalidValueError: the timeout is invalid.

        Notes:
            Sleeps with the GIL released. Signal handlers run, and an exception of a handler ends the wait. The GIL is
            also released during a copy of 256 KiB or more.
        """

    @overload
    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: None = None) -> int: ...
    @overload
    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: float | None = None) -> int | None:
        """Take the next message into your own memory.

        Args:
            buffer: writable, contiguous bytes.
            timeout: as in `receive`.

        Returns:
            Bytes of the message, or None at the timeout. The bytes of `buffer` after the message keep their content,
            and all bytes if no message was received. The content of `buffer` beyond the result is undefined only if a
            publisher overwrote a message during its copy.

        Raises:
            MessageTooLargeError: the message is larger than the buffer. The message stays for the next call.
            TypeError, BufferError, ValueError: `buffer` is not writable, or not contiguous.
        """

    def receive_many(self, limit: int | None = None) -> list[bytes]:
        """Take the waiting messages, oldest first, without a wait.

        Args:
            limit: maximum number of messages; None: all messages published before the call.

        Returns:
            Copies of the messages. With ``on_lost="count"``, the list continues after lost messages, and `lost` counts
            them. With ``on_lost="raise"``, the list ends before lost messages, and the next call counts them and raises
            `LostMessagesError`.

        Raises:
            InvalidValueError: `limit` is negative.
        """

    def receive_array(
        self,
        dtype: npt.DTypeLike,
        limit: int | None = None,
        *,
        timeout: float | None = 0.0,
        publishers: list[PublisherInfo] | None = None,
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the waiting messages as an array with one element for each message.

        Args:
            dtype: dtype of one message, of a fixed size and without Python objects. The bytes are not converted.
            limit: maximum number of messages; None: all messages published before the call.
            timeout: seconds to wait for the first message; 0 checks once, None waits forever.
            publishers: a list, to which the publisher of each message is appended.

        Returns:
            A new array of shape (messages,), empty if no message waits. The elements are consecutive messages: the
            array ends before lost messages, whose loss the next call counts, and before a message of another size.

        Raises:
            MessageSizeError: the first message does not have the size of `dtype`. The message stays for the next call.
            InvalidValueError: `limit` is negative, or a `dtype` element has no bytes.
        """

    @overload
    def receive_view(self, timeout: None = None) -> Sample: ...
    @overload
    # Any instead of None, because `with subscriber.receive_view(timeout=1.0) as sample` is the usual call.
    def receive_view(self, timeout: float | None = None) -> Sample | Any:
        """Take the next message without a copy.

        The first call takes one of the channel's 64 rows for subscribers with views.

        Args:
            timeout: as in `receive`.

        Returns:
            A view of the message, or None at the timeout. The message does not change while you hold the view.

        Raises:
            TooManyViewsError: the subscriber holds `max_views` views. Release one.
            TooManySubscribersError: 64 other subscribers take views. `receive` still works.
            StateError: the subscriber is passive, and cannot hold views.
        """

    def arecv(self) -> Coroutine[Any, Any, bytes]:
        """Return a copy of the next message, in a task of an asyncio loop.

        The call waits only if no message is available.

        If a call is cancelled, the message stays for the next call. One task at a time may wait.

        Raises:
            EndpointClosedError: the subscriber is closed, before or during the wait.
            ConcurrentUseError: another task waits.
        """

    def __iter__(self) -> Self: ...
    def __next__(self) -> bytes: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, bytes]: ...

@disjoint_base
class Sample(PinnedView):
    """A message in the memory of its publisher, as a read-only buffer.

    `len()` returns the size in bytes. From `Subscriber.receive_view`.

    The bytes do not change until the sample is released. `release` and the end of a ``with`` block release the sample.
    The sample is also released when the last reference to the sample, its memoryviews and its arrays disappears. A
    sample may outlive the subscriber, the publisher and the channel. After the release, the buffer raises
    `EndpointClosedError`. While you hold a sample, the publisher of the sample has one free slot less.

    Threads: any thread may use and release a sample.

    Fork: a forked child can read the sample while the parent holds it. If the child releases the sample, the release
    has no effect.
    """

    @property
    def position(self) -> int:
        """Position of the message among all messages of the channel."""

    @property
    def publish_time(self) -> int:
        """Publish time, nanoseconds of the host's clock (clock.md); 0: the channel stores no publish times."""

    @property
    def origin_time(self) -> int:
        """Origin time set by the publisher, nanoseconds of the host's clock; 0: none."""

    @property
    def publisher(self) -> PublisherInfo:
        """The publisher of the message."""

    def __bool__(self) -> Literal[True]: ...
    # On Python 3.11, NumPy's stubs accept only some built-in buffers, so `np.frombuffer(sample)` needs Any there.
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

    `newest`: if the subscriber was lapped, continue at the newest position. `raises`: raise `LostMessagesError` for
    each loss.
    """
