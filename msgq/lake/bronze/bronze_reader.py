"""Reads the messages of a lake in this process, without workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.errors import RecordingError
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.data_file import DataFile
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS, INGEST_COLUMNS
from msgq.lake.message_filter import MessageFilter
from msgq.lake.table_snapshot import TableSnapshot
from msgq.lake.text_columns import TextColumn, make_text_column, subtract_texts

_UNCHECKED_FILES_MAX = 16  # opening so many files costs less than reading the ranges


class BronzeReader:
    """Messages of one version of a lake. One thread at a time.

    Attributes:
        table: the table of messages.
    """

    def __init__(self, lake: LakeDirectory, version: int | None = None) -> None:
        """Set the lake. `version`: version of the table of messages to read; None: the newest."""
        self.table = open_messages_table(lake)
        self._lake, self._version = lake, version
        self._aggregates = AggregateStore(lake)

    def list_paths(self, filters: Sequence[MessageFilter] = (MessageFilter(),)) -> list[str]:
        """Return the bronze files that may have a message that passes a filter.

        The statistics of the Delta log select files by log_time and by the range of endpoint names. The ranges of the
        aggregate store then select files by the endpoints themselves.

        Raises:
            RecordingError: the version that was asked for can no longer be read.
        """
        snapshot = self.read_snapshot()
        return [] if snapshot is None else self.select_paths(snapshot, filters)

    def select_paths(self, snapshot: TableSnapshot, filters: Sequence[MessageFilter]) -> list[str]:
        """As `list_paths`, for a snapshot that was read before."""
        paths: dict[str, None] = {}
        for message_filter in (message_filter for message_filter in filters if not message_filter.selects_nothing):
            found = snapshot.find_paths(message_filter.column_bounds)
            if message_filter.endpoints is not None and len(found) > _UNCHECKED_FILES_MAX:
                found = self._aggregates.select_bronze_files(found, message_filter)
            paths.update(dict.fromkeys(found))
        self._check_files_exist(paths)
        return list(paths)

    def check_files(self, snapshot: TableSnapshot, filters: Sequence[MessageFilter]) -> None:
        """Check that the files of an earlier version exist that may have a message that passes a filter.

        Raises:
            RecordingError: the version that was asked for can no longer be read.
        """
        if self._version is not None:
            self.select_paths(snapshot, filters)

    def read_snapshot(self) -> TableSnapshot | None:
        """Return the asked version of the table of messages; None: the lake has no messages."""
        if self._version is None:
            return self.table.read_snapshot()
        if self._version < (oldest := self.table.log.find_oldest_version()):
            raise RecordingError(
                f"version {self._version} of lake '{self._lake.uri}' can no longer be read: `optimize` removed versions"
                f" older than {oldest}; read a newer version"
            )
        snapshot = self.table.read_snapshot(self._version)
        if snapshot is None:
            raise RecordingError(f"lake '{self._lake.uri}' has no version {self._version}: it contains no messages yet")
        return snapshot

    def _check_files_exist(self, paths: Iterable[str] | TextColumn) -> None:
        """Check that nobody removed files of an earlier version. Raises RecordingError."""
        if self._version is None:
            return
        replaced = subtract_texts(make_text_column(paths), self.list_bronze_files()).to_pylist()
        if removed := [path for path in replaced if not self._lake.has_entry(f"messages/{path}")]:
            text = f"version {self._version} of lake '{self._lake.uri}' can no longer be read"
            raise RecordingError(
                f"{text}: {len(removed)} of its files were merged into other files and removed; read a newer version"
            )

    def list_bronze_files(self) -> TextColumn:
        """Return the paths of the current files in the table of messages."""
        snapshot = self.table.read_snapshot()
        return make_text_column(()) if snapshot is None else snapshot.path_column

    def read_version(self) -> int:
        """Return the number of the last commit of messages; -1: none."""
        return self.table.log.read_newest_version()

    def open_dataset(self) -> ds.Dataset | pa.Table:
        """Return all messages with the columns `BRONZE_COLUMNS`, for queries."""
        snapshot = self.read_snapshot()
        if snapshot is None:
            return BRONZE_COLUMNS.empty_table()
        self._check_files_exist(snapshot.path_column)
        return snapshot.open_dataset()

    def list_endpoints(self) -> list[str]:
        """Return the sorted names of all endpoints with messages."""
        snapshot = self.read_snapshot()
        if snapshot is None:
            return []
        bronze_files = snapshot.path_column
        self._check_files_exist(bronze_files)
        ranges = self._aggregates.read_endpoints(bronze_files)
        missing = self._aggregates.find_missing_aggregates(bronze_files)  # an ingest was killed before it wrote them
        rows = self.table.read_rows(sorted(missing), INGEST_COLUMNS, names=["endpoint"])
        return sorted({*ranges, *rows.column("endpoint").unique().to_pylist()})

    def find_start_time(self) -> int | None:
        """Return the smallest log_time of all messages; None: the lake has no messages."""
        snapshot = self.read_snapshot()
        if snapshot is None:
            return None
        indexed_time, others = snapshot.find_smallest_value("log_time")
        first = pc.min(self.table.read_rows(others, INGEST_COLUMNS, names=["log_time"]).column("log_time")).as_py()
        return min((time for time in (indexed_time, first) if time is not None), default=None)

    def select_files(self, message_filter: MessageFilter) -> list[DataFile]:
        """Return the files that may have a message that passes a filter, in the order of their first messages."""
        snapshot = self.read_snapshot()
        if snapshot is None:
            return []
        return sorted(snapshot.describe_files(self.select_paths(snapshot, [message_filter])), key=get_time_order)

    def read_batches(
        self,
        files: Iterable[DataFile],
        message_filter: MessageFilter,
        names: Sequence[str],
        report_bytes: Callable[[float], None] = lambda _: None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the messages of files that pass a filter. The memory does not grow with the number of messages.

        Within a file, messages have the order of the file.

        Args:
            files: files from `select_files`.
            names: columns to read, of `INGEST_COLUMNS`.
            report_bytes: gets the bytes of the files that were read, after each row group.
        """
        begin = 0
        for file in files:  # not as one dataset, which keeps the metadata of each file in memory
            place = self.table.resolve_file_path(file.path)
            rows = ds.dataset([place], schema=INGEST_COLUMNS, format="parquet", filesystem=self._lake.files)
            [whole] = rows.get_fragments()
            groups = whole.split_by_row_group(message_filter.expression, INGEST_COLUMNS)
            for number, group in enumerate(groups, 1):
                yield from group.to_batches(
                    INGEST_COLUMNS, columns=list(names), filter=message_filter.expression, batch_readahead=1
                )
                report_bytes(begin + number / len(groups) * file.size_bytes)
            begin += file.size_bytes
            report_bytes(begin)


def get_time_order(file: DataFile) -> tuple[int, str]:
    """Return a sort key for bronze files: the smallest log_time, 0 if the Delta log does not have it."""
    return file.column_bounds.get("log_time", (0, 0))[0], file.path
