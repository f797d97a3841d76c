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
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError
from msgq.recording.format.problem import Problem
from msgq.spark import tables
from msgq.spark.lake.bronze import COLUMNS, Bronze, Ingested
from msgq.spark.lake.gold import Gold
from msgq.spark.lake.journal import Journal
from msgq.spark.lake.message_files import LOCAL
from msgq.spark.lake.silver import Silver
from msgq.spark.lake.store import Store
from msgq.spark.runtime.refusals import spark_errors
from msgq.spark.source.arrow_batches import spark_schema
from msgq.spark.source.options import Options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


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
        SparkError : this Spark does not have that format.
        """
        text = os.fspath(path)
        self.uri = text if "://" in text else f"{LOCAL}{Path(text).absolute()}"
        self.spark, self.format = spark, table_format
        store = Store(spark, self.uri, table_format)
        self._journal = Journal(store)
        self._bronze = Bronze(store, self._journal)
        self._silver = Silver(store, self._journal)
        self._gold = Gold(store, self._journal)

    # ---- bronze ----

    def ingest(self, paths: Iterable[str | os.PathLike[str]], schemas: Schemas | None = None) -> Ingested:
        """Add recordings: files, directories, patterns. Files that were read before and did not change are skipped.

        Parameters
        ----------
        schemas : for endpoints of which the recordings say nothing; the lake keeps them with the messages.

        Raises
        ------
        RecordingError : nothing is at a path; somebody else is writing the lake.
        """
        problems: list[Problem] = []
        files = Options(tuple(os.fspath(path) for path in paths)).files(problems)
        with self._journal.locked():
            return self._bronze.ingest(files, problems, schemas)

    def append(self, messages: DataFrame, recordings: str | None = None) -> int:
        """Add rows that have the columns of messages; return how many are new.

        Those that are in the lake already count for nothing, so that a stream may give a batch again. Waits for whoever
        else is writing the lake. A run that is NULL becomes empty, an epoch 0, and a kind "topic", as in files of other
        programs. Rows may be without origin_time, kind, publisher and key; they may have schema_id and options.

        Parameters
        ----------
        recordings : a directory whose recordings have the texts of the rows' schemas.

        Raises
        ------
        InvalidValueError : endpoint, sequence, log_time or data is NULL; nothing is added.
        """
        with self._journal.locked(wait=True):
            return self._bronze.append(messages, recordings)

    def messages(self) -> DataFrame:
        """Return all messages: the columns that the source gives, `schema_id`, `options`, `bytes` of the payload,
        `picture`: "jpeg", "png", "raw" or NULL, `date` of log_time, `class`: "large" from 64 KiB on, else "small", and
        timestamps. `kind` is "topic" where a part was written by a release without kinds.
        """
        return tables.with_timestamps(self._bronze.messages())

    def problems(self) -> DataFrame:
        """Return what could not be read: file, offset in bytes, reason."""
        return self._bronze.problems()

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
            return self._gold.refresh(self._bronze.messages(), window_ns, limits, every)

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
        SparkError : it is no SQL, or names what there is not.
        """
        text = query.lower().replace("``", "`")
        self.register(*(name for name in self.endpoints() if f"silver_{name.lower()}" in text))
        with spark_errors():
            answer = self.spark.sql(query)
            _ = answer.schema  # Spark Connect looks at the names no sooner
        return answer


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
    rows = lake.spark.readStream.format("msgq").schema(spark_schema(COLUMNS)).load(recordings)
    uri, table_format = lake.uri, lake.format  # all that goes along to a server, where Spark Connect calls `add`

    def add(batch: DataFrame, _: int) -> None:
        Lake(batch.sparkSession, uri, table_format).append(batch, recordings)

    writer = rows.writeStream.option("checkpointLocation", place).foreachBatch(add)
    if every is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every} seconds").start()
