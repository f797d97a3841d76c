"""Changes of vectors and boards, read passively."""

from __future__ import annotations

from typing import Any

from msgq.common.dtypes import struct_schema
from msgq.common.formatting import format_microseconds
from msgq.errors import RecordMismatchError
from msgq.impl import backend as backends
from msgq.impl.records import Board, SeqlockVector
from msgq.impl.sources import open_record_source
from msgq.kinds.source import EndpointFeed, KindSource, SourceItem


class VectorFeed(EndpointFeed):
    """Feed of a vector: first the current values of all written elements, then changes."""

    def __init__(self, vector: SeqlockVector) -> None:
        self.waitable = self._vector = vector
        self._schema = struct_schema(vector.dtype)

    def take_items(self) -> list[SourceItem]:
        """Return the changed elements."""
        changes = self._vector.changes()
        now_ns = backends.time_ns()
        columns = (changes.indices.tolist(), changes.counts.tolist(), changes.times.tolist(), changes.rows)
        return [
            SourceItem(row.tobytes(), *_describe_element_write("index", index, count, time_ns, now_ns), self._schema)
            for index, count, time_ns, row in zip(*columns, strict=True)
        ]


class BoardFeed(EndpointFeed):
    """Feed of a board: first all current values, then changes."""

    def __init__(self, board: Board) -> None:
        self.waitable = self._board = board

    def take_items(self) -> list[SourceItem]:
        """Return the changed values."""
        changes = self._board.changes()
        now_ns, schema = backends.time_ns(), self._board.schema
        return [
            SourceItem(value.data, *_describe_element_write("key", key, value.count, value.time, now_ns), schema)
            for key, value in changes.items()
        ]


def open_feed(name: str, prefix: str, _whole: bool) -> EndpointFeed:
    """Return the feed of a vector or board."""
    try:
        return VectorFeed(SeqlockVector(name, create=False, passive=True, prefix=prefix))
    except RecordMismatchError:
        return BoardFeed(Board(name, create=False, passive=True, prefix=prefix))


def _describe_element_write(
    field: str, element: int | str, count: int, time_ns: int, now_ns: int
) -> tuple[dict[str, Any], str]:
    """Return the properties of a write, as JSON fields and as text."""
    age_ns = max(0, now_ns - time_ns)
    facts = {field: element, "count": count, "publish_time": time_ns, "age_ns": age_ns}
    return facts, f"{element}, write {count}, {format_microseconds(age_ns / 1000)} us ago"


SOURCE = KindSource(
    open_source=open_record_source,
    open_feed=open_feed,
)
