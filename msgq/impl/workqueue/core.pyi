"""Work queues in shared memory."""

from collections.abc import Callable, Coroutine, Iterable
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
    """A queue's file, mapped and open for as long as somebody has this. Made between the compiled modules only."""

    @property
    def creator(self) -> tuple[str, int]:
        """Name and pid of the process that made it."""

    @property
    def created_ns(self) -> int:
        """When it was made, nanoseconds of the host's clock."""

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""

    def describe(self, schema: Schema) -> None:
        """Set the schema, unless there is one.

        Raises
        ------
        SegmentError : others have the lock for 5 s.
        """

def unlink_queue(name: str, in_prefix: str) -> None:
    """Remove a queue's name, and its channel of events. Those that have it open go on among themselves.

    Raises
    ------
    SegmentError : it is not there, or may not be removed.
    """

@disjoint_base
class EventBuffer:
    """Room for so many events, until they are published. Those that it has no room for are counted as lost."""

    def __new__(cls, room: int) -> EventBuffer: ...

@disjoint_base
class EventPublisher:
    """The publisher of one handle, opened when there is something to publish first."""

@disjoint_base
class QueueHandle(ThreadSharedHandle):
    """An open queue, and the row in it of whoever opened it. Not to be used by itself."""

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
        """Open a queue, or make it; `MessageQueue` says how."""

    @property
    def block(self) -> bool:
        """Whether calls may wait. False: each returns at once, whatever time-out it is given. It may be set."""

    @block.setter
    def block(self, value: bool) -> None: ...
    @property
    def signals_end_waits(self) -> bool:
        """Whether a wait ends with `InterruptedWaitError` after a signal's handler ran; it may be set.

        False unless somebody sets it: a wait goes on after a handler that raises nothing.
        """

    @signals_end_waits.setter
    def signals_end_waits(self, value: bool) -> None: ...
    def fileno(self) -> int:
        """Return a descriptor that is readable while a message waits, for select, epoll and event loops.

        It is the same one until this closes, and must not be read or closed. A receive that follows should not wait
        (``receive(0)``): another consumer may have been faster. In a forked child ask again.

        Raises
        ------
        EndpointClosedError : it is closed.
        QueueAccessError : it was opened with ``read=False``.
        IpcError : no descriptor, memory or thread is left.

        Notes
        -----
        The first call in a process starts a thread, one for all, which sleeps until something comes. Senders wake all
        sleepers of the queue then, not only one.
        """

@disjoint_base
class Job:
    """A message that was taken from a queue, by `MessageQueue.take`, and is its taker's until it ends once.

    `ack` removes the message, `nack` gives it back. ``with queue.take() as job:`` does the first at the end of the
    block, the second if that raised. A job that is deleted, whose handle is closed or whose process dies goes back,
    too: to its old place in the order, so that it is the next one of its priority.

    Any thread may end it; one at a time. It keeps its handle, and works with it. After a fork it is the parent's: the
    child may read `data`, and gets `ForkedSocketError` from `ack` and `nack`.
    """

    def __init__(self) -> None:
        """Raise TypeError: a job comes from `MessageQueue.take`."""

    @property
    def data(self) -> bytes:
        """What was sent: a copy, which stays."""

    @property
    def priority(self) -> int:
        """Its priority, 0 to 32767."""

    @property
    def deliveries(self) -> int:
        """How often the message was received or taken, this time included. Above 1: somebody else did not end it."""

    @property
    def sent_time(self) -> int:
        """When it was sent, nanoseconds of the host's clock (clock.md)."""

    @property
    def origin_time(self) -> int:
        """What its sender gave with it, nanoseconds; 0: nothing."""

    def ack(self) -> None:
        """Remove the message from the queue: the work is done.

        Raises
        ------
        LeaseExpiredError : its lease was over, and the message went back; somebody else may do the work again.
        StateError : the job has ended before.
        EndpointClosedError : the handle was closed, and the message went back.
        ForkedSocketError : the job is the parent's.
        """

    def nack(self) -> None:
        """Give the message back to its place in the order. If its lease was over, it is there already.

        Raises
        ------
        StateError, EndpointClosedError, ForkedSocketError : as `ack`.
        """

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...

