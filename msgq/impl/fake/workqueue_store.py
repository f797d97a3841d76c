"""State of a work queue in this process: messages in their order, jobs, waiting calls, and notifications.

Orders are counted as in the headers of msgq/impl/workqueue: the order of a message is the number of messages that
became ready before it. A returned message keeps its order.
"""

from __future__ import annotations

import errno
import heapq
import itertools
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgq.common.naming import QUEUE_NAME_PREFIX
from msgq.common.queue_events import Event
from msgq.common.schema import Schema
from msgq.errors import SegmentError
from msgq.impl.base.process import process_name
from msgq.impl.fake.bus import InProcessBus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, Inbox, SharedInbox
from msgq.impl.workqueue import options

_queue_numbers = itertools.count(1)


@dataclass(slots=True)
class QueueItem:
    """A message of a queue.

    Attributes
    ----------
    send_number : number among sent messages, from 1.
    ready_order : order among messages of the same priority.
    deliveries : number of deliveries.
    sent_time, origin_time : ns.
    """

    data: bytes
    priority: int
    send_number: int
    sent_time: int
    origin_time: int
    ready_order: int = 0
    deliveries: int = 0


class JobClaim:
    """A taken message, until its acknowledgement or return.

    Attributes
    ----------
    is_over : True: the consumer ended the job.
    is_revoked : True: the message returned without the consumer, because the lease ended, the handle closed, or the job
        was deleted.
    """

    __slots__ = ("__weakref__", "_handle_row", "_taken_time", "is_over", "is_revoked", "item")

    def __init__(self, row: QueueHandleRow, item: QueueItem, lease_ns: int) -> None:
        self._handle_row, self.item = row, item
        self._taken_time = row.queue.bus.clock.now_ns
        row.publish_event(Event.TAKEN, item, self._taken_time)
        self.is_over = self.is_revoked = False
        row.open_claims.append(self)
        if lease_ns:
            bus = row.queue.bus
            bus.clock.alarms[self] = (bus.clock.now_ns + lease_ns, self.revoke_claim)

    def check_valid(self) -> None:
        """Raise an error if the job was ended, or its handle was closed."""
        name = self._handle_row.queue.name
        if self.is_over:
            raise options.job_ended_error(name)
        if self._handle_row.closed:
            raise options.job_released_error(name)

    def end_job(self, acknowledged: bool, delay_ns: int = 0) -> None:
        """Acknowledge the message, or return it after a delay.

        Raises
        ------
        LeaseExpiredError : an acknowledged message has returned before.
        StateError, EndpointClosedError : as `check_valid`.
        """
        self.check_valid()
        self.is_over = True
        queue = self._handle_row.queue
        if self.is_revoked:
            if acknowledged:
                raise options.lease_expired_error(queue.name)
            return
        self._remove_from_handle()
        if acknowledged:
            queue.in_flight -= 1
            self._handle_row.publish_event(Event.ACKNOWLEDGED, self.item, self._taken_time)
        else:
            self._requeue_item(delay_ns)

    def _requeue_item(self, delay_ns: int = 0) -> None:
        self._handle_row.queue.requeue_item(self.item, delay_ns)
        self._handle_row.publish_event(Event.RETURNED, self.item, self._taken_time)

    def _remove_from_handle(self) -> None:
        self._handle_row.open_claims.remove(self)
        self._handle_row.queue.bus.clock.alarms.pop(self, None)

    def revoke_claim(self) -> None:
        """Return the message to the queue without the consumer."""
        if not self.is_over and not self.is_revoked:
            self.is_revoked = True
            self._remove_from_handle()
            self._requeue_item()


