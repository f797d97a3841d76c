"""Reads gold tables in pieces, and aggregates them to the size of the page.

The memory for a piece and the aggregates does not grow with the lake.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from msgq.common.units import NS_PER_S
from msgq.lake.batching import combine_batches
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.metrics.saturating_time import limit_time

#: Gives a table by its name, those of gold and "messages"; None: there is none.
TableOpener = Callable[[str], "ds.Dataset | None"]

_READ_PIECE_ROWS = 1 << 17
_READ_PIECE_BYTES = 64 << 20


def open_lake_tables(lake: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> TableOpener:
    """Return a function that opens tables of a lake in their current version.

    Args:
        lake: path or URL.
        storage_options: credentials and settings of the URL's object store; None: the environment has them.
    """
    directory = LakeDirectory(lake, storage_options)

    def open_table(name: str) -> ds.Dataset | None:
        snapshot = LakeTable(directory, name if name == "messages" else f"gold/{name}").read_snapshot()
        return None if snapshot is None else snapshot.open_dataset()

    return open_table


class GoldReader:
    """Gold tables of some runs. One thread at a time."""

    def __init__(self, tables: TableOpener, runs: Sequence[str] = ()) -> None:
        """Set the tables. `runs`: runs to read; empty: all."""
        self._tables = tables
        self._where = ds.field("run").isin(list(runs)) if runs else None

    def read_rows(self, name: str, columns: Sequence[str], where: Any = None) -> pa.Table:
        """Return the rows of a table that is small, or is made small by `where`; empty if the table does not exist."""
        pieces = list(self.iterate_pieces(name, columns, where))
        return pa.concat_tables(pieces) if pieces else _make_empty_table(columns)

    def read_messages(
        self, columns: Sequence[str], run: str, endpoints: Iterable[str], spans: Sequence[tuple[int, int]]
    ) -> pa.Table:
        """Return messages of some endpoints of a run, in any order.

        Args:
            columns: columns of the table `messages` to read.
            run: run of the messages.
            endpoints: endpoints of the messages.
            spans: ranges of log_time, ns. Each end is excluded, and may exceed 64 bits.
        """
        where = (ds.field("run") == run) & ds.field("endpoint").isin(pa.array(endpoints, pa.string()))
        inside = (_make_span_filter(limit_time(begin), limit_time(end - 1)) for begin, end in spans)
        return self.read_rows("messages", columns, where & reduce(or_, inside, ds.scalar(False)))

    def aggregate_rows(
        self,
        name: str,
        columns: Sequence[str],
        keys: Sequence[str],
        aggregations: Mapping[str, str],
        prepare: Callable[[pa.Table], pa.Table] = lambda piece: piece,
        order: Sequence[str] = (),
    ) -> pa.Table:
        """Return the aggregated rows of a table.

        Args:
            columns: columns to read.
            keys: the result has a row for each combination of these columns.
            aggregations: aggregation of other columns: "sum", "min", "max"; "last" in the order of `order`.
            prepare: converts a piece with `columns` to a piece with the columns in `keys` and `aggregations`.
        """

        def add_to_totals(rows: pa.Table) -> pa.Table:
            return aggregate_by_keys(
                rows.sort_by([(name, "ascending") for name in order]) if order else rows, keys, aggregations
            )

        sums: list[pa.Table] = []
        for piece in self.iterate_pieces(name, columns):
            sums.append(add_to_totals(prepare(piece)))
            if sum(part.num_rows for part in sums) > 2 * _READ_PIECE_ROWS:
                sums = [add_to_totals(pa.concat_tables(sums))]
        return add_to_totals(pa.concat_tables(sums)) if sums else _make_empty_table([*keys, *aggregations])

    def iterate_pieces(self, name: str, columns: Sequence[str], where: Any = None) -> Iterator[pa.Table]:
        """Yield the rows of a table in pieces of limited size; at least one piece if the table exists."""
        table = self._tables(name)
        if table is None:
            return
        both = where if self._where is None else self._where if where is None else self._where & where
        scanner = table.scanner(columns=list(columns), filter=both, batch_size=_READ_PIECE_ROWS)
        yield scanner.projected_schema.empty_table()
        yield from combine_batches(scanner.to_batches(), _READ_PIECE_ROWS, _READ_PIECE_BYTES)


def aggregate_by_keys(table: pa.Table, keys: Sequence[str], aggregations: Mapping[str, str]) -> pa.Table:
    """Return aggregated rows with the same column names. `aggregations`: pyarrow functions of other columns."""
    groups = table.group_by(list(keys), use_threads=False).aggregate(list(aggregations.items()))
    chosen = groups.select([*keys, *(f"{name}_{function}" for name, function in aggregations.items())])
    return chosen.rename_columns([*keys, *aggregations])


def _make_span_filter(first: int, last: int) -> Any:
    """Return a filter for messages with a log_time from `first` to `last`, ns, which reads only files of these days."""
    time, date = ds.field("log_time"), ds.field("date").cast("string")
    first_day, last_day = (datetime.fromtimestamp(each // NS_PER_S, UTC).date().isoformat() for each in (first, last))
    return (time >= first) & (time <= last) & (date >= first_day) & (date <= last_day)


def _make_empty_table(columns: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.nulls(0, pa.int64()) for name in columns})
