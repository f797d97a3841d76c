"""The base of the fake backend: topics that live in this process, without shared memory, waiting or threads.

A topic does the ring's arithmetic (docs/protocol.md: positions, chunks, limit) on a ring that holds nothing, so that
a slow subscriber is lapped by the same message as on the real one. The messages are in the subscribers' queues.
Channels are in channel_order.py.
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
from msgq.impl.fake.clock import Clock

#: A message under way: the cursor of who reads it next, its bytes; on a tracked topic, its publish and origin time.
Entry = tuple[int, bytes] | tuple[int, bytes, int, int]
#: Takes each message that is sent.
Sink = Callable[[Entry], object]

DATA_BYTES = 1 << 20
DATA_BYTES_MIN = 128
DATA_BYTES_MAX = 2**32 - 1
CHUNK_MAX = 65536
STAMPS_BYTES = 16  # on a tracked topic, before each payload
WRITERS_MAX = 16
LAP = 1 << 32  # a position is a lap, and below it the offset
OFFSET_MASK = LAP - 1


class Delivery(NamedTuple):
    """A message under way to one subscriber.

    Attributes
    ----------
    due_ns : when it may arrive, in virtual time.
    last : it lets everything else that can happen at that time pass.
    """

    due_ns: int
    last: bool
    entry: Entry


def frame_bytes(size: int) -> int:
    """Return the bytes that a message takes in the ring: its size word, itself, and padding to 8."""
    return size + 15 & ~7


class BusMember(Protocol):
    """What a node of a simulation has made, and leaves open perhaps."""

    def close(self) -> None:
        """Leave."""

    def _is_sender(self, source: EndpointState[Any]) -> bool:
        """Tell whether the newest message there is from this one."""


class Inbox:
    """What comes to one subscriber.

    Attributes
    ----------
    coming : sent, not delivered; only in a simulation.
    sink : takes a message that is delivered.
    closed : its subscriber is.
    """

    def __init__(self, sink: Sink) -> None:
        self.coming: deque[Delivery] = deque()
        self.sink = sink
        self.closed = False

    def is_ready(self) -> bool:
        """Return whether a receive would return, or raise, at once."""
        raise NotImplementedError

    def has_pending(self) -> bool:
        """Return whether anything was delivered that was not looked at, be it lost."""
        raise NotImplementedError

    def drop(self, entry: Entry) -> None:
        """A message will never come: it is lost."""
        raise NotImplementedError

    def overwrite_unread(self) -> None:
        """All that was sent so far and not read is overwritten."""
        raise NotImplementedError

    def on_arrival(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each message that arrives, and now if one is there."""
        raise NotImplementedError


InboxT = TypeVar("InboxT", bound=Inbox)


class EndpointState(Generic[InboxT]):
    """What messages come from: a topic, a channel, a work queue, or records (whose messages are writes).

    Attributes
    ----------
    endpoint : its name in a simulation.
    exact : each message goes to one of those who take, exactly once: nothing is lost, and nobody is lapped.
    shared : each message changes what all see.
    derived : its messages tell of what became of others, which faults befall: these are spared those drawn at random.
    messages : published so far.
    inherited : it is the parent's, and this a forked child: nobody here gets what is sent there.
    inboxes : of its subscribers.
    deliver : what each message is given to. The bus chooses it: the subscribers, or a simulation.
    """

    exact = shared = derived = False

    def __init__(self, endpoint: str, route: Callable[[EndpointState[Any]], Sink]) -> None:
        self.endpoint = endpoint
        self._route = route
        self.messages = 0
        self.inherited = False
        self.inboxes: list[InboxT] = []
        self.deliver = route(self)

    def join(self, inbox: InboxT) -> None:
        """Deliver to this one, too."""
        self.inboxes.append(inbox)
        self.rewire()

    def leave(self, inbox: InboxT) -> None:
        """Deliver nothing more to this one."""
        self.inboxes.remove(inbox)
        self.rewire()

    def rewire(self) -> None:
        """Choose `deliver` anew: a subscriber came, went, or was lapped."""
        self.deliver = self._route(self)

    def mark_inherited(self) -> None:
        """In a forked child: let each use find out whose this is."""
        self.inherited = True


