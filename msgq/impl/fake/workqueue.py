"""Work queues on the fake backend: inside the process, in virtual time.

The stub msgq/impl/workqueue/core.pyi documents the methods. A message is in the queue when `send` returns, also in a
simulation, unless a fault delays it. A call that waits advances virtual time.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from msgq.common import file_permissions, naming, settings
from msgq.common.queue_events import Event
from msgq.errors import EndpointClosedError, QueueFullError
from msgq.impl.base.argument_checks import not_connected_error, warn_in_event_loop
from msgq.impl.base.clock import origin_time as thread_origin
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.fake.bus import InProcessBus, current_bus
from msgq.impl.fake.endpoint_state import fork_error
from msgq.impl.fake.owned_buffer import copy_buffer
from msgq.impl.fake.waiting import copy_into_buffer
from msgq.impl.fake.waiting import SharedWaitable
from msgq.impl.fake.workqueue_events import EventPublisher, remove_events
from msgq.impl.fake.workqueue_job import Job
from msgq.impl.fake.workqueue_store import (
    JobClaim,
    QueueHandleRow,
    QueueItem,
    missing_queue_error,
    open_queue,
    register_handle,
)
from msgq.impl.workqueue import options
from msgq.impl.workqueue.job_loop import iterate_jobs
from msgq.impl.workqueue.message import Message, message

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from msgq.common.schema import Schema
    from msgq.common.stats.workqueue import QueueStats

__all__ = ["Job", "Message", "MessageQueue"]


@add_advice
class MessageQueue(SharedWaitable):
    """One handle of a queue. The stub msgq/impl/workqueue/core.pyi documents the methods."""

    signals_end_waits = False  # no wait takes time in which a signal could come
    _handle_row: QueueHandleRow | None = None

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
        self._prefix, self._trust = settings.resolve_prefix(prefix), trust
        with settings.overrides(trust=trust):
            file_permissions.trusted_users(request.name)
        settings.resolve_spin_us(spin_us, request.name)
        self._can_read, self._can_write, self._blocks_by_default = bool(read), bool(write), request.block
        self._endpoint = request.name
        self._queue = open_queue(self._bus, self._prefix, request)
        self._handle_row = register_handle(self._queue)
        self._event_publisher: EventPublisher | None = None
        if self._queue.events_choice:
            self._event_publisher = EventPublisher(self._queue, self._prefix, self._handle_row.handle_number)
            self._handle_row.event_callback = self._event_publisher.publish_event
        if self._queue.schema is None:
            self._queue.schema = schema
        self._bus.on_member_opened(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.current_messages} of {self.max_messages} messages"
        return f"<msgq fake MessageQueue {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reopen_pickled_queue, (
            self._endpoint,
            self._prefix,
            self._trust,
            self._can_read,
            self._can_write,
            self._blocks_by_default,
        )

    # ---- properties ----

    @property
    def closed(self) -> bool:
        """True if the handle is closed."""
        return self._handle_row is None or self._handle_row.closed

    @property
    def name(self) -> str:
        """Name of the queue."""
        return self._endpoint

    @property
    def prefix(self) -> str:
        """Prefix of the queue; "": none."""
        return self._prefix

    @property
    def path(self) -> str:
        """Empty, because no file exists."""
        return ""

    @property
    def mode(self) -> int:
        """Permissions given at the creation."""
        return self._queue.mode

    @property
    def max_messages(self) -> int:
        """Maximum number of messages."""
        return self._queue.max_messages

    @property
    def max_message_size(self) -> int:
        """Maximum bytes of a message."""
        return self._queue.max_message_size

    @property
    def events(self) -> bool | str | None:
        """Events that the queue publishes."""
        return options.EVENTS_CHOICES[self._queue.events_choice]

    @property
    def schema(self) -> Schema | None:
        """Schema of the messages."""
        return self._queue.schema

    @property
    def identity(self) -> tuple[int, int]:
        """Unique identity of the queue."""
        return self._queue.identity

    @property
    def block(self) -> bool:
        """True if calls without a timeout wait."""
        return self._blocks_by_default

    @block.setter
    def block(self, value: bool) -> None:
        self._blocks_by_default = bool(value)

    @property
    def current_messages(self) -> int:
        """Number of waiting messages."""
        self._get_usable_row()
        return len(self._queue.ready_heap)

    @property
    def in_flight(self) -> int:
        """Number of taken messages."""
        self._get_usable_row()
        return self._queue.in_flight

    @property
    def delayed_messages(self) -> int:
        """Number of messages that wait for their due time."""
        self._get_usable_row()
        return len(self._queue.waiting_items)

    def stats(self) -> QueueStats:
        """Return the statistics of the queue."""
        from msgq.impl.fake.workqueue_stats import read_queue_stats  # late: few programs read statistics

        self._get_usable_row()
        return read_queue_stats(self._queue, self._prefix)

    # ---- close and remove ----

    def close(self) -> None:
        """Close the handle. Messages taken by the handle return to the queue."""
        row = self._handle_row
        if row is not None and not row.closed:
            row.close_handle()
            if self._event_publisher is not None:
                self._event_publisher.close()
            self._end_all_waits()

    def unlink(self) -> None:
        """Remove the queue's name. Open handles continue."""
        remove_queue(self._bus, self._prefix, self._endpoint)

    @staticmethod
    def unlink_name(name: str | bytes, prefix: str | None = None) -> None:
        """Remove a queue's name, without opening the queue."""
        remove_queue(current_bus(), settings.resolve_prefix(prefix), naming.validate_queue_name(name))

    def _get_usable_row(self, permission: str = "") -> QueueHandleRow:
        """Return the row. Raises an error if the handle may not be used in this way now."""
        row = self._handle_row
        if row is None or row.closed:
            raise not_connected_error(self._endpoint)
        if self._queue.inherited_by_fork:
            raise fork_error(self._endpoint)
        if (permission == "read" and not self._can_read) or (permission == "write" and not self._can_write):
            raise options.access_error(permission, self._endpoint)
        return row

    # ---- waits ----

    def _check_usable(self) -> QueueHandleRow:
        return self._get_usable_row("read")

    def _default_timeout_ns(self) -> int | None:
        return None if self._blocks_by_default else 0

    def _receive_now(self) -> Any:  # a generator of a simulation gets the message
        return self.receive(0)

    def arecv(self) -> Coroutine[Any, Any, Any]:
        """Return the next message, in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        self._check_usable()
        return event_loop.receive_in_turn(self)

    areceive = __anext__ = arecv

    def notify(self, target: Any, once: bool = False, *, exclusive: bool = False) -> None:  # there is no other process
        """Notify the target of messages in the empty queue while no receiver waits. None: cancel."""
        action = None if target is None else options.parse_notification(target, self._endpoint)
        row = self._get_usable_row()
        row.notify_callback = (
            None if action is None else partial(_notify_handle_owner, weakref.ref(self), target, action, once)
        )

    def _wait_until(self, ready: Callable[[], bool], timeout_ns: int, awaited: str) -> None:
        """Wait until `ready` returns True, or until the timeout in ns; -1: forever."""
        warn_in_event_loop()
        row = self._get_usable_row()
        limit = None if timeout_ns < 0 else timeout_ns
        self._bus.wait_until(lambda: row.closed or ready(), limit, f"{awaited} of the queue {self._endpoint!r}")
        if row.closed:
            raise EndpointClosedError("was closed during the wait", self._endpoint)

    def _wait_in_turn(
        self, waiting_calls: list[object], available: Callable[[], int], timeout_ns: int, awaited: str
    ) -> None:
        """Wait until the available number is enough for this call and all earlier waiting calls."""
        this_call = object()
        waiting_calls.append(this_call)
        try:
            self._wait_until(lambda: waiting_calls.index(this_call) < available(), timeout_ns, awaited)
        finally:
            waiting_calls.remove(this_call)

    def _compute_timeout_ns(self, timeout: float | None, deadline: float | None) -> int:
        return options.wait_ns(timeout, deadline, self._blocks_by_default, self._endpoint, self._bus.clock.monotonic)

    # ---- sending ----

    def send(
        self,
        message: Any,
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        origin_time: int = 0,
        delay: float | None = None,
    ) -> None:
        """Send a message."""
        delay_ns = options.delay_ns(delay, self._endpoint)
        self._get_usable_row("write")
        checked = options.check_priority(priority, self._endpoint)
        origin = options.check_origin_time(origin_time, self._endpoint)
        timeout_ns = self._compute_timeout_ns(timeout, deadline)
        self._send_data(self._copy_message(message), checked, origin, timeout_ns, delay_ns)

    def send_many(
        self,
        messages: Iterable[Any],
        priority: int = 0,
        *,
        timeout: float | None = None,
        deadline: float | None = None,
        delay: float | None = None,
    ) -> int:
        """Send several messages, and return their number."""
        delay_ns = options.delay_ns(delay, self._endpoint)
        self._get_usable_row("write")
        checked = options.check_priority(priority, self._endpoint)
        timeout_ns = self._compute_timeout_ns(timeout, deadline)
        deadline_ns = self._bus.clock.now_ns + timeout_ns
        count = 0
        for data in messages:
            remaining_ns = max(deadline_ns - self._bus.clock.now_ns, 0) if timeout_ns >= 0 else timeout_ns
            try:
                self._send_data(self._copy_message(data), checked, 0, remaining_ns, delay_ns)
            except QueueFullError:
                break
            count += 1
        return count

    def _copy_message(self, message: Any) -> bytes:
        options.refuse_objects(message)
        data = message if type(message) is bytes else copy_buffer(message)
        if len(data) > self._queue.max_message_size:
            self._queue.has_chosen_sizes = True
            raise options.too_large_error(len(data), self._queue.max_message_size, self._endpoint)
        return data

    def _send_data(self, data: bytes, priority: int, origin_time: int, timeout_ns: int, delay_ns: int) -> None:
        row = self._get_usable_row("write")  # an exporter may run any code
        queue, origin_time = self._queue, origin_time or thread_origin()
        if not queue.has_free_slot() and timeout_ns:
            self._wait_in_turn(queue.waiting_senders, queue.count_free_slots, timeout_ns, "room for a message")
        if not queue.has_free_slot():
            row.publish_event(Event.REFUSED, QueueItem(data, priority, 0, 0, origin_time))
            raise options.full_error(queue.max_messages, bool(timeout_ns), self._endpoint)
        row.publish_event(Event.SENT, queue.send_item(data, priority, origin_time, delay_ns))

    def wait_space(self, timeout: float | None = None, *, deadline: float | None = None) -> bool:
        """Wait for a free slot. Return False at the timeout."""
        self._get_usable_row("write")
        self._queue.has_chosen_sizes = True
        timeout_ns = self._compute_timeout_ns(timeout, deadline)
        if not self._queue.has_free_slot() and timeout_ns:
            self._wait_until(self._queue.has_free_slot, timeout_ns, "room for a message")
        return self._queue.has_free_slot()

    # ---- receiving ----

    def _wait_for_message(self, timeout: float | None, deadline: float | None) -> bool:
        """Wait for a message. Return False at the timeout."""
        row = self._check_usable()
        timeout_ns = self._compute_timeout_ns(timeout, deadline)
        if not row.can_receive() and timeout_ns:
            row.waiting_receives += 1
            try:
                queue = self._queue
                self._wait_in_turn(queue.waiting_receivers, lambda: len(queue.ready_heap), timeout_ns, "a message")
            except BaseException:
                row.waiting_receives -= 1
                if row.can_receive():
                    self._queue.notify_if_idle()  # no notification was sent, because this call waited
                raise
            row.waiting_receives -= 1
        return row.can_receive()

    def _receive_next_item(self) -> QueueItem:
        """Receive the first message. A message must be available."""
        row, item = self._get_usable_row(), self._queue.take_item()
        self._queue.in_flight -= 1
        row.publish_event(Event.RECEIVED, item, self._bus.clock.now_ns)
        self._bus.on_message_taken(self._queue, item.send_number)
        return item

    def receive(self, timeout: float | None = None, *, deadline: float | None = None) -> Message | None:
        """Take the next message."""
        return make_message(self._receive_next_item()) if self._wait_for_message(timeout, deadline) else None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        received = self.receive()
        if received is None:  # a handle that does not block, and an empty queue
            raise StopIteration
        return received

    def _remove_waiting_message(self, ending: bytes) -> bool:
        """Remove the waiting or delayed message that ends with these bytes. Return False if there is none."""
        row = self._check_usable()
        item = self._queue.remove_item_with_ending(ending)
        if item is None:
            return False
        item.deliveries += 1
        row.publish_event(Event.RECEIVED, item)
        self._bus.on_message_taken(self._queue, item.send_number)
        return True

    def receive_many(self, limit: int | None = None) -> list[Message]:
        """Take the available messages."""
        message_limit = options.check_limit(limit, self._endpoint)
        row = self._check_usable()
        messages: list[Message] = []
        while len(messages) < message_limit and row.can_receive():
            messages.append(make_message(self._receive_next_item()))
        return messages

    def receive_into(
        self,
        buffer: WriteableBuffer,
        timeout: float | None = None,
        *,
        deadline: float | None = None,
    ) -> tuple[int, int] | None:
        """Take the next message into the caller's memory. Return its length and priority."""
        copy_into_buffer(buffer, b"")  # raises if the buffer is not writable or not contiguous
        buffer_bytes = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        if not self._wait_for_message(timeout, deadline):
            return None
        size = len(self._queue.ready_heap[0][2].data)
        if size > buffer_bytes:
            raise options.too_small_error(size, buffer_bytes, self._endpoint)
        item = self._receive_next_item()
        return copy_into_buffer(buffer, item.data), item.priority

    def take(
        self, timeout: float | None = None, *, deadline: float | None = None, lease: float | None = None
    ) -> Job | None:
        """Take the next message as a job."""
        lease_ns = options.lease_ns(lease, self._endpoint)
        if not self._wait_for_message(timeout, deadline):
            return None
        claim = JobClaim(self._get_usable_row(), self._queue.take_item(), lease_ns)
        self._bus.on_message_taken(self._queue, claim.item.send_number)
        return Job(self, self._queue, claim)

    def jobs(self, timeout: float | None = None, *, lease: float | None = None) -> Iterator[Job]:
        """Iterate over jobs, and acknowledge each job after the body of the loop."""
        return iterate_jobs(self, timeout, lease)

    def peek(self, limit: int | None = None) -> list[Message]:
        """Return copies of the waiting messages, in their order."""
        message_limit = options.check_limit(limit, self._endpoint)
        self._check_usable()
        return [
            make_message(item)
            for *_, item in heapq.nsmallest(min(message_limit, len(self._queue.ready_heap)), self._queue.ready_heap)
        ]


