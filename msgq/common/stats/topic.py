"""Statistics of topics, as values. `msgq.stats` exports the names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """Messages and payload bytes that this publisher and its predecessors (of this library) published.

    Attributes:
        messages: number of messages. On the ZMQ backend: those of this publisher since `connect`.
        bytes: payload bytes of these messages.
        dropped: number of messages that did not fit a subscriber's queue on the ZMQ backend. Exact with one subscriber,
            a lower bound with several (docs/guides/zmq.md). Always 0 on the ring, where subscribers count their losses.
    """

    endpoint: str
    messages: int
    bytes: int
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class SubscriberStats:
    """Counters of a subscriber.

    Attributes:
        received: number of received messages.
        lost: number of lost messages. None: unknown, because a stock publisher lapped the subscriber.
        resets: number of times that the publisher lapped the subscriber.
    """

    endpoint: str
    received: int
    lost: int | None
    resets: int


@dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """A subscriber, as observers see it.

    Attributes:
        received: number of received messages.
        lost: number of lost messages, including losses that the subscriber has not noticed yet. After its next receive,
            the subscriber's own `lost` is the same (or one less with `conflate`, because the newest message still
            arrives). For a dead subscriber: the losses that it had noticed. None: unknown, because a stock publisher
            lapped the subscriber.
        resets: number of times that the subscriber noticed a lap.
        lag_bytes: unread bytes of the ring; None if the publisher lapped the subscriber.
    """

    participant: Participant
    received: int
    lost: int | None
    resets: int
    lag_bytes: int | None


class Tracked(NamedTuple):
    """A message of a tracked topic, as returned by `receive_tracked`.

    Attributes:
        data: payload.
        publish_time: publishing time in nanoseconds of the host's clock (docs/internals/clock.md).
        origin_time: time of the first event that led to this message, in nanoseconds of the same clock. Equal to
            `publish_time` if the publisher had no origin.
    """

    data: bytes
    publish_time: int
    origin_time: int


@dataclass(frozen=True, slots=True)
class TopicStats:
    """A topic at one moment. Each number is read separately.

    Attributes:
        path: path of the ring.
        data_bytes: bytes of the ring's data area.
        publisher: current publisher, if the publisher uses this library.
        publisher_kind: "ours", "stock" (or unknown), "none".
        messages: number of messages that this library published; None without a side segment.
        bytes: payload bytes of these messages; None without a side segment.
        write_position: cycle and offset, as in the ring's header.
        stock_subscribers: number of reader slots held by living threads that are not registered with this library.
        created_ns: creation time in nanoseconds of the host's clock (docs/internals/clock.md); None without a side
            segment.
        unlisted: True if living subscribers exist besides `subscribers`, which has room for 128.
        tracked: True if each message carries its publishing time and its origin (docs/guides/tracking.md).
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

    @property
    def participants(self) -> tuple[tuple[str, Participant], ...]:
        """Participants with their role, "subscriber" or "publisher"."""
        subscribers = tuple(("subscriber", row.participant) for row in self.subscribers)
        return subscribers if self.publisher is None else (*subscribers, ("publisher", self.publisher))

    @property
    def lost(self) -> int | None:
        """Number of messages that the subscribers have lost, as a sum. None: unknown, or no side segment."""
        lost = [row.lost for row in self.subscribers]
        return None if self.messages is None or None in lost else sum(row or 0 for row in lost)


@dataclass(frozen=True, slots=True)
class TopicCounts:
    """Counters of a topic at one moment.

    Attributes:
        messages: number of messages, as in `TopicStats`.
        bytes: payload bytes, as in `TopicStats`.
        position_bytes: bytes written to the ring, including size words and gaps, modulo 2**32 laps.
        subscribers: number of registered subscribers of this library, including dead ones.
        lost: number of messages that these subscribers lost, as a sum, as in `SubscriberInfo`. None: unknown for a
            subscriber, or no side segment.
    """

    messages: int | None
    bytes: int | None
    position_bytes: int
    subscribers: int
    lost: int | None
