"""Bronze tables of a lake, which contain each message once.

    LAKE/messages/date=.../size_class=.../*.parquet, a Delta table

Workers write bronze files into the directory of the table. Messages that the table already contains are omitted, and
one commit adds the new files. The aggregates are committed after the files. After a kill in between, the next writer
completes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow.compute as pc

from msgq.lake.aggregate_store import AggregateSnapshot
from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.bronze_reader import BronzeReader, get_time_order
from msgq.lake.bronze.bronze_writer import UncommittedFiles, merge_bronze_files, rebuild_aggregates
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.bronze.row_group_ranges import find_overlapping_files
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import CommitConflictError
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor, TaskResult
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.schema_texts import write_schemas
from msgq.lake.table_head import HeadAdvance, TableHead
from msgq.lake.table_snapshot import TableSnapshot
from msgq.lake.text_columns import TextColumn, make_text_column, subtract_texts
from msgq.recording.mcap_io.problem import Problem

_MERGED_BRONZE_FILE_BYTES = 128 << 20  # approximate size of a bronze file that is merged from small files
_MERGED_BRONZE_FILE_ROWS = 4 << 20  # a worker has aggregates of up to 150 bytes per row in memory
_SMALL_BRONZE_FILE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """Result of an optimization: number of message files before and after."""

    files_before: int
    files_after: int


class BronzeStore(BronzeReader):
    """Messages of a lake. Any number of writers and readers, each in one thread."""

    def __init__(self, lake: LakeDirectory, executor: LakeExecutor, version: int | None = None) -> None:
        """Set the lake. `version`: version of the table of messages to read; None: the newest."""
        super().__init__(lake, version)
        self._executor, self._ingest_log = executor, IngestLog(lake)

    # ---- reading ----

    def read_aggregates(self) -> AggregateSnapshot:
        """Return the current aggregates of all messages. Missing aggregates are completed first.

        Raises:
            RecordingError: a table cannot be written.
        """
        while True:
            self.complete_aggregates()
            base = self.table.read_snapshot()
            if base is None:  # another process has just removed the lake
                continue
            unchecked = self._aggregates.list_unchecked_files(base, self.table)
            aggregates = self._aggregates.read_snapshot(base.path_column, unchecked)
            now = self.table.read_snapshot()
            if aggregates is not None and now is not None and base.version == now.version:
                return aggregates

    def list_read_errors(self) -> list[Problem]:
        """Return the current read errors of all files, each once."""
        return self._ingest_log.list_read_errors()

    def find_ingested_files(self, files: Collection[IngestedFile]) -> set[IngestedFile]:
        """Return those of these files that were ingested in the same state."""
        return self._ingest_log.find_ingested_files(files)

    def read_version(self) -> int:
        """Return the number of the last commit of messages; -1: none."""
        advance = self._advance_complete_version()
        return super().read_version() if advance is None else advance.head.version

    def _advance_complete_version(self) -> HeadAdvance | None:
        """Return the newest version of messages, and its files after the last complete version; None: load the list."""
        complete = self._aggregates.find_complete_version()
        return None if complete is None else self.table.log.advance_head(complete)

    # ---- writing ----

    def complete_aggregates(self) -> TableHead | TableSnapshot:
        """Commit missing aggregates of bronze files. Creates the lake if necessary. Return the version of messages.

        If the log entries since the last call tell the new bronze files, the list of all files is not loaded.

        Raises:
            RecordingError: a table cannot be written.
        """
        advance = self._advance_complete_version()
        if advance is not None and {*BRONZE_COLUMNS.names} <= {*advance.head.column_names}:
            self._commit_missing_aggregates(make_text_column(advance.added_paths), advance.head)
            return advance.head
        while (base := self.table.read_snapshot()) is None:
            with suppress(CommitConflictError):  # another process has just created the table
                self.table.commit_files(None, BRONZE_COLUMNS)
        unchecked = self._aggregates.list_unchecked_files(base, self.table)
        self._commit_missing_aggregates(unchecked, self.table.log.make_head(base) or base)
        return base

    def optimize(self) -> OptimizeResult:
        """Merge small bronze files and their aggregates.

        Raises:
            RecordingError: a table cannot be written.
        """
        aggregates, now = self.read_aggregates(), self.table.read_snapshot()
        small = [] if now is None else now.describe_files(size_limit=_SMALL_BRONZE_FILE_BYTES)
        newer = set(subtract_texts(make_text_column(file.path for file in small), aggregates.bronze_files).to_pylist())
        groups = _group_small_files(file for file in small if file.path not in newer)
        lake = self._lake
        merged = self._executor.run_tasks(groups, lambda bronze_files: merge_bronze_files(lake, bronze_files))
        for group, written in zip(groups, merged, strict=True):
            self._replace_bronze_files(group, written)
        self._aggregates.compact_tables(self.list_bronze_files)
        return OptimizeResult(len(aggregates.bronze_files), len(self.list_bronze_files()))

    def _replace_bronze_files(self, bronze_files: list[str], written: UncommittedFiles) -> None:
        """Commit new bronze files in place of old ones, unless another process has removed an old one."""
        while (base := self.table.read_snapshot()) is not None:
            if len(base.select_existing_paths(bronze_files)) < len(bronze_files):
                break
            with suppress(CommitConflictError):
                self.table.commit_files(base, BRONZE_COLUMNS, written.bronze_files, bronze_files)
                self._aggregates.commit_files(written.aggregate_files, [file.path for file in written.bronze_files])
                return
        self._remove_uncommitted_files(written)

    def _commit_missing_aggregates(self, unchecked: TextColumn, version: TableHead | TableSnapshot) -> None:
        """Commit missing aggregates of bronze files, from the workers' files or computed again.

        Args:
            unchecked: the bronze files of the version that may lack aggregates.
        """
        if missing := self._aggregates.find_missing_aggregates(unchecked):
            self._rebuild_aggregates(missing)
        self._aggregates.record_complete_version(version)

    def _rebuild_aggregates(self, missing: set[str]) -> None:
        files, without_files = self._aggregates.find_uncommitted_files(sorted(missing))
        written = UncommittedFiles(aggregate_files=files)
        if without_files:
            lake = self._lake
            for rebuilt in self._executor.run_tasks(
                without_files, lambda bronze_file: rebuild_aggregates(lake, bronze_file)
            ):
                written.add_files(rebuilt)
        self._aggregates.commit_files(written.aggregate_files, missing)

    def commit_task_result(self, inputs: Sequence[IngestedFile], read_errors: list[Problem], result: TaskResult) -> int:
        """Commit the results of workers, without duplicate messages. Return the number of added messages."""
        write_schemas(self._lake, result.schemas)
        read_errors += [problem for problem in dict.fromkeys(result.read_errors) if problem not in read_errors]
        written = self._commit_bronze_files(result.written_files)
        self._aggregates.commit_files(written.aggregate_files, [file.path for file in written.bronze_files])
        unread = {problem.path for problem in read_errors if problem.errno}  # the next ingest tries again
        self._ingest_log.record_inputs([file for file in inputs if file.path not in unread], read_errors)
        return sum(file.row_count for file in written.bronze_files)

    def _commit_bronze_files(self, written: UncommittedFiles) -> UncommittedFiles:
        """Commit bronze files without duplicate messages, and return the committed files.

        If another process commits in between, only its new files are compared.
        """
        compared: int | None = None
        while True:
            base = self.complete_aggregates()
            added = None if compared is None else self.table.log.list_added_paths(compared, base.version)
            written = self._drop_duplicate_messages(written, None if added is None else make_text_column(added))
            compared = base.version
            if not written.bronze_files:
                return written
            try:
                self.table.commit_files(base, BRONZE_COLUMNS, written.bronze_files)
                return written
            except CommitConflictError:
                continue

    def _drop_duplicate_messages(self, written: UncommittedFiles, old_files: TextColumn | None) -> UncommittedFiles:
        """Return the files without duplicates. Bronze files with possible duplicates are written again.

        Recordings rarely overlap. Only overlapping bronze files are compared message by message. The store can have
        ranges of removed bronze files. The list of all bronze files is only loaded if known ranges overlap new ones.

        `old_files`: bronze files to compare with; None: all.
        """
        ranges = written.row_group_ranges
        nearby = self._aggregates.read_nearby_ranges(ranges, old_files)
        doubtful, met = find_overlapping_files(ranges, nearby)
        if met:
            nearby = nearby.filter(pc.is_in(nearby.column("bronze_file"), self.list_bronze_files()))
            doubtful, met = find_overlapping_files(ranges, nearby)
        if not doubtful:
            return written
        rewritten = self._executor.rewrite_duplicates(self._lake, sorted(doubtful), sorted(met))
        dropped, kept = written.split_by_bronze_files(set(rewritten))
        self._remove_uncommitted_files(dropped)
        for files in rewritten.values():
            kept.add_files(files)
        return kept

    def _remove_uncommitted_files(self, written: UncommittedFiles) -> None:
        """Remove files that will never be committed."""
        for table, files in [
            (self.table, written.bronze_files),
            *((self._aggregates.tables[name], files) for name, files in written.aggregate_files.items()),
        ]:
            now = table.read_snapshot() if files else None
            committed = [] if now is None else now.select_existing_paths(file.path for file in files)
            for file in files:
                if file.path not in committed:  # it is so, whatever came before
                    self._lake.files.delete_file(table.resolve_file_path(file.path))


def _group_small_files(files: Iterable[DataFile]) -> list[list[str]]:
    """Return groups of small bronze files to merge. A group has one date and class, and the order of time."""
    folders: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size_bytes < _SMALL_BRONZE_FILE_BYTES:
            folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    groups: list[list[str]] = []
    for members in folders.values():
        members.sort(key=get_time_order)
        row_bytes = _MERGED_BRONZE_FILE_BYTES // _MERGED_BRONZE_FILE_ROWS
        sized = ((file.path, max(file.size_bytes, file.row_count * row_bytes)) for file in members)
        groups += pack_by_size(sized, _MERGED_BRONZE_FILE_BYTES)
    return [group for group in groups if len(group) > 1]
