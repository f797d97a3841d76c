"""Work queues in shared memory."""

from collections.abc import Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, Self, overload

import numpy.typing as npt
from _typeshed import HasFileno, ReadableBuffer, WriteableBuffer
from typing_extensions import disjoint_base

from msgq.common.schema import Schema
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.workqueue import QueueMessage, QueueStats
from msgq.impl.base.core import EndpointFile, ThreadSharedHandle, Waitable
from msgq.impl.workqueue.message import Message

@disjoint_base
class QueueFile(EndpointFile):
    """The mapped, open file of a queue. Only compiled modules create this object."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and process id of the creator."""

    @property
    def created_ns(self) -> int:
        """Creation time, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages, or None."""

def unlink_queue(name: str, in_prefix: str) -> None:
    """Remove the name of a queue, and its channel of events. Processes with open handles can still exchange data.

    Raises:
        SegmentError: the queue does not exist, or the process has no permission to remove it.
    """

@disjoint_base
class EventBuffer:
    """A buffer for `room` unpublished events. If the buffer is full, further events count as lost."""

    def __new__(cls, room: int) -> EventBuffer: ...

@disjoint_base
class EventPublisher:
    """The event publisher of one handle. The publisher is opened at the first event."""

@disjoint_base
class QueueHandle(ThreadSharedHandle):
    """Base of `MessageQueue`: an open queue, and the row of this handle. Do not use this class directly."""

    def __new__(
        cls,
        name: str | bytes,
        flags: int | None = None,
        mode: int | None = None,
        max_messages: int | None = None,
        max_message_size: int | None = None,
        *,
        read: bool = True,
        write: bool = True,
        schema: Schema | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        spin_us: int | None = None,
        events: Literal[True, "payload"] | None = None,
        create: bool | None = None,
    ) -> Self:
        """Open or create a queue; see `MessageQueue`."""

    @property
    def block(self) -> bool:
        """True if calls may wait. False: each call returns at once, whatever its timeout. You may set this property."""

    @block.setter
    def block(self, value: bool) -> None: ...
    @property
    def signals_end_waits(self) -> bool:
        """True if a wait raises `InterruptedWaitError` after a signal handler returns. You may set this property.

        The default is False: a wait continues after a signal handler returns.
        """

    @signals_end_waits.setter
    def signals_end_waits(self, value: bool) -> None: ...
    def fileno(self) -> int:
        """Return a descriptor that is readable while a message waits, for select, epoll and event loops.

        The handle returns the same descriptor until it closes. Do not read from the descriptor, and do not close the
        descriptor. When the descriptor is readable, receive without a wait (``receive(0)``), because another consumer
        may have taken the message. After a fork, the child must call `fileno` again.

        Raises:
            EndpointClosedError: the handle is closed.
            QueueAccessError: the handle was opened with ``read=False``.
            IpcError: no descriptor, memory or thread is left.

        Notes:
            The first call in a process starts one thread for all handles, which sleeps until a message arrives. While a
            handle has a descriptor, senders wake all sleepers of the queue instead of one.
        """