@disjoint_base
class QueueNotification(Waitable):
    """A request to be notified when a message comes to an empty queue. One thread at a time.

    While it is open, senders check whether the queue is empty. Its descriptor is readable when a message came.
    """

    def __new__(cls, queue: QueueHandle) -> Self: ...
    def consume(self) -> bool:
        """Return whether a message came to the empty queue since the last call."""

def new_exclusive_notification(queue: QueueHandle) -> QueueNotification | None:
    """Return a notification, unless another living process has one of the same queue."""

class MessageQueue(QueueHandle):
    """A queue of messages in shared memory: any number of processes send and receive, each message goes to one of them.

    The message with the highest priority is received first, among equals the one that was sent first. It is copied in
    and out. A message waits in the queue with nobody there, until the queue is unlinked or the machine restarts. Who
    is killed at whatever instruction holds nobody up: what it was sending is lost, what it had taken goes back.

    A message that `receive` returned is gone from the queue, also if its consumer dies a moment later. With `take` it
    is gone when the job is acknowledged, so it may be worked on twice.

    Any thread may use a handle, several of them at the same time. In a forked child it opens itself anew when it is
    used. It can be pickled, and opens the queue by its name elsewhere. One that is deleted, or open when the process
    ends, is closed. A closed one raises `EndpointClosedError`.

    Time-outs are seconds: 0 looks once, None waits for ever; a `deadline` is of ``time.monotonic()`` instead. Neither
    may be more than 24 days away. While a call waits the GIL is released and signal handlers run; what they raise ends
    the wait.
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
        """Open a queue, or make it.

        Parameters
        ----------
        name : of the queue, as topics are named; a slash in front is left out.
        flags : None: open it, or make it if it is not there. Else as POSIX has them: 0 only opens, `O_CREAT` does
            either, `O_CREX` only makes; `O_NONBLOCK` with any of them sets `block` to False.
        mode : permissions of a new queue; None: MSGQ_MODE, or 0o600. Who sends or receives both reads and writes the
            file, so group and others have both rights or none.
        max_messages : messages that a new queue holds, 1 to 65536; None: 128. A message that was taken counts until it
            is acknowledged.
        max_message_size : bytes that each of them may have, 1 to 2^30; None: 8192. A new file takes the
            memory of all of them at once.
        read, write : False: this handle cannot receive, or cannot send.
        schema : describes the messages, in at most 20032 bytes of data; it is set if there is none.
        prefix : instead of OPENPILOT_PREFIX, "" for none.
        trust : whose files are used as one's own are; None: MSGQ_TRUST.
        spin_us : microseconds that a wait spins before it sleeps; None: MSGQ_SPIN_US, else 10.
        events : what a new queue publishes, through all its handles, of what happens to its messages, on the channel
            ``"NAME:events"`` (queues.md). True: heads only; "payload": with the payload of what is sent; None: nothing.
            The name has at most 222 bytes then.
        create : without flags. True: only make the queue; False: only open it; None: open it, or make it if it does not
            exist.

        Raises
        ------
        QueueMismatchError : the queue exists with other sizes or events than those given, and `flags` is None; with
            flags an existing queue is opened unchanged.
        SegmentError : its errno says why: ENOENT there is no such queue, EEXIST it is there already, EACCES the file is
            another user's, ENOSPC there is no space for a new one.
        TooManyHandlesError : the queue is open 128 times.
        EndpointNameError : the name cannot name a queue.
        InvalidValueError : another argument that makes no sense.
        LayoutVersionError, CorruptSegmentError : the file is of another version of this library, or is no queue.
        """

    @property
    def name(self) -> str:
        """The queue's name."""

    @property
    def prefix(self) -> str:
        """The prefix that it lives in; "": none."""

    @property
    def path(self) -> str:
        """The queue's file."""

    @property
    def mode(self) -> int:
        """Permissions of the file, as they were when this was opened."""

    @property
    def max_messages(self) -> int:
        """Messages that it holds; those that are taken and not acknowledged are among them."""

    @property
    def max_message_size(self) -> int:
        """Bytes that a message may have."""

    @property
    def events(self) -> bool | str | None:
        """What it publishes of its messages: None, True or "payload", as who made it said."""

    @property
    def schema(self) -> Schema | None:
        """What describes the messages; None: nothing does."""

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode of the file: a queue that is made anew under the same name has another one."""

    def stats(self) -> QueueStats:
        """Return the statistics of the queue; see `msgq.stats.queue`."""

    @property
    def current_messages(self) -> int:
        """Messages that wait. A look at all places, which others change meanwhile."""

    @property
    def in_flight(self) -> int:
        """Messages that are taken and not acknowledged, by anybody. A look at all places, as above."""

    def send(
        self,
        message: ReadableBuffer | npt.NDArray[Any],
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        origin_time: int = 0,
    ) -> None:
        """Put one message into the queue, waiting for room if it is full.

        Parameters
        ----------
        message : anything with contiguous bytes, also none at all. It is copied.
        priority : 0 to 32767; larger ones are received first.
        timeout : seconds to wait for room; 0 not at all, None for ever. It is 0 if `block` is False.
        deadline : when to give up instead, seconds of ``time.monotonic()``.
        origin_time : when the contents came about, nanoseconds of the host's clock (clock.md). 0: the thread's
            origin (tracking.md), or not told.

        Raises
        ------
        QueueFullError : there was no room in time; its errno is EAGAIN if the call did not wait, else ETIMEDOUT.
        MessageTooLargeError : it has more bytes than `max_message_size`.
        QueueAccessError : the handle was opened with ``write=False``.
        InvalidValueError : a priority or time that is not possible, or both `timeout` and `deadline`.
        TypeError, BufferError : `message` has no contiguous bytes, or is an array of Python objects.
        EndpointClosedError : the handle is closed, also while this waits.
        SegmentSizeError : another program made the file smaller.
        With each of them nothing was sent.

        Notes
        -----
        No system call unless somebody sleeps who waits for messages. The GIL is also released while a message of
        256 KiB or more is copied. What one thread sent first is received first, at equal priority.
        """

    def send_many(
        self,
        messages: Iterable[ReadableBuffer | npt.NDArray[Any]],
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> int:
        """Put several messages into the queue, each as soon as it is there; consumers are woken once for all.

        Parameters
        ----------
        messages : as `send` takes them. The next one is asked for when there was room for the one before.
        priority : of each.
        timeout : seconds to wait for room, for all of them together; 0 not at all, None for ever.
        deadline : when to give up instead, seconds of ``time.monotonic()``.

        Returns
        -------
        How many went in: fewer than there were if there was no room in time, without an error.

        Raises
        ------
        What `send` raises, but for `QueueFullError`; the messages before the error were sent.
        """

    def wait_space(self, timeout: float | None = None, *, deadline: float | None = None) -> bool:
        """Wait until there is room for a message.

        Parameters
        ----------
        timeout : seconds; 0 looks once, None waits for ever. It is 0 if `block` is False.
        deadline : when to give up instead, seconds of ``time.monotonic()``.

        Returns
        -------
        Whether there is room. Another sender may take it at once, so a `send` may wait or raise nevertheless.

        Raises
        ------
        QueueAccessError : the handle was opened with ``write=False``.
        EndpointClosedError : the handle is closed, also while this waits.
        """

    # Without a time: it is a message, unless `block` is False, which no type says.
    @overload
    def receive(self, timeout: None = None, *, deadline: None = None) -> Message | Any: ...
    @overload
    def receive(self, timeout: float | None = None, *, deadline: float | None = None) -> Message | None:
        """Take the next message out of the queue, waiting for one.

        Parameters
        ----------
        timeout : seconds to wait; 0 looks once, None waits for ever. It is 0 if `block` is False.
        deadline : when to give up instead, seconds of ``time.monotonic()``.

        Returns
        -------
        A copy of the message: the pair ``(data, priority)``, with more attributes. None when there was none in time.

        Raises
        ------
        QueueAccessError : the handle was opened with ``read=False``.
        InvalidValueError : a time that is not possible, or both `timeout` and `deadline`.
        EndpointClosedError : the handle is closed, also while this waits.
        CorruptSegmentError : another program wrote into the file; the next call goes on behind that message.
        SegmentSizeError : another program made the file smaller: close the handle.

        Notes
        -----
        Without a message to take it looks at all places of the queue, else only where something changed. The GIL is
        also released while a message of 256 KiB or more is copied.
        """

    def receive_many(self, limit: int | None = None) -> list[Message]:
        """Take the messages that are there, in their order, and wait for none.

        Parameters
        ----------
        limit : at most so many; None: as many as wait when this begins.

        Returns
        -------
        Copies of them; an empty list when nothing was there.

        Raises
        ------
        InvalidValueError : a negative `limit`.
        As `receive`, if that is so with the first message; else the next call raises it.
        """

    def receive_into(
        self,
        buffer: WriteableBuffer | npt.NDArray[Any],
        timeout: float | None = None,
        *,
        deadline: float | None = None,
    ) -> tuple[int, int] | None:
        """Take the next message into memory of the caller's, waiting for one.

        Parameters
        ----------
        buffer : writable, contiguous bytes.
        timeout : as in `receive`.
        deadline : as in `receive`.

        Returns
        -------
        The message's length in bytes and its priority; what lies behind it in `buffer` keeps its content. None when
        there was no message in time.

        Raises
        ------
        MessageTooLargeError : the message is larger than the buffer. It stays in the queue, in its place.
        TypeError, BufferError, ValueError : `buffer` is not writable, or not contiguous (what its exporter raises).
        As `receive`.
        """

    @overload
    def take(self, timeout: None = None, *, deadline: None = None, lease: float | None = None) -> Job | Any: ...
    @overload
    def take(
        self, timeout: float | None = None, *, deadline: float | None = None, lease: float | None = None
    ) -> Job | None:
        """Take the next message as a job, which stays in the queue until it is acknowledged.

        ``with queue.take() as job:`` acknowledges at the end of the block, and gives the job back if that raised.

        Parameters
        ----------
        timeout : as in `receive`.
        deadline : as in `receive`.
        lease : seconds after which the message goes back to the queue by itself, though its consumer lives; None: it
            goes back when the consumer gives it back, closes the handle, or dies. Above 0, up to 24 days.

        Returns
        -------
        The job, with a copy of the message. None when there was no message in time.

        Raises
        ------
        InvalidValueError : a lease that is not possible.
        As `receive`.
        """

    def peek(self, limit: int | None = None) -> list[Message]:
        """Return copies of messages that wait, those first that would be received first. They stay.

        Parameters
        ----------
        limit : at most so many; None: all.

        Returns
        -------
        The messages, without those that others took meanwhile. `deliveries` is how often each was taken before.

        Raises
        ------
        InvalidValueError : a negative `limit`.
        QueueAccessError : the handle was opened with ``read=False``.
        EndpointClosedError : the handle is closed.
        """

    def __iter__(self) -> Self:
        """Return the handle: ``for message in queue`` receives for ever, or until it is empty if `block` is False."""

    def __next__(self) -> Message: ...
    def arecv(self) -> Coroutine[Any, Any, Message]:
        """Return the next message, in a task of an asyncio loop. It waits only if none is there.

        Does not look at `block`; for a time-out use asyncio's. A cancelled call takes nothing. ``async for`` does the
        same. One task at a time may wait with a handle.

        Raises
        ------
        EndpointClosedError : it is closed, also while this waits.
        ConcurrentUseError : another task waits with this handle.
        QueueAccessError : the handle was opened with ``read=False``.
        """

    def areceive(self) -> Coroutine[Any, Any, Message]:
        """Do what `arecv` does, by the name that goes with `receive`."""

    def __anext__(self) -> Coroutine[Any, Any, Message]: ...
    def notify(
        self,
        target: Callable[[Self], object] | int | HasFileno | None,
        once: bool = False,
        *,
        exclusive: bool = False,
    ) -> None:
        """Be told when a message comes to the empty queue while nobody waits to receive it.

        It is the way of `mq_notify`, and serves who has something else to wait for; `receive` needs no notification. It
        may be told once too often, so look without waiting (``receive(0)``), until there is nothing left: the next
        message that comes to a queue that is not empty is told to nobody.

        Parameters
        ----------
        target : a function, which is called with this handle in a thread of its own; a signal's number, which this
            process gets; an object with ``fileno()``, an eventfd, pipe or socket, to which eight bytes are written;
            None: be told no more. It replaces what was asked for before with this handle.
        once : be told only the first time.
        exclusive : refuse if another process is told of this queue already.

        Raises
        ------
        QueueBusyError : another process is told, and `exclusive` was given.
        InvalidValueError : there is no such signal, or the descriptor is closed or cannot be written to.
        TypeError : `target` is something else.
        EndpointClosedError : the handle is closed.

        Notes
        -----
        What the function raises goes to ``threading.excepthook``. The handle must be kept: one that is deleted or
        closed is told no more. In a forked child nobody is told until somebody asks there.
        """

    def unlink(self) -> None:
        """Remove the queue's name, and what is in it once nobody has it open. Who has it open goes on.

        Raises
        ------
        SegmentError : there is no such queue (ENOENT), or it may not be removed (EACCES, EPERM).
        """

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a queue's name without opening the queue.

        Parameters
        ----------
        name : of the queue.
        prefix : instead of OPENPILOT_PREFIX, "" for none.

        Raises
        ------
        EndpointNameError : the name cannot name a queue.
        SegmentError : as `unlink`.
        """

