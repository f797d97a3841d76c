"""Tables of gold made by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

SECOND = 1_000_000_000
BEGIN = 1_699_999_200 * SECOND  # a whole hour
HISTOGRAM = pa.list_(pa.struct({"bucket": pa.int32(), "count": pa.int64()}))

_ENDPOINT = {
    "run": "r",
    "endpoint": "a",
    "host": "h",
    "encoding": "",
    "schema": None,
    "messages": 1,
    "size_bytes": 1,
    "max_size_bytes": 1,
    "start_time": BEGIN,
    "end_time": BEGIN,
    "rate": None,
    "epochs": 1,
    "lost": 0,
    "sequence_gaps": 0,
    "kind": "topic",
    "publishers": 0,
    "overwritten": 0,
}


def endpoint(name: str, **columns: Any) -> dict[str, Any]:
    """Return a row of `endpoints` with what is not said made up."""
    return _ENDPOINT | {"endpoint": name} | columns


def histogram(counts: dict[int, int]) -> list[dict[str, int]]:
    """Return the histogram with so many in each bucket."""
    return [{"bucket": bucket, "count": counts[bucket]} for bucket in sorted(counts)]


class Tables(dict[str, list[dict[str, Any]]]):
    """Rows by the name of their table, as a lake gives them: in several files where there are several rows."""

    def __call__(self, name: str) -> ds.Dataset | None:
        rows = self.get(name)
        if rows is None:
            return None
        types = {"schema": pa.string(), "rate": pa.float64(), "publisher": pa.string(), "parent": pa.string()}
        first = pa.Table.from_pylist(rows)
        fields = [
            pa.field(field.name, HISTOGRAM if field.name.endswith("histogram") else types.get(field.name, field.type))
            for field in first.schema
        ]
        fields = [pa.field(field.name, pa.int64()) if field.type == pa.null() else field for field in fields]
        table = pa.Table.from_pylist(rows, pa.schema(fields))
        middle = len(rows) // 2
        return ds.dataset([ds.dataset(part) for part in (table[:middle], table[middle:])])
