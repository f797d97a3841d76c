"""Topics in shared memory: their sockets and files."""

from collections.abc import Coroutine, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Self, final, overload

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer, WriteableBuffer
from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.topic import PublisherStats, SubscriberStats, TopicCounts, TopicStats, Tracked
from msgq.impl.base.core import Context, ForkAwareHandle, ReceiveGate, Waitable
from msgq.impl.sockets.pyzmq_names import Frame

class TopicLock:
    """Locks a topic: ``with TopicLock(endpoint, prefix) as exists: ...``.

    While the lock is held, other processes cannot connect to the topic or remove the topic. Tools hold the lock between
    a check and an action, for microseconds. `exists` is False if the topic has no ring. In this case the lock is not
    held. Do not remove files then, because another process may create a ring at any moment.

    Raises:
        SegmentError: another process held the lock for over 5 s.
    """

    def __init__(self, endpoint: str | bytes, in_prefix: str | None = None) -> None: ...
    def __enter__(self) -> bool: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

def unlink_topic(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove the files of a topic.

    Processes that have mapped the files can still exchange messages. Later connections create new files.

    Args:
        endpoint: name of the topic.
        in_prefix: prefix of the topic; None: the current prefix, "": no prefix.

    Returns:
        True if files existed.

    Raises:
        SegmentError: a file could not be removed.
    """

def unlink_orphan(endpoint: str | bytes, in_prefix: str | None = None) -> bool:
    """Remove the side segment of a topic without a ring.

    Other processes may connect during the call. Processes that have mapped the removed ring can still exchange messages
    in it. The directories of the prefix must exist.

    Returns:
        True if the side segment was removed. False if a ring exists, or if the side segment does not exist.

    Raises:
        SegmentError: the file could not be removed, or a directory is missing or belongs to another user.
    """

@final
class ArrivalView(ReceiveGate):
    """What has arrived at a subscriber of a simulation. Only `SubConnection._open_view` creates it.

    Positions are those of the ring (docs/internals/topic-protocol.md): the start and the end of a message.
    """

    def add_arrival(self, start: int, end: int) -> None:
        """Let the subscriber receive the message.

        Args:
            start: position of the message.
            end: position after the message.
        """

    def add_drop(self, start: int, end: int) -> None:
        """Let the subscriber lose the message in its turn.

        Args:
            start: position of the message.
            end: position after the message.
        """

    def add_repeat(self, start: int, end: int) -> None:
        """Let the subscriber receive the message that arrived last once more.

        Args:
            start: position of the message.
            end: position after the message.
        """

    def lap(self) -> None:
        """Let the subscriber lose all that has arrived by its next receive, as after a lap of the ring."""

    def is_overwritten(self, position: int) -> bool:
        """Return True if the publisher has overwritten, or is about to overwrite, the message at this position."""

    def skip_overwritten(self, next_start: int) -> None:
        """Pass arrivals that are overwritten; if all are, continue at `next_start`, an intact message."""

@disjoint_base
class PubConnection(ForkAwareHandle):
    """Base of `PubSocket`: the connection of a publisher to its topic."""

    @property
    def _ring(self) -> Any: ...
    @property
    def _requested_schema(self) -> Schema | None: ...
    def _abandon_handle(self) -> None:
        """End the socket as the death of a process does: its row stays, without its lock. Only on a bus."""

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
        """Become the publisher of a topic. Creates the topic if necessary.

        Args:
            context: a context that is not terminated.
            endpoint: name of the topic: 1 to 246 bytes of UTF-8 without "/" and NUL.
            segment_size: bytes of the ring's data area, 128 to 2**32 - 1. A message may occupy up to a third of the
                data area. 0: keep the size of an existing topic, or use 1 MiB for a new topic. A later participant may
                request another size of a topic without messages if no participant has requested its size before.
            mode: permissions of new files, for example 0o660; None: MSGQ_MODE, else 0o600.
            schema: description of the messages for tools; None keeps the schema of the previous publisher.
            trust: names or ids of users, separated by commas. Files of these users are accepted in addition to own
                files and root's. "": no other user. None: MSGQ_TRUST.
            tracked: True: each message of the topic carries its publishing time and its origin. False: the topic must
                not be tracked. None: keep the existing setting.
            prefix: prefix of the topic, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid.
            StateError: the context is terminated, the socket is already connected, or `tracked` contradicts the topic.
            InvalidValueError: an invalid size, mode or user.
            SegmentSizeError: the topic exists with another size.
            LayoutVersionError: another version of msgq created the side segment.
            CorruptSegmentError: the files contain invalid data.
            MultiplePublishersError: a send of the current publisher took longer than 1 s, or 16 publishers that lost
                the topic still have open sockets.
            SegmentError: a file cannot be created, opened, locked or mapped, because memory is full, permission is
                missing, or the file's owner is not trusted.

        Notes:
            The call waits at most 5 s for the lock of the topic, and at most 1 s for the end of another publisher's
            send. The GIL is released during both waits, and signal handlers run.
        """

    def unlink(self) -> bool:
        """Remove the files of the topic, and return True if they existed.

        This publisher and the connected subscribers can still exchange messages. Sockets that connect later create
        another topic with the same name.

        Raises:
            EndpointClosedError: the socket is closed, or was never connected.
            SegmentError: the process has no permission to remove the files.
        """

    def close(self, linger: int | None = None) -> None:
        """Leave the topic. Published messages stay readable. A second close has no effect.

        Args:
            linger: milliseconds (compatibility: pyzmq). Only ZMQ sockets use `linger`; see the property `linger`.

        Raises:
            InvalidValueError: `linger` is below -1.
            ConcurrentUseError: another thread sends, or a reservation is open.
        """

class PubSocket(PubConnection):
    """Publishes messages on one topic.

    A topic has one publisher. If a second publisher connects, the second publisher takes over the topic. The next send
    of the first publisher then raises `MultiplePublishersError`. Subscribers stay connected and lose no message.

    Threads: one thread at a time may use a socket; a second thread gets `ConcurrentUseError`.

    Fork: the first send or reservation in the child takes over the topic from the parent. If a reservation is open
    during the fork, the reservation belongs to the parent.

    Lifetime: deleted sockets close, and open sockets close when the process ends. If the socket is closed or was never
    connected, all methods except `connect`, `close` and `stats` raise `EndpointClosedError`.
    """

    _sent_count: int

    def _observe(self) -> None:
        """Call `Bus.on_published` after each send from now on."""

    def _read_published(self) -> list[tuple[int, bytes, int, int, int]]:
        """Return the messages since the last call: start, bytes, end, publish time and origin (0: not tracked)."""

    @property
    def tracked(self) -> bool:
        """True if each message carries its publishing time and its origin, 16 bytes in the ring."""

    @property
    def linger(self) -> int:
        """Maximum time after `close` to send unsent messages, in milliseconds (compatibility: pyzmq).

        Always 0 in shared memory.

        A message is in the ring when `send` returns. With ZMQ, the default is 1000, and -1 waits without limit.
        """

    @linger.setter
    def linger(self, milliseconds: int) -> None: ...
    @property
    def sndhwm(self) -> int:
        """Limit of waiting messages per subscriber (compatibility: pyzmq). Always 0 (no limit) in shared memory.

        The ring is the only queue, and `segment_size` is its limit. With ZMQ, the default is `MSGQ_ZMQ_HWM`. Set the
        limit before `connect`; on a connected socket, setting raises `StateError`.
        """

    @sndhwm.setter
    def sndhwm(self, messages: int) -> None: ...
    @property
    def sndtimeo(self) -> int:
        """Milliseconds that a send may wait (compatibility: pyzmq). Always 0, because a send never waits."""

    @sndtimeo.setter
    def sndtimeo(self, milliseconds: int) -> None: ...
    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, flags: int = 0, copy: bool = True, *, origin_time: int = 0
    ) -> None:
        """Publish one message.

        Args:
            data: any object with contiguous bytes. `send` copies the bytes, so you may change `data` afterwards.
            flags: 0 or NOBLOCK; both values have the same effect (compatibility: pyzmq). Other flags raise
                `InvalidValueError`.
            copy: ignored; `data` is always copied (compatibility: pyzmq).
            origin_time: time of the event that caused the message, in nanoseconds of the host's clock. 0: the origin of
                this thread, or now. Tracked topics only.

        Raises:
            MultiplePublishersError: another publisher took over.
            MessageTooLargeError: the message is larger than a third of the ring.
            SegmentError: /dev/shm is full, and the memory of the ring is not fully allocated.
            MessageSizeError: the message is empty, and a stock subscriber is connected. An empty message would abort
                the subscriber's program.
            TypeError, BufferError, ValueError: `data` has no contiguous bytes, or is an array of Python objects.
            StateError: `origin_time` is given, and the topic is not tracked.
            InvalidValueError: `origin_time` is negative.

        Notes:
            If `send` raises, the message was not sent. `send` never waits for subscribers. `send` makes a system call
            only to wake a sleeping subscriber, to serve a stock subscriber, or to allocate memory in the first lap of a
            ring. The GIL is released during a copy of 256 KiB or more.
        """

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], *, origin_time: int = 0
    ) -> int:
        """Publish several messages, and return their number.

        Args:
            messages: an iterable of buffers, or a C-contiguous array with one message for each index of its first axis.
                A list or tuple is published in groups of up to 64 messages. Other iterables are published one message
                at a time.
            origin_time: origin of all messages, as in `send`. 0: each message is its own origin.

        Raises:
            Exception: as `send`. Messages before the error are published.
            TypeError: `messages` is a single bytes object, not a sequence of buffers. Use `send`.
        """

    def reserve(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Write one message in place: ``with pub.reserve(size) as view: ...``.

        Args:
            size: bytes of the message.
            origin_time: as in `send`. The publishing time is the end of the block.

        Returns:
            A context manager. On entry, the context manager returns a writable view of `size` bytes with undefined
            content. On exit, the bytes are published. If the block raises, no message is published. The view is
            released at the end of the block. After the block, you can still read an array that was made from the view,
            but the array shows later content of the ring. Do not write to the array after the block.

        Raises:
            InvalidValueError: the size is negative.
            StateError: the context manager is entered a second time. The entry can also raise the errors of `send`, and
                the exit can raise MultiplePublishersError and EndpointClosedError.

        Notes:
            During the block, other methods of this socket raise `ConcurrentUseError`. A new publisher waits for the end
            of the block before it takes over the topic.
        """

    def loan(self, size: int, *, origin_time: int = 0) -> AbstractContextManager[memoryview]:
        """Do the same as `reserve`. The method has the same name as the method of channels.

        Args:
            size: bytes of the message.
            origin_time: as in `send`.
        """

    def all_readers_updated(self) -> bool:
        """Return True if every living subscriber has read all messages; False if no subscriber exists.

        Of more than 128 subscribers of a topic, the others show no position, so the result is False.

        Compatibility: stock's name; see `wait_for_readers`. Passive subscribers do not count.
        """

    def wait_for_readers(self, timeout: float | None = 1.0, interval: float = 0.001, n: int | None = None) -> None:
        """Wait until `n` subscribers are connected, or until all subscribers have read all messages.

        Args:
            timeout: seconds; None waits without limit.
            interval: seconds between two checks.
            n: number of connected subscribers to wait for, at most 128; their unread messages do not matter. None: wait
                until `all_readers_updated` returns True.

        Raises:
            WaitTimeoutError: the time-out passed. Also a TimeoutError.
            InvalidValueError: `timeout` or `n` is negative, or `interval` is not positive.

        Notes:
            The GIL is released between the checks, and signal handlers run.
        """

    def stats(self) -> PublisherStats:
        """Return the number of messages and bytes that this publisher and its predecessors published."""

@disjoint_base
class SubConnection(Waitable):
    """Base of `SubSocket`: the connection of a subscriber to its topic."""

    @property
    def _ring(self) -> Any: ...
    def _open_view(self) -> ArrivalView:
        """In a simulation: receive only what arrives at the returned view."""

    def _survives_laps(self) -> bool:
        """Return True if the socket reads the messages that a lap leaves: the newest, or those of one size."""

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
        latest: bool = False,
        spin_us: int | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> None:
        """Subscribe to messages that are sent from now on. Creates the topic if necessary, unless `passive`.

        Args:
            context: a context that is not terminated.
            endpoint: name of the topic: 1 to 246 bytes of UTF-8 without "/" and NUL.
            address: host of the publisher; ignored by this backend.
            conflate: receive the newest message only.
            segment_size: bytes of the ring's data area, 128 to 2**32 - 1. 0: keep the size of an existing topic, or use
                1 MiB for a new topic. A publisher that starts later may then request a larger size.
            mode: permissions of new files, for example 0o660; None: MSGQ_MODE, else 0o600.
            passive: observe an existing topic read-only. Statistics and `wait_for_readers` do not count this
                subscriber. Its waits poll every 0.05 to 1 ms.
            latest: first receive the last message that was sent before the connection, if there is one.
            spin_us: microseconds that a wait polls before it sleeps; None: MSGQ_SPIN_US, else 0.
            trust: names or ids of users, separated by commas. Files of these users are accepted in addition to own
                files and root's. "": no other user. None: MSGQ_TRUST.
            prefix: prefix of the topic, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid.
            StateError: the context is terminated, or the socket is already connected.
            InvalidValueError: an invalid size, mode, user or `spin_us`.
            SegmentSizeError: the topic exists with another size.
            LayoutVersionError: another version of msgq created the side segment.
            CorruptSegmentError: the files contain invalid data.
            SegmentError: a file cannot be created, opened, locked or mapped, its owner is not trusted, or (passive) the
                topic does not exist.
        """

class SubSocket(SubConnection):
    """Receives the messages of one topic.

    A subscriber receives the messages that are sent after its connection. No message is torn, received twice, or out of
    order. If a subscriber falls behind by more than the ring, the next receive continues at the newest position, and
    adds the skipped messages to `lost`.

    Threads: one thread at a time may use a socket; a second thread gets `ConcurrentUseError`. Any thread may call
    `close`.

    Fork: the child's socket is independent of the parent's socket, and continues with the same message.

    Errors: if the socket is closed or was never connected, receiving raises `EndpointClosedError`. If the ring contains
    invalid data, receiving raises `CorruptSegmentError`, and the next call continues at the newest position.

    Lifetime: deleted sockets close, and open sockets close when the process ends.
    """

    @property
    def conflate(self) -> bool:
        """True if `receive` skips all messages except the newest.

        Set this property before `connect` (compatibility: pyzmq). On a connected socket, setting raises `StateError`.
        """

    @conflate.setter
    def conflate(self, value: bool) -> None: ...
    @property
    def lost(self) -> int | None:
        """Number of messages skipped after `connect`, by conflation or because the subscriber was too slow.

        The number is exact for publishers of this library, even if publishers restart. None: unknown, because the
        subscriber was too slow for a stock publisher. Stock publishers do not count messages.
        """

    @property
    def tracked(self) -> bool:
        """True if each message carries its publishing time and its origin. Fixed from the first message on."""

    def setTimeout(self, timeout: float) -> None:
        """Set the default time-out of receives, in milliseconds (compatibility: stock's name).

        `receive(timeout=)` takes seconds.

        Args:
            timeout: milliseconds, 0 to 2**31 - 1; fractions are rounded up. -1, the default, waits without limit. You
                may also call this method before `connect`.

        Raises:
            InvalidValueError: any other value.
        """

    def receive(self, non_blocking: bool = False, *, timeout: float | None = None) -> bytes | None:
        """Receive the next message, or the newest if the socket conflates. Waits at most `timeout` seconds.

        Args:
            non_blocking: True: do not wait. A number raises `InvalidTypeError`.
            timeout: seconds to wait, 0 to 2147483; None: the time-out of `setTimeout`, by default without limit.

        Returns:
            A copy of the message, or None after the time-out.

        Raises:
            InvalidValueError, InvalidTypeError: an invalid time-out.

        Notes:
            The GIL is released during the wait, and during a copy of 256 KiB or more. Signal handlers run during the
            wait. An exception of a handler ends the wait.
        """

    def __iter__(self) -> Self:
        """Iterate over the messages that `receive` returns. Ends at the first time-out."""

    def __next__(self) -> bytes: ...
    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Receive the next message of a tracked topic with its publishing time and origin.

        Args:
            non_blocking: True: do not wait.

        Returns:
            The message, its publishing time and its origin in nanoseconds of the host's clock; None after the time-out.

        Raises:
            StateError: the topic is not tracked. The message stays for the next call.

        Notes:
            As `receive`.
        """

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Receive the waiting messages, oldest first.

        The messages are consecutive: the list ends before lost messages, and the next call counts the loss.

        Args:
            limit: maximum number of messages; None: all messages that were published before the call.
            wait_for_one: True: if no message is waiting, wait for the first one until the default time-out.

        Raises:
            InvalidValueError: `limit` is negative.
        """

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Receive the next message into your own memory.

        Args:
            buffer: writable, contiguous bytes.
            non_blocking: True: do not wait.

        Returns:
            The size of the message in bytes; None after the time-out. The bytes of `buffer` after the message keep
            their content, and all bytes if no message was received. The content of `buffer` beyond the result is
            undefined only if the publisher overwrote a message during its copy.

        Raises:
            MessageTooLargeError: the message is larger than the buffer. The message stays for the next call.
            TypeError, BufferError, ValueError: `buffer` is not writable, or not contiguous.
        """

    def receive_array(
        self, dtype: npt.DTypeLike, limit: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Receive the waiting messages as an array with one element per message.

        Args:
            dtype: dtype of one message, with a fixed size and without Python objects. The bytes are not converted.
            limit: maximum number of messages; None: all waiting messages.
            wait_for_one: True: if no message is waiting, wait for the first one until the default time-out.

        Returns:
            A new array of shape (messages,), empty if no message was waiting. The elements are consecutive messages:
            the array ends before lost messages, whose loss the next call counts, and before a message of another size.

        Raises:
            MessageSizeError: the first message has another size than `dtype`. The message stays for the next call.
            InvalidValueError: `limit` is negative, or `dtype` has no bytes.
        """

    @overload
    def recv(self, flags: int = 0, copy: Literal[True] = True) -> bytes: ...
    @overload
    def recv(self, flags: int = 0, *, copy: Literal[False]) -> Frame: ...
    @overload
    def recv(self, flags: int = 0, copy: bool = True) -> bytes | Frame:
        """Receive the next message (compatibility: pyzmq's name for `receive`).

        Args:
            flags: 0 or NOBLOCK.
            copy: False: return a `Frame`: bytes with the attributes `bytes` and `buffer`.

        Raises:
            Again: no message arrived before the time-out.
        """

    def recv_into(self, buffer: WriteableBuffer | npt.NDArray[Any], flags: int = 0) -> int:
        """Receive the next message into a buffer (compatibility: pyzmq's name for `receive_into`).

        Args:
            buffer: as in `receive_into`.
            flags: as in `recv`.

        Raises:
            Again: no message arrived before the time-out.
        """

    @property
    def rcvtimeo(self) -> int:
        """Default time-out in milliseconds (compatibility: pyzmq's name)."""

    @rcvtimeo.setter
    def rcvtimeo(self, timeout: float) -> None: ...
    @property
    def rcvhwm(self) -> int:
        """Limit of messages in the queue of a subscriber (compatibility: pyzmq). Always 0 (no limit) in shared memory.

        The ring is the only queue, and `segment_size` is its limit. With ZMQ, the default is `MSGQ_ZMQ_HWM`. Set the
        limit before `connect`; on a connected socket, setting raises `InvalidValueError`.
        """

    @rcvhwm.setter
    def rcvhwm(self, messages: int) -> None: ...
    @property
    def linger(self) -> int:
        """Always 0 in shared memory (compatibility: pyzmq): a subscriber has no unsent messages."""

    @linger.setter
    def linger(self, milliseconds: int) -> None: ...
    def close(self, linger: int | None = None) -> None:
        """Leave the topic. The end of a ``with`` block also closes the object. A second close has no effect.

        If another thread waits with this socket, the waiting call raises `EndpointClosedError`.

        Args:
            linger: milliseconds (compatibility: pyzmq); without effect.

        Raises:
            InvalidValueError: `linger` is below -1.
        """

    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Coroutine[Any, Any, bytes]: ...
    def stats(self) -> SubscriberStats:
        """Return the numbers of messages received and lost since `connect`."""

@disjoint_base
class TopicObserver:
    """Observes one topic, which is mapped read-only. The last reference unmaps the topic.

    One thread at a time may use an observer. If the topic is removed and created again, the observer still shows the
    old ring (see `msgq.stats.topic_inodes`).
    """

    def __init__(self, endpoint: str, in_prefix: str) -> None: ...
    @property
    def endpoint(self) -> str:
        """Name of the topic."""

    def is_bridged(self) -> bool:
        """Return True if the publisher is a bridge that is alive, or that may be alive."""

    def counts(self) -> TopicCounts:
        """Return the counters. Takes about 1 us."""

    def stats(self) -> TopicStats:
        """Return all statistics, with the participants and their liveness; see `msgq.stats.topic`."""
