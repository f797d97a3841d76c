"""Rows of Arrow tables with equal values, and what NumPy makes of each group: fast where rows come in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Integers = np.ndarray[Any, np.dtype[np.int64]]
Truths = np.ndarray[Any, np.dtype[np.bool_]]
_ROOM = 1 << 62  # of numbers that stand for several values at once
_NEAR = 1 << 22  # integers that are no farther apart stand for themselves


class Groups:
    """Rows with equal keys, in the order of the keys; NULL comes last, and equals itself.

    Attributes
    ----------
    count : of groups.
    sizes : rows of each, shape (count,).
    first : the number of the first row of each, shape (count,).
    ids : the group of each row, in the order of `ordered`, shape (rows,).
    """

    def __init__(self, *keys: pa.Array | pa.ChunkedArray | Integers) -> None:
        """keys : columns of texts or integers, all as long; at least one."""
        code = _code(keys)
        self._order = np.argsort(code, kind="stable") if (np.diff(code) < 0).any() else None
        ordered = self.ordered(code)
        begins = np.diff(ordered, prepend=-1) != 0
        self._starts = np.flatnonzero(begins)
        self.count = len(self._starts)
        self.sizes: Integers = np.diff(self._starts, append=len(code))
        self.first: Integers = self._starts if self._order is None else self._order[self._starts]
        self.ids: Integers = np.cumsum(begins) - 1

    def ordered(self, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return values of rows in the order of the groups, and as they came within each of them."""
        return values if self._order is None else values[self._order]

    def places(self) -> Integers:
        """Return the group of each row, in the order of the rows."""
        found = np.empty(len(self.ids), np.int64)
        found[self.ordered(np.arange(len(self.ids)))] = self.ids
        return found

    def sum(self, values: np.ndarray[Any, Any]) -> Integers:
        """Return the sum of each group."""
        return self._reduced(np.add, values.astype(np.int64, copy=False))

    def min(self, values: Integers) -> Integers:
        """Return the least of each group."""
        return self._reduced(np.minimum, values)

    def max(self, values: Integers) -> Integers:
        """Return the greatest of each group."""
        return self._reduced(np.maximum, values)

    def last_of(self, order: Integers) -> Integers:
        """Return the number of the row of each group whose value is greatest, the last one of several."""
        within = np.lexsort((self.ordered(order), self.ids))
        last = within[self._starts + self.sizes - 1] if self.count else within
        return last if self._order is None else self._order[last]

    def _reduced(self, how: np.ufunc, values: Integers) -> Integers:
        found: Integers = how.reduceat(self.ordered(values), self._starts) if self.count else values[:0]
        return found


def column(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array:
    """Return a column in one piece."""
    found: pa.Array = table.column(name)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def integers(table: pa.Table | pa.RecordBatch, name: str, null: int = 0) -> Integers:
    """Return a column of integers; null : what stands for NULL."""
    found = column(table, name)
    return np.asarray(found.fill_null(null) if found.null_count else found, np.int64)


def rows_of(table: pa.Table | pa.RecordBatch, names: Sequence[str], rows: Integers) -> dict[str, pa.Array]:
    """Return some columns of some rows; texts are texts, whatever was said of dictionaries."""
    found = {name: column(table, name).take(pa.array(rows)) for name in names}
    return {name: one.dictionary_decode() if pa.types.is_dictionary(one.type) else one for name, one in found.items()}


def table_of(schema: pa.Schema, made: Mapping[str, pa.Array | np.ndarray[Any, Any]]) -> pa.Table:
    """Return a table of columns, of which there may be more."""
    arrays: list[pa.Array] = [pa.array(made[name]) for name in schema.names]
    cast = [one if one.type == field.type else one.cast(field.type) for one, field in zip(arrays, schema, strict=True)]
    return pa.Table.from_arrays(cast, schema=schema)


def _code(keys: Sequence[pa.Array | pa.ChunkedArray | Integers]) -> Integers:
    """Return a number for each row: the same for the same keys, and in their order."""
    code, room = _ranks(keys[0])
    for key in keys[1:]:
        one, count = _ranks(key)
        if count == 1:
            continue
        if room * count >= _ROOM:
            known, code = np.unique(code, return_inverse=True)
            room = len(known)
        code, room = code * count + one, room * count
    return code


def _ranks(key: pa.Array | pa.ChunkedArray | Integers) -> tuple[Integers, int]:
    """Return a number from 0 on for each value, in their order, and below what they are."""
    if isinstance(key, pa.ChunkedArray):
        key = key.combine_chunks()
    if isinstance(key, pa.Array):
        if pa.types.is_integer(key.type) and not key.null_count:
            key = np.asarray(key, np.int64)
        else:
            return _ranks_of_texts(key)
    if not len(key):
        return key, 1
    least, most = int(key.min()), int(key.max())
    if most - least < _NEAR:
        return key - least, most - least + 1
    known, ranks = np.unique(key, return_inverse=True)
    return ranks.astype(np.int64, copy=False), len(known)


def _ranks_of_texts(key: pa.Array) -> tuple[Integers, int]:
    if not pa.types.is_dictionary(key.type):
        key = key.dictionary_encode()
    names = key.dictionary
    ranks = np.empty(len(names) + 1, np.int64)
    ranks[np.asarray(pc.sort_indices(names))] = np.arange(len(names))
    ranks[-1] = len(names)
    if not key.indices.null_count:
        return ranks[np.asarray(key.indices)], max(1, len(names))
    return ranks[np.asarray(key.indices.fill_null(len(names)))], len(names) + 1
