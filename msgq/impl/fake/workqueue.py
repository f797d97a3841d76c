"""Work queues on the fake backend: inside the process, in virtual time.

The contract of each method is in core.pyi of msgq/impl/workqueue. A message is there when `send` returns, also in a
simulation, unless a fault delays it. A call that waits lets virtual time pass.
"""

from __future__ import annotations

import contextlib
import errno
import heapq
import os
import weakref
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from msgq.common import file_permissions, naming
from msgq.common.queue_events import Event
from msgq.errors import EndpointClosedError, QueueFullError, SegmentError
from msgq.impl.base.argument_checks import not_connected_error
from msgq.impl.base.origin import origin_time as thread_origin
from msgq.impl.fake.bus import Bus, current_bus, fork_error
from msgq.impl.fake.memory import copy_of
from msgq.impl.fake.subscriber import fill
from msgq.impl.fake.waiting import Waitable
from msgq.impl.fake.workqueue_events import EventPublisher, remove_events
from msgq.impl.fake.workqueue_job import Job
from msgq.impl.fake.workqueue_store import Claim, Item, Queue, Row, find_queue, new_row
from msgq.impl.workqueue import options
from msgq.impl.workqueue.message import Message, message

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from msgq.common.schema import Schema
    from msgq.common.stats.workqueue import QueueStats

__all__ = ["Job", "Message", "MessageQueue"]


