"""Assigns silver rows to tables: the table of their schema, or a table of similar messages.

A column of a table never changes its type, so files are never rewritten. Rows with another type for the column go to
another table. A struct may have fewer fields than its column. Messages without a schema text go to a table that shares
columns with them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pa_types

from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.silver.silver_decoder import SchemaFamily

_SIMILAR_TABLES_MAX = 64  # tables of one family; from then on messages share one with whom it fits, alike or not
_SHARED_TABLE_COLUMNS_MAX = 500  # maximum columns of a table that other endpoints may join
_LABEL_LENGTH_MAX = 60  # letters
#: The place of what could not be decoded, which no table of silver is called.
DECODE_ERRORS_TABLE = "decode_errors"
_TypeComparison = Callable[[pa.DataType, pa.DataType], bool]


def open_silver_table(lake: LakeDirectory, name: str) -> LakeTable:
    """Return a silver table, or the table of decode errors."""
    return LakeTable(lake, name if name == DECODE_ERRORS_TABLE else f"silver/{name}", ["date"])


@dataclass(frozen=True, slots=True)
class SilverTable:
    """Properties of a table. `columns`: columns of its files."""

    schema_family: SchemaFamily
    column_schema: pa.Schema


class TableAssignment:
    """Known tables. One thread at a time."""

    def __init__(self, silver_tables: Mapping[str, SilverTable]) -> None:
        """Start with these tables by name."""
        self._columns_by_table: dict[str, dict[str, pa.Field]] = {}
        self._tables_by_family: dict[SchemaFamily, list[str]] = {}
        self._tables_by_field: dict[tuple[SchemaFamily, str], list[str]] = {}  # the tables with a field
        self._assigned_tables: dict[tuple[SchemaFamily, pa.Schema], str] = {}
        for name, table in silver_tables.items():
            self._add_table_columns(name, table.schema_family, table.column_schema)

    def assign_table(self, family: SchemaFamily, columns: pa.Schema) -> str:
        """Return the table for rows with these columns. The columns become columns of the table."""
        table_name = self._assigned_tables.get((family, columns))
        if table_name is None:
            table_name = self._find_best_table(family, columns, _contains_type)
            if table_name is None:
                near = self._find_best_table(family, columns, _is_compatible_type)
                columns_of = columns if near is None else self._merge_column_types(near, columns)
                table_name = _make_silver_table_name(
                    family, columns_of, is_first=not self._tables_by_family.get(family)
                )
                self._add_table_columns(table_name, family, columns_of)
            self._add_table_columns(table_name, family, columns)
            self._assigned_tables[family, columns] = table_name
        return table_name

    def get_table_columns(self, name: str) -> pa.Schema:
        """Return the columns of a table."""
        return pa.schema(list(self._columns_by_table[name].values()))

    def accept_assignments(self, assigned: Iterable[tuple[str, SchemaFamily, pa.Schema]]) -> bool:
        """Add the columns of assigned files to their tables. Return False if a column does not fit.

        The files were assigned without knowledge of other files.
        """
        assigned = list(assigned)
        if any(self._count_shared_columns(name, columns, pa.DataType.equals) is None for name, _, columns in assigned):
            return False
        for name, family, columns in assigned:
            self._add_table_columns(name, family, columns)
        return True

    def list_tables(self) -> dict[str, SilverTable]:
        """Return all tables by name."""
        return {
            name: SilverTable(family, self.get_table_columns(name))
            for family, names in self._tables_by_family.items()
            for name in names
        }

    def _add_table_columns(self, name: str, family: SchemaFamily, columns: pa.Schema) -> None:
        if name not in self._columns_by_table:
            self._columns_by_table[name] = {}
            self._tables_by_family.setdefault(family, []).append(name)
        columns_by_name = self._columns_by_table[name]
        for field in columns:
            if field.name.lower() not in columns_by_name:
                columns_by_name[field.name.lower()] = field
                self._tables_by_field.setdefault((family, field.name.lower()), []).append(name)

    def _merge_column_types(self, name: str, columns: pa.Schema) -> pa.Schema:
        """Return the columns in types that also hold the table's values."""
        columns_by_name = self._columns_by_table[name]
        return pa.schema(
            [
                pa.field(
                    field.name,
                    _find_common_struct_type(columns_by_name[field.name.lower()].type, field.type) or field.type,
                )
                if field.name.lower() in columns_by_name
                else field
                for field in columns
            ]
        )

    def _count_shared_columns(self, name: str, columns: pa.Schema, fits: _TypeComparison) -> int | None:
        """Return the number of these columns that a table has; None: a type does not fit, or a name differs in case."""
        columns_by_name = self._columns_by_table.get(name, {})
        shared = 0
        for field in columns:
            column = columns_by_name.get(field.name.lower())
            if column is not None and not (column.name == field.name and fits(column.type, field.type)):
                return None
            shared += column is not None
        return shared

    def _find_candidate_tables(self, family: SchemaFamily, columns: pa.Schema) -> set[str]:
        """Return the tables that have one of these fields, and the newest table, which may have room."""
        fields = columns.names[family.leading_column_count :]
        names = {name for field in fields for name in self._tables_by_field.get((family, field.lower()), ())}
        return {*names, self._tables_by_family[family][-1]}

    def _find_best_table(self, family: SchemaFamily, columns: pa.Schema, fits: _TypeComparison) -> str | None:
        """Return the family's table with the most of these columns, the smallest of equals; None: no table fits."""
        names = self._tables_by_family.get(family, [])
        is_full = not family.schema_name and len(names) >= _SIMILAR_TABLES_MAX
        candidates: list[tuple[int, int, str]] = []
        for name in self._find_candidate_tables(family, columns) if is_full else names:
            shared = self._count_shared_columns(name, columns, fits)
            if shared is None:
                continue
            size = len(self._columns_by_table[name])
            if shared < len(columns) and size + len(columns) - shared > _SHARED_TABLE_COLUMNS_MAX:
                continue
            alike = 2 * (shared - family.leading_column_count) >= min(len(columns), size) - family.leading_column_count
            if family.schema_name or alike or is_full:
                candidates.append((-shared, size, name))
        return min(candidates)[2] if candidates else None


