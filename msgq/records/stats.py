"""Statistics of vectors and boards, read from their files."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

from msgq.common.formatting import in_bytes, in_rate, in_units
from msgq.common.stats.endpoint import EndpointCounts
from msgq.common.stats.records import RecordKeyInfo, RecordStats, RecordWriterInfo
from msgq.common.units import NS_PER_S
from msgq.impl.records.core import RecordStatsReader
from msgq.kinds.stats import EndpointRow, EndpointTotals, KindStats, describe_schema, file_access, format_age


class RecordRow(EndpointRow[RecordStats, EndpointCounts]):
    """A vector or board. Who reads leaves no trace."""

    unmeasured = MappingProxyType(
        {
            "subscribers": "who reads records leaves no trace",
            "lost": "values of records are replaced, and nobody counts what readers miss",
        }
    )

    _senders = ("writer",)

    @property
    def note(self) -> str:
        """Of which form it is, and how large."""
        record = self.stats
        keys = f"board, {in_units(record.key_count)} of {in_units(record.length)} keys"
        return keys if record.kind == "board" else f"vector of {in_units(record.length)}"

    @property
    def subscribing(self) -> int | None:
        """Nobody can tell."""
        return None

    def _own(self) -> dict[str, Any]:
        said = {"form": self.stats.kind, "dtype": self.stats.dtype, "mode": f"{self.stats.mode:o}"}
        return {**said, "written": self.now.messages}

    @property
    def sizes(self) -> tuple[int, int] | None:
        """Bytes of an element of a vector, twice; values of a board have sizes of their own."""
        return (self.stats.item_bytes, self.stats.item_bytes) if self.stats.kind == "vector" else None


def describe(row: RecordRow) -> Iterator[str]:
    """Return elements is known of a vector or board, a line each."""
    record, file = row.stats, file_access(row.stats.path)
    elements = "keys, each with a value of up to" if record.kind == "board" else "elements of"
    alone = "; one handle writes" if record.exclusive else ""
    copies = f"; {record.copies} copies of each"
    yield f"  file         {record.path}, {in_bytes(record.bytes)}; user {file.owner}, mode {file.mode}"
    yield f"  made         by {record.creator[0]} {record.creator[1]}, age {format_age(record.created_ns)}"
    yield f"  {record.kind:12} {in_units(record.length)} {elements} {in_bytes(record.item_bytes)}{copies}{alone}"
    yield f"  written      {_describe_written(record)}"
    yield f"  rate         {in_rate(row.rate)} elements/s"
    if record.locked:
        yield f"  held         {record.locked} elements are being written, {record.locked_by_dead} of them by the dead"
    yield f"  schema       {describe_schema(record.schema)}{'' if record.dtype is None else f', {record.dtype}'}"
    yield f"  readers      leave no trace; {'some may sleep' if record.has_waiters else 'none sleeps'} until it changes"
    yield f"  writers      {len(record.writers)}"
    for writer in record.writers:
        yield f"    {_describe_writer(writer)}"
    if record.kind == "board":
        yield f"  keys         {in_units(record.key_count)}"
    for key in record.keys:
        yield f"    {_describe_key(key)}"
    if record.key_count > len(record.keys):
        yield f"    and {in_units(record.key_count - len(record.keys))} more"


def _describe_written(record: RecordStats) -> str:
    if record.last_age_ns is None:
        return "nothing so far"
    index = f", number {record.last_index}" if record.kind == "vector" else ""
    last = f"the last {record.last_age_ns / NS_PER_S:.3g} s ago{index}"
    return f"{in_units(record.written)} times, {in_units(record.elements_written)} elements; {last}"


def _describe_writer(writer: RecordWriterInfo) -> str:
    has = f"; {writer.locked} being written" if writer.locked else ""
    has += f"; {writer.keys} keys" if writer.keys else ""
    return f"{writer.participant}: {in_units(writer.written)} written by this row{has}"


def _describe_key(key: RecordKeyInfo) -> str:
    owner = "no owner" if key.owner is None else f"of {key.owner}"
    written = f"written {in_units(key.count)} {'time' if key.count == 1 else 'times'}"
    if key.age_ns is None:
        return f"{key.key}: {owner}, {written if key.count else 'never written'}"
    return f"{key.key}: {owner}, {in_bytes(key.bytes)}, {written}, {key.age_ns / NS_PER_S:.3g} s ago"


STATS = KindStats(
    watch=RecordStatsReader,
    totals=lambda record: EndpointTotals(record.bytes, record.written, None),
    row=RecordRow,
    describe=describe,
)