class MessageQueue(Waitable):
    """One handle of a queue. See core.pyi of msgq/impl/workqueue for the contract of each method."""

    signals_end_waits = False  # no wait takes time in which a signal could come
    _row: Row | None = None

    def __init__(
        self,
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
    ) -> None:
        super().__init__()
        request = options.parse_open_request(
            name, flags, mode, max_messages, max_message_size, read, write, events, create
        )
        options.check_schema(schema, request.name)
        self._prefix, self._trust = naming.resolve_prefix(prefix), trust
        with naming.overrides(trust=trust):
            file_permissions.trusted_users(request.name)
        naming.spin_us(spin_us, request.name)
        self._read, self._write, self._block = bool(read), bool(write), request.block
        self._endpoint = request.name
        self._queue = open_queue(self._bus, self._prefix, request)
        self._row = new_row(self._queue)
        self._event_publisher = (
            EventPublisher(self._queue, self._prefix, self._row.number) if self._queue.events else None
        )
        if self._event_publisher is not None:
            self._row.publisher = self._event_publisher.publish
        if self._queue.schema is None:
            self._queue.schema = schema
        self._bus.on_member_opened(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.current_messages} of {self.max_messages} messages"
        return f"<msgq fake MessageQueue {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen, (self._endpoint, self._prefix, self._trust, self._read, self._write, self._block)

    # ---- what it is ----

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._row is None or self._row.closed

    @property
    def name(self) -> str:
        """Of the queue."""
        return self._endpoint

    @property
    def prefix(self) -> str:
        """Where it is; "" for none."""
        return self._prefix

    @property
    def path(self) -> str:
        """No file."""
        return ""

    @property
    def mode(self) -> int:
        """Permissions that the queue was made with."""
        return self._queue.mode

    @property
    def max_messages(self) -> int:
        """Messages that it holds."""
        return self._queue.max_messages

    @property
    def max_message_size(self) -> int:
        """Bytes that each may have."""
        return self._queue.max_message_size

    @property
    def events(self) -> bool | str | None:
        """What it says of its messages."""
        return options.EVENTS_CHOICES[self._queue.events]

    @property
    def schema(self) -> Schema | None:
        """What describes the messages."""
        return self._queue.schema

    @property
    def identity(self) -> tuple[int, int]:
        """What no other queue has."""
        return self._queue.identity

    @property
    def block(self) -> bool:
        """Whether calls wait when nobody says how long."""
        return self._block

    @block.setter
    def block(self, value: bool) -> None:
        self._block = bool(value)

    @property
    def current_messages(self) -> int:
        """Messages that wait."""
        self._use()
        return len(self._queue.ready)

    @property
    def in_flight(self) -> int:
        """Messages that are taken."""
        self._use()
        return self._queue.in_flight

    def stats(self) -> QueueStats:
        """Return the statistics of the queue."""
        from msgq.impl.fake.workqueue_stats import queue_stats  # late: few programs read statistics

        self._use()
        return queue_stats(self._queue, self._prefix)

    # ---- coming and going ----

    def close(self) -> None:
        """Leave. What was taken comes back."""
        row = self._row
        if row is not None and not row.closed:
            row.leave()
            if self._event_publisher is not None:
                self._event_publisher.close()
            self._end_waits()

    def unlink(self) -> None:
        """Remove the queue's name; who has it open goes on."""
        remove(self._bus, self._prefix, self._endpoint)

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a queue's name, without opening the queue."""
        remove(current_bus(), naming.resolve_prefix(prefix), naming.queue_name(name))

    def _use(self, right: str = "") -> Row:
        """Return the row, if this handle may be used so now."""
        row = self._row
        if row is None or row.closed:
            raise not_connected_error(self._endpoint)
        if self._queue.inherited_by_fork:
            raise fork_error(self._endpoint)
        if (right == "read" and not self._read) or (right == "write" and not self._write):
            raise options.access_error(right, self._endpoint)
        return row

    # ---- what it is to those who wait ----

    def _check_usable(self) -> Row:
        return self._use("read")

    def _acquire(self) -> None:
        """Any number may wait with one handle."""

    def _release(self, _arrivals: object) -> None:
        """See `_acquire`."""

    def _default_timeout_ns(self) -> int | None:
        return None if self._block else 0

    def _receive_now(self) -> Any:  # a generator of a simulation gets the message
        return self.receive(0)

    def _rearm_fd(self) -> None:
        """The queue does it."""

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message is queue. In a simulation: `DeadlockError`."""
        row = self._check_usable()
        self._bus.check_descriptor_allowed(self._endpoint)
        if self._fd < 0:
            self._fd = row.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self._queue.update_descriptors()
        return self._fd

    def arecv(self) -> Coroutine[Any, Any, Any]:
        """Return the next message, in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        self._check_usable()
        return event_loop.receive_in_turn(self)

    areceive = __anext__ = arecv

    def notify(self, target: Any, once: bool = False, *, exclusive: bool = False) -> None:  # queue is no other process
        """Tell when a message comes to an empty queue that nobody waits for. None: no longer."""
        action = None if target is None else options.parse_notification(target, self._endpoint)
        row = self._use()
        row.notify = None if action is None else partial(_notify, weakref.ref(self), target, action, once)

    def _wait(self, ready: Callable[[], bool], patience_ns: int, what: str) -> None:
        """Wait until `ready`, or so long; -1: for ever."""
        row = self._use()
        limit = None if patience_ns < 0 else patience_ns
        self._bus.wait_until(lambda: row.closed or ready(), limit, f"{what} of the queue {self._endpoint!r}")
        if row.closed:
            raise EndpointClosedError("was closed while it was waited for", self._endpoint)

    def _wait_in_turn(self, line: list[object], available: Callable[[], int], patience_ns: int, what: str) -> None:
        """Wait until queue is something for this call, beside what is for those before it in the line."""
        ticket = object()
        line.append(ticket)
        try:
            self._wait(lambda: line.index(ticket) < available(), patience_ns, what)
        finally:
            line.remove(ticket)

    def _timeout_ns(self, timeout: float | None, deadline: float | None) -> int:
        return options.wait_ns(timeout, deadline, self._block, self._endpoint, self._bus.clock.monotonic)

    # ---- sending ----

    def send(
        self,
        message: Any,
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        origin_time: int = 0,
    ) -> None:
        """Send a message."""
        self._use("write")
        checked = options.check_priority(priority, self._endpoint)
        origin = options.check_origin_time(origin_time, self._endpoint)
        timeout_ns = self._timeout_ns(timeout, deadline)
        self._put(self._copy_message(message), checked, origin, timeout_ns)

    def send_many(
        self,
        messages: Iterable[Any],
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
    ) -> int:
        """Send several messages, and return how many went in."""
        self._use("write")
        checked = options.check_priority(priority, self._endpoint)
        timeout_ns = self._timeout_ns(timeout, deadline)
        end = self._bus.clock.now_ns + timeout_ns
        count = 0
        for each in messages:
            left = max(end - self._bus.clock.now_ns, 0) if timeout_ns >= 0 else timeout_ns
            try:
                self._put(self._copy_message(each), checked, 0, left)
            except QueueFullError:
                break
            count += 1
        return count

    def _copy_message(self, message: Any) -> bytes:
        options.refuse_objects(message)
        data = message if type(message) is bytes else copy_of(message)
        if len(data) > self._queue.max_message_size:
            raise options.too_large_error(len(data), self._queue.max_message_size, self._endpoint)
        return data

    def _put(self, data: bytes, priority: int, origin_time: int, patience_ns: int) -> None:
        row = self._use("write")  # an exporter may run any code
        queue, origin_time = self._queue, origin_time or thread_origin()
        if not queue.has_free_slot() and patience_ns:
            self._wait_in_turn(queue.senders, queue.room, patience_ns, "room for a message")
        if not queue.has_free_slot():
            row.publish_event(Event.REFUSED, Item(data, priority, 0, 0, origin_time))
            raise options.full_error(queue.max_messages, bool(patience_ns), self._endpoint)
        row.publish_event(Event.SENT, queue.send(data, priority, origin_time))

    def wait_space(self, timeout: float | None = None, *, deadline: float | None = None) -> bool:
        """Wait until queue is room for a message; tell whether queue is."""
        self._use("write")
        timeout_ns = self._timeout_ns(timeout, deadline)
        if not self._queue.has_free_slot() and timeout_ns:
            self._wait(self._queue.has_free_slot, timeout_ns, "room for a message")
        return self._queue.has_free_slot()

    # ---- receiving ----

    def _wait_for_message(self, timeout: float | None, deadline: float | None) -> bool:
        """Wait for a message, and tell whether queue is one."""
        row = self._check_usable()
        timeout_ns = self._timeout_ns(timeout, deadline)
        if not row.can_receive() and timeout_ns:
            row.receiving += 1
            try:
                waiting = self._queue
                self._wait_in_turn(waiting.receivers, lambda: len(waiting.ready), timeout_ns, "a message")
            except BaseException:
                row.receiving -= 1
                if row.can_receive():
                    self._queue.notify_if_idle()  # who was told before was we
                raise
            row.receiving -= 1
        return row.can_receive()

    def _receive_first(self) -> Item:
        """Receive the first message; queue must be one."""
        row, item = self._use(), self._queue.take()
        self._queue.in_flight -= 1
        row.publish_event(Event.RECEIVED, item, self._bus.clock.now_ns)
        self._bus.on_message_taken(self._queue, item.number)
        return item

    def receive(self, timeout: float | None = None, *, deadline: float | None = None) -> Message | None:
        """Take the next message."""
        return to_message(self._receive_first()) if self._wait_for_message(timeout, deadline) else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        received = self.receive()
        if received is None:  # it does not block
            raise StopIteration
        return received

    def receive_many(self, limit: int | None = None) -> list[Message]:
        """Take the messages that are queue."""
        most = options.check_limit(limit, self._endpoint)
        row = self._check_usable()
        messages: list[Message] = []
        while len(messages) < most and row.can_receive():
            messages.append(to_message(self._receive_first()))
        return messages

    def receive_into(
        self,
        buffer: WriteableBuffer,
        timeout: float | None = None,
        *,
        deadline: float | None = None,
    ) -> tuple[int, int] | None:
        """Take the next message into memory of the caller's; return its length and priority."""
        fill(buffer, b"")  # refuses what is not writable or not contiguous
        buffer_bytes = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        if not self._wait_for_message(timeout, deadline):
            return None
        size = len(self._queue.ready[0][2].data)
        if size > buffer_bytes:
            raise options.too_small_error(size, buffer_bytes, self._endpoint)
        item = self._receive_first()
        return fill(buffer, item.data), item.priority

    def take(
        self, timeout: float | None = None, *, deadline: float | None = None, lease: float | None = None
    ) -> Job | None:
        """Take the next message, until it is acknowledged."""
        lease_ns = options.lease_ns(lease, self._endpoint)
        if not self._wait_for_message(timeout, deadline):
            return None
        claim = Claim(self._use(), self._queue.take(), lease_ns)
        self._bus.on_message_taken(self._queue, claim.item.number)
        return Job(self, self._queue, claim)

    def peek(self, limit: int | None = None) -> list[Message]:
        """Return what waits, the first first; it stays."""
        most = options.check_limit(limit, self._endpoint)
        self._check_usable()
        return [to_message(item) for *_, item in heapq.nsmallest(min(most, len(self._queue.ready)), self._queue.ready)]