@disjoint_base
class Job:
    """A message taken with `MessageQueue.take`. The message belongs to its consumer until the job ends.

    `ack` removes the message, and `nack` returns it to the queue. ``with queue.take() as job:`` calls `ack` at the end
    of the block, or `nack` if the block raises. The message also returns if the job is deleted, if the handle is
    closed, or if the consumer's process dies. A returned message keeps its position in the order: a receive of this
    priority returns it first.

    Threads: any thread may use the job. The first `ack` or `nack` ends it.

    Lifetime: a job keeps its handle alive.

    Fork: the job belongs to the parent. In the child, `data` is readable, and `ack` and `nack` raise
    `ForkedSocketError`.
    """

    def __init__(self) -> None:
        """Raise TypeError. Use `MessageQueue.take`."""

    @property
    def data(self) -> bytes:
        """A copy of the message."""

    @property
    def priority(self) -> int:
        """Priority of the message, 0 to 32767."""

    @property
    def deliveries(self) -> int:
        """Number of deliveries of the message, including this delivery.

        If the number is above 1, a previous consumer did not acknowledge the message.
        """

    @property
    def sent_time(self) -> int:
        """Send time, nanoseconds of the host's clock (clock.md)."""

    @property
    def origin_time(self) -> int:
        """Origin time set by the sender, nanoseconds; 0: none."""

    def ack(self) -> None:
        """Acknowledge the message: the work is done, and the message leaves the queue.

        Raises:
            LeaseExpiredError: the lease ended, and the message returned to the queue. Another consumer may repeat the
                work.
            StateError: the job has already ended.
            EndpointClosedError: the handle was closed, and the message returned to the queue.
            ForkedSocketError: the job belongs to the parent.
        """

    def nack(self, delay: float | None = None) -> None:
        """Return the message to its previous position in the queue.

        If the lease ended before the call, the call has no effect.

        Args:
            delay: seconds until a consumer can take the message again; None: no delay.

        Raises:
            StateError, EndpointClosedError, ForkedSocketError: as `ack`.
            InvalidValueError: `delay` is negative or above 24 days.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class HeldSend:
    """A send in a simulation between its two steps: its slot is filled, and no consumer sees the message.

    The handle of the send keeps its row until the commit, also after its close. Only compiled code creates this object.
    """

    @property
    def queue(self) -> MessageQueue:
        """The handle that sends."""

    @property
    def slot(self) -> int:
        """Index of the slot."""

    @property
    def data(self) -> bytes:
        """The message."""

    @property
    def priority(self) -> int:
        """Priority of the message."""

    def commit(self) -> None:
        """Send the message."""

@disjoint_base
class QueueAlarm:
    """The end of a lease or delay on a bus of the fake backend. Its call returns the message to the queue."""

    def __call__(self, /, *args: object, **kwargs: object) -> None: ...

@disjoint_base
class QueueNotification(Waitable):
    """A request for notifications of messages that arrive in an empty queue. One thread at a time.

    While the request is open, senders check whether the queue is empty. After a message arrives in the empty queue, the
    descriptor of the request is readable.
    """

    def __new__(cls, queue: QueueHandle) -> Self: ...
    def consume(self) -> bool:
        """Return True if a message arrived in the empty queue since the last call."""

    def set_notifying(self, is_notifying: bool) -> None:
        """Say whether the notifying thread is about to send a signal, for which sends of this process wait."""

    def use_slots(self) -> None:
        """Use the slots that the queue's file has mapped since the request."""

def new_exclusive_notification(queue: QueueHandle) -> QueueNotification | None:
    """Return a notification request. Return None if another living process has a request for the same queue."""

