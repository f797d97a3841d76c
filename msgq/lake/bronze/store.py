"""Bronze in a lake: each message once.

    LAKE/messages/date=.../size_class=.../*.parquet, a Delta table

Workers write bronze files where they belong; messages that are there already are left out; one commit adds the rest.
The aggregates of the bronze files follow. After a kill in between, the next writer completes them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from msgq.errors import RecordingError
from msgq.lake.aggregate_store import AggregateSnapshot, AggregateStore
from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.bronze.ranges import find_overlaps
from msgq.lake.bronze.writer import UncommittedFiles, merge_bronze_files, messages_table, rebuild_aggregates
from msgq.lake.columns import BRONZE_COLUMNS
from msgq.lake.delta_table import ConflictError, DataFile, TableSnapshot
from msgq.lake.directory import Directory
from msgq.lake.executor import Executor, TaskResult
from msgq.lake.schema_texts import write_schemas
from msgq.recording.mcap_io.problem import Problem

_MERGED_FILE_BYTES = 128 << 20  # of a bronze file that is made of small ones, about
_SMALL_FILE_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What became of the files of messages. before, after : how many there were, and are now."""

    before: int
    after: int


class Bronze:
    """The messages of a lake. For any number of writers and readers, in one thread each."""

    def __init__(self, lake: Directory, executor: Executor, version: int | None = None) -> None:
        """version : of the table of messages, to be read as it was then; None: as it is."""
        self.table = messages_table(lake)
        self._lake, self._executor, self._version = lake, executor, version
        self._aggregates, self._ingest_log = AggregateStore(lake), IngestLog(lake)

    # ---- reading ----

    def paths(self) -> list[str]:
        """Return the bronze files to read. Raises RecordingError if the version is not there any more."""
        now = self.table.snapshot()
        if self._version is not None:
            return self._paths_before(now, self._version)
        return [] if now is None else list(now.files)

    def _paths_before(self, now: TableSnapshot | None, version: int) -> list[str]:
        """Return the bronze files of a version, which may have been removed since."""
        then = self.table.snapshot(version) if now is not None else None
        if now is None or then is None:
            raise RecordingError(f"the lake {self._lake.uri} has no version {version}: it has no messages yet")
        if removed := [path for path in then.files if path not in now.files and not self._lake.has(f"messages/{path}")]:
            text = f"the messages of version {version} of the lake {self._lake.uri} are not there any more"
            raise RecordingError(f"{text}: {len(removed)} files were put together with others, and removed")
        return list(then.files)

    def bronze_files(self) -> set[str]:
        """Return the files of the table of messages as it is now, by their paths in it."""
        snapshot = self.table.snapshot()
        return set() if snapshot is None else set(snapshot.files)

    def aggregates(self) -> AggregateSnapshot:
        """Return the aggregates of all messages as they are now; complete them first.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        while True:
            self.complete_aggregates()
            base = self.table.snapshot()
            view = self._aggregates.snapshot(set() if base is None else set(base.files))
            now = self.table.snapshot()
            if view is not None and base is not None and now is not None and base.version == now.version:
                return view

    def version(self) -> int:
        """Return the number of the last commit of messages; -1: there is none."""
        snapshot = self.table.snapshot()
        return -1 if snapshot is None else snapshot.version

    def read_errors(self) -> list[Problem]:
        """Return what could not be read of the files as they were last, each once."""
        return self._ingest_log.read_errors()

    def list_ingested_files(self) -> set[IngestedFile]:
        """Return all files that were read."""
        return self._ingest_log.list_files()

    # ---- writing ----

    def complete_aggregates(self) -> None:
        """Commit missing aggregates of bronze files; create the lake if there is none.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        base = self.table.snapshot()
        if base is None:
            with suppress(ConflictError):  # another process has just created the table
                self.table.commit(None, BRONZE_COLUMNS)
            base = self.table.snapshot()
        self._complete_aggregates(set() if base is None else set(base.files))

    def optimize(self) -> OptimizeResult:
        """Put small bronze files together, and their aggregates.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        view, now = self.aggregates(), self.table.snapshot()
        files = () if now is None else now.files.values()
        groups = _group_small_files(
            (file for file in files if file.path in view.bronze_files), view.ranges
        )  # others are newer
        uri = self._lake.uri
        merged = self._executor.run_tasks(groups, lambda bronze_files: merge_bronze_files(Directory(uri), bronze_files))
        for group, written in zip(groups, merged, strict=True):
            self._replace(group, written)
        self._aggregates.compact(self.bronze_files)
        return OptimizeResult(len(view.bronze_files), len(self.bronze_files()))

    def _replace(self, bronze_files: list[str], written: UncommittedFiles) -> None:
        """Commit bronze files in place of others, unless somebody else has taken one of those away."""
        while (base := self.table.snapshot()) is not None and set(bronze_files) <= set(base.files):
            with suppress(ConflictError):
                self.table.commit(base, BRONZE_COLUMNS, written.bronze_files, bronze_files)
                self._aggregates.add(written.aggregates, [file.path for file in written.bronze_files])
                return
        self._remove_uncommitted(written)

    def _complete_aggregates(self, bronze_files: set[str]) -> None:
        """Commit missing aggregates of bronze files: those that workers left, or computed again."""
        if not (missing := self._aggregates.find_missing(bronze_files)):
            return
        files, without_files = self._aggregates.find_uncommitted(sorted(missing))
        written = UncommittedFiles(aggregates=files)
        if without_files:
            uri = self._lake.uri
            for rebuilt in self._executor.run_tasks(
                without_files, lambda bronze_file: rebuild_aggregates(Directory(uri), bronze_file)
            ):
                written.add(rebuilt)
        self._aggregates.add(written.aggregates, missing)

    def add(self, inputs: Sequence[IngestedFile], read_errors: list[Problem], result: TaskResult) -> int:
        """Commit what workers have found, but for messages that are there; return how many were added."""
        write_schemas(self._lake, result.schemas)
        read_errors += [problem for problem in dict.fromkeys(result.read_errors) if problem not in read_errors]
        written = self._commit(result.written)
        self._aggregates.add(written.aggregates, [file.path for file in written.bronze_files])
        unread = {problem.path for problem in read_errors if problem.errno}  # the next ingest tries again
        self._ingest_log.add([file for file in inputs if file.path not in unread], read_errors)
        return sum(file.rows for file in written.bronze_files)

    def _commit(self, written: UncommittedFiles) -> UncommittedFiles:
        """Commit bronze files, but for messages that are there; return what was committed.

        Where somebody else commits meanwhile, only what is new since then is compared.
        """
        compared: set[str] = set()
        while True:
            base = self.table.snapshot()
            present = set() if base is None else set(base.files)
            self._complete_aggregates(present)
            written = self._drop_duplicates(written, present - compared)
            compared = present
            if not written.bronze_files:
                return written
            try:
                self.table.commit(base, BRONZE_COLUMNS, written.bronze_files)
                return written
            except ConflictError:
                continue

    def _drop_duplicates(self, written: UncommittedFiles, known: set[str]) -> UncommittedFiles:
        """Return what is new, having written the bronze files anew that may have what is there already.

        Recordings seldom overlap; only those bronze files that do are compared message by message.
        """
        ranges = self._aggregates.ranges(known)
        runs = written.ranges.column("run").unique()
        doubtful, met = find_overlaps(written.ranges, ranges.filter(pc.is_in(ranges.column("run"), runs)))
        if not doubtful:
            return written
        rewritten = self._executor.rewrite_duplicates(self._lake.uri, sorted(doubtful), sorted(met))
        dropped, kept = written.split(set(rewritten))
        self._remove_uncommitted(dropped)
        for files in rewritten.values():
            kept.add(files)
        return kept

    def _remove_uncommitted(self, written: UncommittedFiles) -> None:
        """Remove files that were not committed, and never will be."""
        for table, files in [
            (self.table, written.bronze_files),
            *((self._aggregates.tables[name], files) for name, files in written.aggregates.items()),
        ]:
            now = table.snapshot()
            for file in files:
                if now is None or file.path not in now.files:  # it is so, whatever came before
                    self._lake.files.delete_file(table.path(file.path))


def _group_small_files(files: Iterable[DataFile], ranges: pa.Table) -> list[list[str]]:
    """Return the bronze files to put together: small ones of one date and class, in the order of their times."""
    times = ranges.group_by("bronze_file").aggregate([("start_time", "min")])
    first = dict(zip(times["bronze_file"].to_pylist(), times["start_time_min"].to_pylist(), strict=True))
    folders: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < _SMALL_FILE_BYTES:
            folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    groups: list[list[str]] = []
    for members in folders.values():
        members.sort(key=lambda file: (first[file.path], file.path))
        groups += pack_by_size(((file.path, file.size) for file in members), _MERGED_FILE_BYTES)
    return [group for group in groups if len(group) > 1]
