"""Tables of gold as the page reads them: piece by piece, added up to what fits a picture.

What is in memory at once does not grow with the lake: a piece, and what its rows and those before it add up to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from msgq.lake.batching import combine_batches
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory

#: Gives a table by its name, those of gold and "messages"; None: there is none.
TableOpener = Callable[[str], "ds.Dataset | None"]

_READ_PIECE_ROWS = 1 << 17
_READ_PIECE_BYTES = 64 << 20


def open_lake_tables(lake: str | os.PathLike[str]) -> TableOpener:
    """Return the tables of a lake, each as it is when it is asked for. lake : a path or URI."""
    directory = LakeDirectory(lake)

    def open_table(name: str) -> ds.Dataset | None:
        snapshot = LakeTable(directory, name if name == "messages" else f"gold/{name}").read_snapshot()
        return None if snapshot is None else snapshot.open_dataset()

    return open_table


class GoldReader:
    """Tables, of some runs. For one thread."""

    def __init__(self, tables: TableOpener, runs: Sequence[str] = ()) -> None:
        """runs : only these; none: all."""
        self._tables = tables
        self._where = ds.field("run").isin(list(runs)) if runs else None

    def read_rows(self, name: str, columns: Sequence[str], where: Any = None) -> pa.Table:
        """Return the rows of a table that is small, or made so by `where`; none where there is no such table."""
        pieces = list(self.iterate_pieces(name, columns, where))
        return pa.concat_tables(pieces) if pieces else _make_empty_table(columns)

    def aggregate_rows(
        self,
        name: str,
        columns: Sequence[str],
        keys: Sequence[str],
        how: Mapping[str, str],
        prepare: Callable[[pa.Table], pa.Table] = lambda piece: piece,
        order: Sequence[str] = (),
    ) -> pa.Table:
        """Return what the rows of a table add up to.

        Parameters
        ----------
        columns : of the table.
        keys : a row for each combination of these.
        how : what becomes of other columns: "sum", "min", "max"; "last" by the columns in `order`.
        prepare : makes, of a piece with `columns`, one that has the columns named in `keys` and `how`.
        """

        def add_to_totals(rows: pa.Table) -> pa.Table:
            return aggregate_by_keys(
                rows.sort_by([(name, "ascending") for name in order]) if order else rows, keys, how
            )

        sums: list[pa.Table] = []
        for piece in self.iterate_pieces(name, columns):
            sums.append(add_to_totals(prepare(piece)))
            if sum(part.num_rows for part in sums) > 2 * _READ_PIECE_ROWS:
                sums = [add_to_totals(pa.concat_tables(sums))]
        return add_to_totals(pa.concat_tables(sums)) if sums else _make_empty_table([*keys, *how])

    def iterate_pieces(self, name: str, columns: Sequence[str], where: Any = None) -> Iterator[pa.Table]:
        """Give the rows of a table in pieces of some size; at least one, unless there is no such table."""
        table = self._tables(name)
        if table is None:
            return
        both = where if self._where is None else self._where if where is None else self._where & where
        scanner = table.scanner(columns=list(columns), filter=both, batch_size=_READ_PIECE_ROWS)
        yield scanner.projected_schema.empty_table()
        yield from combine_batches(scanner.to_batches(), _READ_PIECE_ROWS, _READ_PIECE_BYTES)


def aggregate_by_keys(table: pa.Table, keys: Sequence[str], how: Mapping[str, str]) -> pa.Table:
    """Return what rows add up to, with the same names of columns. how : of other columns, as pyarrow calls it."""
    groups = table.group_by(list(keys), use_threads=False).aggregate(list(how.items()))
    chosen = groups.select([*keys, *(f"{name}_{function}" for name, function in how.items())])
    return chosen.rename_columns([*keys, *how])


def _make_empty_table(columns: Sequence[str]) -> pa.Table:
    return pa.table({name: pa.nulls(0, pa.int64()) for name in columns})