class QueueHandleRow(SharedInbox):
    """An open handle in the state of its queue.

    Attributes
    ----------
    handle_number : number that is unique among open handles of the queue.
    event_callback : publishes the handle's events; None: the queue publishes no events.
    event_counts : number of events of each type.
    open_claims : taken messages of the handle.
    waiting_receives : calls that wait for a message.
    notify_callback : called for a message in the empty queue.
    """

    def __init__(self, queue: QueueState) -> None:
        super().__init__()
        self.queue = queue
        numbers = {row.handle_number for row in queue.handle_rows}
        self.handle_number: int = next(number for number in itertools.count() if number not in numbers)
        self.event_callback: Callable[[Event, QueueItem, int], object] | None = None
        self.event_counts: Counter[Event] = Counter()
        self.open_claims: list[JobClaim] = []
        self.waiting_receives = 0
        self.notify_callback: Callable[[], object] | None = None
        queue.handle_rows.append(self)

    def publish_event(self, event: Event, item: QueueItem, taken_time: int = 0) -> None:
        """Count and publish an event of the handle. `taken_time`: 0 if the message was not taken."""
        self.event_counts[event] += 1
        self.queue.event_counts[event] += 1
        if self.event_callback is not None:
            self.event_callback(event, item, taken_time)

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool(self.queue.ready_heap)

    def close_handle(self) -> None:
        """Close the handle. Messages taken by the handle return to the queue."""
        self.closed = True
        self.queue.handle_rows.remove(self)
        self.notify_callback, self.event_fd = None, -1
        for claim in tuple(self.open_claims):
            claim.revoke_claim()


class DelayedInbox(Inbox):
    """Messages sent to a queue that a simulation delays."""

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return False

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return False


class QueueState(EndpointState[Inbox]):
    """Content of a queue's file.

    Attributes
    ----------
    ready_heap : heap of waiting messages: negative priority, order, message.
    in_flight : taken messages.
    waiting_items : messages that wait for their due time, by number.
    has_chosen_sizes : False: the sizes are defaults, nobody has requested others, and no message was sent.
    events_choice : index of the published events in `options.EVENTS_CHOICES`.
    event_counts : number of events of each type, over all handles.
    handle_rows : open handles.
    waiting_receivers, waiting_senders : waiting calls, in the order of their start.
    """

    delivers_exactly_once = True

    def __init__(self, bus: InProcessBus, request: options.OpenRequest) -> None:
        super().__init__(f"{QUEUE_NAME_PREFIX}{request.name}", bus.choose_route)
        self.bus, self.name, self.mode = bus, request.name, request.mode
        self.identity = (0, next(_queue_numbers))
        self.max_messages, self.max_message_size = request.new_sizes()
        self.has_chosen_sizes = request.names_sizes
        self.events_choice = request.new_events()
        self.creator, self.created_ns = (process_name(), os.getpid()), bus.clock.now_ns
        self.event_counts: Counter[Event] = Counter()
        self.schema: Schema | None = None
        self.ready_heap: list[tuple[int, int, QueueItem]] = []
        self.in_flight = 0
        self.handle_rows: list[QueueHandleRow] = []
        self.waiting_receivers: list[object] = []
        self.waiting_senders: list[object] = []
        self.waiting_items: dict[int, QueueItem] = {}
        self._ready_count = 0
        self._delayed_items: dict[int, QueueItem] = {}  # by number: items that are sent, but have not arrived yet
        self.add_inbox(DelayedInbox(self._accept_delayed_item))

    def count_free_slots(self) -> int:
        """Return the number of free slots."""
        used = len(self.ready_heap) + self.in_flight + len(self.waiting_items) + len(self._delayed_items)
        return self.max_messages - used

    def has_free_slot(self) -> bool:
        """Return True if a slot is free."""
        return self.count_free_slots() > 0

    def send_item(self, data: bytes, priority: int, origin_time: int, delay_ns: int = 0) -> QueueItem:
        """Add a message, and return it. A slot must be free."""
        self.has_chosen_sizes = True
        self.published_count += 1
        item = QueueItem(data, priority, self.published_count, self.bus.clock.now_ns, origin_time)
        if delay_ns:
            item.ready_order = self._ready_count
            self._ready_count += 1
            self._wait_until_due(item, delay_ns)
        else:
            self._delayed_items[item.send_number] = item
            self.deliver_message((item.send_number, data))
        return item

    def _wait_until_due(self, item: QueueItem, delay_ns: int) -> None:
        self.waiting_items[item.send_number] = item

        def add_item() -> None:
            if self.waiting_items.pop(item.send_number, None) is not None:  # None: a client removed the message
                self._add_ready_item(item)

        self.bus.clock.alarms[object()] = (self.bus.clock.now_ns + delay_ns, add_item)

    def get_delayed_item(self, message: BusMessage) -> QueueItem:
        """Return a sent message that has not arrived."""
        return self._delayed_items[message[0]]

    def _accept_delayed_item(self, message: BusMessage) -> None:
        item = self._delayed_items.pop(message[0])
        item.ready_order = self._ready_count
        self._add_ready_item(item)

    def requeue_item(self, item: QueueItem, delay_ns: int = 0) -> None:
        """Return a taken message to its position in the order, after a delay."""
        self.in_flight -= 1
        if delay_ns:
            self._wait_until_due(item, delay_ns)
        else:
            self._add_ready_item(item)

    def _add_ready_item(self, item: QueueItem) -> None:
        was_empty = not self.ready_heap
        heapq.heappush(self.ready_heap, (-item.priority, item.ready_order, item))
        self._ready_count += 1
        self.update_descriptors()
        if was_empty:
            self.notify_if_idle()

    def take_item(self) -> QueueItem:
        """Take the first message. A message must wait."""
        item = heapq.heappop(self.ready_heap)[2]
        item.deliveries += 1
        self.in_flight += 1
        if not self.ready_heap:
            self.update_descriptors()
        return item

    def remove_item_with_ending(self, ending: bytes) -> QueueItem | None:
        """Remove the waiting or delayed message that ends with these bytes; None: there is none."""
        for entry in self.ready_heap:
            if entry[2].data.endswith(ending):
                self.ready_heap.remove(entry)
                heapq.heapify(self.ready_heap)
                self.update_descriptors()
                return entry[2]
        for number, item in self.waiting_items.items():
            if item.data.endswith(ending):
                return self.waiting_items.pop(number)
        return None

    def update_descriptors(self) -> None:
        """Update the readability of the handles' descriptors."""
        for row in self.handle_rows:
            row.update_descriptor()

    def notify_if_idle(self) -> None:
        """Notify of messages if no receiver waits."""
        if not any(row.waiting_receives for row in self.handle_rows):
            for notify in [row.notify_callback for row in self.handle_rows if row.notify_callback is not None]:
                notify()

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        self.ready_heap.clear()
        self.waiting_items.clear()
        for row in self.handle_rows:
            row.notify_callback = None


