"""Bronze files: Parquet files of messages, and their aggregates, written by workers without Java.

A bronze file has one date and class. The row groups of a bronze file are sorted by run, endpoint, epoch, schema and
log_time. Readers can therefore skip row groups by their statistics. Workers write into the directories of the tables,
and a commit adds the files to the tables. Files that remain after a kill belong to no table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from msgq.common.units import NS_PER_DAY
from msgq.lake.aggregate_store import (
    RANGES_TABLE,
    add_bronze_file_column,
    get_bronze_file_stem,
    make_aggregate_file_name,
    make_aggregate_file_stem,
    open_aggregate_table,
)
from msgq.lake.batching import combine_batches
from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA, compute_row_group_ranges, sort_rows_by_range
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import INGEST_COLUMNS
from msgq.lake.metrics.images import detect_pictures
from msgq.lake.metrics.partial_aggregates import compute_aggregates

_LARGE_PAYLOAD_BYTES = 64 << 10  # payloads from here on are apart: a row group of small ones has many rows
_ROW_GROUP_ROWS = 512 << 10
_ROW_GROUP_BYTES = 64 << 20  # bytes of payloads in a row group
_OPEN_BRONZE_FILES_MAX = 200  # bronze files at a time
_LARGE_ROW_GROUP_BYTES = 8 << 20  # the same for large payloads: a reader of few pictures holds a whole row group
_DICTIONARY_ENCODED_COLUMNS = ("run", "host", "endpoint", "encoding", "schema", "kind", "publisher", "key", "options")
_DELTA_ENCODED_COLUMNS = ("sequence", "publish_time", "log_time", "origin_time")  # these grow little from row to row


def open_messages_table(lake: LakeDirectory) -> LakeTable:
    """Return the table of all messages of a lake."""
    return LakeTable(lake, "messages", ["date", "size_class"], has_statistics=True)


@dataclass(slots=True)
class UncommittedFiles:
    """Files that workers have written and that are not committed.

    Attributes:
        bronze_files: files of the table of messages.
        aggregate_files: files of the aggregate store, by table name.
        row_group_ranges: ranges of the bronze files.
    """

    bronze_files: list[DataFile] = field(default_factory=list)
    aggregate_files: dict[str, list[DataFile]] = field(default_factory=dict)
    row_group_ranges: pa.Table = field(default_factory=RANGES_SCHEMA.empty_table)

    def add_files(self, other: UncommittedFiles) -> None:
        """Add the files of another object."""
        self.bronze_files += other.bronze_files
        for name, files in other.aggregate_files.items():
            self.aggregate_files.setdefault(name, []).extend(files)
        self.row_group_ranges = pa.concat_tables([self.row_group_ranges, other.row_group_ranges])

    def split_by_bronze_files(self, bronze_files: set[str]) -> tuple[UncommittedFiles, UncommittedFiles]:
        """Return the files of these bronze files, and the other files."""
        stems = set(map(make_aggregate_file_stem, bronze_files))
        chosen = pc.is_in(self.row_group_ranges.column("bronze_file"), pa.array(sorted(bronze_files), pa.string()))
        halves = []
        for is_chosen, ranges in (
            (True, self.row_group_ranges.filter(chosen)),
            (False, self.row_group_ranges.filter(pc.invert(chosen))),
        ):
            files = [file for file in self.bronze_files if (file.path in bronze_files) == is_chosen]
            aggregates = {
                name: [file for file in files if (get_bronze_file_stem(file.path) in stems) == is_chosen]
                for name, files in self.aggregate_files.items()
            }
            halves.append(UncommittedFiles(files, aggregates, ranges))
        return halves[0], halves[1]


def write_bronze(batches: Iterable[pa.RecordBatch], lake: LakeDirectory) -> UncommittedFiles:
    """Write messages into new bronze files, and write their aggregates.

    `batches`: batches with the columns `INGEST_COLUMNS`.
    """
    writers = _PartitionWriters(lake)
    try:
        for table in combine_batches(batches, _ROW_GROUP_ROWS, _ROW_GROUP_BYTES):
            writers.write_rows(table)
    finally:
        writers.close()
    return writers.written


def rebuild_aggregates(lake: LakeDirectory, bronze_file: str) -> UncommittedFiles:
    """Write the aggregates of an existing bronze file.

    The files have unique names, because other processes may do the same.
    """
    aggregates = _AggregateWriter(lake, bronze_file, is_rebuilt=True)
    with pq.ParquetFile(open_messages_table(lake).resolve_file_path(bronze_file), filesystem=lake.files) as file:
        for group in range(file.num_row_groups):
            table = _dictionary_encode_texts(file.read_row_group(group))
            order, starts, repeats = sort_rows_by_range(table)
            aggregates.add_row_group(table.take(pa.array(order)), starts, repeats)
    return aggregates.write_files()


def merge_bronze_files(lake: LakeDirectory, bronze_files: Sequence[str]) -> UncommittedFiles:
    """Write new bronze files with the messages of others, in their order."""
    table = open_messages_table(lake)

    def iterate_batches() -> Iterator[pa.RecordBatch]:
        for bronze_file in bronze_files:
            with pq.ParquetFile(table.resolve_file_path(bronze_file), filesystem=lake.files) as file:
                for group in range(file.num_row_groups):
                    yield from file.read_row_group(group, INGEST_COLUMNS.names).to_batches()

    return write_bronze(iterate_batches(), lake)


class _PartitionWriters:
    """Open bronze files: one for each date and class of the latest messages."""

    def __init__(self, lake: LakeDirectory) -> None:
        self._lake, self._table = lake, open_messages_table(lake)
        self._open_files: dict[str, _OpenBronzeFile] = {}
        self._file_metadata: list[pq.FileMetaData] = []
        self.written = UncommittedFiles()

    def write_rows(self, table: pa.Table) -> None:
        """Write rows into the bronze files of their dates and classes.

        Each file gets one row group, or several for large payloads.
        """
        table = _dictionary_encode_texts(table)
        sizes = pc.binary_length(table.column("data")).cast(pa.int64())
        for name, column in (
            ("size_bytes", sizes),
            ("picture", detect_pictures(table.column("data"), table.column("schema"))),
        ):
            table = table.drop([name] if name in table.column_names else []).append_column(name, column)
        day = np.asarray(table.column("log_time"), np.int64) // NS_PER_DAY
        large = np.asarray(sizes) >= _LARGE_PAYLOAD_BYTES
        for date in np.unique(day).tolist():
            for kind, chosen in (("small", ~large & (day == date)), ("large", large & (day == date))):
                if chosen.any():
                    rows = table if chosen.all() else table.filter(pa.array(chosen))
                    self._write_partition(rows, f"date={np.datetime64(date, 'D')}/size_class={kind}")

    def _write_partition(self, table: pa.Table, folder: str) -> None:
        order, starts, repeats = sort_rows_by_range(table)
        table = table.take(pa.array(order))
        file = self._open_files.pop(folder, None) or self._open_bronze_file(
            f"{folder}/{uuid4().hex}.parquet", table.schema
        )
        self._open_files[folder] = file  # most recently used file
        for rows in _split_row_groups(table):
            file.parquet_writer.write_table(rows, row_group_size=max(1, rows.num_rows))
        file.aggregate_writer.add_row_group(table, starts, repeats)

    def _open_bronze_file(self, bronze_file: str, columns: pa.Schema) -> _OpenBronzeFile:
        while len(self._open_files) >= _OPEN_BRONZE_FILES_MAX:
            self._close_bronze_file(next(iter(self._open_files)))
        self._table.create_folder_of(bronze_file)
        writer = pq.ParquetWriter(
            self._table.resolve_file_path(bronze_file),
            columns,
            filesystem=self._lake.files,
            compression="zstd",
            compression_level=1,
            use_dictionary=[*_DICTIONARY_ENCODED_COLUMNS, "epoch", "schema_id", "size_bytes", "picture"],
            column_encoding=dict.fromkeys(_DELTA_ENCODED_COLUMNS, "DELTA_BINARY_PACKED"),
            store_schema=False,  # readers get text columns, and not the dictionaries of the writer
            metadata_collector=self._file_metadata,
            write_statistics=[name for name in columns.names if name != "data"],
        )
        return _OpenBronzeFile(bronze_file, writer, _AggregateWriter(self._lake, bronze_file))

    def _close_bronze_file(self, folder: str) -> None:
        file = self._open_files.pop(folder)
        file.parquet_writer.close()
        self.written.add_files(UncommittedFiles([self._table.describe_file(file.bronze_file, self._file_metadata[-1])]))
        self.written.add_files(file.aggregate_writer.write_files())

    def close(self) -> None:
        """Complete the bronze files."""
        for folder in list(self._open_files):
            self._close_bronze_file(folder)


class _AggregateWriter:
    """Writes the aggregates of a bronze file: one file for each table with rows."""

    def __init__(self, lake: LakeDirectory, bronze_file: str, is_rebuilt: bool = False) -> None:
        self._lake, self._bronze_file, self._name = lake, bronze_file, make_aggregate_file_name(bronze_file, is_rebuilt)
        self._ranges: list[pa.RecordBatch] = []
        self._rows: dict[str, list[pa.Table]] = {}

    def add_row_group(self, rows: pa.Table, starts: np.ndarray, repeats: np.ndarray) -> None:
        """Compute and add the aggregates of a row group."""
        self._ranges.append(compute_row_group_ranges(rows, self._bronze_file, starts, repeats))
        for name, aggregates in compute_aggregates(rows).items():
            if aggregates.num_rows:
                self._rows.setdefault(name, []).append(add_bronze_file_column(aggregates, self._bronze_file))

    def write_files(self) -> UncommittedFiles:
        """Write the files. The ranges are written last, and mark the others as complete."""
        files = {name: [self._write_aggregate_file(name, rows)] for name, rows in self._rows.items()}
        ranges = pa.Table.from_batches(self._ranges, RANGES_SCHEMA)
        return UncommittedFiles(
            [], files | {RANGES_TABLE: [self._write_aggregate_file(RANGES_TABLE, [ranges])]}, ranges
        )

    def _write_aggregate_file(self, name: str, rows: Sequence[pa.Table]) -> DataFile:
        return open_aggregate_table(self._lake, name).write_file(self._name, pa.concat_tables(rows))


class _OpenBronzeFile(NamedTuple):
    """A bronze file during writing."""

    bronze_file: str
    parquet_writer: pq.ParquetWriter
    aggregate_writer: _AggregateWriter


def _split_row_groups(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a bronze file in groups: one group, or several for large payloads."""
    sizes = np.asarray(table.column("size_bytes"), np.int64)
    if len(sizes) and sizes[0] < _LARGE_PAYLOAD_BYTES:  # all payloads of a file are small, or all are large
        yield table
        return
    group = (np.cumsum(sizes) - sizes) // _LARGE_ROW_GROUP_BYTES
    starts = np.flatnonzero(np.diff(group, prepend=-1)).tolist()
    for start, end in zip(starts, [*starts[1:], len(sizes)], strict=True):
        yield table.slice(start, end - start)


def _dictionary_encode_texts(table: pa.Table) -> pa.Table:
    """Return the table with texts as dictionaries, and each column in one chunk."""
    for name in _DICTIONARY_ENCODED_COLUMNS:
        index = table.schema.get_field_index(name)
        if not pa.types.is_dictionary(table.schema.types[index]):
            table = table.set_column(index, name, table.column(name).dictionary_encode())
    return table.unify_dictionaries().combine_chunks()
