"""Bronze in a lake: each message once.

    LAKE/messages/date=.../class=.../*.parquet

Workers read recordings and write parts below `STAGED`; what is there already is left out; the journal has the rest
moved to its place.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError
from msgq.recording.format.problem import Problem, valid_text
from msgq.source import TOPIC
from msgq.spark import tables
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.journal import STAGED, Input, Journal
from msgq.spark.lake.message_files import DERIVED, RANGES, overlapping, write_parts
from msgq.spark.lake.schema_texts import known_schema_ids, write_schemas
from msgq.spark.lake.store import Store
from msgq.spark.source.arrow_batches import MESSAGES, PLACES, PROBLEMS, message_rows, problem_rows, spark_schema
from msgq.spark.source.options import Options
from msgq.spark.source.partitions import Partition, file_partitions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: The columns of rows that are added.
COLUMNS = pa.schema([*MESSAGES, PLACES.field("schema_id"), PLACES.field("options")])
_OPTIONAL = ("origin_time", "schema_id", "kind", "publisher", "key", "options")  # of rows that are appended
#: What messages have that do not say it: those of files of other programs, and of a release without kinds.
_UNNAMED = {"run": "", "epoch": 0, "kind": TOPIC.kind}
_NEEDED = ("endpoint", "sequence", "log_time", "data")
_BRONZE = pa.schema([*COLUMNS, *DERIVED.items(), ("date", pa.date32()), ("class", pa.string())])
_TEXTS_ONCE = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if pa.types.is_string(field.type) else field
        for field in COLUMNS
    ]
)
_STAGED = pa.schema([*RANGES, *PROBLEMS, ("errno", pa.int32())])  # a row is a range, or a problem


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did.

    Attributes
    ----------
    messages : that are new in the lake.
    files, skipped : that were read, and that had been read before and are the same.
    problems : what could not be read.
    """

    messages: int
    files: int
    skipped: int
    problems: list[Problem]