def make_message(item: QueueItem) -> Message:
    """Return a message for its receiver."""
    return message(item.data, item.priority, item.deliveries, item.sent_time, item.origin_time)


def remove_queue(bus: InProcessBus, prefix: str, name: str) -> None:
    """Remove a queue's name, and its events channel."""
    if (prefix, name) in bus.queues:
        remove_events(name, prefix)
    if bus.queues.pop((prefix, name), None) is None:
        raise missing_queue_error(name)


def reopen_pickled_queue(
    name: str, prefix: str, trust: str | None, read: bool, write: bool, block: bool
) -> MessageQueue:
    """Return a handle for a pickled queue."""
    queue = MessageQueue(name, 0, read=read, write=write, prefix=prefix, trust=trust)
    queue.block = block
    return queue


def _notify_handle_owner(
    handle: weakref.ref[MessageQueue], target: Any, action: options.Notification, once: bool
) -> None:
    """Notify the target of a handle. `target`: the argument of `notify`, kept so that its descriptor stays open."""
    queue = handle()
    if queue is None or queue._handle_row is None:
        return
    if once:
        queue._handle_row.notify_callback = None
    if action.function is not None:
        queue._bus.run_notification(queue, partial(action.function, queue))
    elif action.signal is not None:
        os.kill(os.getpid(), action.signal)
    elif action.descriptor is not None:
        with contextlib.suppress(OSError):  # the descriptor is full or closed
            os.write(action.descriptor, (1).to_bytes(8, "little"))
