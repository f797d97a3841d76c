"""Differences between two schemas: fields that were added or removed, and fields whose type has changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow.types as kinds

from msgq.common.schema import Schema
from msgq.decoding.column_type import ColumnType
from msgq.decoding.schema_column_types import find_column_type

ADDED, REMOVED, CHANGED = "added", "removed", "changed"


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """A difference between two schemas.

    Attributes:
        change: "added", "removed" or "changed".
        part: "schema", "name", "encoding", "field" or "definition". The definition differs if it has other bytes, but
            equal fields: another order, other values of an enumeration, or another text.
        field: path of the field, such as "pose.x" or "points[].x"; "": not a field.
        before: type of the field in the first schema, or text of another part; None: only the second schema has this
            part.
        after: type of the field in the second schema, or text of another part; None: only the first schema has this
            part.
        note: for a definition, whether the fields are equal or unknown.
    """

    change: str
    part: str
    field: str = ""
    before: str | None = None
    after: str | None = None
    note: str = ""

    def __str__(self) -> str:
        what = f"{self.part} {self.field}" if self.field else self.part
        if self.change != CHANGED:
            return f"{self.change} {what}: {self.after if self.before is None else self.before}"
        return f"changed {what} ({self.note})" if self.note else f"changed {what}: {self.before} -> {self.after}"


def compare_schemas(before: Schema | None, after: Schema | None) -> list[SchemaDifference]:
    """Return the differences of two schemas; empty: both have the same name, encoding and definition.

    None: no schema.
    """
    if before is None or after is None:
        if before is after:
            return []
        old, new = (None if schema is None else f"{schema.name} ({schema.encodings})" for schema in (before, after))
        return [SchemaDifference(ADDED if before is None else REMOVED, "schema", "", old, new)]
    differences = [
        SchemaDifference(CHANGED, part, "", old, new)
        for part, old, new in (
            ("name", before.name, after.name),
            ("encoding", before.encodings, after.encodings),
        )
        if old != new
    ]
    if before.data != after.data:
        differences += _compare_definitions(before, after)
    return differences


def list_schema_fields(schema: Schema) -> dict[str, str]:
    """Return the types of a schema's innermost fields by their paths; empty: the schema defines no fields."""
    if schema.encoding == "struct":
        return dict(_list_dtype_fields("", schema.dtype))
    column_type = find_column_type(schema)
    return {} if column_type is None else dict(_list_column_fields("", column_type))


def _compare_definitions(before: Schema, after: Schema) -> list[SchemaDifference]:
    old, new = list_schema_fields(before), list_schema_fields(after)
    if not old or not new:
        return [SchemaDifference(CHANGED, "definition", note="the fields are unknown")]
    differences = []
    for path in dict.fromkeys((*old, *new)):
        if old.get(path) != new.get(path):
            change = ADDED if path not in old else REMOVED if path not in new else CHANGED
            differences.append(SchemaDifference(change, "field", path, old.get(path), new.get(path)))
    return differences or [SchemaDifference(CHANGED, "definition", note="the fields are equal")]


def _list_dtype_fields(path: str, dtype: np.dtype[np.void]) -> Iterator[tuple[str, str]]:
    """Yield the path and the type of each innermost field of a dtype."""
    shape = "".join(f"[{length}]" for length in dtype.shape)
    if dtype.base.names is None:
        yield path, f"{dtype.base}{shape}"
        return
    for name in dtype.base.names:
        yield from _list_dtype_fields(_join_path(path + shape, name), dtype.base[name])


def _list_column_fields(path: str, column_type: ColumnType, suffix: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the type of each innermost field of a column type."""
    if kinds.is_struct(column_type.arrow_type):
        for name, child_type in zip(column_type.field_names, column_type.child_types, strict=True):
            yield from _list_column_fields(_join_path(path + suffix, name), child_type)
    elif column_type.child_types:
        length = getattr(column_type.arrow_type, "list_size", "")
        yield from _list_column_fields(path, column_type.child_types[0], f"{suffix}[{length}]")
    else:
        yield path, f"{column_type.arrow_type}{suffix}"


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
