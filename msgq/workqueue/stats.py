"""Statistics of work queues, read from their files."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.workqueue import QueueHandleInfo, QueueStats
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.impl.workqueue.core import QueueWatch
from msgq.kinds.stats import (
    Backlog,
    EndpointRow,
    EndpointTotals,
    KindStats,
    describe_schema,
    format_age,
    read_file_access,
)


class QueueRow(EndpointRow[QueueStats, EndpointCounts]):
    """A work queue. Messages are sent messages. Queues do not count bytes."""

    unmeasured_reasons = MappingProxyType({"size": "queues do not count the sizes of messages"})

    _sender_roles = ("sender",)
    _receiver_roles = ("receiver",)

    @property
    def note_text(self) -> str:
        """Number of waiting messages, as text."""
        return f"{format_count(self.stats.depth)} of {format_count(self.stats.max_messages)} waiting"

    @property
    def backlog(self) -> Backlog | None:
        """Waiting messages."""
        return Backlog(self.stats.depth, "messages")

    @property
    def received_rate(self) -> float | None:
        """Messages per second that were received or taken."""
        return self._compute_growth_rate(lambda counts: counts.received)

    def _list_kind_fields(self) -> dict[str, Any]:
        fields = {
            "mode": f"{self.stats.mode:o}",
            "sent": self.current_counts.messages,
            "received": self.current_counts.received,
        }
        return {**fields, "received_rate": self.received_rate}

    @staticmethod
    def compute_totals(stats: Any) -> EndpointTotals:
        """See `EndpointRow`."""
        return EndpointTotals(stats.bytes, stats.sent, 0)

    def describe(self) -> Iterator[str]:
        """Yield lines about a work queue."""
        queue, file = self.stats, read_file_access(self.stats.path)
        yield f"  file         {queue.path}, {format_bytes(queue.bytes)}; user {file.owner}, mode {file.mode}"
        yield f"  created      by {queue.creator[0]} {queue.creator[1]}, age {format_age(queue.created_ns)}"
        yield (
            f"  room         {format_count_noun(queue.max_messages, 'message')} of up "
            f"to {format_bytes(queue.max_message_size)}"
        )
        yield f"  waiting      {_describe_waiting(queue)}"
        if queue.delayed:
            yield f"  delayed      {format_count_noun(queue.delayed, 'message')}"
        leases = f"{queue.leases} with a lease, {queue.expired_leases} expired"
        yield f"  taken        {format_count_noun(queue.in_flight, 'message')}, {leases}"
        unused = f"{queue.pending_slots} being written, {queue.lost_slots} lost slots"
        yield f"  slots        {format_count(queue.free_slots)} free, {unused}"
        if queue.corrupt_slots:
            yield f"  corrupt      {format_count_noun(queue.corrupt_slots, 'slot')}, written by another program"
        if queue.redelivered:
            yield (
                f"  redelivered  {queue.redelivered} of these messages; one was taken "
                f"{format_count_noun(queue.most_deliveries, 'time')}"
            )
        yield f"  counts       {_describe_counts(queue)}"
        if queue.events:
            yield f"  events       {queue.events}, {format_count(queue.events_lost)} lost"
        rates = f"{format_rate(self.rate)} messages/s sent, {format_rate(self.received_rate)} messages/s received"
        yield f"  rate         {rates}"
        yield f"  schema       {describe_schema(queue.schema)}"
        yield f"  handles      {len(queue.handles)}"
        for handle in queue.handles:
            yield f"    {_describe_handle(handle)}"


def _describe_waiting(queue: QueueStats) -> str:
    if queue.oldest_age_ns is None:
        return format_count_noun(queue.depth, "message")
    priorities = ", ".join(f"{count} with {priority}" for priority, count in queue.priorities)
    remaining = queue.depth - sum(count for _, count in queue.priorities)
    remaining_text = f", {remaining} with lower" if remaining > 0 else ""
    oldest = f"oldest for {queue.oldest_age_ns / NS_PER_S:.3g} s"
    return f"{format_count_noun(queue.depth, 'message')}, {oldest}; by priority: {priorities}{remaining_text}"


def _describe_counts(stats: QueueStats | QueueHandleInfo) -> str:
    done = (
        f"{format_count(stats.sent)} sent, {format_count(stats.received)} received, "
        f"{format_count(stats.acknowledged)} acknowledged"
    )
    return f"{done}, {format_count(stats.returned)} returned, {format_count(stats.refused)} refused"


def _describe_handle(handle: QueueHandleInfo) -> str:
    has = f"; {handle.taken} taken" if handle.taken else ""
    has += f"; {handle.pending_slots} being written" if handle.pending_slots else ""
    has += f"; {', '.join(handle.waits)}" if handle.waits else ""
    return f"{handle.participant}: {_describe_counts(handle)}{has}"


STATS = KindStats(QueueWatch, QueueRow)