def _find_common_struct_type(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """Return a type for two types that differ only in fields of structs; None: no such type."""
    if first == second:
        return first
    if pa_types.is_list(first) and pa_types.is_list(second):
        inner = _find_common_struct_type(first.value_type, second.value_type)
        return None if inner is None else pa.list_(inner)
    if not (pa_types.is_struct(first) and pa_types.is_struct(second)):
        return None
    fields = {field.name.lower(): field for field in first}
    for field in second:
        common_field = fields.setdefault(field.name.lower(), field)
        held = _find_common_struct_type(common_field.type, field.type)
        if held is None or common_field.name != field.name:
            return None
        fields[field.name.lower()] = common_field.with_type(held)
    return pa.struct(list(fields.values()))


def _contains_type(first: pa.DataType, second: pa.DataType) -> bool:
    return bool(first == second or _find_common_struct_type(first, second) == first)


def _is_compatible_type(first: pa.DataType, second: pa.DataType) -> bool:
    return _find_common_struct_type(first, second) is not None


def _make_silver_table_name(family: SchemaFamily, columns: pa.Schema, is_first: bool) -> str:
    """Return the name of a new table: readable, in letters of every file system, and with a number.

    `is_first`: True for the first table of its family. Workers then choose the same name independently.
    """
    about = family.schema_name or "-".join(columns.names[family.leading_column_count :])
    label = re.sub("[^0-9A-Za-z_.]+", "-", f"{family.encoding}-{about}")[:_LABEL_LENGTH_MAX].strip("-.")
    told_by = [] if family.schema_name and is_first else [f"{field.name!r} {field.type}" for field in columns]
    description = "\n".join([*map(repr, family), *told_by])
    return f"{label}-{hashlib.sha256(description.encode()).hexdigest()[:12]}"
