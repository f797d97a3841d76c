"""Bronze in a lake: each message once.

    LAKE/messages/date=.../size_class=.../*.parquet, a Delta table

Workers read recordings and write parts where they belong; what is there already is left out; one commit adds the rest.
What is derived of the parts follows, and is made good by the next one who writes where somebody was killed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.message_source import TOPIC
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.aggregate_store import AggregateSnapshot, AggregateStore
from msgq.lake.batching import pack_by_size
from msgq.lake.bronze.duplicates import KEYS, read_keys, read_without_rows
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.bronze.ranges import find_overlaps
from msgq.lake.bronze.writer import (
    UncommittedFiles,
    merge_bronze_files,
    messages_table,
    rebuild_aggregates,
    write_bronze,
)
from msgq.lake.columns import BRONZE, COLUMNS
from msgq.lake.delta_table import ConflictError, DataFile, TableSnapshot
from msgq.lake.directory import Directory
from msgq.lake.schema_texts import read_schema_ids, write_schemas
from msgq.recording.mcap_io.problem import Problem, valid_text
from msgq.spark import tables
from msgq.spark.executor import (
    TaskResult,
    merge_results,
    run_by_key,
    run_partitions,
    run_tasks,
    task_frame,
    unpack_tasks,
)
from msgq.spark.lake.store import LakeStore
from msgq.spark.source.arrow_batches import READ_ERRORS, message_rows, read_error_rows, spark_schema
from msgq.spark.source.options import Options
from msgq.spark.source.parallelism import cores
from msgq.spark.source.partitions import Partition, file_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Of rows that are appended.
_OPTIONAL = ("origin_time", "schema_id", "kind", "publisher", "key", "options", "lost_before", "lost_after")
#: What messages have that do not say it: those of files of other programs.
_UNNAMED = {"run": "", "epoch": 0, "kind": TOPIC.kind}
_NEEDED = ("endpoint", "sequence", "log_time", "data")
_TEXTS_ONCE = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if pa.types.is_string(field.type) else field
        for field in COLUMNS
    ]
)
_JOINED_BYTES = 128 << 20  # of a part that is made of small ones, about
_SMALL_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class IngestResult:
    """What an ingest did.

    Attributes
    ----------
    messages : that are new in the lake.
    files, skipped : that were read, and that had been read before and are the same.
    read_errors : what could not be read.
    version : of the messages with which it ended; those that other ingests added meanwhile are among them.
    """

    messages: int
    files: int
    skipped: int
    read_errors: list[Problem]
    version: int


@dataclass(frozen=True, slots=True)
class OptimizeResult:
    """What became of the files of messages. before, after : how many there were, and are now."""

    before: int
    after: int


class Bronze:
    """The messages of a lake. For any number of writers and readers, in one thread each."""

    def __init__(self, store: LakeStore, version: int | None = None) -> None:
        """version : of the table of messages, to be read as it was then; None: as it is."""
        self._store, self._version = store, version
        self._table, self._aggregates, self._ingest_log = messages_table(store), AggregateStore(store), IngestLog(store)

    # ---- reading ----

    def messages(self) -> DataFrame:
        """Return all messages."""
        return self._store.read_files(self._table, self._paths(), spark_schema(BRONZE))

    def _paths(self) -> list[str]:
        """Return the parts that are to be read. Raises RecordingError where the version is not there any more."""
        now = self._table.snapshot()
        if self._version is not None:
            return self._paths_before(now, self._version)
        return [] if now is None else list(now.files)

    def _paths_before(self, now: TableSnapshot | None, version: int) -> list[str]:
        """Return the parts of a version, which may have been removed since."""
        then = self._table.snapshot(version) if now is not None else None
        if now is None or then is None:
            raise RecordingError(f"the lake {self._store.uri} has no version {version}: it has no messages yet")
        if removed := [
            path for path in then.files if path not in now.files and not self._store.has(f"messages/{path}")
        ]:
            text = f"the messages of version {version} of the lake {self._store.uri} are not there any more"
            raise RecordingError(f"{text}: {len(removed)} files were put together with others, and removed")
        return list(then.files)

    def parts(self) -> set[str]:
        """Return the files of the table of messages as it is now, by their paths in it."""
        snapshot = self._table.snapshot()
        return set() if snapshot is None else set(snapshot.files)

    def aggregates(self) -> AggregateSnapshot:
        """Return what is derived of all messages as they are now, having derived what was not.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        while True:
            self.complete_aggregates()
            base = self._table.snapshot()
            view = self._aggregates.snapshot(set() if base is None else set(base.files))
            now = self._table.snapshot()
            if view is not None and base is not None and now is not None and base.version == now.version:
                return view

    def version(self) -> int:
        """Return the number of the last commit of messages; -1: there is none."""
        snapshot = self._table.snapshot()
        return -1 if snapshot is None else snapshot.version

    def read_errors(self) -> DataFrame:
        """Return what could not be read."""
        rows = pa.Table.from_batches(read_error_rows(self._ingest_log.read_errors(), READ_ERRORS), READ_ERRORS)
        return self._store.spark.createDataFrame(rows, spark_schema(READ_ERRORS))

    # ---- writing ----

    def ingest(self, files: Sequence[Path], read_errors: list[Problem], schemas: Schemas | None) -> IngestResult:
        """Add recordings, except for unchanged ones that were read before.

        read_errors : those found before; new ones are appended.
        """
        self.complete_aggregates()
        inputs = {path: file for path in files if (file := _input(path, read_errors)) is not None}
        known = self._ingest_log.list_files()
        new = {path: file for path, file in inputs.items() if file not in known}
        options = Options((), schemas=schemas, cores=cores(self._store.spark))
        work = list(file_partitions(options, list(new), read_errors))
        messages = self._add(list(new.values()), read_errors, self._of_files(work, options))
        return IngestResult(messages, len(new), len(inputs) - len(new), read_errors, self.version())

    def append(self, messages: DataFrame, recordings: str | None) -> int:
        """Add rows, the texts of their schemas from recordings; return how many are new."""
        columns = _complete(messages)
        self.complete_aggregates()
        with _plain_nulls():
            result = self._of_rows(columns)
        if recordings is not None:
            self._store_schemas(result.written.ranges, recordings)
        return self._add([], [], result)

    def complete_aggregates(self) -> None:
        """Make the lake one whose parts all have what is derived of them; a new one, where there is none.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        base = self._table.snapshot()
        if base is None:
            with suppress(ConflictError):  # another process has just created the table
                self._table.commit(None, BRONZE)
            base = self._table.snapshot()
        self._derive(set() if base is None else set(base.files))

    def optimize(self) -> OptimizeResult:
        """Put small parts merge_results, and what is derived of them.

        Raises
        ------
        RecordingError : a table cannot be written.
        """
        view, now = self.aggregates(), self._table.snapshot()
        files = () if now is None else now.files.values()
        groups = _groups((file for file in files if file.path in view.parts), view.ranges)  # others are newer
        uri = self._store.uri
        every = self._run_tasks(groups, lambda parts: TaskResult(merge_bronze_files(Directory(uri), parts)))
        for group, result in zip(groups, every, strict=True):
            self._replace(group, result.written)
        self._aggregates.compact(self.parts)
        return OptimizeResult(len(view.parts), len(self.parts()))

    def _replace(self, parts: list[str], written: UncommittedFiles) -> None:
        """Commit parts in place of others, unless somebody else has taken one of those away."""
        while (base := self._table.snapshot()) is not None and set(parts) <= set(base.files):
            with suppress(ConflictError):
                self._table.commit(base, BRONZE, written.parts, parts)
                self._aggregates.add(written.aggregates, [file.path for file in written.parts])
                return
        self._remove(written)

    def _derive(self, parts: set[str]) -> None:
        """Commit what is derived of parts and is not there yet: what workers left, or made anew."""
        if not (missing := self._aggregates.missing(parts)):
            return
        files, without_files = self._aggregates.find_uncommitted(sorted(missing))
        written = UncommittedFiles(aggregates=files)
        if without_files:
            lake = self._store.uri
            for result in self._run_tasks(
                without_files, lambda part: TaskResult(rebuild_aggregates(Directory(lake), part))
            ):
                written.add(result.written)
        self._aggregates.add(written.aggregates, missing)

    def _store_schemas(self, ranges: pa.Table, recordings: str) -> None:
        """Look in recordings for the texts of schemas that the lake does not have yet."""
        known = pa.array(sorted(read_schema_ids(self._store)), pa.int64())
        new = ranges.filter(pc.and_(ranges["schema_id"].is_valid(), pc.invert(pc.is_in(ranges["schema_id"], known))))
        if not new.num_rows:
            return
        first, last = pc.min(new["start_time"]).as_py(), pc.max(new["end_time"]).as_py()
        options = Options((recordings,), start=first, end=last + 1)
        for log in options.open_logs(options.files([]), []):
            for _ in log.batches([]):
                continue
            write_schemas(self._store, (channel.schema for channel in log.channels))

    def _add(self, inputs: Sequence[IngestedFile], read_errors: list[Problem], result: TaskResult) -> int:
        """Commit what workers have found, but for messages that are there; return how many were added."""
        write_schemas(self._store, result.schemas)
        read_errors += [problem for problem in dict.fromkeys(result.read_errors) if problem not in read_errors]
        written = self._commit(result.written)
        self._aggregates.add(written.aggregates, [file.path for file in written.parts])
        unread = {problem.path for problem in read_errors if problem.errno}  # the next ingest tries again
        self._ingest_log.add([file for file in inputs if file.path not in unread], read_errors)
        return sum(file.rows for file in written.parts)

    def _commit(self, written: UncommittedFiles) -> UncommittedFiles:
        """Commit parts, but for messages that are there; return what was committed.

        Where somebody else commits meanwhile, only what is new since then is compared.
        """
        compared: set[str] = set()
        while True:
            base = self._table.snapshot()
            present = set() if base is None else set(base.files)
            self._derive(present)
            written = self._drop_duplicates(written, present - compared)
            compared = present
            if not written.parts:
                return written
            try:
                self._table.commit(base, BRONZE, written.parts)
                return written
            except ConflictError:
                continue

    def _drop_duplicates(self, written: UncommittedFiles, known: set[str]) -> UncommittedFiles:
        """Return what is new, having written the parts anew that may have what is there already.

        Recordings seldom overlap; only those parts that do are compared message by message.
        """
        ranges = self._aggregates.ranges(known)
        runs = written.ranges.column("run").unique()
        doubtful, met = find_overlaps(written.ranges, ranges.filter(pc.is_in(ranges.column("run"), runs)))
        if not doubtful:
            return written
        rewritten = self._rewrite_duplicates(sorted(doubtful), sorted(met))
        dropped, kept = written.split(set(rewritten))
        self._remove(dropped)
        anew = merge_results(rewritten.values()).written
        anew.add(kept)
        return anew

    def _rewrite_duplicates(self, doubtful: Sequence[str], met: Sequence[str]) -> dict[str, TaskResult]:
        """Let workers write those doubtful parts anew that have repeats; return what they wrote, by these parts.

        Spark moves the keys of messages only, and workers that write read what they keep from the parts themselves.
        """
        uri, parts = self._store.uri, [*doubtful, *met]

        def keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, part in unpack_tasks(batches):
                yield from read_keys(Directory(uri), part, number, number >= len(doubtful))

        def write(repeats: pa.Table) -> TaskResult:
            part, rows = parts[repeats.column("file_number")[0].as_py()], np.asarray(repeats.column("row_number"))
            return TaskResult(write_bronze(read_without_rows(Directory(uri), part, rows), Directory(uri)))

        compared = task_frame(self._store.spark, parts).mapInArrow(keys, spark_schema(KEYS))
        results = run_by_key(tables.find_duplicates(compared), "file_number", write)
        return {parts[number]: result for number, result in results.items()}

    def _remove(self, written: UncommittedFiles) -> None:
        """Remove files that were not committed, and never will be."""
        for table, files in [
            (self._table, written.parts),
            *((self._aggregates.tables[name], files) for name, files in written.aggregates.items()),
        ]:
            now = table.snapshot()
            for file in files:
                if now is None or file.path not in now.files:  # it is so, whatever came before
                    self._store.files.delete_file(table.path(file.path))

    def _of_files(self, work: Sequence[Partition], options: Options) -> TaskResult:
        """Let workers read and write: the messages do not pass through Java, which doubles the speed.

        A task has one piece: a row group of two that do not follow each other would seem to overlap what is in between.
        """
        uri = self._store.uri
        return merge_results(self._run_tasks(work, lambda piece: _read_and_write(piece, options, uri)))

    def _of_rows(self, messages: DataFrame) -> TaskResult:
        uri = self._store.uri
        return merge_results(
            run_partitions(messages, lambda batches: TaskResult(write_bronze(batches, Directory(uri))))
        )

    def _run_tasks(self, tasks: Sequence[Any], do: Callable[[Any], TaskResult]) -> list[TaskResult]:
        return run_tasks(self._store.spark, tasks, do)


def _groups(files: Iterable[DataFile], ranges: pa.Table) -> list[list[str]]:
    """Return the parts that are to be put together: small ones of one date and class, in the order of their times."""
    times = ranges.group_by("bronze_file").aggregate([("start_time", "min")])
    first = dict(zip(times["bronze_file"].to_pylist(), times["start_time_min"].to_pylist(), strict=True))
    folders: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < _SMALL_BYTES:
            folders.setdefault(file.path.rpartition("/")[0], []).append(file)
    groups: list[list[str]] = []
    for members in folders.values():
        members.sort(key=lambda file: (first[file.path], file.path))
        groups += pack_by_size(((file.path, file.size) for file in members), _JOINED_BYTES)
    return [group for group in groups if len(group) > 1]


def _input(path: Path, read_errors: list[Problem]) -> IngestedFile | None:
    """Return a file as it is now; None (and note it) where nobody can know."""
    try:
        status = path.stat()
    except OSError as error:
        read_errors.append(Problem(str(path.absolute()), 0, f"cannot read {path}: {error.strerror}", error.errno))
        return None
    return IngestedFile(valid_text(path.absolute()), status.st_size, status.st_mtime_ns)


def _complete(messages: DataFrame) -> DataFrame:
    """Return rows with all columns of messages; reading them fails where a message cannot have their NULL."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType for field in spark_schema(COLUMNS)}
    missing = {name: F.lit(None).cast(types[name]) for name in _OPTIONAL if name not in messages.columns}
    columns = {name: missing.get(name, F.col(name)) for name in COLUMNS.names}
    for name, value in _UNNAMED.items():
        columns[name] = F.coalesce(columns[name], F.lit(value))
    for name in _NEEDED:
        columns[name] = F.coalesce(columns[name], F.raise_error(F.lit(f"a row's {name} is NULL, which no message has")))
    return messages.select(*(columns[name].alias(name) for name in COLUMNS.names))


@contextmanager
def _plain_nulls() -> Iterator[None]:
    """Say what `_complete` has found. Raises InvalidValueError."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if error.getCondition() != "USER_RAISED_EXCEPTION":
            raise
        raise InvalidValueError((error.getMessageParameters() or {})["errorMessage"]) from None


def _read_and_write(piece: Partition, options: Options, lake: str) -> TaskResult:
    """Read pieces of files, and write them into a lake."""
    result = TaskResult()
    logs = list(piece.open_logs(options, result.read_errors))
    result.written = write_bronze((batch for log in logs for batch in message_rows(log, _TEXTS_ONCE)), Directory(lake))
    result.schemas = {channel.schema for log in logs for channel in log.channels if channel.schema is not None}
    result.read_errors += [problem for log in logs for problem in log.problems]
    return result
