"""Statistics of topics, read without a subscriber slot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.stats.topic import SubscriberInfo, TopicCounts, TopicStats
from msgq.common.texts import format_count_noun
from msgq.errors import CorruptSegmentError, SegmentNotFoundError
from msgq.impl.ring.core import TopicObserver
from msgq.kinds.snapshots import read
from msgq.kinds.stats import (
    Backlog,
    EndpointRow,
    EndpointTotals,
    KindStats,
    describe_schema,
    format_age,
    read_file_access,
)
from msgq.topic.names import KIND

_STOCK_PUBLISHER_TEXT = "stock"  # a stock publisher has no name


class TopicRow(EndpointRow[TopicStats, TopicCounts]):
    """A topic.

    Stock publishers do not count messages; `byte_rate` is then the traffic in the ring, with some overhead.
    """

    has_better_meter = True

    @property
    def has_stock_publisher(self) -> bool:
        """True if a stock program publishes the topic."""
        return self.stats.publisher_kind == "stock"

    @property
    def note_text(self) -> str:
        """Note about a stock publisher."""
        return _STOCK_PUBLISHER_TEXT if self.has_stock_publisher else ""

    @property
    def is_dead(self) -> bool:
        """True if only dead processes are registered, or none."""
        stats = self.stats
        stock = self.has_stock_publisher or stats.stock_subscribers > 0 or stats.unlisted
        return not stock and all(participant.alive is False for _, participant in stats.participants)

    @property
    def publishers(self) -> list[str]:
        """Publishers. Stock publishers have no names."""
        return [_STOCK_PUBLISHER_TEXT] if self.has_stock_publisher else super().publishers

    @property
    def subscribers(self) -> list[str]:
        """Subscribers. Stock subscribers have no names."""
        stock = self.stats.stock_subscribers
        return super().subscribers + ([f"{stock} stock"] if stock else [])

    @property
    def live_publisher_count(self) -> int:
        """Number of publishers. A stock publisher counts as one."""
        return int(may_have_publisher(self.stats))

    @property
    def live_subscriber_count(self) -> int | None:
        """Number of subscribers, including stock ones."""
        return (super().live_subscriber_count or 0) + self.stats.stock_subscribers

    @property
    def rate(self) -> float | None:
        """Messages per second; None for stock publishers."""
        return None if self.has_stock_publisher else super().rate

    @property
    def byte_rate(self) -> float | None:
        """Bytes per second."""
        if self.has_stock_publisher:
            return self._compute_growth_rate(lambda counts: counts.position_bytes)
        return super().byte_rate

    @property
    def backlog(self) -> Backlog | None:
        """Bytes of the ring that the slowest living subscriber has not read; None: no subscriber, or a lap behind."""
        lags = [subscriber.lag_bytes for subscriber in self.stats.subscribers if subscriber.participant.alive]
        known_lags = [lag for lag in lags if lag is not None]
        is_known = len(known_lags) == len(lags) and not self.stats.stock_subscribers
        return Backlog(max(known_lags), "bytes") if lags and is_known else None

    def _list_kind_fields(self) -> dict[str, Any]:
        return {"bytes": self.current_counts.bytes}

    @staticmethod
    def compute_totals(stats: Any) -> EndpointTotals:
        """See `EndpointRow`."""
        return EndpointTotals(stats.data_bytes, stats.messages, stats.lost)

    def describe(self) -> Iterator[str]:
        """Yield lines about a topic."""
        topic, file = self.stats, read_file_access(self.stats.path)
        yield f"  ring         {topic.path}, {format_bytes(topic.data_bytes)}; a message may take a third of it"
        side = "side segment" if topic.created_ns else "no side segment: only stock programs used the topic"
        yield f"  file         {side}, user {file.owner}, mode {file.mode}, age {format_age(topic.created_ns)}"
        yield f"  publisher    {', '.join(self.publishers) or '-'}"
        yield f"  published    {format_count_noun(topic.messages, 'message')}, {format_bytes(topic.bytes)}"
        yield f"  rate         {format_rate(self.rate)} messages/s, {format_bytes(self.byte_rate)}/s"
        yield f"  schema       {describe_schema(topic.schema)}"
        yield f"  tracked      {'yes (messages have publish and origin times)' if topic.tracked else 'no'}"
        yield f"  position     lap {topic.write_position[0]}, offset {topic.write_position[1]}"
        yield f"  subscribers  {len(topic.subscribers)}, and {topic.stock_subscribers} stock"
        for subscriber in topic.subscribers:
            yield f"    {_describe_subscriber(subscriber)}"


def read_topic(endpoint: str, prefix: str | None = None) -> TopicStats | None:
    """Return the statistics of a topic; None: the topic is missing or damaged.

    A publisher creates a missing topic when it connects, repairs an empty ring, and raises an error for other damage.

    Args:
        prefix: as in `read`.

    Raises:
        EndpointNameError: the name is invalid.
        SegmentError: the files cannot be read, or have another layout version.
    """
    try:
        topic: TopicStats = read(KIND, endpoint, prefix)
    except (SegmentNotFoundError, CorruptSegmentError):
        return None
    return topic


def may_have_publisher(topic: TopicStats) -> bool:
    """Return True unless a topic certainly has no publisher. The liveness of stock publishers is unknown."""
    return topic.publisher_kind == "stock" if topic.publisher is None else topic.publisher.alive is not False


def describe_publisher(topic: TopicStats) -> str:
    """Return the publisher of a topic with a publisher, as text for a sentence."""
    return "a stock process" if topic.publisher is None else str(topic.publisher)


def _describe_subscriber(subscriber: SubscriberInfo) -> str:
    lost_text = "an unknown number of" if subscriber.lost is None else format_count(subscriber.lost)
    lag_text = "lapped" if subscriber.lag_bytes is None else f"{format_bytes(subscriber.lag_bytes)} to read"
    counts = (
        f"{format_count(subscriber.received)} received, {lost_text} lost in "
        f"{format_count_noun(subscriber.resets, 'lap')}"
    )
    return f"{subscriber.participant}: {counts}, {lag_text}"


STATS = KindStats(TopicObserver, TopicRow)