class Bronze:
    """The messages of a lake. For its one writer, and any number of readers."""

    def __init__(self, store: Store, journal: Journal) -> None:
        self._store, self._journal = store, journal

    def messages(self) -> DataFrame:
        """Return all messages."""
        from pyspark.sql import functions as F

        found = self._store.read("messages", spark_schema(_BRONZE))
        return found.withColumn("kind", F.coalesce("kind", F.lit(_UNNAMED["kind"])))

    def problems(self) -> DataFrame:
        """Return what could not be read."""
        rows = pa.Table.from_batches(problem_rows(self._journal.problems(), PROBLEMS), PROBLEMS)
        return self._store.spark.createDataFrame(rows, spark_schema(PROBLEMS))

    def ingest(self, files: Sequence[Path], problems: list[Problem], schemas: Schemas | None) -> Ingested:
        """Add recordings, but for those that were read before and did not change. problems : that are known so far."""
        found = [one for path in files if (one := _input(path, problems)) is not None]
        known = self._journal.inputs()
        new = [one for one in found if one not in known]
        messages = 0
        if new or not set(problems) <= set(self._journal.problems()):
            options = Options((), schemas=schemas)
            work = list(file_partitions(options, [Path(one.path) for one in new], problems))
            messages = self._add(new, problems, lambda where: self._stage_files(work, options, where))
        return Ingested(messages, len(new), len(found) - len(new), problems)

    def append(self, messages: DataFrame, recordings: str | None) -> int:
        """Add rows, the texts of their schemas from recordings; return how many are new."""
        columns = _complete(messages)

        def stage(where: str) -> pa.Table:
            with _plain_nulls():
                found = self._stage_rows(columns, where)
            if recordings is not None:
                self._learn(found, recordings)
            return found

        return self._add([], [], stage)

    def _learn(self, ranges: pa.Table, recordings: str) -> None:
        """Look in recordings for the texts of schemas that the lake does not have yet."""
        known = pa.array(sorted(known_schema_ids(self._store)), pa.int64())
        new = ranges.filter(pc.and_(ranges["schema_id"].is_valid(), pc.invert(pc.is_in(ranges["schema_id"], known))))
        if not new.num_rows:
            return
        first, last = pc.min(new["first_time"]).as_py(), pc.max(new["last_time"]).as_py()
        options = Options((recordings,), start=first, end=last + 1)
        for log in options.opened(options.files([]), []):
            for _ in log.batches([]):
                continue
            write_schemas(self._store, (channel.schema for channel in log.channels))

    def _add(self, inputs: Sequence[Input], problems: list[Problem], stage: Callable[[str], pa.Table]) -> int:
        """Stage, leave out what is there already, commit; return how many messages were added."""
        name = uuid4().hex
        staged = f"{STAGED}/{name}"
        found = stage(f"{self._store.uri}/{staged}")
        is_range = found.column("part").is_valid()
        ranges = found.filter(is_range).select(RANGES.names)
        for row in found.select([*PROBLEMS.names, "errno"]).filter(pc.invert(is_range)).to_pylist():
            problem = Problem(row["file"], row["offset"], row["reason"], row["errno"])
            if problem not in problems:
                problems.append(problem)
        add = self._without_repeats if self._store.is_parquet else self._into_table
        ranges = add(ranges, staged)
        unread = {problem.path for problem in problems if problem.errno}  # the next ingest tries again
        inputs = [one for one in inputs if valid_text(one.path) not in unread]
        self._journal.commit(name, ranges, inputs, problems)
        return sum(ranges.column("rows").to_pylist())

    def _stage_files(self, work: Sequence[Partition], options: Options, where: str) -> pa.Table:
        """Let workers read and write: the messages do not pass through Java, which doubles the speed.

        A task has one piece: a row group of two that do not follow each other would seem to overlap what is in between.
        """
        if not work:
            return _STAGED.empty_table()
        rows = pa.table({"number": range(len(work)), "task": pa.array(map(pickle.dumps, work), pa.binary())})
        planned = self._store.spark.createDataFrame(rows).repartitionByRange(len(work), "number")
        uri, columns = self._store.uri, spark_schema(_STAGED)
        return _collected(planned.mapInArrow(lambda batches: _read_and_write(batches, options, uri, where), columns))

    def _stage_rows(self, messages: DataFrame, where: str) -> pa.Table:
        return _collected(messages.mapInArrow(lambda batches: _write(batches, where), spark_schema(_STAGED)))

    def _without_repeats(self, ranges: pa.Table, staged: str) -> pa.Table:
        """Return the ranges of what is new, having written the parts anew that may have what is there already.

        Recordings seldom overlap; only those parts that do are compared message by message.
        """
        doubtful_parts, known_parts = overlapping(ranges, self._journal.ranges(ranges.column("run").to_pylist()))
        if not doubtful_parts:
            return ranges
        schema = spark_schema(COLUMNS)
        parts = [self._store.address(f"{staged}/{part}") for part in sorted(doubtful_parts)]
        there = [self._store.address(f"messages/{part}") for part in sorted(known_parts)]
        doubtful = self._store.spark.read.schema(schema).parquet(*parts)
        known = self._store.spark.read.schema(schema).parquet(*there) if there else None
        anew = self._stage_rows(tables.deduplicated(doubtful, known), f"{self._store.uri}/{staged}")
        for part in doubtful_parts:
            self._store.files.delete_file(self._store.path(f"{staged}/{part}"))
        certain = [part not in doubtful_parts for part in ranges.column("part").to_pylist()]
        kept = ranges.filter(pa.array(certain, pa.bool_()))
        return pa.concat_tables([kept, anew.select(RANGES.names)])

    def _into_table(self, ranges: pa.Table, staged: str) -> pa.Table:
        """Append what is new to a table of another format; the parts were on the way only."""
        if not ranges.num_rows:
            return ranges
        store = self._store
        runs = sorted(set(ranges.column("run").to_pylist()))
        # Not all that lies there: there may be parts of tasks that failed, or were slower than their doubles.
        parts = [store.address(f"{staged}/{part}") for part in sorted(set(ranges["part"].to_pylist()))]
        reader = store.spark.read.schema(spark_schema(_BRONZE)).option("basePath", f"{store.uri}/{staged}")
        known = self.messages()
        new = tables.deduplicated(reader.parquet(*parts), known.where(known.run.isin(runs))).persist()
        try:
            found = dict(map(tuple, new.groupBy("run").count().collect()))
            store.save(new, "messages", ["date", "class"], "append")
        finally:
            new.unpersist()
        # All runs, as gold lacks those that a killed ingest has added without an entry in the journal.
        counts = [{"run": run, "rows": found.get(run, 0), "repeats": False} for run in runs]
        return pa.Table.from_pylist(counts, RANGES)


def _input(path: Path, problems: list[Problem]) -> Input | None:
    """Return a file as it is now; None (and note it) where nobody can know."""
    try:
        status = path.stat()
    except OSError as error:
        problems.append(Problem(str(path.absolute()), 0, f"cannot read {path}: {error.strerror}", error.errno))
        return None
    return Input(str(path.absolute()), status.st_size, status.st_mtime_ns)


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


def _collected(ranges: DataFrame) -> pa.Table:
    """Return the ranges of all parts: a few for each endpoint and task, however many messages there are."""
    return ranges.toArrow().cast(_STAGED)


def _read_and_write(
    batches: Iterable[pa.RecordBatch], options: Options, lake: str, where: str
) -> Iterator[pa.RecordBatch]:
    """On a worker: read pieces of files, and write them below `where`, and the texts of schemas into the lake."""
    problems: list[Problem] = []
    work = [pickle.loads(task) for batch in batches for task in batch.column("task").to_pylist()]
    logs = [log for task in work for log in task.opened(options, problems)]
    yield from _write((batch for log in logs for batch in message_rows(log, _TEXTS_ONCE)), where)
    write_schemas(Directory(lake), (channel.schema for log in logs for channel in log.channels))
    problems += [problem for log in logs for problem in log.problems]
    yield from problem_rows(problems, _STAGED)


def _write(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """On a worker: write messages below `where`."""
    for ranges in write_parts(batches, where):
        columns = [
            ranges.column(name) if name in RANGES.names else pa.nulls(ranges.num_rows, _STAGED.field(name).type)
            for name in _STAGED.names
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_STAGED)
