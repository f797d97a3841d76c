"""A lake: recordings as tables in a directory, added to piece by piece.

    LAKE/messages/date=.../class=.../*.parquet    bronze: every message once
    LAKE/gold/TABLE/run_id=.../*.parquet          what was made of them, run by run
    LAKE/_journal/*.parquet                       what was ingested

Parquet by default. Another format that the cluster has, as delta or iceberg, keeps the same tables in the same places.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
from pyarrow.fs import FileSelector, FileType

from msgq.errors import InvalidValueError
from msgq.recording.files import Problem, printable
from msgq.spark import tables
from msgq.spark.journal import Input, Journal
from msgq.spark.options import Options
from msgq.spark.parts import DERIVED, RANGES, open_path, overlapping, write_parts
from msgq.spark.rows import MESSAGES, PROBLEMS, message_rows, spark_schema
from msgq.spark.source import Pieces, tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_COLUMNS = pa.schema([MESSAGES.field(name) for name in tables.MESSAGE_COLUMNS])
_BRONZE = pa.schema([*_COLUMNS, *DERIVED.items(), ("date", pa.date32()), ("class", pa.string())])
_TEXTS_ONCE = pa.schema([
    field.with_type(pa.dictionary(pa.int32(), pa.string())) if pa.types.is_string(field.type) else field
    for field in _COLUMNS
])  # fmt: skip
_PLAIN = ("parquet", "orc")  # files without a log of their own: their columns must be said
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
        """
        text = os.fspath(path)
        self.uri = text if "://" in text else Path(text).absolute().as_uri()
        self.spark, self._format = spark, table_format
        self._files, self._root = open_path(self.uri)
        self._journal = Journal(self._files, self._root)

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
            self._journal.recover()
            known = self._journal.inputs()
            new = [one for one in found if one not in known]
            messages = 0
            if new or not set(problems) <= set(self._journal.problems()):
                work = list(tasks(Options(()), [Path(one.path) for one in new], problems))
                messages = self._add(uuid4().hex, new, problems, lambda where: self._stage_files(work, where))
        return Ingested(messages, len(new), len(found) - len(new), problems)

    def append(self, messages: DataFrame, name: str) -> int:
        """Add rows that have the columns of messages; return how many are new.

        name : of this batch, a word. The same name does nothing a second time, so that a stream that begins anew after
        a kill counts nothing twice.
        """
        columns = messages.select(*tables.MESSAGE_COLUMNS)
        with self._journal.locked():
            self._journal.recover()
            if name in self._journal.names():
                return 0
            return self._add(name, [], [], lambda where: self._stage_rows(columns, where))

    def messages(self) -> DataFrame:
        """Return all messages: the columns that the source gives, `bytes` of the payload, `picture`: "jpeg", "png" or
        NULL, `date` of log_time, and `class`: "large" from 64 KiB on, else "small".
        """
        if self._files.get_file_info(f"{self._root}/messages").type == FileType.NotFound:
            return self._empty(_BRONZE)
        if self._format == "parquet":
            return self.spark.read.schema(spark_schema(_BRONZE)).parquet(f"{self.uri}/messages")
        return self.spark.read.format(self._format).load(f"{self.uri}/messages")

    def problems(self) -> DataFrame:
        """Return what could not be read: file, offset in bytes, reason."""
        rows = [{"file": p.path, "offset": p.offset, "reason": p.reason} for p in self._journal.problems()]
        return self.spark.createDataFrame(pa.Table.from_pylist(rows, PROBLEMS))

    def _add(
        self, name: str, inputs: Sequence[Input], problems: list[Problem], stage: Callable[[str], pa.Table]
    ) -> int:
        """Stage, leave out what is there already, commit; return how many messages were added."""
        staged = f"_staged/{name}"
        found = stage(f"{self.uri}/{staged}")
        is_range = found.column("part").is_valid()
        ranges = found.filter(is_range).select(RANGES.names)
        for row in found.select([*PROBLEMS.names, "errno"]).filter(pa.compute.invert(is_range)).to_pylist():
            problem = Problem(row["file"], row["offset"], row["reason"], row["errno"])
            if problem not in problems:
                problems.append(problem)
        if self._format == "parquet":
            ranges = self._without_repeats(ranges, staged)
        else:
            ranges = self._into_table(ranges, staged)
        unread = {problem.path for problem in problems if problem.errno}  # the next ingest tries again
        inputs = [one for one in inputs if printable(one.path) not in unread]
        self._journal.commit(name, ranges, inputs, problems, f"{self._root}/{staged}")
        return sum(ranges.column("rows").to_pylist())

    def _stage_files(self, work: Sequence[Pieces], where: str) -> pa.Table:
        """Let workers read and write: the messages do not pass through Java, which doubles the speed."""
        if not work:
            return _STAGED.empty_table()
        rows = pa.table({"task": pa.array(map(pickle.dumps, work), pa.binary())})
        planned = self.spark.createDataFrame(rows).repartition(len(work))
        return _collected(planned.mapInArrow(lambda batches: _read_and_write(batches, where), spark_schema(_STAGED)))

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
        doubtful = self.spark.read.schema(schema).parquet(*(f"{self.uri}/{staged}/{part}" for part in sorted(mine)))
        known = self.spark.read.schema(schema).parquet(*(f"{self.uri}/messages/{part}" for part in sorted(theirs)))\
            if theirs else None
        anew = self._stage_rows(tables.deduplicated(doubtful, known), f"{self.uri}/{staged}")
        for part in mine:
            self._files.delete_file(f"{self._root}/{staged}/{part}")
        kept = ranges.filter(pa.array([part not in mine for part in ranges.column("part").to_pylist()], pa.bool_()))
        return pa.concat_tables([kept, anew.select(RANGES.names)])

    def _into_table(self, ranges: pa.Table, staged: str) -> pa.Table:
        """Append what is new to a table of another format; the parts were on the way only."""
        if ranges.num_rows:
            runs = sorted(set(ranges.column("run").to_pylist()))
            rows = self.spark.read.schema(spark_schema(_BRONZE)).parquet(f"{self.uri}/{staged}")
            known = self.messages()
            new = tables.deduplicated(rows, known.where(known.run.isin(runs))).persist()
            try:
                found = new.groupBy("run").count().collect()
                self._save(new, "messages", ["date", "class"], "append")
            finally:
                new.unpersist()
            counts = [{"run": run, "rows": count, "repeats": False} for run, count in found]
            return pa.Table.from_pylist(counts, RANGES)
        return ranges

    # ---- gold ----

    def refresh(self, window_ns: int = 1_000_000_000, limits: tables.Limits | None = None, every: bool = False) -> int:
        """Make the tables of gold again of those runs that have new messages; return how many runs.

        Parameters
        ----------
        window_ns : of `rates` and `latency`.
        limits : of `checks`.
        every : all runs, as after a change of the limits.
        """
        with self._journal.locked():
            self._journal.recover()
            state = self._gold_state()
            names = self._journal.names()
            runs = self._journal.runs(names if every else set(names) - set(state["done"]))
            if self._format != "parquet" and runs:
                runs = self._journal.runs(names)  # whole tables are written there
            if runs or not state["schemas"]:
                messages = self.messages()
                chosen = messages.where(messages.run.isin(sorted(runs)))
                tables.gold(chosen, window_ns, limits, lambda name, table: self._replace(name, table, runs, state))
            self._put("gold/_state.json", state | {"done": names})
        return len(runs)

    def table(self, name: str) -> DataFrame:
        """Return a table of gold.

        Raises
        ------
        InvalidValueError : there is none of this name (yet).
        """
        schemas = self._gold_state()["schemas"]
        if name not in schemas:
            there = f"there are {', '.join(sorted(schemas))}" if schemas else "ingest recordings first"
            raise InvalidValueError(f"the lake {self.uri} has no table {name!r}; {there}")
        return self._gold(name, schemas[name])

    def names(self) -> list[str]:
        """Return the names of the tables of gold that there are."""
        return list(self._gold_state()["schemas"])

    def register(self) -> list[str]:
        """Make each table a view of its name for SQL in this session; return the names."""
        found = {"messages": self.messages(), "problems": self.problems()}
        found |= {name: self.table(name) for name in self.names()}
        for name, table in found.items():
            table.createOrReplaceTempView(name)
        return list(found)

    def ask(self, query: str) -> DataFrame:
        """Return the answer to a query about the tables of this lake.

        Raises
        ------
        InvalidValueError : it is no SQL, or names what there is not.
        """
        from pyspark.errors import AnalysisException, ParseException

        self.register()
        try:
            return self.spark.sql(query)
        except (AnalysisException, ParseException) as error:
            text = next((line for line in str(error).splitlines() if line.strip()), "it is no SQL")
            raise InvalidValueError(text) from None

    def _replace(self, name: str, table: DataFrame, runs: Iterable[str], state: dict[str, Any]) -> DataFrame:
        """Write the rows of some runs in place of those that were there; return them."""
        from pyspark.sql import functions as F

        schema = table.schema
        marked = table.withColumn("run_id", F.substring(F.sha2("run", 256), 1, 16))
        if self._format == "parquet":
            for run in runs:
                place = f"{self._root}/gold/{name}/run_id={_run_id(run)}"
                if self._files.get_file_info(place).type == FileType.Directory:
                    self._files.delete_dir(place)
            self._save(marked, f"gold/{name}", ["run_id"], "append")
        else:
            self._save(marked, f"gold/{name}", ["run_id"], "overwrite")
        state["schemas"][name] = schema.jsonValue()
        written = self._gold(name, schema.jsonValue())
        return written.where(written.run.isin(sorted(runs)))

    def _gold(self, name: str, schema: dict[str, Any]) -> DataFrame:
        from pyspark.sql.types import StringType, StructType

        columns = StructType.fromJson(schema)
        place = f"gold/{name}"
        reader = self.spark.read.format(self._format)
        if self._format not in _PLAIN:
            return reader.load(f"{self.uri}/{place}").select(*columns.names)
        there = self._files.get_file_info(FileSelector(f"{self._root}/{place}", allow_not_found=True))
        if not any(info.type == FileType.Directory for info in there):
            return self.spark.createDataFrame([], columns)
        whole = StructType([*columns.fields]).add("run_id", StringType())
        return reader.schema(whole).load(f"{self.uri}/{place}").drop("run_id")

    def _save(self, table: DataFrame, place: str, partitions: list[str], mode: str) -> None:
        try:
            writer = table.write.format(self._format).mode(mode)
            writer.partitionBy(*partitions).save(f"{self.uri}/{place}")
        except Exception as error:  # of Java or of Spark, as it likes
            if "DATA_SOURCE_NOT_FOUND" in str(error):
                text = f"this Spark has no format {self._format!r}; add its packages to the cluster, or take parquet"
                raise InvalidValueError(text) from None
            raise

    def _gold_state(self) -> dict[str, Any]:
        path = f"{self._root}/gold/_state.json"
        if self._files.get_file_info(path).type == FileType.NotFound:
            return {"done": [], "schemas": {}}
        with self._files.open_input_stream(path) as file:
            found: dict[str, Any] = json.loads(file.read())
        return found

    def _put(self, place: str, value: Any) -> None:
        """Replace a small file at once."""
        path = f"{self._root}/{place}"
        self._files.create_dir(path.rpartition("/")[0])
        with self._files.open_output_stream(f"{path}.new") as file:
            file.write(json.dumps(value).encode())
        self._files.move(f"{path}.new", path)

    def _empty(self, schema: pa.Schema) -> DataFrame:
        return self.spark.createDataFrame([], spark_schema(schema))