def to_message(item: Item) -> Message:
    """Return a message as its receiver gets it."""
    return message(item.data, item.priority, item.deliveries, item.sent_time, item.origin_time)


def open_queue(bus: Bus, prefix: str, request: options.OpenRequest) -> Queue:
    """Open a queue, or make it."""
    queue = find_queue(bus, prefix, request.name)
    if queue is None and request.create is False:
        raise missing_error(request.name)
    if queue is not None and request.create:
        raise SegmentError("the queue is there already", request.name, errno=errno.EEXIST)
    if queue is None:
        bus.queues[prefix, request.name] = queue = Queue(bus, request)
    else:
        request.check(queue.max_messages, queue.max_message_size, queue.events)
    return queue


def remove(bus: Bus, prefix: str, name: str) -> None:
    """Remove a queue's name, and its channel of events."""
    if (prefix, name) in bus.queues:
        remove_events(name, prefix)
    if bus.queues.pop((prefix, name), None) is None:
        raise missing_error(name)


def missing_error(name: str) -> SegmentError:
    """Return the error for a queue that was to be opened, or removed."""
    return SegmentError("there is no such queue", name, errno=errno.ENOENT)


def reopen(name: str, prefix: str, trust: str | None, read: bool, write: bool, block: bool) -> MessageQueue:
    """Return a handle of the same kind as one that was pickled."""
    queue = MessageQueue(name, 0, read=read, write=write, prefix=prefix, trust=trust)
    queue.block = block
    return queue


def _notify(handle: weakref.ref[MessageQueue], target: Any, action: options.Notification, once: bool) -> None:
    """Notify the owner of a handle. `target` is what was given: a descriptor stays open as long as it is asked for."""
    queue = handle()
    if queue is None or queue._row is None:
        return
    if once:
        queue._row.notify = None
    if action.function is not None:
        queue._bus.run_notification(queue, partial(action.function, queue))
    elif action.signal is not None:
        os.kill(os.getpid(), action.signal)
    elif action.descriptor is not None:
        with contextlib.suppress(OSError):  # it is full, or was closed
            os.write(action.descriptor, (1).to_bytes(8, "little"))
