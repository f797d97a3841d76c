"""The base of the fake backend: topics that live in this process, without shared memory, waiting or threads.

A topic does the ring's arithmetic (positions, chunks, limit; see docs/internals/topic-protocol.md) on a ring that
holds nothing, so that a slow subscriber is lapped by the same message as on the real one. The messages are in the
subscribers' queues.
Channels are in channel_state.py.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgq.common import naming
from msgq.common.schema import Schema
from msgq.errors import (
    DeadlockError,
    ForkedSocketError,
    InvalidValueError,
    MessageTooLargeError,
    SegmentError,
    SegmentSizeError,
)
from msgq.impl.fake.clock import VirtualClock

#: A message under way: the cursor of who reads it next, its bytes; on a tracked topic, its publish and origin time.
BusMessage = tuple[int, bytes] | tuple[int, bytes, int, int]
#: Takes each message that is sent.
MessageHandler = Callable[[BusMessage], object]

DEFAULT_DATA_BYTES = 1 << 20
DATA_BYTES_MIN = 128
DATA_BYTES_MAX = 2**32 - 1
GRANT_CHUNK_BYTES_MAX = 65536
STAMPS_BYTES = 16  # on a tracked topic, before each payload
TOPIC_PUBLISHERS_MAX = 16
LAP_STRIDE = 1 << 32  # a position is a lap, and below it the offset
OFFSET_MASK = LAP_STRIDE - 1


class PendingDelivery(NamedTuple):
    """A message under way to one subscriber.

    Attributes
    ----------
    due_ns : when it may arrive, in virtual time.
    runs_last : it lets everything else that can happen at that time pass.
    """

    due_ns: int
    runs_last: bool
    message: BusMessage


def frame_bytes(size: int) -> int:
    """Return the bytes that a message takes in the ring: its size word, itself, and padding to 8."""
    return size + 15 & ~7


class BusMember(Protocol):
    """What a node of a simulation has made, and leaves open perhaps."""

    def close(self) -> None:
        """Leave."""

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """Tell whether the newest message there is from this one."""


class Inbox:
    """What comes to one subscriber.

    Attributes
    ----------
    undelivered : sent, not delivered; only in a simulation.
    message_handler : takes a message that is delivered.
    closed : its subscriber is.
    """

    def __init__(self, message_handler: MessageHandler) -> None:
        self.undelivered: deque[PendingDelivery] = deque()
        self.message_handler = message_handler
        self.closed = False

    def can_receive(self) -> bool:
        """Return whether a receive would return, or raise, at once."""
        raise NotImplementedError

    def has_pending_messages(self) -> bool:
        """Return whether anything was delivered that was not looked at, be it lost."""
        raise NotImplementedError

    def drop_message(self, message: BusMessage) -> None:
        """A message will never come: it is lost."""
        raise NotImplementedError

    def overwrite_unread(self) -> None:
        """All that was sent so far and not read is overwritten."""
        raise NotImplementedError

    def set_arrival_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each message that arrives, and now if one is there."""
        raise NotImplementedError


InboxT = TypeVar("InboxT", bound=Inbox)


class EndpointState(Generic[InboxT]):
    """What messages come from: a topic, a channel, a work queue, or records (whose messages are writes).

    Attributes
    ----------
    endpoint : its name in a simulation.
    delivers_exactly_once : one receiver takes each message. Nothing is lost, and no subscriber is lapped.
    is_shared_state : each message changes what all see.
    reports_queue_events : its messages report events of a queue. Random faults spare them.
    published_count : published so far.
    inherited_by_fork : it is the parent's, and this a forked child: nobody here gets what is sent there.
    inboxes : of its subscribers.
    deliver_message : what each message is given to. The bus chooses it: the subscribers, or a simulation.
    """

    delivers_exactly_once = is_shared_state = reports_queue_events = False

    def __init__(self, endpoint: str, choose_route: Callable[[EndpointState[Any]], MessageHandler]) -> None:
        self.endpoint = endpoint
        self._choose_route = choose_route
        self.published_count = 0
        self.inherited_by_fork = False
        self.inboxes: list[InboxT] = []
        self.deliver_message = choose_route(self)

    def add_inbox(self, inbox: InboxT) -> None:
        """Deliver to this one, too."""
        self.inboxes.append(inbox)
        self.update_route()

    def remove_inbox(self, inbox: InboxT) -> None:
        """Deliver nothing more to this one."""
        self.inboxes.remove(inbox)
        self.update_route()

    def update_route(self) -> None:
        """Choose `deliver_message` anew: a subscriber came, went, or was lapped."""
        self.deliver_message = self._choose_route(self)

    def mark_inherited_by_fork(self) -> None:
        """In a forked child: let each use find out whose this is."""
        self.inherited_by_fork = True


