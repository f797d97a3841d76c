"""One version of a Delta table. Selections work on Arrow columns, because a table may have 100,000s of files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from pyarrow.fs import FileSystem

from msgq.lake.data_file import DataFile
from msgq.lake.text_columns import TextColumn, make_text_column

#: Application id of msgq's commits. Delta refuses the second of two commits with this id on one snapshot.
TRANSACTION_APPLICATION_ID = "msgq"
_NULL_COUNT_PREFIX = "null_count."


class TableSnapshot:
    """One version of a table. Any thread may use it."""

    def __init__(self, delta: DeltaTable, files: FileSystem) -> None:
        """Set the version. `files`: file system of the table's directory."""
        self._delta, self._files = delta, files

    @property
    def delta_table(self) -> DeltaTable:
        """The version in delta-rs. Callers must not change this object."""
        return self._delta

    @property
    def version(self) -> int:
        """Number of the commit that created the version."""
        return self._delta.version()

    @cached_property
    def table_id(self) -> str:
        """Identifier of the table. A table that is deleted and created again has another identifier."""
        return str(self._delta.metadata().id)

    @cached_property
    def columns(self) -> pa.Schema:
        """Columns of the table, including partition columns."""
        return pa.schema(self._delta.schema().to_arrow())

    @cached_property
    def _add_actions(self) -> pa.Table:
        """A row for each file: path, size_bytes, num_records, partition values, and bounds of columns."""
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        return actions.select([name for name in actions.column_names if not name.startswith(_NULL_COUNT_PREFIX)])

    @property
    def path_column(self) -> pa.ChunkedArray:
        """Paths of the files."""
        return self._add_actions.column("path").cast(pa.string())

    @property
    def file_count(self) -> int:
        """Number of files."""
        return int(self._add_actions.num_rows)

    @property
    def size_bytes(self) -> int:
        """Number of bytes of all files."""
        return pc.sum(self._add_actions.column("size_bytes")).as_py() or 0

    @property
    def row_count(self) -> int:
        """Number of rows of all files."""
        return pc.sum(self._add_actions.column("num_records")).as_py() or 0

    @cached_property
    def paths(self) -> list[str]:
        """Paths of the files as Python objects, for tables with few files."""
        paths: list[str] = self.path_column.to_pylist()
        return paths

    def select_existing_paths(self, paths: Iterable[str] | TextColumn) -> list[str]:
        """Return those of some paths that are files of the version."""
        column = self.path_column
        existing: list[str] = column.filter(pc.is_in(column, make_text_column(paths))).to_pylist()
        return existing

    def find_paths(self, column_bounds: Mapping[str, tuple[Any, Any]]) -> list[str]:
        """Return the paths of the files that may have a row with values in these bounds.

        A file without statistics of a column may have any value.

        Args:
            column_bounds: smallest and largest wanted value of columns, both included; None: no bound.
        """
        actions = self._add_actions
        masks = [
            pc.fill_null(compare(actions.column(name), pa.scalar(bound)), True)
            for column, (low, high) in column_bounds.items()
            for statistic, bound, compare in (("max", low, pc.greater_equal), ("min", high, pc.less_equal))
            if bound is not None and (name := f"{statistic}.{column}") in actions.column_names
        ]
        chosen = self.path_column.filter(reduce(pc.and_, masks)) if masks else self.path_column
        paths: list[str] = chosen.to_pylist()
        return paths

    def find_smallest_value(self, column: str) -> tuple[Any, list[str]]:
        """Return the smallest value of a column by the statistics, and the paths of the files without statistics."""
        bounds, others = self._split_bounds(f"min.{column}")
        return pc.min(bounds).as_py(), others

    def find_largest_value(self, column: str) -> tuple[Any, list[str]]:
        """As `find_smallest_value`, for the largest value."""
        bounds, others = self._split_bounds(f"max.{column}")
        return pc.max(bounds).as_py(), others

    def _split_bounds(self, name: str) -> tuple[pa.ChunkedArray, list[str]]:
        """Return a column of statistics, and the paths of the files without the statistic."""
        actions = self._add_actions
        if name not in actions.column_names:
            return pa.chunked_array([], pa.null()), self.paths
        bounds = actions.column(name)
        return bounds, actions.column("path").filter(pc.is_null(bounds)).to_pylist()

    @cached_property
    def files_by_path(self) -> dict[str, DataFile]:
        """Files by path, for tables with few files."""
        return {file.path: file for file in self.describe_files()}

    def describe_files(
        self, paths: Iterable[str] | TextColumn | None = None, size_limit: int | None = None
    ) -> list[DataFile]:
        """Return descriptions of the files with some paths, and with fewer bytes than `size_limit`; None: all."""
        actions = self._add_actions
        if paths is not None:
            actions = actions.filter(pc.is_in(self.path_column, make_text_column(paths)))
        if size_limit is not None:
            actions = actions.filter(pc.less(actions.column("size_bytes"), size_limit))
        names = [name for name in actions.column_names if name.startswith("partition.")]
        bounded = [name.removeprefix("min.") for name in actions.column_names if name.startswith("min.")]
        bounds = [f"{statistic}.{name}" for name in bounded for statistic in ("min", "max")]
        return [
            DataFile(
                row["path"],
                row["size_bytes"],
                {name.removeprefix("partition."): _format_optional_text(row[name]) for name in names},
                row["num_records"] or 0,
                {
                    name: (row[f"min.{name}"], row[f"max.{name}"])
                    for name in bounded
                    if row[f"min.{name}"] is not None and row[f"max.{name}"] is not None
                },
            )
            for row in actions.select(["path", "size_bytes", "num_records", *names, *bounds]).to_pylist()
        ]

    def list_files(self, paths: Iterable[str] | TextColumn) -> list[dict[str, Any]]:
        """Return a dictionary for each of the files with some paths.

        The keys are `path`, `size_bytes`, `modification_time` (ms since the epoch), and `partition.NAME` of columns.
        """
        actions = self._add_actions
        names = [name for name in actions.column_names if name.startswith("partition.")]
        chosen = actions.select(["path", "size_bytes", "modification_time", *names])
        rows: list[dict[str, Any]] = chosen.filter(pc.is_in(self.path_column, make_text_column(paths))).to_pylist()
        return rows

    def open_dataset(self) -> ds.Dataset:
        """Return the rows as a dataset, for reading in batches, for example with DuckDB or Polars."""
        # The file system of delta-rs calls Python. If an Arrow thread closes such a file while Python ends, the process
        # aborts.
        rows: ds.Dataset = self._delta.to_pyarrow_dataset(filesystem=self._files)
        return rows

    def read_rows(self, columns: Sequence[str] | None = None, where: Any = None) -> pa.Table:
        """Return all rows, for small tables. `where`: an expression of `pyarrow.dataset.field`."""
        return self.open_dataset().to_table(columns=columns, filter=where)

    @property
    def commit_number(self) -> int:
        """Number of msgq's commits, without compactions; -1: none."""
        number = self._delta.transaction_version(TRANSACTION_APPLICATION_ID)
        return -1 if number is None else number


def _format_optional_text(value: Any) -> str | None:
    return None if value is None else str(value)
