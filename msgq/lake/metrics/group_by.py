"""Grouping of Arrow rows by equal values, with NumPy. Fast if the rows are sorted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

IntegerArray = np.ndarray[Any, np.dtype[np.int64]]
BooleanArray = np.ndarray[Any, np.dtype[np.bool_]]
_GROUP_CODE_MAX = 1 << 62  # limit of numbers that stand for several values at once
_DENSE_RANGE_MAX = 1 << 22  # integers that are no farther apart stand for themselves


class RowGroups:
    """Groups of rows with equal keys, in the order of the keys. NULL comes last, and equals NULL.

    Attributes:
        count: number of groups.
        sizes: number of rows of each group, shape (count,).
        first_rows: index of the first row of each group, shape (count,).
        sorted_ids: group of each row, in the order of `sort_by_group`, shape (rows,).
    """

    def __init__(self, *keys: pa.Array | pa.ChunkedArray | IntegerArray) -> None:
        """Group the rows by one or more key columns of texts or integers, all of the same length."""
        code = _encode_group_keys(keys)
        self._order = np.argsort(code, kind="stable") if (np.diff(code) < 0).any() else None
        ordered = self.sort_by_group(code)
        begins = np.diff(ordered, prepend=-1) != 0
        self._group_starts = np.flatnonzero(begins)
        self.count = len(self._group_starts)
        self.sizes: IntegerArray = np.diff(self._group_starts, append=len(code))
        self.first_rows: IntegerArray = self._group_starts if self._order is None else self._order[self._group_starts]
        self.sorted_ids: IntegerArray = np.cumsum(begins) - 1

    def sort_by_group(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return values in the order of the groups. Within a group, the order is unchanged."""
        return values if self._order is None else values[self._order]

    def compute_group_ids(self) -> IntegerArray:
        """Return the group of each row, in the order of the rows."""
        ids = np.empty(len(self.sorted_ids), np.int64)
        ids[self.sort_by_group(np.arange(len(self.sorted_ids)))] = self.sorted_ids
        return ids

    def sum_by_group(self, values: np.ndarray[Any, Any]) -> IntegerArray:
        """Return the sum of each group."""
        return self._reduce_by_group(np.add, values.astype(np.int64, copy=False))

    def min_by_group(self, values: IntegerArray) -> IntegerArray:
        """Return the minimum of each group."""
        return self._reduce_by_group(np.minimum, values)

    def max_by_group(self, values: IntegerArray) -> IntegerArray:
        """Return the maximum of each group."""
        return self._reduce_by_group(np.maximum, values)

    def find_last_rows(self, order: IntegerArray) -> IntegerArray:
        """Return for each group the index of the row with the greatest value; of equal values, the last row."""
        within = np.lexsort((self.sort_by_group(order), self.sorted_ids))
        last = within[self._group_starts + self.sizes - 1] if self.count else within
        return last if self._order is None else self._order[last]

    def _reduce_by_group(self, function: np.ufunc, values: IntegerArray) -> IntegerArray:
        reduced: IntegerArray = (
            function.reduceat(self.sort_by_group(values), self._group_starts) if self.count else values[:0]
        )
        return reduced


def get_column(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Return a column in one chunk."""
    values: pa.Array = table.column(name)
    return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values


def get_integer_column(table: pa.Table | pa.RecordBatch, name: str, null: int = 0) -> IntegerArray:
    """Return a column of integers. `null`: value in place of NULL."""
    values = get_column(table, name)
    return np.asarray(values.fill_null(null) if values.null_count else values, np.int64)


def take_column_rows(table: pa.Table | pa.RecordBatch, names: Sequence[str], rows: IntegerArray) -> dict[str, pa.Array]:
    """Return some columns of some rows. Dictionaries of texts become texts."""
    columns = {name: get_column(table, name).take(pa.array(rows)) for name in names}
    return {
        name: values.dictionary_decode() if pa.types.is_dictionary(values.type) else values
        for name, values in columns.items()
    }


def build_typed_table(schema: pa.Schema, columns: Mapping[str, pa.Array | np.ndarray[Any, Any]]) -> pa.Table:
    """Return a table with the columns of `schema`. Additional columns are ignored."""
    arrays: list[pa.Array] = [pa.array(columns[name]) for name in schema.names]
    cast = [
        array if array.type == field.type else array.cast(field.type)
        for array, field in zip(arrays, schema, strict=True)
    ]
    return pa.Table.from_arrays(cast, schema=schema)


def _encode_group_keys(keys: Sequence[pa.Array | pa.ChunkedArray | IntegerArray]) -> IntegerArray:
    """Return a number for each row. Equal keys have equal numbers, and the numbers have the order of the keys."""
    code, room = _rank_values(keys[0])
    for key in keys[1:]:
        ranks, count = _rank_values(key)
        if count == 1:
            continue
        if room * count >= _GROUP_CODE_MAX:
            values, code = np.unique(code, return_inverse=True)
            room = len(values)
        code, room = code * count + ranks, room * count
    return code


def _rank_values(key: pa.Array | pa.ChunkedArray | IntegerArray) -> tuple[IntegerArray, int]:
    """Return a number from 0 for each value, in the order of the values, and the limit of the numbers."""
    if isinstance(key, pa.ChunkedArray):
        key = key.combine_chunks()
    if isinstance(key, pa.Array):
        if pa.types.is_integer(key.type) and not key.null_count:
            key = np.asarray(key, np.int64)
        else:
            return _rank_texts(key)
    if not len(key):
        return key, 1
    least, most = int(key.min()), int(key.max())
    if most - least < _DENSE_RANGE_MAX:
        return key - least, most - least + 1
    values, ranks = np.unique(key, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(values)


def _rank_texts(key: pa.Array) -> tuple[IntegerArray, int]:
    if not pa.types.is_dictionary(key.type):
        key = key.dictionary_encode()
    names = key.dictionary
    ranks = np.empty(len(names) + 1, np.int64)
    ranks[np.asarray(pc.sort_indices(names))] = np.arange(len(names))
    ranks[-1] = len(names)
    if not key.indices.null_count:
        return ranks[np.asarray(key.indices)], max(1, len(names))
    return ranks[np.asarray(key.indices.fill_null(len(names)))], len(names) + 1
