"""What is measured of channels, as values. Their public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant


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
    sent, bytes, refused, evicted : its counts, from this pool (`msgq.channel`).
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
    evicted: int = 0
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
    views_held : views that it holds, by its own count.
    """

    participant: Participant
    node: str
    cursor: int
    lag: int | None
    received: int
    lost: int
    resets: int = 0
    views_held: int = 0


@dataclass(frozen=True, slots=True)
class ViewHolder:
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
    name, prefix, path : of the channel, and of its file; "" where there is no file.
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
    viewers: tuple[ViewHolder, ...] = ()
    opened: bool | None = False
    orphans: tuple[str, ...] = ()

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Who is entered, each with its role, "publisher", "subscriber" or "viewer"; not those that left."""
        publishers = [("publisher", row.participant) for row in self.publishers if not row.left]
        subscribers = [("subscriber", row.participant) for row in self.subscribers]
        return (*publishers, *subscribers, *(("viewer", row.participant) for row in self.viewers))

    @property
    def bytes(self) -> int:
        """Of all its files."""
        return self.hub_bytes + self.pool_bytes

    @property
    def lost(self) -> int:
        """What those of its subscribers that are listed have lost by now, all together."""
        return sum(row.lost for row in self.subscribers)


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
