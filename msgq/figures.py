"""What is measured, as values: frozen records without behaviour. Their public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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

    def __str__(self) -> str:
        """Return name and pid, and whether it is dead or nobody can tell."""
        return f"{self.name} {self.pid}{ {True: '', False: ' (dead)', None: ' (unknown)'}[self.alive] }"


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


class Tracked(NamedTuple):
    """A message of a tracked topic, as `receive_tracked` returns it.

    Attributes
    ----------
    data : the payload.
    publish_time : when it was published, nanoseconds of the host's clock (docs/clock.md).
    origin_time : when that came about which it was made from; the same, if its publisher had nothing to make it from.
    """

    data: bytes
    publish_time: int
    origin_time: int


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
    created_ns : by the host's clock (docs/clock.md); None when there is no side segment.
    unlisted : whether there are living subscribers besides `subscribers`, which has room for 128.
    tracked : whether each message carries its publish and origin time (docs/tracking.md).
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
    tracked: bool = False


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


@dataclass(frozen=True, slots=True)
class ChannelPublisher:
    """A publisher of a channel as others see it: one pool of messages, and the row that it is entered in.

    A publisher that grew has a row for each of its pools. A row stays until its messages have left the order.

    Attributes
    ----------
    participant : the process; alive only as long as it may publish from this pool.
    node : its name.
    slots, slot_bytes : how many messages the pool holds, and bytes of each.
    path, pool_bytes : of the pool's file; None bytes: it is not there, or cannot be read.
    sent, bytes, refused, withdrawn : its counts, from this pool (`msgq.channel`).
    messages : of this pool that are in the order now.
    left : it closed, or grew and has no loan open here any more. Not alive without that: it died.
    superseded : it publishes from another pool.
    """

    participant: Participant
    node: str
    slots: int
    slot_bytes: int
    sent: int
    bytes: int
    refused: int = 0
    withdrawn: int = 0
    messages: int = 0
    path: str = ""
    pool_bytes: int | None = None
    left: bool = False
    superseded: bool = False


@dataclass(frozen=True, slots=True)
class ChannelSubscriber:
    """A subscriber of a channel as others see it.

    Attributes
    ----------
    participant : the process.
    node : its name.
    cursor : the position that it looks at next; 0: it has not looked since the first publisher came.
    lag : messages that are there, and that it has not received; its own ones among them, where it leaves those out.
        None of one that died.
    received : messages.
    lost : messages that it has lost by now. That includes what it has not noticed yet: its own `lost` says as much as
        soon as it looks, or more when it conflates or goes on at the present. Of one that died, what it had noticed.
    resets : how often it noticed that it was lapped.
    held : views that it holds, by its own count.
    """

    participant: Participant
    node: str
    cursor: int
    lag: int | None
    received: int
    lost: int
    resets: int = 0
    held: int = 0


@dataclass(frozen=True, slots=True)
class ChannelViewer:
    """A subscriber that takes views, of which a channel has room for 64, and what it holds.

    Attributes
    ----------
    participant : the process.
    node : its name, if it is listed among the subscribers; else "".
    views : slots that it holds, of all publishers.
    outdated : those of them whose messages have left the order: each is one that its publisher lacks.
    oldest_ns : when the oldest of the outdated was published, by the host's clock; None: there is none, or the channel
        has no stamps.
    """

    participant: Participant
    node: str = ""
    views: int = 0
    outdated: int = 0
    oldest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel, at one moment; each figure is read on its own.

    Attributes
    ----------
    name, prefix, path : of the channel, and of its hub's file; "" where there is no file.
    kind : "pubsub", "broadcast" or "mailbox".
    capacity, max_publishers, max_subscribers, stamps : as `Channel` has them; None as long as nobody has said it, and
        of subscribers when there may be any number.
    messages : published so far, by all publishers.
    creator, created_ns : name and pid of who made it; when, by the host's clock.
    hub_bytes, pool_bytes : of its files; of all its pools together.
    publishers : rows with a pool, see `ChannelPublisher`.
    subscribers : those that are listed; there is room for 64.
    viewers : those that take views.
    opened : whether somebody alive has it open beside those above: an object `Channel` or `Node`, or a subscriber for
        whom the list had no room. Passive ones leave no trace. None: nobody can tell.
    orphans : paths of pools that belong to no row.
    """

    name: str
    prefix: str = ""
    path: str = ""
    kind: str = "pubsub"
    capacity: int | None = None
    max_publishers: int | None = None
    max_subscribers: int | None = None
    stamps: bool | None = None
    messages: int = 0
    creator: tuple[str, int] = ("", 0)
    created_ns: int | None = None
    schema: Schema | None = None
    hub_bytes: int = 0
    pool_bytes: int = 0
    publishers: tuple[ChannelPublisher, ...] = ()
    subscribers: tuple[ChannelSubscriber, ...] = ()
    viewers: tuple[ChannelViewer, ...] = ()
    opened: bool | None = False
    orphans: tuple[str, ...] = ()

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Who is entered, each with its role, "publisher", "subscriber" or "viewer"; not those that left."""
        publishers = [("publisher", one.participant) for one in self.publishers if not one.left]
        subscribers = [("subscriber", one.participant) for one in self.subscribers]
        return (*publishers, *subscribers, *(("viewer", one.participant) for one in self.viewers))


@dataclass(frozen=True, slots=True)
class PublisherInfo:
    """Who published a message of a channel.

    Attributes
    ----------
    name : of its node.
    pid : of its process, in that one's PID namespace.
    """

    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """What a channel knows of a message beside its bytes.

    Attributes
    ----------
    position : its number among all messages of the channel; the first one has the channel's capacity.
    publish_time, origin_time : nanoseconds of the host's clock (clock.md); 0: the channel has no stamps, or its
        publisher gave none.
    """

    position: int
    publish_time: int
    origin_time: int
    publisher: PublisherInfo


@dataclass(frozen=True, slots=True)
class QueueHandleInfo:
    """An open handle of a work queue as others see it, or a row in which a dead one left something.

    Attributes
    ----------
    participant : the process.
    row : its number in the queue, of 128.
    sent, received, acknowledged, returned, refused : its own counts, as those of `QueueStats`. What it brought back for
        others is among the returned.
    holds : places that it fills with messages just now.
    taken : messages that it has taken, and neither acknowledged nor given back.
    waits : what it sleeps for or wants to know: "receiving", "watching" (by a descriptor, a `Poller` or asyncio),
        "sending" (for room), "notified".
    """

    participant: Participant
    row: int
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    returned: int = 0
    refused: int = 0
    holds: int = 0
    taken: int = 0
    waits: tuple[str, ...] = ()

    @property
    def leaves(self) -> bool:
        """Whether it is dead, and places or wishes of it are still there."""
        return self.participant.alive is False and bool(self.holds or self.taken or self.waits)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A work queue, at one moment; each figure is read on its own.

    Attributes
    ----------
    name, prefix, path : of the queue, and of its file.
    bytes, mode : of the file.
    creator, created_ns : name and pid of who made it; when, by the host's clock.
    max_messages, max_message_size : as `MessageQueue` has them.
    depth : messages that wait.
    in_flight : messages that somebody has taken.
    held : places that senders fill just now.
    free : places for more messages.
    nonsense : places in which another program wrote what means nothing; nobody uses them.
    astray : places held or taken by handles that are gone and whose row somebody else has; they come back soon.
    oldest_ns : when the message was sent that waits longest, by the host's clock; None: none waits.
    oldest_age_ns : for how long it has waited.
    priorities : the highest that wait, 8 at most, each with how many messages have it.
    redelivered : messages that are there, and that somebody had before.
    most_deliveries : how often the one of them was taken that was taken most often.
    leases, overdue : messages taken for a time; those of them whose time is over, that come back soon.
    sent, received, acknowledged, returned, refused : messages so far; received are those that were taken, acknowledged
        also those of `receive`, returned those that came back, refused those for which there was no room.
    handles : who has it open, and what the dead left, see `QueueHandleInfo`.
    """

    name: str
    prefix: str
    path: str
    bytes: int
    mode: int
    creator: tuple[str, int]
    created_ns: int
    max_messages: int
    max_message_size: int
    schema: Schema | None = None
    depth: int = 0
    in_flight: int = 0
    held: int = 0
    free: int = 0
    nonsense: int = 0
    astray: int = 0
    oldest_ns: int | None = None
    oldest_age_ns: int | None = None
    priorities: tuple[tuple[int, int], ...] = ()
    redelivered: int = 0
    most_deliveries: int = 0
    leases: int = 0
    overdue: int = 0
    sent: int = 0
    received: int = 0
    acknowledged: int = 0
    returned: int = 0
    refused: int = 0
    handles: tuple[QueueHandleInfo, ...] = ()