def _input(path: Path, problems: list[Problem]) -> Input | None:
    """Return a file as it is now; None (and note it) where nobody can know."""
    try:
        status = path.stat()
    except OSError as error:
        problems.append(Problem(str(path.absolute()), 0, f"cannot read {path}: {error.strerror}", error.errno))
        return None
    return Input(str(path.absolute()), status.st_size, status.st_mtime_ns)


def _run_id(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def _collected(ranges: DataFrame) -> pa.Table:
    """Return the ranges of all parts: a few for each endpoint and task, however many messages there are."""
    return ranges.toArrow().cast(_STAGED)


def _read_and_write(batches: Iterable[pa.RecordBatch], where: str) -> Iterator[pa.RecordBatch]:
    """On a worker: read pieces of files, and write them below `where`."""
    problems: list[Problem] = []
    work = [pickle.loads(task) for batch in batches for task in batch.column("task").to_pylist()]
    logs = [log for task in work for log in task.opened(Options(()), problems)]
    yield from _write((batch for log in logs for batch in message_rows(log, _TEXTS_ONCE)), where)
    problems += [problem for log in logs for problem in log.problems]
    if problems:
        rows = [{"file": p.path, "offset": p.offset, "reason": p.reason, "errno": p.errno} for p in problems]
        yield pa.RecordBatch.from_pylist(rows, _STAGED)


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
    word = hashlib.sha256(place.encode()).hexdigest()[:16]
    rows = lake.spark.readStream.format("msgq").load(recordings)
    writer = rows.writeStream.option("checkpointLocation", place)


    def add(batch: DataFrame, number: int) -> None:
        lake.append(batch, f"{word}-{number}")

    writer = writer.foreachBatch(add)
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
    from msgq.spark.session import session

    made = Lake(spark or session(), lake)
    done = made.ingest([recording])
    made.refresh()
    return {"messages": done.messages, **write_report(made, Path(report_path))}
