"""What is measured of topics, as values. Their public names are in `msgq.stats`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgq.common.schema import Schema
from msgq.common.stats import Participant


@dataclass(frozen=True, slots=True)
class PublisherStats:
    """Messages and payload bytes published on an endpoint, by this publisher and its forerunners of this library.

    Attributes
    ----------
    messages, bytes : on the ZMQ backend, of this publisher since it connected.
    dropped : messages that a subscriber's full queue had no room for, on the ZMQ backend. Exact with one subscriber;
        with several a lower bound (docs/guides/zmq.md). On the ring it is 0, because subscribers count their losses.
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
    publish_time : when it was published, nanoseconds of the host's clock (docs/internals/clock.md).
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
    created_ns : by the host's clock (docs/internals/clock.md); None when there is no side segment.
    unlisted : whether there are living subscribers besides `subscribers`, which has room for 128.
    tracked : whether each message carries its publish and origin time (docs/guides/tracking.md).
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
        """Who is entered, each with its role, "subscriber" or "publisher"."""
        subscribers = tuple(("subscriber", row.participant) for row in self.subscribers)
        return subscribers if self.publisher is None else (*subscribers, ("publisher", self.publisher))

    @property
    def lost(self) -> int | None:
        """What its subscribers have lost by now, all together; None: unknown, or there is no side segment."""
        lost = [row.lost for row in self.subscribers]
        return None if self.messages is None or None in lost else sum(row or 0 for row in lost)


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
