"""Statistics of vectors and boards, read from their files."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.common.texts import format_count_noun
from msgq.common.units import NS_PER_S
from msgq.impl.records.core import RecordStatsReader
from msgq.kinds.stats import EndpointRow, EndpointTotals, KindStats, describe_schema, format_age, read_file_access


class RecordStatsRow(EndpointRow[RecordStats, EndpointCounts]):
    """A vector or board. Readers leave no trace."""

    unmeasured_reasons = MappingProxyType(
        {
            "subscribers": "readers of records leave no trace",
            "lost": "records do not count the values that readers miss",
        }
    )

    _sender_roles = ("writer",)

    @property
    def note_text(self) -> str:
        """Form and size of the vector or board."""
        record = self.stats
        keys = f"board, {format_count(record.key_count)} of {format_count(record.length)} keys"
        return keys if record.kind == "board" else f"vector of {format_count(record.length)}"

    @property
    def live_subscriber_count(self) -> int | None:
        """None: unknown, because readers leave no trace."""
        return None

    def _list_kind_fields(self) -> dict[str, Any]:
        fields = {"form": self.stats.kind, "dtype": self.stats.dtype, "mode": f"{self.stats.mode:o}"}
        return {**fields, "written": self.current_counts.messages}

    @property
    def message_sizes(self) -> tuple[int, int] | None:
        """Bytes of an element of a vector, twice; None for boards, whose values have different sizes."""
        return (self.stats.item_bytes, self.stats.item_bytes) if self.stats.kind == "vector" else None

    @staticmethod
    def compute_totals(stats: Any) -> EndpointTotals:
        """See `EndpointRow`."""
        return EndpointTotals(stats.bytes, stats.written, None)

    def describe(self) -> Iterator[str]:
        """Yield lines about a vector or board."""
        record, file = self.stats, read_file_access(self.stats.path)
        elements = "keys, each with a value of up to" if record.kind == "board" else "elements of"
        alone = "; one handle writes" if record.exclusive else ""
        copies = f"; {record.copies} copies of each"
        yield f"  file         {record.path}, {format_bytes(record.bytes)}; user {file.owner}, mode {file.mode}"
        yield f"  created      by {record.creator[0]} {record.creator[1]}, age {format_age(record.created_ns)}"
        items = f"{format_count(record.length)} {elements} {format_bytes(record.item_bytes)}"
        yield f"  {record.kind:12} {items}{copies}{alone}"
        yield f"  written      {_describe_write_history(record)}"
        yield f"  rate         {format_rate(self.rate)} elements/s"
        if record.locked:
            dead = f"{record.locked_by_dead} by dead writers"
            yield f"  locked       {format_count_noun(record.locked, 'element')}, {dead}"
        yield f"  schema       {describe_schema(record.schema)}{'' if record.dtype is None else f', {record.dtype}'}"
        yield f"  readers      unlisted; {'some may wait' if record.has_waiters else 'none waits'} for a change"
        yield f"  writers      {len(record.writers)}"
        for writer in record.writers:
            yield f"    {_describe_writer(writer)}"
        if record.kind == "board":
            yield f"  keys         {format_count(record.key_count)}"
        for key in record.keys:
            yield f"    {_describe_key(key)}"
        if record.key_count > len(record.keys):
            yield f"    and {format_count(record.key_count - len(record.keys))} more"


def _describe_write_history(record: RecordStats) -> str:
    if record.last_age_ns is None:
        return "never"
    index = f", number {record.last_index}" if record.kind == "vector" else ""
    last = f"last {record.last_age_ns / NS_PER_S:.3g} s ago{index}"
    return (
        f"{format_count_noun(record.written, 'time')}, {format_count_noun(record.elements_written, 'element')}; {last}"
    )


def _describe_writer(writer: RecordWriterInfo) -> str:
    has = f"; {writer.locked} being written" if writer.locked else ""
    has += f"; {format_count_noun(writer.keys, 'key')}" if writer.keys else ""
    return f"{writer.participant}: {format_count(writer.written)} written{has}"


def _describe_key(key: RecordKeyInfo) -> str:
    owner = "no owner" if key.owner is None else f"owner {key.owner}"
    written = f"written {format_count_noun(key.count, 'time')}"
    if key.age_ns is None:
        return f"{key.key}: {owner}, {written if key.count else 'never written'}"
    return f"{key.key}: {owner}, {format_bytes(key.bytes)}, {written}, {key.age_ns / NS_PER_S:.3g} s ago"


STATS = KindStats(RecordStatsReader, RecordStatsRow)
