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
from msgq.impl.fake.bus import Bus, BusMessage, EndpointState, Inbox
from msgq.impl.workqueue import options

_numbers = itertools.count(1)


@dataclass(slots=True)
class Item:
    """A message of a queue.

    Attributes
    ----------
    number : of messages that were sent, from 1 on.
    order : among messages of its priority.
    deliveries : how often it was taken.
    sent_time, origin_time : ns.
    """

    data: bytes
    priority: int
    number: int
    sent_time: int
    origin_time: int
    order: int = 0
    deliveries: int = 0


class Claim:
    """A message that is taken, until it is acknowledged or comes back.

    Attributes
    ----------
    over : ended by its taker.
    lost : it came back without its taker, whose lease was over, who closed the handle or forgot the job.
    """

    __slots__ = ("__weakref__", "_row", "_taken_time", "item", "lost", "over")

    def __init__(self, row: Row, item: Item, lease_ns: int) -> None:
        self._row, self.item = row, item
        self._taken_time = row.queue.bus.clock.now_ns
        row.publish_event(Event.TAKEN, item, self._taken_time)
        self.over = self.lost = False
        row.claims.append(self)
        if lease_ns:
            bus = row.queue.bus
            bus.clock.alarms[self] = (bus.clock.now_ns + lease_ns, self.revoke)

    def check(self) -> None:
        """Raise an error if it was ended, or its handle was closed."""
        name = self._row.queue.name
        if self.over:
            raise options.job_ended_error(name)
        if self._row.closed:
            raise options.job_released_error(name)

    def end(self, acknowledged: bool) -> None:
        """Let the message go, or give it back.

        Raises
        ------
        LeaseExpiredError : it was to go, and came back before. StateError, EndpointClosedError : as `check`.
        """
        self.check()
        self.over = True
        queue = self._row.queue
        if self.lost:
            if acknowledged:
                raise options.lease_expired_error(queue.name)
            return
        self._detach()
        if acknowledged:
            queue.in_flight -= 1
            self._row.publish_event(Event.ACKNOWLEDGED, self.item, self._taken_time)
        else:
            self._requeue()

    def _requeue(self) -> None:
        self._row.queue.requeue(self.item)
        self._row.publish_event(Event.RETURNED, self.item, self._taken_time)

    def _detach(self) -> None:
        self._row.claims.remove(self)
        self._row.queue.bus.clock.alarms.pop(self, None)

    def revoke(self) -> None:
        """Bring the message back to the queue without its taker."""
        if not self.over and not self.lost:
            self.lost = True
            self._detach()
            self._requeue()


class Row(Inbox):
    """An open handle, as its queue knows it.

    Attributes
    ----------
    number : no other open handle of the queue has it.
    publisher : publishes the events of the handle; None: the queue has none.
    counts : how often each event happened.
    claims : messages that were taken by it.
    receiving : calls that wait for a message.
    descriptor : an eventfd that is readable while a message is there; -1: nobody asked for one.
    notify : is called when a message comes to an empty queue.
    """

    def __init__(self, queue: Queue) -> None:
        super().__init__(lambda _entry: None)  # messages come to the queue, not to its handles
        self.queue = queue
        numbers = {row.number for row in queue.rows}
        self.number: int = next(number for number in itertools.count() if number not in numbers)
        self.publisher: Callable[[Event, Item, int], object] | None = None
        self.counts: Counter[Event] = Counter()
        self.claims: list[Claim] = []
        self.receiving = 0
        self.descriptor = -1
        self.notify: Callable[[], object] | None = None
        queue.rows.append(self)

    def publish_event(self, event: Event, item: Item, taken_time: int = 0) -> None:
        """Count what the handle did to a message, and publish it. taken_time: 0 if it was not taken."""
        self.counts[event] += 1
        self.queue.counts[event] += 1
        if self.publisher is not None:
            self.publisher(event, item, taken_time)

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool(self.queue.ready)

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return self.can_receive()

    def leave(self) -> None:
        """Close the handle; what it has taken comes back."""
        self.closed = True
        self.queue.rows.remove(self)
        self.notify, self.descriptor = None, -1
        for claim in tuple(self.claims):
            claim.revoke()