def register_handle(queue: QueueState) -> QueueHandleRow:
    """Return a row for a new handle.

    Raises
    ------
    TooManyHandlesError : all rows are in use.
    """
    if len(queue.handle_rows) >= options.HANDLES_MAX:
        raise options.handles_error(queue.name)
    return QueueHandleRow(queue)


def find_queue(bus: InProcessBus, prefix: str, name: str) -> QueueState | None:
    """Return the queue with this name; None: no such queue."""
    queue: Any = bus.queues.get((prefix, name))
    return queue if isinstance(queue, QueueState) else None


def open_queue(bus: InProcessBus, prefix: str, request: options.OpenRequest) -> QueueState:
    """Open or create a queue."""
    queue = find_queue(bus, prefix, request.name)
    if queue is None and request.create is False:
        raise missing_queue_error(request.name)
    if queue is not None and request.create:
        raise SegmentError("queue exists; to open it, omit create=True and O_EXCL", request.name, errno=errno.EEXIST)
    if queue is None:
        bus.queues[prefix, request.name] = queue = QueueState(bus, request)
    else:
        if request.names_sizes and not queue.has_chosen_sizes:
            queue.max_messages, queue.max_message_size = request.new_sizes()
            queue.has_chosen_sizes = True
        request.check(queue.max_messages, queue.max_message_size, queue.events_choice, queue.creator)
    return queue


def missing_queue_error(name: str) -> SegmentError:
    """Return the error for a queue that does not exist."""
    return SegmentError("queue not found", name, errno=errno.ENOENT)