class PublisherClaim:
    """A publisher's claim on a topic, and what it counted when it lost or left it (None: it has it still)."""

    __slots__ = ("final_counts", "has_reservation")

    def __init__(self) -> None:
        self.has_reservation = False
        self.final_counts: tuple[int, int] | None = None


class TopicState(EndpointState["TopicInbox"]):
    """One endpoint: who publishes, who subscribes, and how far the ring would be.

    Attributes
    ----------
    write_position : where the next message goes.
    granted_position : the publisher needs no `extend_grant` up to here.
    write_limit : everything older than a lap before this is overwritten.
    published_bytes : published so far.
    stamp_bytes : bytes of the ring that each message takes besides: 0, unless the topic is tracked.
    schema : what the messages are, as the publisher said that said it last.
    extract_picture : of a stream of frames: what a simulation says of a message.
    """

    def __init__(
        self, endpoint: str, data_bytes: int, choose_route: Callable[[EndpointState[Any]], MessageHandler]
    ) -> None:
        super().__init__(endpoint, choose_route)
        self.data_bytes = data_bytes
        self._lap_end_offset = data_bytes - 9 & ~7
        self._grant_chunk_bytes = min(data_bytes // 16 & ~7, GRANT_CHUNK_BYTES_MAX)
        self.frame_bytes_max = data_bytes // 3 & ~7
        self.write_position = self.granted_position = self.write_limit = 0
        self.published_bytes = self.stamp_bytes = 0
        self.current_claim: PublisherClaim | None = None
        self.open_publishers = 0
        self.schema: Schema | None = None
        self.extract_picture: Callable[[bytes], bytes] | None = None

    def set_publisher(self, claim: PublisherClaim) -> None:
        """Make this the publisher; who had the topic finds out at its next send."""
        self.clear_publisher()
        self.current_claim = claim
        self.granted_position = self.write_position

    def clear_publisher(self) -> None:
        """Have no publisher."""
        if self.current_claim is not None:
            self.current_claim.final_counts = (self.published_count, self.published_bytes)
            self.current_claim = None

    def extend_grant(self, size: int) -> int:
        """Return the position behind a message of `size` bytes that does not fit into what was granted.

        Raises
        ------
        MessageTooLargeError : three messages of its size do not fit.
        """
        wanted = self.check_message_size(size)
        lap, start = self.write_position & ~OFFSET_MASK, self.write_position & OFFSET_MASK
        if start + wanted > self._lap_end_offset:
            lap, start = lap + LAP_STRIDE, 0
        self.granted_position = lap + min(start + max(wanted, self._grant_chunk_bytes), self._lap_end_offset)
        self.write_limit = max(self.write_limit, self.granted_position)
        for inbox in self.inboxes:
            if inbox.find_cursor() < self.write_limit - LAP_STRIDE:
                inbox.overwrite_unread()
        return lap + start + wanted

    def find_message_start(self, cursor: int, size: int) -> int:
        """Return the position of the message that a reader at `cursor` finds: there, or in the next lap."""
        wraps = (cursor & OFFSET_MASK) + frame_bytes(size + self.stamp_bytes) > self._lap_end_offset
        return (cursor & ~OFFSET_MASK) + LAP_STRIDE if wraps else cursor

    def check_message_size(self, size: int) -> int:
        """Return what a message of `size` bytes needs, if it may be sent at all."""
        wanted = frame_bytes(size + self.stamp_bytes)
        if wanted > self.frame_bytes_max:
            text = (
                f"a message of {size} bytes does not fit: at most {self.frame_bytes_max - 8 - self.stamp_bytes} with "
                f"segment_size {self.data_bytes}; this one needs {3 * wanted}"
            )
            raise MessageTooLargeError(text, self.endpoint)
        return wanted

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        self.current_claim = None
        for inbox in self.inboxes:
            inbox.unread_messages.clear()

    def count_readers(self) -> tuple[int, int]:
        """Return how many subscribers are attached, and how many of them have read everything; not the passive ones."""
        attached = [inbox for inbox in self.inboxes if not inbox.passive]
        return len(attached), sum(inbox.has_read_all() for inbox in attached)


class TopicInbox(Inbox):
    """What one subscriber has not read yet.

    Attributes
    ----------
    unread_messages : delivered, not read.
    lost, received, resets : as in `SubscriberStats`.
    """

    def __init__(self, topic: TopicState, conflate: bool, passive: bool) -> None:
        self.topic, self.conflate, self.passive = topic, conflate, passive
        self.unread_messages: deque[BusMessage] = deque()
        super().__init__(self.unread_messages.append)
        self.received = self.lost = self.resets = 0
        self._skipped_count = 0  # not read and not in the queue either; added to `lost` at the next look
        self._is_lapped = False
        self.resumes_at_oldest = False  # after a lap, continue at the oldest message that is left, as for records
        self._arrival_handler: MessageHandler = self.message_handler
        topic.add_inbox(self)

    def set_arrival_callback(self, callback: Callable[[], object]) -> None:
        """See `Inbox`."""

        def receive_and_notify(message: BusMessage) -> None:
            self.unread_messages.append(message)
            callback()

        if self.unread_messages:
            callback()
        self.message_handler = self._arrival_handler = receive_and_notify
        self.topic.update_route()

    def find_cursor(self) -> int:
        """Return the position of the next message to read."""
        if self.unread_messages:
            return self.unread_messages[0][0]
        return self.undelivered[0].message[0] if self.undelivered else self.topic.write_position

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return bool(self.unread_messages)

    def drop_message(self, _message: BusMessage) -> None:
        """See `Inbox`."""
        self.lost += 1

    def overwrite_unread(self) -> None:
        """The publisher overwrites what is at the cursor: it goes. What comes does so too, until the next look."""
        if self.conflate:  # its message is the newest, which is never overwritten
            self._skip_to_newest()
            return
        if self.resumes_at_oldest:
            self._skip_to_oldest()
            return
        self._skipped_count += len(self.unread_messages) + len(self.undelivered)
        self.unread_messages.clear()
        self.undelivered.clear()
        if not self._is_lapped:
            self._is_lapped = True
            self.message_handler = self._count_skipped_message
            self.topic.update_route()

    def _skip_to_oldest(self) -> None:
        """Pass over what the publisher overwrites."""
        oldest = self.topic.write_limit - LAP_STRIDE
        while self.unread_messages:
            cursor, data = self.unread_messages[0][:2]
            if self.topic.find_message_start(cursor, len(data)) >= oldest:
                return
            self.unread_messages.popleft()
            self._skipped_count += 1
            self._is_lapped = True

    def _count_skipped_message(self, _message: BusMessage) -> None:
        self._skipped_count += 1

    def _skip_to_newest(self) -> None:
        while len(self.unread_messages) > 1:
            self.unread_messages.popleft()
            self._skipped_count += 1

    def is_newly_lapped(self) -> bool:
        """Count what was overwritten; return whether that was found just now, and messages are left."""
        return self.resumes_at_oldest and self._is_lapped and self.can_receive()

    def can_receive(self) -> bool:
        """Return whether there is a message, the first in the queue. After a lap: at the newest position."""
        if self._is_lapped:
            self._is_lapped = False
            self.resets += 1
            self._add_skipped_to_lost()
            self.message_handler = self._arrival_handler
            self.topic.update_route()
        if self.unread_messages:
            cursor, data, *times = self.unread_messages[0]
            self.unread_messages[0] = (self.topic.find_message_start(cursor, len(data)), data, *times)  # type: ignore[assignment]
        else:
            self._add_skipped_to_lost()
        return bool(self.unread_messages)

    def _add_skipped_to_lost(self) -> None:
        self.lost += self._skipped_count
        self._skipped_count = 0

    def peek_message(self) -> bytes:
        """Return the message that `take_message` takes; there must be one."""
        if self.conflate:
            self._skip_to_newest()
            self._add_skipped_to_lost()
        return self.unread_messages[0][1]

    def take_message(self) -> bytes:
        """Take the first message of the queue, or the newest if this conflates; there must be one."""
        data = self.peek_message()
        self.unread_messages.popleft()
        self.received += 1
        return data

    def has_read_all(self) -> bool:
        """Return whether everything sent to this subscriber was read."""
        return not (self.unread_messages or self.undelivered or self._is_lapped)

    def close(self) -> None:
        """Leave the topic, for good."""
        self.closed = True
        self.undelivered.clear()
        self.topic.remove_inbox(self)


def _discard_message(_message: BusMessage) -> None:
    """Take a message that has no subscriber."""


def fork_error(endpoint: str) -> ForkedSocketError:
    """Return the error for a socket that came through a fork."""
    text = "was connected before a fork, on the parent's bus, which ends with that process; close it and connect again"
    return ForkedSocketError(text, endpoint)


def combine_handlers(handlers: list[MessageHandler]) -> MessageHandler:
    """Return what gives a message to all of them."""
    if len(handlers) < 2:
        return handlers[0] if handlers else _discard_message

    def handle_by_all(message: BusMessage) -> None:
        for message_handler in handlers:
            message_handler(message)

    return handle_by_all


class Bus:
    """The topics of a process, where a send is delivered before it returns. Time passes only by waiting in vain.

    Attributes
    ----------
    channels, queues, records : by prefix and name; see channel_state.py, workqueue_store.py and records_store.py.
    frame_servers : servers of frames that clients can find, by prefix and name; see visionipc/fake.py.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock(lambda ns: self.wait_until(lambda: False, ns, "its time"))
        self._topics: dict[tuple[str, str], TopicState] = {}
        self.channels: dict[tuple[str, str], EndpointState[Any]] = {}
        self.queues: dict[tuple[str, str], EndpointState[Any]] = {}
        self.records: dict[tuple[str, str], EndpointState[Any]] = {}
        self.frame_servers: dict[tuple[str, str], Any] = {}

    def open_topic(self, endpoint: str, segment_size: int, mode: int | None, prefix: str | None = None) -> TopicState:
        """Return an endpoint's topic, making it if there is none. It stays, as the ring's files do.

        Raises
        ------
        InvalidValueError : a size or mode that is not possible.
        SegmentSizeError : it exists with another size.
        """
        if segment_size and not DATA_BYTES_MIN <= segment_size <= DATA_BYTES_MAX:
            allowed = f"{DATA_BYTES_MIN} to {DATA_BYTES_MAX}, and 0 for 1 MiB"
            raise InvalidValueError(f"segment_size is {segment_size} bytes; allowed are {allowed}", endpoint)
        key = (naming.resolve_prefix(prefix), endpoint)
        topic = self._topics.get(key)
        if topic is None:
            naming.mode(mode, endpoint)
            topic = self._topics[key] = TopicState(endpoint, segment_size or DEFAULT_DATA_BYTES, self.choose_route)
        elif segment_size not in (0, topic.data_bytes):
            text = f"exists with segment_size {topic.data_bytes}, but {segment_size} was asked for"
            raise SegmentSizeError(f"{text}; ask for 0 to take it as it is", endpoint)
        return topic

    def mark_inherited_by_fork(self) -> None:
        """In a forked child: leave all there is to the parent."""
        registries = self._topics, self.channels, self.queues, self.records
        for source in chain.from_iterable(registry.values() for registry in registries):
            source.mark_inherited_by_fork()
        for registry in (*registries, self.frame_servers, self.clock.alarms):
            registry.clear()

    def find_topic(self, endpoint: str, prefix: str | None = None) -> TopicState:
        """Return an endpoint's topic.

        Raises
        ------
        SegmentError : there is none.
        """
        topic = self._topics.get((naming.resolve_prefix(prefix), endpoint))
        if topic is None:
            raise SegmentError("there is no such topic (a passive subscriber creates nothing)", endpoint)
        return topic

    def remove_topic(self, topic: TopicState) -> bool:
        """Let later sockets make another topic of this name; False: they would anyway."""
        keys = [key for key, known in self._topics.items() if known is topic]
        for key in keys:
            del self._topics[key]
        return bool(keys)

    def choose_route(self, source: EndpointState[Any]) -> MessageHandler:
        """Return what its messages are given to."""
        return combine_handlers([inbox.message_handler for inbox in source.inboxes])

    def on_member_opened(self, socket: BusMember) -> None:
        """Take notice of a socket that was connected, a side of a channel, or a handle of a queue or of records."""

    def on_message_taken(self, source: EndpointState[Any], number: int) -> None:
        """Take notice of a message of a queue that somebody has taken: the one of this number, from 1 on."""

    def run_notification(self, _handle: BusMember, call: Callable[[], object]) -> None:
        """Call what a handle of a queue wants to be told by. What it raises is not for whoever sent a message."""
        try:
            call()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def check_descriptor_allowed(self, endpoint: str) -> None:
        """Raise an error where a wait for a subscriber's descriptor would never end. Here others may send meanwhile."""

    def wait_until(self, ready: Callable[[], bool], timeout_ns: int | None, subject: str) -> None:
        """Return when `ready` is true, or after so much virtual time. Here nobody could make it true: the time passes.

        Parameters
        ----------
        ready : called whenever has_pending happened.
        timeout_ns : None waits for ever.
        subject : what is waited for, for the text of errors.

        Raises
        ------
        DeadlockError : it would last for ever.
        """
        end_ns = None if timeout_ns is None else self.clock.now_ns + timeout_ns
        while self.clock.run_next_alarm(end_ns):
            if ready():
                return
        if end_ns is None:
            text = (
                f"waiting for {subject} would last for ever: nothing else runs on this bus; msgq.simulation has nodes"
            )
            raise DeadlockError(text)
        self.clock.now_ns = end_ns


_bus_stack = [Bus()]


def _mark_inherited_by_fork() -> None:
    for bus in _bus_stack:
        bus.mark_inherited_by_fork()


os.register_at_fork(after_in_child=_mark_inherited_by_fork)


def current_bus() -> Bus:
    """Return the bus that sockets connect to: the active simulation's, or the process's own."""
    return _bus_stack[-1]


def push_bus(bus: Bus) -> None:
    """Let sockets connect to this bus, until `pop_bus`."""
    _bus_stack.append(bus)


def pop_bus(bus: Bus) -> None:
    """End what `push_bus` began."""
    _bus_stack.remove(bus)
