"""Jobs of the pipeline in one checkout. The process runs the requested jobs, and reports their times.

A script, not a module: `tools.bench.pipeline` starts it with a checkout's folder first on the path, so that the same
jobs measure any checkout. It calls what each has: `read`, `session`, `Lake`. A line of its input is a job; it answers
with a line: seconds of wall and of CPU, of this process, Java and all workers, those that ended among them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from msgq.spark import read, session
from msgq.spark.lake import Lake

_LOOK_S = 0.2
_FIVE = ["endpoint", "epoch", "sequence", "publish_time", "log_time"]
_WITHOUT_PAYLOAD = [*_FIVE, "run", "host", "encoding", "schema"]
_MESSAGES = pa.schema(
    [
        ("endpoint", pa.string()),
        ("sequence", pa.int64()),
        ("publish_time", pa.int64()),
        ("log_time", pa.int64()),
        ("data", pa.binary()),
    ]
)
_MESSAGES_OF_SPARK = "endpoint string, sequence long, publish_time long, log_time long, data binary"
#: Tables of `Jobs.gold_by_hand`, of the table `messages`.
_TABLES_BY_HAND = {
    "rates": """
        SELECT endpoint, log_time DIV 1000000000 AS second, count(*) AS messages, sum(length(data)) AS bytes
        FROM messages GROUP BY endpoint, log_time DIV 1000000000""",
    "latencies": """
        SELECT endpoint, max(log_time - publish_time) AS largest,
            percentile_approx(log_time - publish_time, array(0.5, 0.9, 0.99)) AS percentiles
        FROM messages GROUP BY endpoint""",
    "losses": """
        SELECT endpoint, sum(sequence - before - 1) AS lost FROM (
            SELECT endpoint, sequence, lag(sequence) OVER (PARTITION BY endpoint ORDER BY sequence) AS before
            FROM messages) GROUP BY endpoint""",
}


class Jobs:
    """Each method prepares a job, and returns the function to time. `where`: folder for written files."""

    def __init__(self, where: Path) -> None:
        self._where = where
        self._spark = session(f"local[{len(os.sched_getaffinity(0))}]")
        self._number = 0

    def _fresh(self) -> Lake:
        for path in self._where.glob("lake*"):
            shutil.rmtree(path)
        self._number += 1
        return Lake(self._spark, self._where / f"lake{self._number}")

    def read(self, recording: str, columns: list[str] | None = None, **options: Any) -> Callable[[], Any]:
        """Read messages, and keep none."""
        return lambda: consume(read(self._spark, recording, columns=columns, **options))

    def read_five(self, recording: str) -> Callable[[], Any]:
        """Read five columns."""
        return self.read(recording, _FIVE)

    def read_without_payload(self, recording: str) -> Callable[[], Any]:
        """Read all columns but one."""
        return self.read(recording, _WITHOUT_PAYLOAD)

    def read_decoded(self, recording: str) -> Callable[[], Any]:
        """Read payloads as columns, of a recording with one endpoint."""
        endpoint = read(self._spark, recording, columns=["endpoint"]).head(1)[0][0]
        return self.read(recording, decode=endpoint)

    def rare(self, recording: str) -> Callable[[], Any]:
        """Count the messages of one endpoint in thousands."""
        return lambda: read(self._spark, recording, endpoints="rare*").count()

    def some_time(self, recording: str) -> Callable[[], Any]:
        """Count the messages of 1 % of the time."""
        times = read(self._spark, recording, columns=["log_time"]).selectExpr("min(log_time)", "max(log_time)")
        ((first, last),) = times.collect()
        some = {"start": first + (last - first) // 2, "end": first + (last - first) * 51 // 100}
        return lambda: read(self._spark, recording, **some).count()

    def bronze(self, recording: str) -> Callable[[], Any]:
        """Make bronze of a recording."""
        lake = self._fresh()
        return lambda: lake.ingest([recording]).messages

    def gold(self, recording: str) -> Callable[[], Any]:
        """Make bronze and gold of a recording; say how large they became."""
        lake = self._fresh()

        def work() -> dict[str, Any]:
            lake.ingest([recording])
            lake.build_gold()
            folders = sorted(Path(lake.uri.removeprefix("file://")).iterdir())
            return {folder.name: size_of(folder) for folder in folders}

        return work

    def gold_by_hand(self, recording: str, reader: str) -> Callable[[], Any]:
        """Make a table of messages and tables of rates, latencies and losses, without msgq's lake.

        Messages are neither sorted nor deduplicated, and no commit protects the tables. `reader`: "mcap" or "msgq".
        """
        spark, where = self._spark, self._where / "by_hand"
        shutil.rmtree(where, ignore_errors=True)
        paths = [(str(path),) for path in sorted(Path(recording).rglob("*.mcap"))]

        def work() -> None:
            files = spark.createDataFrame(paths, "path string").repartition(len(paths))
            messages = files.mapInArrow(partial(read_by_hand, reader=reader), _MESSAGES_OF_SPARK)
            messages.write.option("compression", "zstd").parquet(str(where / "messages"))
            spark.read.parquet(str(where / "messages")).createOrReplaceTempView("messages")
            for name, query in _TABLES_BY_HAND.items():
                spark.sql(query).coalesce(1).write.parquet(str(where / name))

        return work

    def silver(self, recording: str) -> Callable[[], Any]:
        """Decode the files in bronze. The result is their number."""
        lake = self._fresh()
        lake.ingest([recording])

        def work() -> int:
            lake.build_silver()
            return sum(1 for _ in Path(lake.uri.removeprefix("file://"), "silver").rglob("*.parquet"))

        return work

    def new_piece(self, recording: str) -> Callable[[], Any]:
        """Add the last file of a recording to a lake with gold of all others; leave it there for `refresh`."""
        *old, new = sorted(map(str, Path(recording).rglob("*.mcap")))
        lake = self._fresh()
        lake.ingest(old)
        lake.build_gold()
        return lambda: lake.ingest([new]).messages

    def refresh(self) -> Callable[[], Any]:
        """Build gold from the new messages in the lake of the previous job."""
        (path,) = self._where.glob("lake*")
        lake = Lake(self._spark, path)
        return lambda: lake.build_gold()

    def native(self, recording: str, columns: list[str] | None = None) -> Callable[[], Any]:
        """Read the same messages from Parquet, as Spark wrote it: the floor of `read`."""
        table = self._spark.read.parquet(self._parquet(recording))
        return lambda: consume(table if columns is None else table.select(*columns))

    def native_five(self, recording: str) -> Callable[[], Any]:
        """Read five columns of Parquet."""
        return self.native(recording, _FIVE)

    def native_write(self, recording: str) -> Callable[[], Any]:
        """Copy these messages from Parquet to Parquet: the floor of `bronze`."""
        table, target = self._spark.read.parquet(self._parquet(recording)), str(self._where / "copy")
        writer = table.write.option("compression", "zstd").mode("overwrite")
        return lambda: writer.parquet(target)

    def _parquet(self, recording: str) -> str:
        place = self._where / f"native-{Path(recording).name}"
        if not place.exists():
            read(self._spark, recording).write.option("compression", "zstd").parquet(str(place))
        return str(place)

    def as_of(self, strategy: str) -> Callable[[], Any]:
        """Join two series of 1M rows with 20 keys."""
        from msgq.spark.tables import align

        sides = []
        for name, phase in (("a", 0), ("b", 500)):
            columns = (f"id * 1000 + {phase} AS publish_time", f"CAST(id AS double) AS {name}")
            sides.append(self._spark.range(1_000_000).selectExpr("id % 20 AS key", *columns).persist())
            consume(sides[-1])
        return lambda: consume(align.asof_join(sides[0], sides[1], by=["key"], strategy=strategy))


def read_by_hand(paths: Iterable[pa.RecordBatch], reader: str) -> Iterator[pa.RecordBatch]:
    """Yield the messages of files."""
    for batch in paths:
        for path in batch.column("path").to_pylist():
            yield from read_by_mcap(path) if reader == "mcap" else read_by_msgq(path)


def read_by_mcap(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a file, which the library `mcap` reads."""
    from mcap.reader import make_reader

    with open(path, "rb") as file:
        rows = (
            (channel.topic, message.sequence, message.publish_time, message.log_time, message.data)
            for _, channel, message in make_reader(file).iter_messages(log_time_order=False)
        )
        while some := list(islice(rows, 20_000)):
            columns = [
                pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), _MESSAGES, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=_MESSAGES)


