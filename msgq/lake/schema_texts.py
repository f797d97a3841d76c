"""Texts of schemas in a lake: a table by the number in the column `schema_id` of messages."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from msgq.common.schema import Schema, schema_of, split_encoding
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.schema_ids import compute_schema_id

_SCHEMA_TEXTS_SCHEMA = pa.schema(
    [("schema_id", pa.int64()), ("name", pa.string()), ("encoding", pa.string()), ("data", pa.binary())]
)


def _open_schemas_table(lake: LakeDirectory) -> LakeTable:
    return LakeTable(lake, "schemas")


def write_schemas(lake: LakeDirectory, schemas: Iterable[Schema | None]) -> None:
    """Add the missing schemas. Several processes may do so at the same time. A repeated schema has no effect."""
    numbers = {
        number: schema for schema in schemas if schema is not None and (number := compute_schema_id(schema)) is not None
    }
    if not numbers:
        return
    known_ids = read_schema_ids(lake)
    rows = [
        {"schema_id": number, "name": schema.name, "encoding": schema.encodings, "data": schema.data}
        for number, schema in numbers.items()
        if number not in known_ids
    ]
    if rows:
        _open_schemas_table(lake).append_rows(pa.Table.from_pylist(rows, _SCHEMA_TEXTS_SCHEMA))


def read_schema_ids(lake: LakeDirectory) -> set[int]:
    """Return the numbers of all stored schemas."""
    snapshot = _open_schemas_table(lake).read_snapshot()
    return set() if snapshot is None else set(snapshot.read_rows(["schema_id"]).column("schema_id").to_pylist())


def read_schemas(lake: LakeDirectory) -> dict[int, Schema]:
    """Return all stored schemas by number."""
    snapshot = _open_schemas_table(lake).read_snapshot()
    if snapshot is None:
        return {}
    schemas = {}
    for row in snapshot.read_rows().to_pylist():
        encoding, written_in = split_encoding(row["encoding"])
        schemas[row["schema_id"]] = schema_of(row["name"], encoding, row["data"], written_in)
    return schemas
