"""Statistics of channels, read from their files."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.stats.channel import ChannelPublisher, ChannelStats, ChannelSubscriber, ViewHolder
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.texts import format_count_noun
from msgq.impl.channel.core import open_channel_file
from msgq.kinds.stats import (
    Backlog,
    EndpointRow,
    EndpointTotals,
    KindStats,
    describe_schema,
    format_age,
    read_file_access,
)

SUBSCRIBERS_SHOWN = 64  # subscribers of a channel, with their names


class ChannelStatsRow(EndpointRow[ChannelStats, EndpointCounts]):
    """A channel. `byte_rate` covers present publishers only."""

    unmeasured_reasons = MappingProxyType({"size": "channels do not count the sizes of messages"})

    @property
    def note_text(self) -> str:
        """Note about the form of the channel: broadcast or mailbox."""
        return "" if self.stats.kind == "pubsub" else self.stats.kind

    @property
    def is_dead(self) -> bool:
        """True if only dead processes are registered, or none, and no process has the channel open."""
        participants = (participant for _, participant in self.stats.participants)
        return self.stats.opened is False and all(participant.alive is False for participant in participants)

    @property
    def publishers(self) -> list[str]:
        """Publishers with the names of their nodes."""
        return [_describe_process(row.node, str(row.participant)) for row in self.stats.publishers if not row.left]

    @property
    def subscribers(self) -> list[str]:
        """Subscribers with the names of their nodes."""
        return [_describe_process(row.node, str(row.participant)) for row in self.stats.subscribers]

    @property
    def live_publisher_count(self) -> int:
        """Number of publishers, each counted once."""
        rows = [row for row in self.stats.publishers if not row.left and not row.superseded]
        return sum(row.participant.alive is not False for row in rows)

    @property
    def backlog(self) -> Backlog | None:
        """Messages that the slowest living subscriber has not received."""
        lags = [subscriber.lag for subscriber in self.stats.subscribers if subscriber.lag is not None]
        return Backlog(max(lags), "messages") if lags else None

    @property
    def tolerance_s(self) -> float | None:
        """Seconds that a subscriber may pause without a loss, at the current rate; None: unknown."""
        return self.stats.capacity / self.rate if self.rate and self.stats.capacity else None

    def _list_kind_fields(self) -> dict[str, Any]:
        return {"use": self.stats.kind, "bytes": self.current_counts.bytes, "tolerance_s": self.tolerance_s}

    @staticmethod
    def compute_totals(stats: Any) -> EndpointTotals:
        """See `EndpointRow`."""
        return EndpointTotals(stats.bytes, stats.messages, stats.lost)

    def describe(self) -> Iterator[str]:
        """Yield lines about a channel."""
        channel, file, tolerance_s = self.stats, read_file_access(self.stats.path), self.tolerance_s
        publishers, subscribers = map(_describe_limit, (channel.max_publishers, channel.max_subscribers))
        limits = f"publishers: {publishers}, subscribers: {subscribers}"
        stamps = {None: "", True: ", stamps", False: ", no stamps"}[channel.stamps]
        holds = "not set yet" if channel.capacity is None else format_count_noun(channel.capacity, "message")
        pause = "" if tolerance_s is None else f"; at this rate a subscriber may pause for {tolerance_s:.3g} s"
        pools = f"pools {format_bytes(channel.pool_bytes)}"
        yield f"  file         {channel.path}, {format_bytes(channel.hub_bytes)}; {pools}"
        creation = f"created by {channel.creator[0]} {channel.creator[1]}, age {format_age(channel.created_ns)}"
        yield f"  access       user {file.owner}, mode {file.mode}, {creation}"
        yield f"  kind         {channel.kind}, {limits}{stamps}"
        yield f"  published    {format_count_noun(channel.messages, 'message')}"
        yield f"  rate         {format_rate(self.rate)} messages/s, {format_bytes(self.byte_rate)}/s"
        yield f"  capacity     {holds}{pause}"
        yield f"  schema       {describe_schema(channel.schema)}"
        yield f"  publishers   {len(channel.publishers)}"
        for publisher in channel.publishers:
            yield f"    {_describe_publisher(publisher)}"
        unlisted = (
            ", and perhaps unlisted subscribers"
            if channel.opened and len(channel.subscribers) >= SUBSCRIBERS_SHOWN
            else ""
        )
        yield f"  subscribers  {len(channel.subscribers)}{unlisted}"
        for subscriber in channel.subscribers:
            yield f"    {_describe_subscriber(subscriber)}"
        for viewer in channel.viewers:
            yield f"  views        {_describe_viewer(viewer)}"
        for path in channel.orphans:
            yield f"  orphan       {path}"


def count_readers(channel: ChannelStats) -> int:
    """Return the number of registered subscribers that are not known to be dead.

    Viewers do not count in addition: a viewer is a registered subscriber, too, unless all 64 rows of subscribers were
    taken. Passive subscribers do not count, because they leave no trace.
    """
    return sum(row.participant.alive is not False for row in channel.subscribers)


def _describe_limit(limit: int | None) -> str:
    return "any number" if limit is None else f"at most {limit}"


def _describe_process(node: str, process: str) -> str:
    """Return the node and its process, or only the process if the node has the name of its process."""
    return process if process.startswith(f"{node} ") else f"{node} {process}"


def _describe_publisher(publisher: ChannelPublisher) -> str:
    state = (
        " (left)" if publisher.left else " (replaced by a larger pool, with loans left)" if publisher.superseded else ""
    )
    process = publisher.participant
    name = _describe_process(publisher.node, f"{process.name} {process.pid}{state}" if publisher.left else str(process))
    pool = (
        f"{format_count_noun(publisher.slots, 'slot')} of {format_bytes(publisher.slot_bytes)}, "
        f"{format_bytes(publisher.pool_bytes)}"
    )
    done = (
        f"{format_count(publisher.sent)} sent, {format_count(publisher.refused)} refused, "
        f"{format_count(publisher.evicted)} evicted"
    )
    return f"{name}{'' if publisher.left else state}: {done}, {publisher.messages} in the channel; {pool}"


def _describe_subscriber(subscriber: ChannelSubscriber) -> str:
    lag = "" if subscriber.lag is None else f", {format_count(subscriber.lag)} to read"
    done = (
        f"{format_count(subscriber.received)} received, "
        f"{format_count(subscriber.lost)} lost in {format_count_noun(subscriber.resets, 'lap')}"
    )
    return (
        f"{_describe_process(subscriber.node, str(subscriber.participant))}: {done}{lag}, "
        f"{format_count_noun(subscriber.views_held, 'view')} held"
    )


def _describe_viewer(holder: ViewHolder) -> str:
    kept = "" if holder.oldest_ns is None else f", the oldest of {format_age(holder.oldest_ns)} ago"
    return (
        f"{_describe_process(holder.node or '-', str(holder.participant))}: {format_count_noun(holder.views, 'slot')}, "
        f"{holder.outdated} of old messages{kept}"
    )


STATS = KindStats(open_channel_file, ChannelStatsRow)