class DelayedInbox(Inbox):
    """Messages that were sent to a queue and have not arrived, because a simulation delays them."""

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return False

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return False


class Queue(EndpointState[Inbox]):
    """What a queue's file has.

    Attributes
    ----------
    ready : a heap of the messages that wait: priority, negative; order; message.
    in_flight : messages that are taken.
    events : what it says of its messages, an index of `options.EVENTS_CHOICES`.
    counts : how often each event happened, over all handles.
    rows : open handles.
    receivers, senders : calls that wait, in the order in which they began.
    """

    delivers_exactly_once = True

    def __init__(self, bus: Bus, request: options.OpenRequest) -> None:
        super().__init__(f"{QUEUE_NAME_PREFIX}{request.name}", bus.choose_route)
        self.bus, self.name, self.mode = bus, request.name, request.mode
        self.identity = (0, next(_numbers))
        self.max_messages, self.max_message_size = request.new_sizes()
        self.events = request.new_events()
        self.creator, self.created_ns = (process_name(), os.getpid()), bus.clock.now_ns
        self.counts: Counter[Event] = Counter()
        self.schema: Schema | None = None
        self.ready: list[tuple[int, int, Item]] = []
        self.in_flight = 0
        self.rows: list[Row] = []
        self.receivers: list[object] = []
        self.senders: list[object] = []
        self._became_ready = 0
        self._delayed: dict[int, Item] = {}  # by number: sent, and not there so far
        self.add_inbox(DelayedInbox(self._arrive))

    def room(self) -> int:
        """Return how many messages can be sent."""
        return self.max_messages - len(self.ready) - self.in_flight - len(self._delayed)

    def has_free_slot(self) -> bool:
        """Tell whether a message can be sent."""
        return self.room() > 0

    def send(self, data: bytes, priority: int, origin_time: int) -> Item:
        """Put a message in, and return it; there must be room."""
        self.published_count += 1
        item = Item(data, priority, self.published_count, self.bus.clock.now_ns, origin_time)
        self._delayed[item.number] = item
        self.deliver_message((item.number, data))
        return item

    def delayed_message(self, entry: BusMessage) -> Item:
        """Return a message that is sent and not there so far."""
        return self._delayed[entry[0]]

    def _arrive(self, entry: BusMessage) -> None:
        item = self._delayed.pop(entry[0])
        item.order = self._became_ready
        self._put(item)

    def requeue(self, item: Item) -> None:
        """A message that was taken goes to its place in the order."""
        self.in_flight -= 1
        self._put(item)

    def _put(self, item: Item) -> None:
        was_empty = not self.ready
        heapq.heappush(self.ready, (-item.priority, item.order, item))
        self._became_ready += 1
        self.update_descriptors()
        if was_empty:
            self.notify_if_idle()

    def take(self) -> Item:
        """Take the first message; there must be one."""
        item = heapq.heappop(self.ready)[2]
        item.deliveries += 1
        self.in_flight += 1
        if not self.ready:
            self.update_descriptors()
        return item

    def update_descriptors(self) -> None:
        """Make the descriptors of the handles readable, or not."""
        for row in self.rows:
            if row.descriptor >= 0 and self.ready:
                os.eventfd_write(row.descriptor, 1)
            elif row.descriptor >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(row.descriptor)

    def notify_if_idle(self) -> None:
        """Notify of messages that nobody waits for."""
        if not any(row.receiving for row in self.rows):
            for notify in [row.notify for row in self.rows if row.notify is not None]:
                notify()

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        self.ready.clear()
        for row in self.rows:
            row.notify = None


def new_row(queue: Queue) -> Row:
    """Return a row for a new handle.

    Raises
    ------
    TooManyHandlesError : all are in use.
    """
    if len(queue.rows) >= options.HANDLES_MAX:
        raise options.handles_error(queue.name)
    return Row(queue)


def find_queue(bus: Bus, prefix: str, name: str) -> Queue | None:
    """Return the queue that has this name."""
    found: Any = bus.queues.get((prefix, name))
    return found if isinstance(found, Queue) else None