class MessageQueue(QueueHandle):
    """A queue of messages in shared memory. Many processes may send and receive, and each message goes to one consumer.

    Consumers receive the message with the highest priority first. Among messages of equal priority, consumers receive
    the oldest message first. Messages are copied in and out. A message waits in the queue even if no process uses the
    queue, until the queue is unlinked or the machine restarts. If a process is killed, other processes continue. If the
    killed process was sending a message, this message is lost. Messages taken by the killed process return to the
    queue.

    A message returned by `receive` has left the queue, even if the consumer dies immediately after the call. A message
    from `take` leaves the queue when its job is acknowledged. If the first consumer does not acknowledge, a second
    consumer gets the same message.

    Threads: several threads may use a handle at the same time.

    Fork: in a forked child, the handle opens the queue again when the child first uses the handle.

    Lifetime: deleted handles close, and open handles close when the process ends. A closed handle raises
    `EndpointClosedError`. A pickled handle opens the queue by its name.

    Timeouts are in seconds: 0 checks once, None waits forever. A `deadline` is a time of ``time.monotonic()``. Timeouts
    and deadlines are limited to 24 days. During a wait the GIL is released and signal handlers run. An exception of a
    handler ends the wait.
    """

    def __new__(
        cls,
        name: str | bytes,
        flags: int | None = None,
        mode: int | None = None,
        max_messages: int | None = None,
        max_message_size: int | None = None,
        *,
        read: bool = True,
        write: bool = True,
        schema: Schema | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        spin_us: int | None = None,
        events: Literal[True, "payload"] | None = None,
        create: bool | None = None,
    ) -> Self:
        """Open or create a queue.

        Args:
            name: name of the queue, with the rules of topic names. A leading slash is ignored.
            flags: None: open the queue, or create it if it does not exist. Other values are flags as in POSIX: 0 only
                opens, `O_CREAT` opens or creates, and `O_CREX` only creates. The additional flag `O_NONBLOCK` sets
                `block` to False.
            mode: permissions of a new queue; None: MSGQ_MODE, or 0o600. Sending and receiving both read and write the
                file, so group and others need both permissions or none.
            max_messages: maximum number of messages of a new queue, 1 to 65536; None: 128. Taken messages count until
                their acknowledgement.
            max_message_size: maximum bytes of a message, 1 to 2^30; None: 8192. Without `max_messages`,
                `max_message_size` and `events`, the queue takes the sizes of the first handle that gives one of them,
                or the defaults at the first `send`. The memory of all messages is then allocated.
            read: False: this handle must not receive.
            write: False: this handle must not send.
            schema: schema of the messages, with at most 20032 bytes of data. `schema` is used if the queue has no
                schema.
            prefix: prefix of the queue, "" for none; None: OPENPILOT_PREFIX.
            trust: users whose files are accepted in addition to own files and root's; None: MSGQ_TRUST.
            spin_us: microseconds that a wait polls before it sleeps; None: MSGQ_SPIN_US, else 10.
            events: type of the events of a new queue. All handles publish these events on the channel ``"NAME:events"``
                (queues.md). True: headers only; "payload": headers and payloads of sent messages; None: no events. With
                events, the name has at most 222 bytes.
            create: alternative to `flags`. True: create a new queue; False: open an existing queue; None: open the
                queue, or create it if it does not exist.

        Raises:
            QueueMismatchError: the queue exists with other sizes or events, and `flags` is None. If `flags` is given,
                an existing queue is opened unchanged.
            SegmentError: its errno is ENOENT (the queue does not exist), EEXIST (the queue exists already), EACCES (the
                file belongs to another user), or ENOSPC (no space for a new queue).
            TooManyHandlesError: the queue has 128 open handles.
            EndpointNameError: the name is invalid.
            InvalidValueError: another argument is invalid.
            LayoutVersionError, CorruptSegmentError: the file has another version, or is not a queue.
        """

    @property
    def name(self) -> str:
        """Name of the queue."""

    @property
    def prefix(self) -> str:
        """Prefix of the queue; "": no prefix."""

    @property
    def path(self) -> str:
        """Path of the queue's file."""

    @property
    def mode(self) -> int:
        """Permissions of the file when the handle was opened."""

    @property
    def max_messages(self) -> int:
        """Maximum number of messages, including taken messages that are not acknowledged.

        If the sizes of the queue are not chosen yet, they are those that a `send` of this handle would choose.
        """

    @property
    def max_message_size(self) -> int:
        """Maximum bytes of a message; see `max_messages`."""

    @property
    def events(self) -> bool | str | None:
        """Events that the queue publishes: None, True or "payload", selected by its creator."""

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages, or None."""

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the file. A new queue with the same name has another identity."""

    def stats(self) -> QueueStats:
        """Return the statistics of the queue; see `msgq.stats.queue`."""

    @property
    def current_messages(self) -> int:
        """Number of waiting messages. The property scans all slots. The slots may change during the scan."""

    @property
    def in_flight(self) -> int:
        """Number of taken, unacknowledged messages of all consumers.

        The property scans all slots. The slots may change during the scan.
        """

    @property
    def delayed_messages(self) -> int:
        """Number of messages that wait for their due time.

        The property scans all slots. The slots may change during the scan.
        """

    def send(
        self,
        message: ReadableBuffer | npt.NDArray[Any],
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        origin_time: int = 0,
        delay: float | None = None,
    ) -> None:
        """Send one message, and wait for a free slot if the queue is full.

        Args:
            message: any object with contiguous bytes. The object may be empty. The bytes are copied.
            priority: 0 to 32767. Larger priorities are received first.
            timeout: seconds to wait for a slot; 0 does not wait, None waits forever. If `block` is False, the time is
                0.
            deadline: alternative to `timeout`, seconds of ``time.monotonic()``.
            origin_time: time of the event that caused the message, in nanoseconds of the host's clock (clock.md). 0:
                the origin of this thread (tracking.md), or none.
            delay: seconds until a consumer can take the message; None: no delay. The message occupies a slot during the
                delay. After the delay, the message has the position of its send.

        Raises:
            QueueFullError: no slot was free. Its errno is EAGAIN if the call did not wait, else ETIMEDOUT.
            MessageTooLargeError: the message exceeds `max_message_size`.
            QueueAccessError: the handle was opened with ``write=False``.
            InvalidValueError: an invalid priority or time, or both `timeout` and `deadline`.
            TypeError, BufferError: `message` has no contiguous bytes, or is an array of Python objects.
            EndpointClosedError: the handle is closed, before or during the wait.
            SegmentSizeError: another program truncated the file.

        Notes:
            If `send` raises, the message was not sent. `send` makes a system call only to wake a sleeping consumer. The
            GIL is also released during a copy of 256 KiB or more. Messages of one thread with equal priority are
            received in sending order.
        """

    def send_many(
        self,
        messages: Iterable[ReadableBuffer | npt.NDArray[Any]],
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        delay: float | None = None,
    ) -> int:
        """Send several messages one after another. Consumers are woken once for all messages.

        Args:
            messages: objects that `send` accepts. Each message is sent before the iterator is asked for the next
                message.
            priority: priority of each message.
            timeout: seconds to wait for slots, for all messages together; 0 does not wait, None waits forever.
            deadline: alternative to `timeout`, seconds of ``time.monotonic()``.
            delay: seconds until a consumer can take the messages, as in `send`.

        Returns:
            Number of sent messages. If the queue is full until the timeout, the number is smaller, and the call raises
            no error.

        Raises:
            Exception: errors of `send`, except `QueueFullError`. Messages before the error were sent.
        """

    def wait_space(self, timeout: float | None = None, *, deadline: float | None = None) -> bool:
        """Wait until the queue has a free slot.

        Args:
            timeout: seconds; 0 checks once, None waits forever. If `block` is False, the time is 0.
            deadline: alternative to `timeout`, seconds of ``time.monotonic()``.

        Returns:
            True if a slot is free. Another sender may take the slot first, so a later `send` may still wait or raise.

        Raises:
            QueueAccessError: the handle was opened with ``write=False``.
            EndpointClosedError: the handle is closed, before or during the wait.
        """

    # Without a time the result is a message, unless `block` is False, which the type cannot express.
    @overload
    def receive(self, timeout: None = None, *, deadline: None = None) -> Message | Any: ...
    @overload
    def receive(self, timeout: float | None = None, *, deadline: float | None = None) -> Message | None:
        """Remove the next message from the queue, and return a copy. If the queue is empty, wait for a message.

        Args:
            timeout: seconds to wait; 0 checks once, None waits forever. If `block` is False, the time is 0.
            deadline: alternative to `timeout`, seconds of ``time.monotonic()``.

        Returns:
            The message as a pair ``(data, priority)`` with additional attributes. None at the timeout.

        Raises:
            QueueAccessError: the handle was opened with ``read=False``.
            InvalidValueError: an invalid time, or both `timeout` and `deadline`.
            EndpointClosedError: the handle is closed, before or during the wait.
            CorruptSegmentError: another program wrote to the file. The next call continues after the invalid message.
            SegmentSizeError: another program truncated the file. Close the handle.

        Notes:
            If a call finds no message, the call scans all slots. Otherwise, the call scans only the blocks that
            changed. The GIL is also released during a copy of 256 KiB or more.
        """

    def _remove_waiting_message(self, ending: bytes) -> bool:
        """Remove the waiting or delayed message that ends with these bytes. Return False if there is none.

        For `JobFuture.cancel`: no other message has the same ending. Takes about 0.05 us for each waiting message.
        """

    def receive_many(self, limit: int | None = None) -> list[Message]:
        """Remove the waiting messages from the queue without a wait, and return copies in the order of `receive`.

        Args:
            limit: maximum number of messages; None: the number of messages that wait at the beginning of the call.

        Returns:
            Copies of the messages; an empty list if none waits.

        Raises:
            InvalidValueError: `limit` is negative. Errors of `receive`, if they occur at the first message. After a
                later error, the call returns the messages before the error, and the next call raises the error.
        """

    def receive_into(
        self,
        buffer: WriteableBuffer | npt.NDArray[Any],
        timeout: float | None = None,
        *,
        deadline: float | None = None,
    ) -> tuple[int, int] | None:
        """Copy the next message into your own memory, and remove it from the queue.

        If the queue is empty, wait for a message.

        Args:
            buffer: writable, contiguous bytes.
            timeout: as in `receive`.
            deadline: as in `receive`.

        Returns:
            Bytes of the message, and its priority. The bytes of `buffer` after the message keep their content. None at
            the timeout.

        Raises:
            MessageTooLargeError: the message is larger than the buffer. The message keeps its position in the queue.
            TypeError, BufferError, ValueError: `buffer` is not writable, or not contiguous.
            Exception: other errors, as `receive`.
        """

    @overload
    def take(self, timeout: None = None, *, deadline: None = None, lease: float | None = None) -> Job | Any: ...
    @overload
    def take(
        self, timeout: float | None = None, *, deadline: float | None = None, lease: float | None = None
    ) -> Job | None:
        """Take the next message as a job. The message stays in the queue until its acknowledgement.

        ``with queue.take() as job:`` acknowledges at the end of the block, or returns the message if the block raises.
        With a timeout or a deadline, compare the result with None before the ``with`` statement. The iterator `jobs`
        needs no comparison.

        Args:
            timeout: as in `receive`.
            deadline: as in `receive`.
            lease: seconds after which the message returns to the queue, even if its consumer lives. None: the message
                returns only if the consumer calls `nack`, closes the handle, or dies. A lease is above 0, and at most
                24 days.

        Returns:
            The job, with a copy of the message. None at the timeout.

        Raises:
            InvalidValueError: the lease is invalid.
            Exception: other errors, as `receive`.
        """

    def jobs(self, timeout: float | None = None, *, lease: float | None = None) -> Iterator[Job]:
        """Iterate over jobs: ``for job in queue.jobs(): ...``. Each job is acknowledged after the body of the loop.

        If the body raises, or leaves the loop with ``break`` or ``return``, the job returns to the queue. If the work
        is done before a ``break``, call ``job.ack()`` first. If the process dies, the job returns to the queue.

        Args:
            timeout: seconds without a job, after which the loop ends; None: the loop does not end.
            lease: as in `take`.

        Raises:
            LeaseExpiredError: the lease of a job ended before the end of the body.
            Exception: other errors, as `take`.

        Notes:
            Several threads may iterate, each with its own call of `jobs`: a thread that uses an iterator while another
            thread waits in it gets ConcurrentUseError. If a variable holds the iterator, call the iterator's `close`
            after the loop, because the last job returns to the queue only then.
        """

    def peek(self, limit: int | None = None) -> list[Message]:
        """Return copies of waiting messages in the order of `receive`. The messages stay in the queue.

        Args:
            limit: maximum number of messages; None: all messages.

        Returns:
            The messages, except messages taken during the call. `deliveries` is the number of previous deliveries.

        Raises:
            InvalidValueError: `limit` is negative.
            QueueAccessError: the handle was opened with ``read=False``.
            EndpointClosedError: the handle is closed.
        """

    def __iter__(self) -> Self:
        """Return the handle.

        ``for message in queue`` receives messages forever. If `block` is False, the loop ends when the queue is empty.
        """

    def __next__(self) -> Message: ...
    def arecv(self) -> Coroutine[Any, Any, Message]:
        """Return the next message, in a task of an asyncio loop. The call waits only if no message is available.

        `block` has no effect. For a timeout, use `asyncio.timeout`. If a call is cancelled, the message stays for the
        next call. ``async for`` does the same. One task at a time may wait with a handle.

        Raises:
            EndpointClosedError: the handle is closed, before or during the wait.
            ConcurrentUseError: another task waits with this handle.
            QueueAccessError: the handle was opened with ``read=False``.
        """

    def areceive(self) -> Coroutine[Any, Any, Message]:
        """Do the same as `arecv`."""

    def __anext__(self) -> Coroutine[Any, Any, Message]: ...
    def notify(
        self,
        target: Callable[[Self], object] | int | HasFileno | None,
        once: bool = False,
        *,
        exclusive: bool = False,
    ) -> None:
        """Request notifications of messages that arrive in the empty queue while no consumer waits.

        The method corresponds to `mq_notify` of POSIX. Use notifications if your program also waits for other events.
        `receive` needs no notification. A notification may be spurious. After each notification, receive without a wait
        (``receive(0)``) until the queue is empty. Messages that arrive in a non-empty queue cause no notification.

        Args:
            target: action of a notification. A function is called with this handle, in a separate thread. A signal
                number sends this signal to the process. For an object with ``fileno()``, such as an eventfd, pipe or
                socket, eight bytes are written to the descriptor. None cancels the request. A new target replaces this
                handle's previous target.
            once: notify only once.
            exclusive: fail if another process has requested notifications of this queue.

        Raises:
            QueueBusyError: another process has requested notifications, and `exclusive` is True.
            InvalidValueError: an invalid signal, or a descriptor that is closed or not writable.
            TypeError: `target` has another type.
            EndpointClosedError: the handle is closed.

        Notes:
            Exceptions of the function go to ``threading.excepthook``. Keep the handle, because a deleted or closed
            handle gets no notifications. A forked child gets no notifications until the child calls `notify`.
        """

    def _observe(self) -> None:
        """Call `_on_sent`, `_on_delayed` and `_on_taken` from now on."""

    def _on_sent(self, send: HeldSend) -> None:
        """Called in place of the second step of a send. A subclass calls `commit`, now or later."""

    def _on_delayed(self, slot: int) -> None:
        """Called after a send with a delay. The message in the slot waits for its due time."""

    def _on_taken(self, slot: int) -> None:
        """Called when this handle has received, taken or removed the message in a slot."""

    def _recover(self) -> None:
        """Return the messages that dead handles have taken."""

    @property
    def _file_number(self) -> int:
        """Number of the queue's file, unique in this process. Only of a file on a bus."""

    @staticmethod
    def _load_event_publisher() -> Any:
        """Return the class of the publishers of the queue's events."""

    def _default_timeout_ns(self) -> int | None:
        """Return the timeout of a receive without arguments; None: forever."""

    def _receive_now(self) -> Message | None:
        """Take the next message without waiting."""

    def unlink(self) -> None:
        """Remove the name of the queue. The messages are removed when the last handle closes. Open handles continue.

        Raises:
            SegmentError: the queue does not exist (ENOENT), or the process has no permission to remove it (EACCES,
                EPERM).
        """

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove the name of a queue without opening the queue.

        Args:
            name: name of the queue.
            prefix: prefix of the queue, "" for none; None: OPENPILOT_PREFIX.

        Raises:
            EndpointNameError: the name is invalid.
            SegmentError: as `unlink`.
        """

@disjoint_base
class QueueBrowser:
    """Copies waiting messages of a queue, which stay in the queue.

    The file is mapped read-only, so read permission is enough.

    Each call scans all slots. The result omits messages that are taken during the call, and contains no torn message.
    The browser stays with the file that it opened, even if the queue is removed. One thread at a time.

    If another program truncated the file, the methods raise `SegmentSizeError`.
    """

    def __new__(cls, name: str, in_prefix: str) -> Self:
        """Open the queue's file.

        Raises:
            SegmentError: the queue does not exist (ENOENT), or is unreadable.
            CorruptSegmentError: the file is not a queue.
        """

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages, or None."""

    @property
    def events(self) -> bool:
        """True if the queue publishes events (`msgq.common.queue_events`)."""

    @property
    def sent(self) -> int:
        """Number of messages sent by all handles."""

    def messages(self, limit: int | None = None) -> list[QueueMessage]:
        """Return copies of the waiting messages in the order of `receive`; see `msgq.stats.queue_messages`."""

    def unseen(self, limit: int | None = None) -> list[QueueMessage]:
        """Return only the waiting messages that this browser has not returned before.

        The first call returns all waiting messages. A message that was taken and returned is not new. The browser
        stores the last message of each slot, 16 bytes for each message that the queue can hold.
        """

def queue_messages(name: str, in_prefix: str, limit: int | None = None) -> list[QueueMessage]:
    """Return the waiting messages; see `msgq.stats.queue_messages`."""

@disjoint_base
class QueueWatch:
    """A mapped work queue for repeated reads: read-only, without a trace, unmapped with the last reference.

    One thread at a time. If a new queue with the same name is created, this object still reads the old queue (see
    `msgq.stats.queue_inodes`).

    Raises:
        SegmentError: the queue does not exist (ENOENT), or its file is unreadable. If the file was truncated, all
            methods raise `SegmentError`.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
    def counts(self) -> EndpointCounts:
        """Return the counters. Takes a microsecond."""

    def stats(self) -> QueueStats:
        """Return all statistics, including waiting messages and living handles; see `msgq.stats.queue`."""

def remove_queue(name: str, in_prefix: str, wanted: Callable[[QueueStats], bool]) -> bool:
    """Remove the name of a queue if `wanted` returns True. Returns True if the name was removed.

    `wanted` is called while the lock is held that processes need to open the queue. Handles that are already open keep
    the unlinked file. A later open creates a new queue.

    Raises:
        SegmentError: the queue does not exist (ENOENT), or cannot be opened or removed.
    """
