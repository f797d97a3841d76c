"""Sorting of rows that exceed the memory: workers write sorted runs, and one reader merges them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.batching import combine_batches
from msgq.lake.lake_directory import LakeDirectory

#: A row per run: the file, the value of the first sort column in the first row, and the number of rows.
SORTED_RUN_SCHEMA = pa.schema([("name", pa.string()), ("first", pa.int64()), ("row_count", pa.int64())])
_SORTED_RUN_ROWS = 512 << 10
_SORTED_RUN_BYTES = 64 << 20  # bytes of payloads in a sorted run
_RUN_BATCH_BYTES = 1 << 20  # bytes of a run in memory during a merge, but at least one row
_RunRow = dict[str, Any]


def write_sorted_runs(
    batches: Iterable[pa.RecordBatch], order: Sequence[str], lake: LakeDirectory, place: str
) -> Iterator[pa.RecordBatch]:
    """Write rows with a column `data` as sorted runs, and yield their `SORTED_RUN_SCHEMA`.

    `place`: directory of the runs.
    """
    for rows in combine_batches(batches, _SORTED_RUN_ROWS, _SORTED_RUN_BYTES):
        yield _write_sorted_run(rows, order, lake, place)


def _write_sorted_run(rows: pa.Table, order: Sequence[str], lake: LakeDirectory, place: str) -> pa.RecordBatch:
    keys = [(name, "ascending") for name in order]
    rows = rows.take(pc.sort_indices(rows, keys))
    name = f"{uuid4().hex}.arrow"
    lake.create_folder(place)
    with (
        lake.files.open_output_stream(lake.resolve_path(f"{place}/{name}")) as sink,
        pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as run,
    ):
        run.write_table(rows, max_chunksize=max(1, rows.num_rows * _RUN_BATCH_BYTES // max(1, rows.nbytes)))
    run_info = {"name": [name], "first": [rows.column(order[0])[0].as_py()], "row_count": [rows.num_rows]}
    return pa.RecordBatch.from_pydict(run_info, SORTED_RUN_SCHEMA)


def merge_sorted_runs(runs: pa.Table, order: Sequence[str], lake: LakeDirectory, place: str) -> Iterator[_RunRow]:
    """Yield the rows of all runs in order. One batch of each started run is in memory.

    `order`: columns to sort by. NULL comes last. The first column is never NULL.
    """
    waiting = sorted(zip(*(runs.column(name).to_pylist() for name in ("first", "name")), strict=True), reverse=True)
    heads: list[tuple[tuple[Any, ...], int, _RunRow, Iterator[_RunRow]]] = []
    number = 0  # decides between equal rows, so that nothing else is compared

    def push_next_row(rows: Iterator[_RunRow]) -> None:
        nonlocal number
        row = next(rows, None)
        if row is not None:
            number += 1
            heappush(heads, (tuple((row[name] is None, row[name]) for name in order), number, row, rows))

    while heads or waiting:
        while waiting and (not heads or waiting[-1][0] <= heads[0][0][0][1]):
            push_next_row(_read_sorted_run(lake, f"{place}/{waiting.pop()[1]}"))
        _, _, row, following = heappop(heads)
        yield row
        push_next_row(following)


def _read_sorted_run(lake: LakeDirectory, path: str) -> Iterator[_RunRow]:
    with lake.files.open_input_stream(lake.resolve_path(path)) as source, pa.ipc.open_stream(source) as run:
        for batch in run:
            yield from batch.to_pylist()
