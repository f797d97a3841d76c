"""Bronze tables of a lake, which contain each message once.

    LAKE/messages/date=.../size_class=.../*.parquet, a Delta table

Workers write bronze files into the directory of the table. Messages that the table already contains are omitted, and
one commit adds the new files. The aggregates are committed after the files. After a kill in between, the next writer
completes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from msgq.errors import RecordingError
from msgq.lake.aggregate_store import AggregateSnapshot, AggregateStore
from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.bronze_writer import UncommittedFiles, merge_bronze_files, open_messages_table, rebuild_aggregates
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.bronze.row_group_ranges import find_overlapping_files
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import CommitConflictError, TableSnapshot
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor, TaskResult
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.message_filter import MessageFilter
from msgq.lake.schema_texts import write_schemas
from msgq.recording.mcap_io.problem import Problem

_MERGED_BRONZE_FILE_BYTES = 128 << 20  # of a bronze file that is made of small ones, about
_SMALL_BRONZE_FILE_BYTES = 32 << 20
_UNCHECKED_FILES_MAX = 16  # opening so many files costs less than reading the ranges


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """Result of an optimization: number of message files before and after."""

    files_before: int
    files_after: int


class BronzeStore:
    """Messages of a lake. Any number of writers and readers, each in one thread."""

    def __init__(self, lake: LakeDirectory, executor: LakeExecutor, version: int | None = None) -> None:
        """Set the lake. `version`: version of the table of messages to read; None: the newest."""
        self.table = open_messages_table(lake)
        self._lake, self._executor, self._version = lake, executor, version
        self._aggregates, self._ingest_log = AggregateStore(lake), IngestLog(lake)

    # ---- reading ----

    def list_paths(self, filters: Sequence[MessageFilter] = (MessageFilter(),)) -> list[str]:
        """Return the bronze files that may have a message that passes a filter.

        The statistics of the Delta log select files by log_time and by the range of endpoint names. The ranges of the
        aggregate store then select files by the endpoints themselves.

        Raises
        ------
        RecordingError : the version that was asked for can no longer be read.
        """
        snapshot = self._read_asked_version()
        if snapshot is None:
            return []
        paths: dict[str, None] = {}
        for wanted in filters:
            found = snapshot.find_paths(wanted.column_bounds)
            if wanted.endpoints is not None and len(found) > _UNCHECKED_FILES_MAX:
                found = self._aggregates.select_bronze_files(found, wanted)
            paths.update(dict.fromkeys(found))
        if self._version is not None:
            self._check_files_exist(paths)
        return list(paths)

    def _read_asked_version(self) -> TableSnapshot | None:
        if self._version is None:
            return self.table.read_snapshot()
        snapshot = self.table.read_snapshot(self._version)
        if snapshot is None:
            raise RecordingError(f"lake '{self._lake.uri}' has no version {self._version}: it contains no messages yet")
        return snapshot

    def _check_files_exist(self, paths: Iterable[str]) -> None:
        """Check that nobody removed these files of an earlier version. Raises RecordingError."""
        now = self.list_bronze_files()
        if removed := [path for path in paths if path not in now and not self._lake.has_entry(f"messages/{path}")]:
            text = f"version {self._version} of lake '{self._lake.uri}' can no longer be read"
            raise RecordingError(
                f"{text}: {len(removed)} of its files were merged into other files and removed; read a newer version"
            )

    def list_bronze_files(self) -> set[str]:
        """Return the paths of the current files in the table of messages."""
        snapshot = self.table.read_snapshot()
        return set() if snapshot is None else set(snapshot.files_by_path)

    def read_aggregates(self) -> AggregateSnapshot:
        """Return the current aggregates of all messages. Missing aggregates are completed first.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        while True:
            self.complete_aggregates()
            base = self.table.read_snapshot()
            view = self._aggregates.read_snapshot(set() if base is None else set(base.files_by_path))
            now = self.table.read_snapshot()
            if view is not None and base is not None and now is not None and base.version == now.version:
                return view

    def read_version(self) -> int:
        """Return the number of the last commit of messages; -1: none."""
        snapshot = self.table.read_snapshot()
        return -1 if snapshot is None else snapshot.version

    def list_read_errors(self) -> list[Problem]:
        """Return the current read errors of all files, each once."""
        return self._ingest_log.list_read_errors()

    def list_ingested_files(self) -> set[IngestedFile]:
        """Return all ingested files."""
        return self._ingest_log.list_ingested_files()

    # ---- writing ----

    def complete_aggregates(self) -> None:
        """Commit missing aggregates of bronze files. Creates the lake if necessary.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        base = self.table.read_snapshot()
        if base is None:
            with suppress(CommitConflictError):  # another process has just created the table
                self.table.commit_files(None, BRONZE_COLUMNS)
            base = self.table.read_snapshot()
        self._commit_missing_aggregates(set() if base is None else set(base.files_by_path))

    def optimize(self) -> OptimizeResult:
        """Merge small bronze files and their aggregates.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        view, now = self.read_aggregates(), self.table.read_snapshot()
        files = () if now is None else now.files_by_path.values()
        groups = _group_small_files(file for file in files if file.path in view.bronze_files)  # others are newer
        uri = self._lake.uri
        merged = self._executor.run_tasks(
            groups, lambda bronze_files: merge_bronze_files(LakeDirectory(uri), bronze_files)
        )
        for group, written in zip(groups, merged, strict=True):
            self._replace_bronze_files(group, written)
        self._aggregates.compact_tables(self.list_bronze_files)
        return OptimizeResult(len(view.bronze_files), len(self.list_bronze_files()))

    def _replace_bronze_files(self, bronze_files: list[str], written: UncommittedFiles) -> None:
        """Commit new bronze files in place of old ones, unless another process has removed an old one."""
        while (base := self.table.read_snapshot()) is not None and set(bronze_files) <= set(base.files_by_path):
            with suppress(CommitConflictError):
                self.table.commit_files(base, BRONZE_COLUMNS, written.bronze_files, bronze_files)
                self._aggregates.commit_files(written.aggregate_files, [file.path for file in written.bronze_files])
                return
        self._remove_uncommitted_files(written)

    def _commit_missing_aggregates(self, bronze_files: set[str]) -> None:
        """Commit missing aggregates of bronze files, from the workers' files or computed again."""
        if not (missing := self._aggregates.find_missing_aggregates(bronze_files)):
            return
        files, without_files = self._aggregates.find_uncommitted_files(sorted(missing))
        written = UncommittedFiles(aggregate_files=files)
        if without_files:
            uri = self._lake.uri
            for rebuilt in self._executor.run_tasks(
                without_files, lambda bronze_file: rebuild_aggregates(LakeDirectory(uri), bronze_file)
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
        compared: set[str] = set()
        while True:
            base = self.table.read_snapshot()
            present = set() if base is None else set(base.files_by_path)
            self._commit_missing_aggregates(present)
            written = self._drop_duplicate_messages(written, present - compared)
            compared = present
            if not written.bronze_files:
                return written
            try:
                self.table.commit_files(base, BRONZE_COLUMNS, written.bronze_files)
                return written
            except CommitConflictError:
                continue

    def _drop_duplicate_messages(self, written: UncommittedFiles, known: set[str]) -> UncommittedFiles:
        """Return the files without duplicates. Bronze files with possible duplicates are written again.

        Recordings rarely overlap. Only overlapping bronze files are compared message by message.
        """
        nearby = self._aggregates.read_nearby_ranges(known, written.row_group_ranges)
        doubtful, met = find_overlapping_files(written.row_group_ranges, nearby)
        if not doubtful:
            return written
        rewritten = self._executor.rewrite_duplicates(self._lake.uri, sorted(doubtful), sorted(met))
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
            now = table.read_snapshot()
            for file in files:
                if now is None or file.path not in now.files_by_path:  # it is so, whatever came before
                    self._lake.files.delete_file(table.resolve_file_path(file.path))


def _group_small_files(files: Iterable[DataFile]) -> list[list[str]]:
    """Return groups of small bronze files to merge. A group has one date and class, and the order of time."""

    def get_sort_key(file: DataFile) -> tuple[int, str]:
        return file.column_bounds.get("log_time", (0, 0))[0], file.path

    folders: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size_bytes < _SMALL_BRONZE_FILE_BYTES:
            folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    groups: list[list[str]] = []
    for members in folders.values():
        members.sort(key=get_sort_key)
        groups += pack_by_size(((file.path, file.size_bytes) for file in members), _MERGED_BRONZE_FILE_BYTES)
    return [group for group in groups if len(group) > 1]