class PublisherClaim:
    """A publisher's claim on a topic, and what it counted when it lost or left it (None: it has it still)."""

    __slots__ = ("counts", "reserved")

    def __init__(self) -> None:
        self.reserved = False
        self.counts: tuple[int, int] | None = None


class TopicState(EndpointState["TopicInbox"]):
    """One endpoint: who publishes, who subscribes, and how far the ring would be.

    Attributes
    ----------
    position : where the next message goes.
    granted : the publisher needs no `extend` up to here.
    limit : everything older than a lap before this is overwritten.
    bytes : published so far.
    stamps : bytes of the ring that each message takes besides: 0, unless the topic is tracked.
    schema : what the messages are, as the publisher said that said it last.
    picture : of a stream of frames: what a simulation says of a message.
    """

    def __init__(self, endpoint: str, data_bytes: int, route: Callable[[EndpointState[Any]], Sink]) -> None:
        super().__init__(endpoint, route)
        self.data_bytes = data_bytes
        self._lap_end = data_bytes - 9 & ~7
        self._chunk = min(data_bytes // 16 & ~7, CHUNK_MAX)
        self.frame_bytes_max = data_bytes // 3 & ~7
        self.position = self.granted = self.limit = 0
        self.bytes = self.stamps = 0
        self.writer: PublisherClaim | None = None
        self.writers = 0
        self.schema: Schema | None = None
        self.picture: Callable[[bytes], bytes] | None = None

    def claim(self, writer: PublisherClaim) -> None:
        """Make this the publisher; who had the topic finds out at its next send."""
        self.release()
        self.writer = writer
        self.granted = self.position

    def release(self) -> None:
        """Have no publisher."""
        if self.writer is not None:
            self.writer.counts = (self.messages, self.bytes)
            self.writer = None

    def extend(self, size: int) -> int:
        """Return the position behind a message of `size` bytes that does not fit into what was granted.

        Raises
        ------
        MessageTooLargeError : three messages of its size do not fit.
        """
        wanted = self.check_size(size)
        lap, start = self.position & ~OFFSET_MASK, self.position & OFFSET_MASK
        if start + wanted > self._lap_end:
            lap, start = lap + LAP, 0
        self.granted = lap + min(start + max(wanted, self._chunk), self._lap_end)
        self.limit = max(self.limit, self.granted)
        for inbox in self.inboxes:
            if inbox.cursor() < self.limit - LAP:
                inbox.overwrite_unread()
        return lap + start + wanted

    def start(self, cursor: int, size: int) -> int:
        """Return where a message is that a reader at `cursor` finds: there, or in the next lap if that has no room."""
        wraps = (cursor & OFFSET_MASK) + frame_bytes(size + self.stamps) > self._lap_end
        return (cursor & ~OFFSET_MASK) + LAP if wraps else cursor

    def check_size(self, size: int) -> int:
        """Return what a message of `size` bytes needs, if it may be sent at all."""
        wanted = frame_bytes(size + self.stamps)
        if wanted > self.frame_bytes_max:
            text = (
                f"a message of {size} bytes does not fit: at most {self.frame_bytes_max - 8 - self.stamps} with "
                f"segment_size {self.data_bytes}; this one needs {3 * wanted}"
            )
            raise MessageTooLargeError(text, self.endpoint)
        return wanted

    def mark_inherited(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited()
        self.writer = None
        for inbox in self.inboxes:
            inbox.queue.clear()

    def readers(self) -> tuple[int, int]:
        """Return how many subscribers are attached, and how many of them have read everything; not the passive ones."""
        attached = [inbox for inbox in self.inboxes if not inbox.passive]
        return len(attached), sum(inbox.up_to_date() for inbox in attached)


class TopicInbox(Inbox):
    """What one subscriber has not read yet.

    Attributes
    ----------
    queue : delivered, not read.
    lost, received, resets : as in `SubscriberStats`.
    """

    def __init__(self, topic: TopicState, conflate: bool, passive: bool) -> None:
        self.topic, self.conflate, self.passive = topic, conflate, passive
        self.queue: deque[Entry] = deque()
        super().__init__(self.queue.append)
        self.received = self.lost = self.resets = 0
        self._skipped = 0  # not read and not in the queue either; added to `lost` at the next look
        self._lapped = False
        self.keeps = False  # after a lap, continue at the oldest message that is left, as for records
        self._arrive: Sink = self.sink
        topic.join(self)

    def on_arrival(self, callback: Callable[[], object]) -> None:
        """See `Inbox`."""

        def arrive(entry: Entry) -> None:
            self.queue.append(entry)
            callback()

        if self.queue:
            callback()
        self.sink = self._arrive = arrive
        self.topic.rewire()

    def cursor(self) -> int:
        """Return the position of the next message to read."""
        if self.queue:
            return self.queue[0][0]
        return self.coming[0].entry[0] if self.coming else self.topic.position

    def has_pending(self) -> bool:
        """See `Inbox`."""
        return bool(self.queue)

    def drop(self, _entry: Entry) -> None:
        """See `Inbox`."""
        self.lost += 1

    def overwrite_unread(self) -> None:
        """The publisher overwrites what is at the cursor: it goes. What comes does so too, until the next look."""
        if self.conflate:  # its message is the newest, which is never overwritten
            self._skip_to_newest()
            return
        if self.keeps:
            self._skip_to_oldest()
            return
        self._skipped += len(self.queue) + len(self.coming)
        self.queue.clear()
        self.coming.clear()
        if not self._lapped:
            self._lapped = True
            self.sink = self._skip
            self.topic.rewire()

    def _skip_to_oldest(self) -> None:
        """Pass over what the publisher overwrites."""
        oldest = self.topic.limit - LAP
        while self.queue and self.topic.start(self.queue[0][0], len(self.queue[0][1])) < oldest:
            self.queue.popleft()
            self._skipped += 1
            self._lapped = True

    def _skip(self, _entry: Entry) -> None:
        self._skipped += 1

    def _skip_to_newest(self) -> None:
        while len(self.queue) > 1:
            self.queue.popleft()
            self._skipped += 1

    def is_newly_lapped(self) -> bool:
        """Count what was overwritten; return whether that was found just now, and messages are left."""
        return self.keeps and self._lapped and self.is_ready()

    def is_ready(self) -> bool:
        """Return whether there is a message, the first in the queue. After a lap: at the newest position."""
        if self._lapped:
            self._lapped = False
            self.resets += 1
            self._count_skipped()
            self.sink = self._arrive
            self.topic.rewire()
        if self.queue:
            cursor, data, *times = self.queue[0]
            self.queue[0] = (self.topic.start(cursor, len(data)), data, *times)  # type: ignore[assignment]
        else:
            self._count_skipped()
        return bool(self.queue)

    def _count_skipped(self) -> None:
        self.lost += self._skipped
        self._skipped = 0

    def peek(self) -> bytes:
        """Return the message that `take` takes; there must be one."""
        if self.conflate:
            self._skip_to_newest()
            self._count_skipped()
        return self.queue[0][1]

    def take(self) -> bytes:
        """Take the first message of the queue, or the newest if this conflates; there must be one."""
        data = self.peek()
        self.queue.popleft()
        self.received += 1
        return data

    def up_to_date(self) -> bool:
        """Return whether everything sent to this subscriber was read."""
        return not (self.queue or self.coming or self._lapped)

    def close(self) -> None:
        """Leave the topic, for good."""
        self.closed = True
        self.coming.clear()
        self.topic.leave(self)


def _discard_entry(_entry: Entry) -> None:
    """Take a message that has no subscriber."""


def fork_error(endpoint: str) -> ForkedSocketError:
    """Return the error for a socket that came through a fork."""
    text = "was connected before a fork, on the parent's bus, which ends with that process; close it and connect again"
    return ForkedSocketError(text, endpoint)


def fan_out(sinks: list[Sink]) -> Sink:
    """Return what gives a message to all of them."""
    if len(sinks) < 2:
        return sinks[0] if sinks else _discard_entry

    def to_all(entry: Entry) -> None:
        for sink in sinks:
            sink(entry)

    return to_all


class Bus:
    """The topics of a process, where a send is delivered before it returns. Time passes only by waiting in vain.

    Attributes
    ----------
    channels, queues, records : by prefix and name; see channel_order.py, workqueue_store.py and records_store.py.
    frames : servers of frames that clients can find, by prefix and name; see visionipc/fake.py.
    """

    def __init__(self) -> None:
        self.clock = Clock(lambda ns: self.wait(lambda: False, ns, "its time"))
        self._topics: dict[tuple[str, str], TopicState] = {}
        self.channels: dict[tuple[str, str], EndpointState[Any]] = {}
        self.queues: dict[tuple[str, str], EndpointState[Any]] = {}
        self.records: dict[tuple[str, str], EndpointState[Any]] = {}
        self.frames: dict[tuple[str, str], Any] = {}

    def topic(self, endpoint: str, segment_size: int, mode: int | None, prefix: str | None = None) -> TopicState:
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
            topic = self._topics[key] = TopicState(endpoint, segment_size or DATA_BYTES, self.route)
        elif segment_size not in (0, topic.data_bytes):
            text = f"exists with segment_size {topic.data_bytes}, but {segment_size} was asked for"
            raise SegmentSizeError(f"{text}; ask for 0 to take it as it is", endpoint)
        return topic

    def mark_inherited(self) -> None:
        """In a forked child: leave all there is to the parent."""
        kinds = self._topics, self.channels, self.queues, self.records
        for source in chain.from_iterable(kind.values() for kind in kinds):
            source.mark_inherited()
        for kept in (*kinds, self.frames, self.clock.alarms):
            kept.clear()

    def existing_topic(self, endpoint: str, prefix: str | None = None) -> TopicState:
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

    def route(self, source: EndpointState[Any]) -> Sink:
        """Return what its messages are given to."""
        return fan_out([inbox.sink for inbox in source.inboxes])

    def on_open(self, socket: BusMember) -> None:
        """Take notice of a socket that was connected, a side of a channel, or a handle of a queue or of records."""

    def on_taken(self, source: EndpointState[Any], number: int) -> None:
        """Take notice of a message of a queue that somebody has taken: the one of this number, from 1 on."""

    def notify(self, _handle: BusMember, call: Callable[[], object]) -> None:
        """Call what a handle of a queue wants to be told by. What it raises is not for whoever sent a message."""
        try:
            call()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def check_descriptor(self, endpoint: str) -> None:
        """Raise an error where a wait for a subscriber's descriptor would never end. Here others may send meanwhile."""

    def wait(self, ready: Callable[[], bool], timeout_ns: int | None, subject: str) -> None:
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
        end = None if timeout_ns is None else self.clock.now_ns + timeout_ns
        while self.clock.run_next_alarm(end):
            if ready():
                return
        if end is None:
            text = (
                f"waiting for {subject} would last for ever: nothing else runs on this bus; msgq.simulation has nodes"
            )
            raise DeadlockError(text)
        self.clock.now_ns = end


_buses = [Bus()]


def _mark_inherited() -> None:
    for bus in _buses:
        bus.mark_inherited()


os.register_at_fork(after_in_child=_mark_inherited)


def current_bus() -> Bus:
    """Return the bus that sockets connect to: the active simulation's, or the process's own."""
    return _buses[-1]


def push_bus(bus: Bus) -> None:
    """Let sockets connect to this bus, until `pop_bus`."""
    _buses.append(bus)


def pop_bus(bus: Bus) -> None:
    """End what `push_bus` began."""
    _buses.remove(bus)
