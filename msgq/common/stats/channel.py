"""Statistics of channels, as values. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class ChannelPublisher:
    """A publisher of a channel, as observers see it: one pool of messages, and its row in the channel file.

    A publisher that grew has one row for each of its pools. A row stays until its messages have left the channel.

    Attributes:
        participant: process of the publisher. `alive` is True only while the process may publish from this pool.
        node: name of the publisher's node.
        slots: number of messages that the pool holds.
        slot_bytes: bytes of each slot.
        path: path of the pool's file.
        pool_bytes: size of the pool's file; None: the file is missing or unreadable.
        sent: messages published from this pool.
        bytes: payload bytes published from this pool.
        refused: sends that failed because views and loans occupied all slots of this pool.
        evicted: messages that the publisher removed early to reuse their slots.
        messages: messages of this pool that are in the channel now.
        left: True if the publisher closed, or grew and has no open loan in this pool. If a publisher is neither alive
            nor `left`, the process died.
        superseded: True if the publisher publishes from another pool.
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
    """A subscriber of a channel, as observers see it.

    Attributes:
        participant: process of the subscriber.
        node: name of the subscriber's node.
        cursor: position of the next message to read. 0: the subscriber has not read since the first publisher
            registered.
        lag: messages in the channel that the subscriber has not received. Messages of its own publishers count, even
            with `own=False`. None for a dead subscriber.
        received: number of received messages.
        lost: number of lost messages, including losses that the subscriber has not noticed yet. After its next call,
            the subscriber's own `lost` is at least this number. For a dead subscriber: the losses that it had noticed.
        resets: number of times that the subscriber was overtaken by more than the capacity.
        views_held: number of views that the subscriber holds, by its own count.
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
    """A subscriber that takes views, and its pinned slots. A channel has room for 64 such subscribers.

    Attributes:
        participant: process of the subscriber.
        node: name of its node, or "" if the subscriber is not registered.
        views: number of slots that the subscriber holds, of all publishers.
        outdated: number of held slots whose messages have left the channel. The publishers of these messages lack the
            slots.
        oldest_ns: publishing time of the oldest outdated message, in nanoseconds of the host's clock. None: no outdated
            message, or a channel without timestamps.
    """

    participant: Participant
    node: str = ""
    views: int = 0
    outdated: int = 0
    oldest_ns: int | None = None


@dataclass(frozen=True, slots=True)
class ChannelStats:
    """A channel at one moment. Each number is read separately.

    Attributes:
        name: name of the channel.
        prefix: prefix of the channel.
        path: path of the channel's file; "": no file exists.
        kind: "pubsub", "broadcast" or "mailbox".
        capacity: as in `Channel`; None: not set yet.
        max_publishers: as in `Channel`; None: not set yet.
        max_subscribers: as in `Channel`; None: not set yet, or unlimited.
        stamps: as in `Channel`; None: not set yet.
        messages: number of messages that all publishers have published.
        creator: name and pid of the process that created the channel.
        created_ns: creation time, in nanoseconds of the host's clock.
        schema: description of the messages; None: not set.
        hub_bytes: bytes of the channel file.
        pool_bytes: bytes of all pools.
        publishers: publishers that have a pool; see `ChannelPublisher`.
        subscribers: registered subscribers; at most 64.
        viewers: subscribers that take views.
        opened: True if another living process or object uses the channel: an open `Channel` or `Node`, or a subscriber
            that found no free row. Passive users leave no trace. None: unknown.
        orphans: paths of pools without a row.
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
        """Participants with their role, "publisher", "subscriber" or "viewer". Publishers that left are omitted."""
        publishers = [("publisher", row.participant) for row in self.publishers if not row.left]
        subscribers = [("subscriber", row.participant) for row in self.subscribers]
        return (*publishers, *subscribers, *(("viewer", row.participant) for row in self.viewers))

    @property
    def bytes(self) -> int:
        """Bytes of all files of the channel."""
        return self.hub_bytes + self.pool_bytes

    @property
    def lost(self) -> int:
        """Number of messages that the registered subscribers have lost, as a sum."""
        return sum(row.lost for row in self.subscribers)


@dataclass(frozen=True, slots=True)
class PublisherInfo:
    """Publisher of a message in a channel.

    Attributes:
        name: name of its node.
        pid: id of its process, in the PID namespace of the publisher.
    """

    name: str
    pid: int


@dataclass(frozen=True, slots=True)
class ChannelMessage:
    """Metadata of a message in a channel.

    Attributes:
        position: position among all messages of the channel. The first message has the channel's capacity as position.
        publish_time: publishing time, in nanoseconds of the host's clock; 0: the channel has no timestamps.
        origin_time: origin given by the publisher, in nanoseconds of the host's clock; 0: none, or the channel has no
            timestamps.
    """

    position: int
    publish_time: int
    origin_time: int
    publisher: PublisherInfo