def read_by_msgq(path: str) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a file, which msgq reads."""
    from msgq.recording import LogReader

    for batch in LogReader(path).batches(_MESSAGES.names):
        yield pa.RecordBatch.from_arrays([batch.column(0).cast(pa.string()), *batch.columns[1:]], schema=_MESSAGES)


def consume(table: Any) -> None:
    """Make Spark compute all of a table, and keep none of it."""
    table.write.format("noop").mode("overwrite").save()


def size_of(folder: Path) -> int:
    """Return bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class Cpu(threading.Thread):
    """CPU time in s of this process and its descendants.

    No parent waits for Python workers, so their total time is unknown after their end. The thread reads their times
    regularly, and uses the last time of each worker.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._lock = threading.Lock()
        self._seen: dict[psutil.Process, float] = {}

    def run(self) -> None:
        """Read the times of all processes until this process ends."""
        while True:
            time.sleep(_LOOK_S)
            self.seconds()

    def seconds(self) -> float:
        """Return what all have taken until now."""
        with self._lock:
            me = psutil.Process()
            for process in (me, *me.children(recursive=True)):
                try:
                    times = process.cpu_times()
                except psutil.NoSuchProcess:
                    continue
                self._seen[process] = times.user + times.system
            return sum(self._seen.values())


def main() -> None:
    """Do jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what others print is no answer
    jobs, cpu = Jobs(Path(sys.argv[1])), Cpu()
    cpu.start()
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        work = getattr(jobs, asked.pop("job"))(**asked)
        before, begin = cpu.seconds(), time.perf_counter()
        result = work()
        wall, cpu_seconds = time.perf_counter() - begin, cpu.seconds() - before
        print(json.dumps({"wall": wall, "cpu": cpu_seconds, "result": result}), file=answers, flush=True)


if __name__ == "__main__":
    main()
