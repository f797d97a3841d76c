"""Combines small batches and small objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow as pa

_T = TypeVar("_T")
_ResultT = TypeVar("_ResultT")
_TABLE_THREADS = 4


def combine_batches(batches: Iterable[pa.RecordBatch], rows_min: int, bytes_min: int) -> Iterator[pa.Table]:
    """Yield combined batches of at least `rows_min` rows, or of at least `bytes_min` bytes in their column `data`."""
    waiting: list[pa.RecordBatch] = []
    count = used = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        waiting.append(batch)
        large = batch.column("data") if "data" in batch.schema.names else batch
        count, used = count + batch.num_rows, used + large.nbytes
        if count >= rows_min or used >= bytes_min:
            yield pa.Table.from_batches(waiting)
            waiting, count, used = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def call_for_each(function: Callable[[_T], _ResultT], items: Iterable[_T]) -> dict[_T, _ResultT]:
    """Call a function for each item, in a few threads, and return the results by item. For tables of a lake."""
    keys = list(items)
    with ThreadPoolExecutor(_TABLE_THREADS) as pool:
        return dict(zip(keys, pool.map(function, keys), strict=True))


def pack_by_size(sized: Iterable[tuple[_T, int]], room: int) -> Iterator[list[_T]]:
    """Yield objects in their order, in groups of at most `room`. A larger object forms its own group."""
    group: list[_T] = []
    remaining = room
    for item, size in sized:
        if group and size > remaining:
            yield group
            group, remaining = [], room
        group.append(item)
        remaining -= size
    if group:
        yield group
