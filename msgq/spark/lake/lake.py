"""Lake: recordings as tables in a directory. docs/guides/lake.md describes the directory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from msgq.common.choices import list_names
from msgq.common.selection import list_paths
from msgq.common.storage.url_path import make_path
from msgq.common.storage.urls import make_absolute_path
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidTypeError, InvalidValueError, SparkError
from msgq.lake.bronze.bronze_store import BronzeStore, OptimizeResult
from msgq.lake.bronze.listing_positions import ListingPositions
from msgq.lake.catalog import find_unquoted_name, list_sql_names, quote_sql_name
from msgq.lake.delta_table import LakeTable, list_table_paths
from msgq.lake.fleet.fleet_tables import refuse_fleet_directory
from msgq.lake.gold.gold_builder import GoldBuilder
from msgq.lake.gold.gold_files import GOLD_TABLE_SCHEMAS
from msgq.lake.message_columns import BRONZE_COLUMNS, INGEST_COLUMNS, READ_ERRORS_SCHEMA
from msgq.lake.message_filter import MessageFilter
from msgq.lake.query_names import find_named_tables
from msgq.lake.silver.silver_builder import build_silver
from msgq.lake.silver.silver_manifest import SilverManifest
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.reader.log_times import LogTime, parse_log_time
from msgq.spark import tables
from msgq.spark.lake import ingest
from msgq.spark.lake.file_index import read_message_files
from msgq.spark.lake.file_selector import FileSelector, warn_of_unselected_files
from msgq.spark.lake.hadoop_connectors import find_hadoop_location
from msgq.spark.lake.ingest import IngestResult
from msgq.spark.lake.python_scan import read_scan
from msgq.spark.lake.silver_views import SilverViews
from msgq.spark.lake.spark_directory import SparkDirectory
from msgq.spark.runtime.connect_client import is_connect_client
from msgq.spark.runtime.spark_errors import translate_spark_errors
from msgq.spark.source.arrow_batches import convert_to_spark_schema, make_read_error_batches
from msgq.spark.source.source_options import SourceOptions
from msgq.spark.spark_executor import SparkExecutor

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_LISTED_ENDPOINTS_MAX = 30  # maximum tables or endpoints in an error
_SILVER_PREFIX = "silver_"
#: Advice by the start of Spark's error condition.
_QUERY_ADVICE = {
    "UNSUPPORTED_FEATURE.TIME_TRAVEL": "SQL cannot name a version of a table; to read an older version of messages, "
    "use --version NUMBER, or Lake(spark, path, version=NUMBER)",
    "UNSUPPORTED_INSERT": "SQL cannot change the tables of a lake; to add messages, use `msgq lake ingest` or "
    "Lake.append",
}


class Lake:
    """Tables of messages and results in a directory.

    Repeated ingests of a recording add its messages once. After a killed ingest, the lake is unchanged, or the next
    ingest completes the work. Any number of processes may read and write. A reader sees the version that was committed
    at its request. One thread at a time may use an object.
    """

    @translate_spark_errors()
    def __init__(
        self,
        spark: SparkSession,
        path: str | os.PathLike[str],
        version: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        """Open a lake, which may not exist yet.

        Args:
            spark: Spark session; `msgq.spark.session` creates one.
            path: a directory, or a URL such as s3://BUCKET/PATH. The workers must see it, too.
            version: version of `messages` to read; None: the newest. Other tables are always the newest.
            storage_options: credentials and settings of the URL's object store, by the names of environment variables
                such as AWS_SECRET_ACCESS_KEY. The workers get them, too. None: the environment of each process has
                them.

        Raises:
            InvalidValueError: the directory has fleet tables. Or the path contains a backslash, or % and two
                hexadecimal digits. Or a storage option is unknown.
            StorageError: the object store cannot be used.
        """
        self._directory = directory = SparkDirectory(spark, path, storage_options)
        refuse_fleet_directory(directory)
        self.spark, self.uri, self.storage_options = spark, directory.uri, directory.storage_options
        self._executor = SparkExecutor(spark)
        self._bronze = BronzeStore(directory, self._executor, version)
        self._selector = FileSelector(directory)
        self._silver = SilverViews(directory, SilverManifest(directory))
        self._gold = GoldBuilder(directory, self._executor, self._bronze.read_aggregates)

    # ---- bronze ----

    @translate_spark_errors()
    def ingest(
        self,
        paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        schemas: Schemas | None = None,
        new_only: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> IngestResult:
        """Add recordings: files, directories, patterns and URLs. Skips unchanged files that were ingested before.

        Args:
            paths: files, directories and patterns, or one of them. An empty list adds nothing.
            schemas: schemas for endpoints without a schema in the recordings. The lake stores them with the messages.
            new_only: True: in a directory, continue where the last ingest with `new_only` ended, so that the
                directories of older recordings are not listed. Names must sort by time. Older names that come later are
                not found.
            storage_options: credentials and settings for URLs of recordings; None: those of the lake.

        Raises:
            RecordingError: a path does not exist, or the lake cannot be written.
        """
        read_errors: list[Problem] = []
        absolute = [str(make_path(path).absolute()) for path in list_paths(paths, "paths", may_be_empty=True)]
        options = self.storage_options if storage_options is None else storage_options
        positions = ListingPositions(self._directory, options)
        files = (
            positions.list_new_recordings(absolute, read_errors)
            if new_only
            else SourceOptions(tuple(absolute), storage_options=options).list_files(read_errors)
        )
        done = ingest.ingest_recordings(self._directory, self._executor, self._bronze, files, read_errors, schemas)
        positions.record_positions({problem.path for problem in read_errors if problem.errno})
        return done

    @translate_spark_errors()
    def append(self, messages: DataFrame, recordings: str | None = None) -> int:
        """Add rows with the columns of messages, and return the number of new rows.

        Rows that the lake contains already are skipped, so a stream may repeat a batch. A NULL in `run` becomes "", in
        `epoch` 0, and in `kind` "topic", as in files of other programs. The columns origin_time, kind, publisher and
        key may be missing. The columns schema_id, options, lost_before and lost_after are optional.

        Args:
            messages: rows to add.
            recordings: directory of recordings that contain the texts of the rows' schemas.

        Raises:
            InvalidValueError: endpoint, sequence, log_time or data is NULL. Nothing was added.
        """
        return ingest.append_messages(self._directory, self._bronze, messages, recordings)

    def messages(
        self,
        start: LogTime | None = None,
        end: LogTime | None = None,
        endpoints: str | Iterable[str] | None = None,
        where: Column | str | None = None,
    ) -> DataFrame:
        """Return all messages, or those of a time range, of some endpoints, or that meet a condition.

        Spark opens only files that may have a message for the conditions on `endpoint`, `log_time`, `date` and
        `size_class`. The conditions may be these arguments, as in ``messages(where=F.col("log_time") > time)``, or in
        SQL, or in a later `where`. A condition on `log_timestamp` selects no files. With Spark Connect, only `start`,
        `end` and `endpoints` select files. A query that opens all of more than 1,000 files causes a warning.

        The columns are those of the source "msgq", and: `schema_id`, `options`, `size_bytes` of the payload, `picture`
        ("jpeg", "png", "raw" or NULL), `date` of log_time, `size_class` ("large" from 64 KiB, else "small"), and
        timestamps.

        Args:
            start: read only messages with start <= log_time; None: no bound. A time is ns since the epoch, a text such
                as "2026-05-01T12:00", or a datetime. A time without a UTC offset is in UTC.
            end: read only messages with log_time < end, given as `start`; None: no bound.
            endpoints: one name or several; None: all.
            where: condition for messages, a Column or a text of SQL; None: all.

        Raises:
            InvalidValueError: a text is not a time, a time does not fit into 64 bits, or `endpoints` is empty.
            InvalidTypeError: a time, a name or the condition has another type.
            SparkError: the condition is invalid, or names a missing column.
            RecordingError: the version of this `Lake` can no longer be read.
        """
        start, end = parse_log_time(start), parse_log_time(end)
        for time in (start, end):
            if time is not None and not -(1 << 63) <= time < 1 << 63:
                raise InvalidValueError(
                    f"time {time} is out of range; use nanoseconds since 1970 that fit into 64 bits"
                )
        names = None if endpoints is None else frozenset(list_names(endpoints, "endpoints"))
        message_filter = MessageFilter(names, start, end)
        rows = tables.with_timestamps(self._read_messages(message_filter))
        if start is not None:
            rows = rows.where(rows["log_time"] >= start)
        if end is not None:
            rows = rows.where(rows["log_time"] < end)
        if message_filter.endpoints is not None:
            rows = rows.where(rows["endpoint"].isin(*sorted(message_filter.endpoints)))
        return rows if where is None else _select_rows(rows, where)

    def _read_messages(self, message_filter: MessageFilter) -> DataFrame:
        """Return the messages that pass a filter, and others."""
        snapshot, table = self._bronze.read_snapshot(), self._bronze.table
        if snapshot is None:
            return self._directory.read_files(table, [], BRONZE_COLUMNS)
        if is_connect_client(self.spark):
            paths = self._bronze.select_paths(snapshot, [message_filter])
            warn_of_unselected_files(len(paths), snapshot.file_count, is_connect=True)
            return self._directory.read_files(table, paths, BRONZE_COLUMNS, message_filter.expression)
        self._bronze.check_files(snapshot, [message_filter])
        if (location := self._directory.hadoop_location) is not None:
            return read_message_files(self.spark, location, snapshot, self._selector)
        scan = self._directory.make_scan(table, snapshot.paths, BRONZE_COLUMNS)
        version, select = f"{snapshot.table_id} {snapshot.version}", partial(self._selector.select_scan_paths, snapshot)
        return read_scan(self.spark, scan, version, select)

    def read_errors(self) -> DataFrame:
        """Return the parts of files that could not be read: file, byte_offset, reason."""
        rows = pa.Table.from_batches(
            make_read_error_batches(self._bronze.list_read_errors(), READ_ERRORS_SCHEMA), READ_ERRORS_SCHEMA
        )
        return self.spark.createDataFrame(rows, convert_to_spark_schema(READ_ERRORS_SCHEMA))

    @translate_spark_errors()
    def optimize(self, retain_hours: int = 168) -> OptimizeResult:
        """Merge small files, update silver and gold, and remove files that no table needs.

        Args:
            retain_hours: hours for which replaced versions stay readable, and for which unfinished files may wait for
                their commit. Use less than the longest ingest or query only if no other process uses the lake.

        Raises:
            RecordingError: a table cannot be written.
        """
        done = self._bronze.optimize()
        if self.endpoints():
            self.build_silver()
        if self.table_names():
            self.build_gold()
        for place in list_table_paths(self._directory):
            LakeTable(self._directory, place).vacuum(retain_hours)
        return done

    # ---- silver and gold ----

    @translate_spark_errors()
    def build_silver(self, full_refresh: bool = False) -> int:
        """Decode new messages into the silver tables, and return the number of decoded parts.

        Args:
            full_refresh: True: decode all messages again, for example after you installed the library of an encoding.
        """
        self._bronze.complete_aggregates()
        return build_silver(self._directory, self._executor, self._bronze.list_bronze_files, full_refresh)

    def endpoints(self) -> list[str]:
        """Return the endpoints that have decoded messages."""
        return self._silver.list_endpoints()

    def silver(self, endpoint: str) -> DataFrame:
        """Return the decoded messages of an endpoint, as a union of its tables.

        Raises:
            InvalidValueError: the endpoint has no decoded messages yet.
        """
        table = self._silver.read_endpoint(endpoint)
        if table is None:
            raise InvalidValueError(
                f"lake '{self.uri}' has no decoded messages of {endpoint!r}; {self._suggest_endpoints()}"
            )
        return tables.with_timestamps(table, "publish_time", "log_time")

    def decode_errors(self) -> DataFrame:
        """Return the messages that could not be decoded: run, endpoint, epoch, sequence, log_time, reason, data."""
        return tables.with_timestamps(self._silver.read_decode_errors())

    def _suggest_endpoints(self) -> str:
        names = self.endpoints()
        return (
            f"decoded endpoints: {', '.join(names[:_LISTED_ENDPOINTS_MAX])}"
            if names
            else "ingest and decode recordings first"
        )

    @translate_spark_errors()
    def build_gold(
        self,
        window_ns: int | None = None,
        thresholds: tables.CheckThresholds | None = None,
        full_refresh: bool = False,
    ) -> int:
        """Build the gold tables again for runs with new messages, and return the number of runs.

        Args:
            window_ns: minimum width in ns of the windows of `traffic_windows`, `throughput`, `latency`, `stages` and
                `queue_windows`. Widths are 1, 10, 60, 600 or 3600 s. None: that of the previous call, or 1 s.
            thresholds: thresholds of `checks`; None: those of the previous call, or `CheckThresholds()`. The lake
                stores both values, because `optimize` and the commands of `msgq lake` also build gold.
            full_refresh: True: build all runs, for example after a change of the thresholds.

        Raises:
            InvalidValueError: `window_ns` is not 1 ns to one hour.
            RecordingError: a table cannot be written.
        """
        return self._gold.build_gold(window_ns, thresholds, full_refresh)

    def table(self, name: str) -> DataFrame:
        """Return a gold table.

        Raises:
            InvalidValueError: the table does not exist yet.
        """
        table = self._gold.get_table(name)
        snapshot = None if table is None else table.read_snapshot()
        if table is None or snapshot is None:
            names = self.table_names()
            hint = f"tables: {', '.join(sorted(names))}" if names else "ingest recordings first"
            raise InvalidValueError(f"lake '{self.uri}' has no table {name!r}; {hint}")
        columns = GOLD_TABLE_SCHEMAS[name]
        rows = self._directory.read_files(table, snapshot.paths, columns).select(*columns.names)
        return tables.with_timestamps(rows)

    def table_names(self) -> list[str]:
        """Return the names of the existing gold tables."""
        return self._gold.list_table_names()

    # ---- questions ----

    def register(self, *endpoints: str) -> list[str]:
        """Create a view of each table for SQL in this session, and return the names.

        Args:
            endpoints: endpoints whose silver tables get a view, too, named `silver_` and the endpoint.
        """
        names = [*self._list_table_names(), *(f"silver_{endpoint}" for endpoint in endpoints)]
        for name in names:
            self._create_view(name, self._read_table(name))
        return names

    def _list_table_names(self) -> list[str]:
        """Return the names of all tables for SQL, without silver tables."""
        return ["messages", "read_errors", "decode_errors", *self.table_names()]

    def _read_table(self, name: str) -> DataFrame:
        if name.startswith(_SILVER_PREFIX):
            return self.silver(name.removeprefix(_SILVER_PREFIX))
        read = {"messages": self.messages, "read_errors": self.read_errors, "decode_errors": self.decode_errors}
        return read[name]() if name in read else self.table(name)

    def _create_view(self, name: str, rows: DataFrame) -> None:
        rows.createOrReplaceTempView(quote_sql_name(name))

    @translate_spark_errors()
    def sql(self, query: str) -> DataFrame:
        """Return the result of a query about the tables of this lake, including silver tables.

        The query reads only the tables that it names. Its conditions on `endpoint` and `log_time` select the files of
        `messages`.

        Raises:
            SparkError: the query is invalid SQL, or names a missing table or column.
            InvalidValueError: the query names tables that differ only in case.
        """
        names = [*self._list_table_names(), *(f"{_SILVER_PREFIX}{endpoint}" for endpoint in self.endpoints())]
        for name in find_named_tables(query, names, "`"):
            self._create_view(name, self._read_table(name))
        with translate_spark_errors(), self._explain_rejected_query(query, names):
            answer = self.spark.sql(query)
            _ = answer.schema  # Spark Connect checks the names at this access
        return answer

    @contextmanager
    def _explain_rejected_query(self, query: str, registered: Sequence[str]) -> Iterator[None]:
        """Say what to do if a query names a missing table or a version, or changes a table. Raises SparkError."""
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            condition = error.getCondition() or ""
            for start, advice in _QUERY_ADVICE.items():
                if condition.startswith(start):
                    raise SparkError(advice) from None
            if condition not in ("PARSE_SYNTAX_ERROR", "TABLE_OR_VIEW_NOT_FOUND"):
                raise
            if unquoted := find_unquoted_name(query, registered):
                text = f"table {unquoted!r} needs backticks; write {quote_sql_name(unquoted)}"
                raise SparkError(text) from None
            if condition == "PARSE_SYNTAX_ERROR":
                raise
            name = (error.getMessageParameters() or {}).get("relationName", "that name").strip("`").replace("`.`", ".")
            names = list(dict.fromkeys(registered))
            text = f"lake '{self.uri}' has no table {name!r}"
            raise SparkError(f"{text}; {list_sql_names(name, names)}") from None


def _select_rows(rows: DataFrame, condition: Column | str) -> DataFrame:
    """Return the rows that meet a condition. Raises InvalidTypeError and SparkError."""
    from pyspark.sql import Column

    if not isinstance(condition, (str, Column)):
        kind = type(condition).__name__
        raise InvalidTypeError(f"where has type {kind}; use a Column, such as F.col('log_time') > 0, or a text of SQL")
    with translate_spark_errors():
        return rows.where(condition)


def follow(
    lake: Lake, recordings: str, checkpoint: str | None = None, trigger_seconds: float | None = 10.0
) -> StreamingQuery:
    """Start a stream that ingests growing recordings into a lake, and return its query.

    Args:
        lake: lake that gets the messages.
        recordings: directory, as in `spark.readStream.format("msgq")`.
        checkpoint: directory for the position of the stream, a path or a URL that Spark and pyarrow accept; None: a
            directory in the lake, named by the recordings. Spark itself must have access to the URL, without the
            storage options of the lake.
        trigger_seconds: seconds between two batches; None: ingest all available messages, then end.

    Raises:
        InvalidValueError: `checkpoint` is None, and Spark has no connector for the store of the lake.
    """
    place = checkpoint or _make_checkpoint_uri(lake, recordings)
    reader = lake.spark.readStream.format("msgq").option("checkpointLocation", place)
    rows = reader.schema(convert_to_spark_schema(INGEST_COLUMNS)).load(recordings)
    uri, options = lake.uri, lake.storage_options  # all that goes along to a server, where Spark Connect calls `add`

    def append_batch(batch: DataFrame, _: int) -> None:
        Lake(batch.sparkSession, uri, storage_options=options).append(batch, recordings)

    writer = rows.writeStream.option("checkpointLocation", place).foreachBatch(append_batch)
    if trigger_seconds is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_seconds} seconds").start()


def _make_checkpoint_uri(lake: Lake, recordings: str) -> str:
    location = find_hadoop_location(lake.spark, lake.uri, lake.storage_options)
    if location is None:
        raise InvalidValueError(
            f"Spark cannot store the position of the stream in '{lake.uri}', because it has no connector for the store;"
            " give a directory on a disk as checkpoint (--checkpoint), or the connector to Spark"
        )
    name = hashlib.sha256(make_absolute_path(recordings).encode()).hexdigest()[:16]
    return f"{location.uri}/_checkpoints/{name}"
