"""A lake: recordings as tables in a directory, added to piece by piece.

    LAKE/messages/date=.../class=.../*.parquet    bronze: every message once
    LAKE/silver/ENDPOINT/date=.../*.parquet       decoded, a column for each field
    LAKE/undecoded/date=.../*.parquet             what could not be
    LAKE/gold/TABLE/run_id=.../*.parquet          what was made of them, run by run
    LAKE/_schemas/*.json                          the texts of schemas
    LAKE/_journal/*.parquet                       what was ingested

Parquet by default. Another format that the cluster has, as delta or iceberg, keeps the same tables in the same places.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from msgq.errors import InvalidValueError
from msgq.recording.files import Problem, printable
from msgq.spark import tables
from msgq.spark.directory import Directory
from msgq.spark.gold import Gold
from msgq.spark.journal import STAGED, Input, Journal
from msgq.spark.options import Options
from msgq.spark.parts import DERIVED, LOCAL, RANGES, overlapping, write_parts
from msgq.spark.rows import MESSAGES, PLACES, PROBLEMS, message_rows, problem_rows, spark_schema
from msgq.spark.session import plain_errors, session
from msgq.spark.silver import Silver
from msgq.spark.source import Pieces, tasks
from msgq.spark.store import Store
from msgq.spark.texts import known_texts, write_texts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_COLUMNS = pa.schema([*MESSAGES, PLACES.field("schema_id")])
_OPTIONAL = ("origin_time", "schema_id")  # of rows that are appended
_UNNAMED = {"run": "", "epoch": 0}  # what messages of files of other programs have
_NEEDED = ("endpoint", "sequence", "log_time", "data")
_BRONZE = pa.schema([*_COLUMNS, *DERIVED.items(), ("date", pa.date32()), ("class", pa.string())])
_TEXTS_ONCE = pa.schema([
    field.with_type(pa.dictionary(pa.int32(), pa.string())) if pa.types.is_string(field.type) else field
    for field in _COLUMNS
])  # fmt: skip
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


class Lake:
    """Tables of messages, and of what was made of them.

    What is ingested twice is there once; an ingest that is killed leaves nothing, or is finished by the next one. One
    process at a time may write, any number may read. Not for several threads.
    """

    def __init__(self, spark: SparkSession, path: str | os.PathLike[str], table_format: str = "parquet") -> None:
        """Look at a lake that may not exist yet.

        Parameters
        ----------
        spark : the session; `msgq.spark.session` makes one.
        path : a directory, or a URI that both Spark and pyarrow know; workers must see it too.
        table_format : "parquet", or a word for what the cluster has: "delta", "iceberg".

        Raises
        ------
        InvalidValueError : this Spark does not have that format.
        """
        text = os.fspath(path)
        self.uri = text if "://" in text else f"{LOCAL}{Path(text).absolute()}"
        self.spark, self.format = spark, table_format
        self._store = Store(spark, self.uri, table_format)
        self._journal = Journal(self._store)
        self._silver, self._gold = Silver(self._store, self._journal), Gold(self._store, self._journal)

    # ---- bronze ----

    def ingest(self, paths: Iterable[str | os.PathLike[str]]) -> Ingested:
        """Add recordings: files, directories, patterns. Files that were read before and did not change are skipped.

        Raises
        ------
        RecordingError : nothing is at a path; somebody else is writing the lake.
        """
        problems: list[Problem] = []
        files = Options(tuple(os.fspath(path) for path in paths)).files(problems)
        found = [one for path in files if (one := _input(path, problems)) is not None]
        with self._journal.locked():
            known = self._journal.inputs()
            new = [one for one in found if one not in known]
            messages = 0
            if new or not set(problems) <= set(self._journal.problems()):
                work = list(tasks(Options(()), [Path(one.path) for one in new], problems))
                messages = self._add(new, problems, lambda where: self._stage_files(work, where))
        return Ingested(messages, len(new), len(found) - len(new), problems)

    def append(self, messages: DataFrame, recordings: str | None = None) -> int:
        """Add rows that have the columns of messages, origin_time and schema_id if they like; return how many are new.

        Those that are in the lake already count for nothing, so that a stream may give a batch again. Waits for whoever
        else is writing the lake. A run that is NULL becomes empty, and an epoch 0, as in files of other programs.

        Parameters
        ----------
        recordings : a directory whose recordings have the texts of the rows' schemas.

        Raises
        ------
        InvalidValueError : endpoint, sequence, log_time or data is NULL; nothing is added.
        """
        columns = _complete(messages)

        def stage(where: str) -> pa.Table:
            with _plain_nulls():
                found = self._stage_rows(columns, where)
            if recordings is not None:
                self._learn(found, recordings)
            return found

        with self._journal.locked(wait=True):
            return self._add([], [], stage)

    def _learn(self, ranges: pa.Table, recordings: str) -> None:
        """Look in recordings for the texts of schemas that the lake does not have yet."""
        known = pa.array(sorted(known_texts(self._store)), pa.int64())
        new = ranges.filter(pc.and_(ranges["schema_id"].is_valid(), pc.invert(pc.is_in(ranges["schema_id"], known))))
        if not new.num_rows:
            return
        first, last = pc.min(new["first_time"]).as_py(), pc.max(new["last_time"]).as_py()
        options = Options((recordings,), start=first, end=last + 1)
        for log in options.opened(options.files([]), []):
            for _ in log.batches([]):
                continue
            write_texts(self._store, (channel.schema for channel in log.channels))

    def messages(self) -> DataFrame:
        """Return all messages: the columns that the source gives, `schema_id`, `bytes` of the payload, `picture`:
        "jpeg", "png", "raw" or NULL, `date` of log_time, `class`: "large" from 64 KiB on, else "small", and timestamps.
        """
        return tables.with_timestamps(self._messages())

    def _messages(self) -> DataFrame:
        return self._store.read("messages", spark_schema(_BRONZE))

    def problems(self) -> DataFrame:
        """Return what could not be read: file, offset in bytes, reason."""
        rows = pa.Table.from_batches(problem_rows(self._journal.problems(), PROBLEMS), PROBLEMS)
        return self.spark.createDataFrame(rows, spark_schema(PROBLEMS))

    def _add(self, inputs: Sequence[Input], problems: list[Problem], stage: Callable[[str], pa.Table]) -> int:
        """Stage, leave out what is there already, commit; return how many messages were added."""
        name = uuid4().hex
        staged = f"{STAGED}/{name}"
        found = stage(f"{self.uri}/{staged}")
        is_range = found.column("part").is_valid()
        ranges = found.filter(is_range).select(RANGES.names)
        for row in found.select([*PROBLEMS.names, "errno"]).filter(pc.invert(is_range)).to_pylist():
            problem = Problem(row["file"], row["offset"], row["reason"], row["errno"])
            if problem not in problems:
                problems.append(problem)
        add = self._without_repeats if self._store.is_parquet else self._into_table
        ranges = add(ranges, staged)
        unread = {problem.path for problem in problems if problem.errno}  # the next ingest tries again
        inputs = [one for one in inputs if printable(one.path) not in unread]
        self._journal.commit(name, ranges, inputs, problems)
        return sum(ranges.column("rows").to_pylist())

    def _stage_files(self, work: Sequence[Pieces], where: str) -> pa.Table:
        """Let workers read and write: the messages do not pass through Java, which doubles the speed.

        A task has one piece: a row group of two that do not follow each other would seem to overlap what is in between.
        """
        if not work:
            return _STAGED.empty_table()
        rows = pa.table({"number": range(len(work)), "task": pa.array(map(pickle.dumps, work), pa.binary())})
        planned = self.spark.createDataFrame(rows).repartitionByRange(len(work), "number")
        uri, columns = self.uri, spark_schema(_STAGED)
        return _collected(planned.mapInArrow(lambda batches: _read_and_write(batches, uri, where), columns))

    def _stage_rows(self, messages: DataFrame, where: str) -> pa.Table:
        return _collected(messages.mapInArrow(lambda batches: _write(batches, where), spark_schema(_STAGED)))

    def _without_repeats(self, ranges: pa.Table, staged: str) -> pa.Table:
        """Return the ranges of what is new, having written the parts anew that may have what is there already.

        Recordings seldom overlap; only those parts that do are compared message by message.
        """
        mine, theirs = overlapping(ranges, self._journal.ranges(ranges.column("run").to_pylist()))
        if not mine:
            return ranges
        schema = spark_schema(_COLUMNS)
        parts = [self._store.address(f"{staged}/{part}") for part in sorted(mine)]
        there = [self._store.address(f"messages/{part}") for part in sorted(theirs)]
        doubtful = self.spark.read.schema(schema).parquet(*parts)
        known = self.spark.read.schema(schema).parquet(*there) if there else None
        anew = self._stage_rows(tables.deduplicated(doubtful, known), f"{self.uri}/{staged}")
        for part in mine:
            self._store.files.delete_file(self._store.path(f"{staged}/{part}"))
        kept = ranges.filter(pa.array([part not in mine for part in ranges.column("part").to_pylist()], pa.bool_()))
        return pa.concat_tables([kept, anew.select(RANGES.names)])

    def _into_table(self, ranges: pa.Table, staged: str) -> pa.Table:
        """Append what is new to a table of another format; the parts were on the way only."""
        if ranges.num_rows:
            runs = sorted(set(ranges.column("run").to_pylist()))
            base = f"{self.uri}/{staged}"  # there may be more: of tasks that failed, or were slower than their doubles
            parts = [self._store.address(f"{staged}/{part}") for part in sorted(set(ranges["part"].to_pylist()))]
            rows = self.spark.read.schema(spark_schema(_BRONZE)).option("basePath", base).parquet(*parts)
            known = self._messages()
            new = tables.deduplicated(rows, known.where(known.run.isin(runs))).persist()
            try:
                found = dict(map(tuple, new.groupBy("run").count().collect()))
                self._store.save(new, "messages", ["date", "class"], "append")
            finally:
                new.unpersist()
            # All runs, as gold lacks those that a killed ingest has added without an entry in the journal.
            counts = [{"run": run, "rows": found.get(run, 0), "repeats": False} for run in runs]
            return pa.Table.from_pylist(counts, RANGES)
        return ranges

    # ---- silver and gold ----

    def decode(self, every: bool = False) -> int:
        """Decode what is new into the tables of silver; return how many entries of the journal that was.

        every : everything again, as after an encoding's library was installed.
        """
        with self._journal.locked():
            return self._silver.refresh(every)

    def endpoints(self) -> list[str]:
        """Return the endpoints that have a table of silver."""
        return self._silver.names()

    def silver(self, endpoint: str) -> DataFrame:
        """Return the decoded messages of an endpoint.

        Raises
        ------
        InvalidValueError : there are none (yet).
        """
        table = self._silver.table(endpoint)
        if table is None:
            raise InvalidValueError(f"the lake {self.uri} has no decoded messages of {endpoint!r}; {self._there()}")
        return tables.with_timestamps(table, "publish_time", "log_time")

    def undecoded(self) -> DataFrame:
        """Return what could not be decoded: run, endpoint, epoch, sequence, log_time, reason, data."""
        return tables.with_timestamps(self._silver.undecoded())

    def _there(self) -> str:
        names = self.endpoints()
        return f"there are {', '.join(names[:20])}" if names else "ingest recordings first, and decode them"

    def refresh(self, window_ns: int = tables.NS, limits: tables.Limits | None = None, every: bool = False) -> int:
        """Make the tables of gold again of those runs that have new messages; return how many runs.

        Parameters
        ----------
        window_ns : of `rates` and `latency`.
        limits : of `checks`.
        every : all runs, as after a change of the limits.
        """
        with self._journal.locked():
            return self._gold.refresh(self._messages(), window_ns, limits, every)

    def table(self, name: str) -> DataFrame:
        """Return a table of gold.

        Raises
        ------
        InvalidValueError : there is none of this name (yet).
        """
        table = self._gold.table(name)
        if table is None:
            names = self.names()
            there = f"there are {', '.join(sorted(names))}" if names else "ingest recordings first"
            raise InvalidValueError(f"the lake {self.uri} has no table {name!r}; {there}")
        return tables.with_timestamps(table)

    def names(self) -> list[str]:
        """Return the names of the tables of gold that there are."""
        return self._gold.names()

    # ---- questions ----

    def register(self, *endpoints: str) -> list[str]:
        """Make each table a view of its name for SQL in this session; return the names.

        endpoints : of these also the table of silver, as `silver_` and the endpoint's name.
        """
        found = {"messages": self.messages(), "problems": self.problems(), "undecoded": self.undecoded()}
        found |= {name: self.table(name) for name in self.names()}
        found |= {f"silver_{endpoint}": self.silver(endpoint) for endpoint in endpoints}
        for name, table in found.items():
            table.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
        return list(found)

    def ask(self, query: str) -> DataFrame:
        """Return the answer to a query about the tables of this lake, those of silver among them.

        Raises
        ------
        InvalidValueError : it is no SQL, or names what there is not.
        """
        text = query.lower().replace("``", "`")
        self.register(*(name for name in self.endpoints() if f"silver_{name.lower()}" in text))
        with plain_errors():
            answer = self.spark.sql(query)
            _ = answer.schema  # Spark Connect looks at the names no sooner
        return answer


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

    columns = {name: F.col(name) for name in messages.columns}
    columns |= {name: F.lit(None).cast("long") for name in _OPTIONAL if name not in columns}
    for name, value in _UNNAMED.items():
        columns[name] = F.coalesce(columns[name], F.lit(value))
    for name in _NEEDED:
        columns[name] = F.coalesce(columns[name], F.raise_error(F.lit(f"a row's {name} is NULL, which no message has")))
    return messages.select(*(columns[name].alias(name) for name in _COLUMNS.names))


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


def _read_and_write(batches: Iterable[pa.RecordBatch], lake: str, where: str) -> Iterator[pa.RecordBatch]:
    """On a worker: read pieces of files, and write them below `where`, and the texts of schemas into the lake."""
    problems: list[Problem] = []
    work = [pickle.loads(task) for batch in batches for task in batch.column("task").to_pylist()]
    logs = [log for task in work for log in task.opened(Options(()), problems)]
    yield from _write((batch for log in logs for batch in message_rows(log, _TEXTS_ONCE)), where)
    write_texts(Directory(lake), (channel.schema for log in logs for channel in log.channels))
    problems += [problem for log in logs for problem in log.problems]
    yield from problem_rows(problems, _STAGED)


def _write(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """On a worker: write messages below `where`."""
    for ranges in write_parts(batches, where):
        columns = [ranges.column(name) if name in RANGES.names else pa.nulls(ranges.num_rows, _STAGED.field(name).type)
                   for name in _STAGED.names]  # fmt: skip
        yield pa.RecordBatch.from_arrays(columns, schema=_STAGED)


def follow(lake: Lake, recordings: str, checkpoint: str | None = None, every: float | None = 10.0) -> StreamingQuery:
    """Start a stream of growing recordings into a lake; return its query.

    Parameters
    ----------
    recordings : a directory, as `spark.readStream.format("msgq")` takes it.
    checkpoint : where the stream keeps its place; None: in the lake, by the name of the recordings.
    every : seconds between two batches; None: all there is, and no more.
    """
    name = hashlib.sha256(os.path.abspath(recordings).encode()).hexdigest()[:16]
    place = checkpoint or f"{lake.uri}/_checkpoints/{name}"
    rows = lake.spark.readStream.format("msgq").schema(spark_schema(_COLUMNS)).load(recordings)
    uri, table_format = lake.uri, lake.format  # all that goes along to a server, where Spark Connect calls `add`

    def add(batch: DataFrame, _: int) -> None:
        Lake(batch.sparkSession, uri, table_format).append(batch, recordings)

    writer = rows.writeStream.option("checkpointLocation", place).foreachBatch(add)
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every} seconds").start()


def run_pipeline(
    recording: str | os.PathLike[str], lake: str | os.PathLike[str], report_path: str | os.PathLike[str],
    spark: SparkSession | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Go all the way from a recording to a page: ingest, tables, report.

    recording : a file or directory. lake : may exist. report_path : of the page, written anew. spark : None makes a
    session. Returns the figures of the report, and "messages": how many are new in the lake.
    """
    from msgq.spark.report import write_report

    made = Lake(spark or session(), lake)
    done = made.ingest([recording])
    made.decode()
    made.refresh()
    return {"messages": done.messages, **write_report(made, Path(report_path))}