@disjoint_base
class QueueBrowser:
    """Looks at the messages of a queue. Its file is mapped read-only: a right to read is enough, and nobody notices.

    Each look is at all places of the queue. What others take meanwhile is left out, and nothing is seen half. It stays
    with the file that it opened, also when the queue is removed. One thread at a time.

    Its calls raise `SegmentSizeError` when another program made the file smaller.
    """

    def __new__(cls, name: str, in_prefix: str) -> Self:
        """Open the queue's file.

        Raises
        ------
        SegmentError : it is not there (ENOENT), or cannot be read. CorruptSegmentError: it is no queue.
        """

    @property
    def schema(self) -> Schema | None:
        """What describes the messages; None: nothing does."""

    @property
    def events(self) -> bool:
        """Whether the queue publishes what happens to its messages (`msgq.common.queue_events`)."""

    @property
    def sent(self) -> int:
        """How many messages were sent so far, by all handles."""

    def messages(self, limit: int | None = None) -> list[QueueMessage]:
        """Return copies of what waits, those first that would be received first; see `msgq.stats.queue_messages`."""

    def unseen(self, limit: int | None = None) -> list[QueueMessage]:
        """Return those of `messages` that this has not returned before. The first call returns all that wait.

        One that was taken and came back is not new. Which messages were returned is remembered by place, so it takes 16
        bytes for each message that the queue holds, whatever passes.
        """

def queue_messages(name: str, in_prefix: str, limit: int | None = None) -> list[QueueMessage]:
    """Return what waits, see `msgq.stats.queue_messages`."""

@disjoint_base
class QueueWatch:
    """One work queue, kept mapped, read-only and without a trace; unmapped with the last reference.

    One thread at a time. When the queue is made anew this goes on with the old one (see `msgq.stats.queue_inodes`).

    Raises
    ------
    SegmentError : there is no such queue (ENOENT), or its file cannot be read; by the methods, when it was cut.
    """

    def __init__(self, name: str, in_prefix: str) -> None: ...
    def counts(self) -> EndpointCounts:
        """Return what moves; takes a microsecond."""

    def stats(self) -> QueueStats:
        """Return all of it, with what waits and who lives; see `msgq.stats.queue`."""

def remove_queue(name: str, in_prefix: str, wanted: Callable[[QueueStats], bool]) -> bool:
    """Remove a queue's name if `wanted` says so; returns whether it did.

    It is asked under the lock that all take who open the queue: who comes meanwhile makes another one.

    Raises
    ------
    SegmentError : it is not there (ENOENT), or it cannot be opened or removed.
    """
