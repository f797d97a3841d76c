"""A work queue in this process: its messages in their order, who has which, and who wants to know of new ones.

It counts as the headers of msgq/impl/workqueue do: a message's order is the number of messages that became ready before
it, and one that comes back keeps its own.
"""

from __future__ import annotations

import contextlib
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
from msgq.impl.base.process import process_name
from msgq.impl.fake.bus import InProcessBus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, Inbox
from msgq.impl.workqueue import options

_queue_numbers = itertools.count(1)


@dataclass(slots=True)
class QueueItem:
    """A message of a queue.

    Attributes
    ----------
    send_number : of messages that were sent, from 1 on.
    ready_order : among messages of its priority.
    deliveries : how often it was taken.
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
    """A message that is taken, until it is acknowledged or comes back.

    Attributes
    ----------
    is_over : ended by its taker.
    is_revoked : it came back without its taker, whose lease was over, who closed the handle or forgot the job.
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
        """Raise an error if it was ended, or its handle was closed."""
        name = self._handle_row.queue.name
        if self.is_over:
            raise options.job_ended_error(name)
        if self._handle_row.closed:
            raise options.job_released_error(name)

    def end_job(self, acknowledged: bool) -> None:
        """Let the message go, or give it back.

        Raises
        ------
        LeaseExpiredError : it was to go, and came back before. StateError, EndpointClosedError : as `check_valid`.
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
            self._requeue_item()

    def _requeue_item(self) -> None:
        self._handle_row.queue.requeue_item(self.item)
        self._handle_row.publish_event(Event.RETURNED, self.item, self._taken_time)

    def _remove_from_handle(self) -> None:
        self._handle_row.open_claims.remove(self)
        self._handle_row.queue.bus.clock.alarms.pop(self, None)

    def revoke_claim(self) -> None:
        """Bring the message back to the queue without its taker."""
        if not self.is_over and not self.is_revoked:
            self.is_revoked = True
            self._remove_from_handle()
            self._requeue_item()


class QueueHandleRow(Inbox):
    """An open handle, as its queue knows it.

    Attributes
    ----------
    handle_number : no other open handle of the queue has it.
    event_callback : publishes the events of the handle; None: the queue has none.
    event_counts : how often each event happened.
    open_claims : messages that were taken by it.
    waiting_receives : calls that wait for a message.
    event_fd : an eventfd that is readable while a message is there; -1: nobody asked for one.
    notify_callback : is called when a message comes to an empty queue.
    """

    def __init__(self, queue: QueueState) -> None:
        super().__init__(lambda _message: None)  # messages come to the queue, not to its handles
        self.queue = queue
        numbers = {row.handle_number for row in queue.handle_rows}
        self.handle_number: int = next(number for number in itertools.count() if number not in numbers)
        self.event_callback: Callable[[Event, QueueItem, int], object] | None = None
        self.event_counts: Counter[Event] = Counter()
        self.open_claims: list[JobClaim] = []
        self.waiting_receives = 0
        self.event_fd = -1
        self.notify_callback: Callable[[], object] | None = None
        queue.handle_rows.append(self)

    def publish_event(self, event: Event, item: QueueItem, taken_time: int = 0) -> None:
        """Count what the handle did to a message, and publish it. taken_time: 0 if it was not taken."""
        self.event_counts[event] += 1
        self.queue.event_counts[event] += 1
        if self.event_callback is not None:
            self.event_callback(event, item, taken_time)

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool(self.queue.ready_heap)

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return self.can_receive()

    def close_handle(self) -> None:
        """Close the handle; what it has taken comes back."""
        self.closed = True
        self.queue.handle_rows.remove(self)
        self.notify_callback, self.event_fd = None, -1
        for claim in tuple(self.open_claims):
            claim.revoke_claim()


class DelayedInbox(Inbox):
    """Messages that were sent to a queue and have not arrived, because a simulation delays them."""

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return False

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return False


class QueueState(EndpointState[Inbox]):
    """What a queue's file has.

    Attributes
    ----------
    ready_heap : a heap of the messages that wait: priority, negative; order; message.
    in_flight : messages that are taken.
    events_choice : what it says of its messages, an index of `options.EVENTS_CHOICES`.
    event_counts : how often each event happened, over all handles.
    handle_rows : open handles.
    waiting_receivers, waiting_senders : calls that wait, in the order in which they began.
    """

    delivers_exactly_once = True

    def __init__(self, bus: InProcessBus, request: options.OpenRequest) -> None:
        super().__init__(f"{QUEUE_NAME_PREFIX}{request.name}", bus.choose_route)
        self.bus, self.name, self.mode = bus, request.name, request.mode
        self.identity = (0, next(_queue_numbers))
        self.max_messages, self.max_message_size = request.new_sizes()
        self.events_choice = request.new_events()
        self.creator, self.created_ns = (process_name(), os.getpid()), bus.clock.now_ns
        self.event_counts: Counter[Event] = Counter()
        self.schema: Schema | None = None
        self.ready_heap: list[tuple[int, int, QueueItem]] = []
        self.in_flight = 0
        self.handle_rows: list[QueueHandleRow] = []
        self.waiting_receivers: list[object] = []
        self.waiting_senders: list[object] = []
        self._ready_count = 0
        self._delayed_items: dict[int, QueueItem] = {}  # by number: sent, and not there so far
        self.add_inbox(DelayedInbox(self._accept_delayed_item))

    def count_free_slots(self) -> int:
        """Return how many messages can be sent."""
        return self.max_messages - len(self.ready_heap) - self.in_flight - len(self._delayed_items)

    def has_free_slot(self) -> bool:
        """Tell whether a message can be sent."""
        return self.count_free_slots() > 0

    def send_item(self, data: bytes, priority: int, origin_time: int) -> QueueItem:
        """Put a message in, and return it; there must be room."""
        self.published_count += 1
        item = QueueItem(data, priority, self.published_count, self.bus.clock.now_ns, origin_time)
        self._delayed_items[item.send_number] = item
        self.deliver_message((item.send_number, data))
        return item

    def get_delayed_item(self, message: BusMessage) -> QueueItem:
        """Return a message that is sent and not there so far."""
        return self._delayed_items[message[0]]

    def _accept_delayed_item(self, message: BusMessage) -> None:
        item = self._delayed_items.pop(message[0])
        item.ready_order = self._ready_count
        self._add_ready_item(item)

    def requeue_item(self, item: QueueItem) -> None:
        """A message that was taken goes to its place in the order."""
        self.in_flight -= 1
        self._add_ready_item(item)

    def _add_ready_item(self, item: QueueItem) -> None:
        was_empty = not self.ready_heap
        heapq.heappush(self.ready_heap, (-item.priority, item.ready_order, item))
        self._ready_count += 1
        self.update_descriptors()
        if was_empty:
            self.notify_if_idle()

    def take_item(self) -> QueueItem:
        """Take the first message; there must be one."""
        item = heapq.heappop(self.ready_heap)[2]
        item.deliveries += 1
        self.in_flight += 1
        if not self.ready_heap:
            self.update_descriptors()
        return item

    def update_descriptors(self) -> None:
        """Make the descriptors of the handles readable, or not."""
        for row in self.handle_rows:
            if row.event_fd >= 0 and self.ready_heap:
                os.eventfd_write(row.event_fd, 1)
            elif row.event_fd >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(row.event_fd)

    def notify_if_idle(self) -> None:
        """Notify of messages that nobody waits for."""
        if not any(row.waiting_receives for row in self.handle_rows):
            for notify in [row.notify_callback for row in self.handle_rows if row.notify_callback is not None]:
                notify()

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        self.ready_heap.clear()
        for row in self.handle_rows:
            row.notify_callback = None


def register_handle(queue: QueueState) -> QueueHandleRow:
    """Return a row for a new handle.

    Raises
    ------
    TooManyHandlesError : all are in use.
    """
    if len(queue.handle_rows) >= options.HANDLES_MAX:
        raise options.handles_error(queue.name)
    return QueueHandleRow(queue)


def find_queue(bus: InProcessBus, prefix: str, name: str) -> QueueState | None:
    """Return the queue that has this name."""
    queue: Any = bus.queues.get((prefix, name))
    return queue if isinstance(queue, QueueState) else None
