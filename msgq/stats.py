"""What is going on on this machine: read-only snapshots that disturb nobody and take no reader's place."""

from __future__ import annotations

import os
from dataclasses import dataclass

from msgq import naming
from msgq.errors import EndpointNameError, SegmentError
from msgq.schema import Schema


@dataclass(frozen=True, slots=True)
class Participant:
    """A process that takes part in a topic.

    Attributes
    ----------
    pid, thread_id : process and thread that connected, in their PID namespace.
    start_time : of the process, clock ticks since boot.
    name : the process's name, at most 15 bytes.
    alive : None when nobody can tell: it uses the release before, in another PID namespace.
    """

    pid: int
    thread_id: int
    start_time: int
    name: str
    alive: bool | None


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """Messages and payload bytes published on an endpoint, by this publisher and its forerunners of this library.

    Attributes
    ----------
    messages, bytes : on the ZMQ backend, of this publisher since it connected.
    dropped : messages that a subscriber's full queue had no room for, on the ZMQ backend. Exact with one subscriber;
        with several at least so many, see docs/zmq.md. On the ring subscribers count what they lose, and this is 0.
    """

    endpoint: str
    messages: int
    bytes: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class SubscriberStats:
    """A subscriber's own count of messages.

    Attributes
    ----------
    received : messages.
    lost : messages; None when unknown, because a stock publisher lapped it.
    resets : how often it was lapped.
    """

    endpoint: str
    received: int
    lost: int | None
    resets: int


@dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """A subscriber as others see it.

    Attributes
    ----------
    received : messages.
    lost : messages that it has lost by now. That includes what it has not noticed yet, because it has not looked since
        it was lapped: its own `lost` says as much as soon as it looks (or one less when it conflates, for it still gets
        the newest message). Of one that died, what it had noticed. None when unknown, because a stock publisher lapped
        it.
    resets : how often it noticed that it was lapped.
    lag_bytes : how much of the ring it has not read, None when it was lapped.
    """

    participant: Participant
    received: int
    lost: int | None
    resets: int
    lag_bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic, at one moment; each figure is read on its own.

    Attributes
    ----------
    path : of the ring.
    data_bytes : size of its data area.
    publisher : the current one, if it uses this library.
    publisher_kind : "ours", "stock" (or unknown), "none".
    messages, bytes : published by this library so far; None when there is no side segment.
    write_position : cycle and offset, as in the ring's header.
    stock_subscribers : slots held by living threads that this library knows nothing of.
    created_ns : CLOCK_REALTIME; None when there is no side segment.
    unlisted : whether there are living subscribers besides `subscribers`, which has room for 128.
    """

    endpoint: str
    path: str
    data_bytes: int
    publisher: Participant | None
    publisher_kind: str
    messages: int | None
    bytes: int | None
    write_position: tuple[int, int]
    subscribers: tuple[SubscriberInfo, ...]
    stock_subscribers: int
    schema: Schema | None
    created_ns: int | None
    unlisted: bool = False


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """What moves in a topic, at one moment.

    Attributes
    ----------
    messages, bytes : as in `TopicStats`.
    position_bytes : bytes that went through the ring, with the size words and gaps; modulo 2**32 laps.
    subscribers : entered, of this library; the dead among them as well.
    lost : messages, by all of those together, as in `SubscriberInfo`; None when it is unknown of one of them, or there
        is no side segment.
    """

    messages: int | None
    bytes: int | None
    position_bytes: int
    subscribers: int
    lost: int | None


@dataclass(frozen=True, slots=True)
class Distribution:
    """How figures are spread; percentiles are at most 0.8 % off, `mean`, `min` and `max` exact."""

    count: int
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


@dataclass(frozen=True, slots=True)
class MeterReading:
    """What a meter counted on an endpoint.

    Attributes
    ----------
    messages, bytes : seen.
    lost : messages that were published meanwhile, but overwritten before they were seen; None when unknown.
    seconds : for how long it counted.
    span_s : from the first message (or the last one before this count) to the last one.
    periods_us, delays_us : microseconds between messages, and from their publish time until they were seen.
    sizes : bytes.
    undated, early : messages too short to hold a publish time, and with one that is yet to come.
    """

    endpoint: str
    messages: int
    bytes: int
    lost: int | None
    seconds: float
    span_s: float
    periods_us: Distribution | None
    sizes: Distribution | None
    delays_us: Distribution | None
    undated: int
    early: int

    @property
    def rate(self) -> float | None:
        """Messages a second, also those that were lost; None: too few were seen."""
        if not self.periods_us or not self.span_s:
            return None
        return (self.periods_us.count + (self.lost or 0)) / self.span_s

    @property
    def byte_rate(self) -> float | None:
        """Payload bytes a second, those that were lost taken to be as large as the others; None: too few were seen."""
        return self.rate * self.sizes.mean if self.rate and self.sizes else None


def topic(endpoint: str | bytes, prefix: str | None = None) -> TopicStats:
    """Return a snapshot of one topic.

    Raises
    ------
    SegmentError : there is no such topic, or its files cannot be read.
    """
    from msgq.impl.snapshot import TopicWatch  # imported late: it imports this module

    name = naming.endpoint_name(endpoint)
    where = naming.checked_prefix(prefix)
    return TopicWatch(name, where).stats()


def topics(prefix: str | None = None) -> list[TopicStats]:
    """Return a snapshot of every topic, sorted by name.

    Parameters
    ----------
    prefix : topics of this prefix; None: of the one in force, "": of none.

    Files that are no topics are left out; what cannot be read (another user's) as well.
    """
    where = naming.checked_prefix(prefix)
    found = []
    for name in topic_inodes(where):
        try:
            found.append(topic(name, where))
        except (SegmentError, EndpointNameError):
            continue
    return found


def topic_inodes(prefix: str | None = None) -> dict[str, int]:
    """Return the names that may be topics, sorted, each with the inode of its ring: another one when it is made anew.

    Parameters
    ----------
    prefix : as in `topics`. No file is opened.
    """
    directory, start = naming.topic_files(naming.checked_prefix(prefix))
    try:
        found = [(entry.name, entry.inode()) for entry in os.scandir(directory) if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the last: of a user who does not share it
        return {}
    return {name[len(start):]: inode for name, inode in sorted(found) if name.startswith(start) and name != start}
