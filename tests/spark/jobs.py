"""What tests run in processes of their own, as a process has one session of Spark."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException

from msgq.spark import read, session
from msgq.spark.lake import Lake, build_fleet, follow
from tests.spark import cluster, task_faults
from tests.spark.children import LIFETIME
from tests.support import hear, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def rows(table: DataFrame) -> list[list[Any]]:
    """Return what tells messages apart, sorted; as JSON would."""
    columns = ("run", "endpoint", "epoch", "sequence", "log_time")
    rows = table.select(*columns, "data").toArrow()
    crcs = [zlib.crc32(data) for data in rows.column("data").to_pylist()]
    return sorted([*row.values(), crc] for row, crc in zip(rows.select(columns).to_pylist(), crcs, strict=True))


def executors(spark: SparkSession) -> int:
    """Return how many processes of Java have workers for us."""
    schema = pa.schema({"parent": pa.int64()})

    def parents(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"parent": [os.getppid()]}, schema)

    return spark.range(0, 100, 1, 8).mapInArrow(parents, "parent long").distinct().count()


def start_session(master: str, **chosen: str) -> SparkSession:
    """Return a session with settings. `master`: "" in a program that spark-submit has started."""
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    return session(master) if master.startswith("sc:") else session(master or None, **cluster.settings(), **chosen)


def read_source_and_lake(master: str, recordings: str, out: str, *faults: str) -> dict[str, Any]:
    """Read recordings through the source and a lake, whose ingest has faults; return the rows of both."""
    spark = start_session(master)
    results = {"executors": executors(spark), "source": rows(spark.read.format("msgq").load(recordings))}
    lake = Lake(spark, f"{out}/lake")
    with task_faults.inject_faults(Path(out), *(getattr(task_faults, fault) for fault in faults)):
        results["ingested"] = lake.ingest([recordings]).messages
    results["lake"] = rows(lake.messages())
    spark.stop()
    return results


def build_lakes_with_faults(master: str, recordings: str, out: str, *faults: str) -> None:
    """Build a lake for each fault, which happens in each job."""
    spark = start_session(master, **task_faults.SPECULATION)
    for fault in faults:
        lake, directory = Lake(spark, f"{out}/{fault}/lake"), Path(out, fault)
        directory.mkdir()
        with task_faults.inject_faults(directory, getattr(task_faults, fault)):
            lake.ingest([recordings])
            lake.build_silver()
            lake.build_gold()
    spark.stop()


def everything(master: str, recordings: str, out: str) -> dict[str, Any]:
    """Take recordings through the source, a stream and a lake; return what each has found."""
    spark = start_session(master)
    results = {"executors": executors(spark), "source": rows(spark.read.format("msgq").load(recordings))}
    spark.sql(f"CREATE TEMPORARY VIEW recorded USING msgq OPTIONS (path '{recordings}')")
    results["sql"] = rows(spark.sql("SELECT * FROM recorded WHERE endpoint = 'a'"))
    results["read"] = rows(read(spark, recordings, endpoints=["b*"]))
    stream = spark.readStream.format("msgq").load(recordings).writeStream.format("parquet")
    stream = stream.option("checkpointLocation", f"{out}/checkpoint").trigger(availableNow=True)
    stream.start(f"{out}/table").awaitTermination(LIFETIME)
    results["stream"] = rows(spark.read.parquet(f"{out}/table"))
    lake = Lake(spark, f"{out}/lake")
    results["ingested"] = [lake.ingest([recordings]).messages, lake.ingest([recordings]).messages]
    follow(lake, recordings, trigger_seconds=None).awaitTermination(LIFETIME)
    results["lake"] = rows(lake.messages())
    results["built"] = [lake.build_silver(), lake.build_gold()]
    results["asked"] = [list(row) for row in lake.sql("SELECT endpoint, count(*) FROM messages GROUP BY 1").collect()]
    spark.stop()
    return results


def build_fleet_twice(master: str, fleet: str, lakes: str) -> dict[str, Any]:
    """Build fleet tables twice; return the number of processes with workers, and both results."""
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    spark = session(master, **cluster.settings())
    results: dict[str, Any] = {"executors": executors(spark)}
    for name in ("first", "second"):
        results[name] = asdict(build_fleet(spark, fleet, [lakes]))
    spark.stop()
    return results


def source_of_server(url: str, recordings: str) -> int:
    """Count messages by a client that has told the server nothing of the source."""
    faulthandler.dump_traceback_later(LIFETIME, exit=True)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).create()
    return spark.read.format("msgq").load(recordings).count()


def keep(start: Callable[[], StreamingQuery], over: threading.Event) -> None:
    """Run a query until `over`, then to the end of its input; start it again when it failed, as supervisors do.

    Spark 4.3 fails a batch, seldom: it writes a collection to a task while another of its threads changes it.
    """
    while True:
        query = start()
        try:
            while not over.wait(0.1) and query.isActive:
                pass
            query.processAllAvailable()
            return query.stop()
        except StreamingQueryException as error:
            print("again, since", error, file=sys.stderr)


def append_to_table(batch: DataFrame, number: int, out: str) -> None:
    """Write a batch under its number, so that a repeated batch replaces its rows."""
    batch.select("log_time").write.mode("overwrite").parquet(f"{out}/table/batch={number}")


def start_table_stream(spark: SparkSession, recordings: str, out: str, hold: Callable[[int], None]) -> StreamingQuery:
    """Start a query that writes each batch into a table, after a call of `hold` with the number of the batch."""

    def write_batch(batch: DataFrame, number: int) -> None:
        hold(number)
        append_to_table(batch, number, out)

    rows = spark.readStream.format("msgq").option("checkpointLocation", f"{out}/checkpoint").load(recordings)
    writer = rows.writeStream.option("checkpointLocation", f"{out}/checkpoint").foreachBatch(write_batch)
    return writer.trigger(processingTime="50 milliseconds").start()


def hold_table_stream(recordings: str, out: str) -> None:
    """Stream recordings into a table; report the number of each planned batch, and hold it until the parent answers."""
    spark = start_session("local[2]")

    def hold(number: int) -> None:
        say(number)
        hear()

    start_table_stream(spark, recordings, out, hold).awaitTermination(LIFETIME)


def stream(master: str, recordings: str, out: str) -> None:
    """Stream recordings into a table and a lake; end when all is in them that there is when the parent says so."""
    spark = start_session(master)
    writer = spark.readStream.format("msgq").load(recordings).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", f"{out}/checkpoint").trigger(processingTime="100 milliseconds")
    lake = Lake(spark, f"{out}/lake")
    starts = [lambda: writer.start(f"{out}/table"), lambda: follow(lake, recordings, trigger_seconds=0.1)]
    over = threading.Event()
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(keep, start, over) for start in starts]
        say()
        hear()
        over.set()
        for run in runs:
            run.result()
    spark.stop()
