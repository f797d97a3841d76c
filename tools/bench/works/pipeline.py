"""Work on Spark: reading recordings, the lake, joins, and messages that are followed.

A process has one session. Its processor time is that of Java, of the Python workers and of the driver. The floor is
what Spark takes for the same rows natively, of Parquet.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import msgq
from msgq.spark import read as read_recording
from msgq.spark import session as open_session
from msgq.spark.lake import Lake
from tools.bench import companions, control
from tools.bench.adapters import FLOOR, OURS
from tools.bench.job import Job
from tools.bench.machine import PROJECT
from tools.bench.roles import latency, require
from tools.bench.works import Step, by_hand, make_once, recordings

_LOOK_S = 0.05
_PIECES = 12  # pieces of a recording; the last one is new
_FIVE = ["endpoint", "epoch", "sequence", "publish_time", "log_time"]
_COLUMNS = {"five": _FIVE, "without_payload": [*_FIVE, "run", "host", "encoding", "schema"]}
_SESSION = "from msgq.spark import session; session('local[2]').range(1).count()"
_BARE_SESSION = "from pyspark.sql import SparkSession as S; S.builder.master('local[2]').getOrCreate().range(1).count()"


# ------------------------------------------------------------------------------------------------------------ processes


class _Watch(threading.Thread):
    """Processor time and memory of this process and its descendants.

    No parent waits for Python workers, so their total time is unknown after their end. The thread reads their times
    regularly, and uses the last time of each worker.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = {"python": 0, "java": 0}
        self._lock = threading.Lock()
        self._seen: dict[psutil.Process, float] = {}

    def run(self) -> None:
        while True:
            time.sleep(_LOOK_S)
            self.seconds()

    def seconds(self) -> float:
        """Return the processor time of all until now in s."""
        with self._lock:
            me = psutil.Process()
            for process in (me, *me.children(recursive=True)):
                try:
                    times, name, size = process.cpu_times(), process.name(), process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                self._seen[process] = times.user + times.system
                for kind, largest in self.largest.items():
                    if process != me and name.startswith(kind):
                        self.largest[kind] = max(largest, size)
            return sum(self._seen.values())


@cache
def _watch() -> _Watch:
    watch = _Watch()
    watch.start()
    return watch


@cache
def _spark(cores: int = 0) -> Any:
    """Return the session of this process. `cores`: the only cores; 0: all."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[: cores or None])
    os.environ["PYTHONPATH"] = os.pathsep.join(_library_path())  # the workers' path
    return open_session(f"local[{cores or len(allowed)}]")


def _library_path() -> list[str]:
    """Return the folders of the measured library and of the benchmark."""
    return [str(Path(msgq.__file__).parents[1]), str(PROJECT)]


def _step(job: Job, run: Callable[[], Any]) -> Step:
    """Return a step whose figure is its time, or the largest memory of the processes that the case's kind names."""
    watch = _watch()
    if job.case.kind not in watch.largest:
        return Step(run, watch.seconds)
    _only(job, OURS)

    def measure() -> dict[str, Any]:
        run()
        return {"value": watch.largest[job.case.kind]}

    return Step(measure, watch.seconds)


def session(job: Job) -> Step:
    """Start a session in a new process."""
    code = require({OURS: _SESSION, FLOOR: _BARE_SESSION}.get(job.system), "no session")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(_library_path())}
    return Step(partial(subprocess.run, [sys.executable, "-c", code], check=True, capture_output=True, env=environment))


# -------------------------------------------------------------------------------------------------------------- reading


def read(job: Job) -> Step:
    """Read messages, and keep none. The case's kind chooses the columns, or the recording without summary."""
    kind = job.case.kind
    columns, recording = _COLUMNS.get(kind), _make_recording(_only(job, OURS, FLOOR))
    if job.system == OURS:
        return _step(job, lambda: _consume(read_recording(_spark(), recording, columns=columns)))
    table = _parquet(job, recording)
    return _step(job, lambda: _consume(table if columns is None else table.select(*columns)))


def read_decoded(job: Job) -> Step:
    """Read payloads as columns."""
    recording = str(recordings.make_numbers(_only(job, OURS)))
    endpoint = read_recording(_spark(), recording, columns=["endpoint"]).head(1)[0][0]
    return _step(job, lambda: _consume(read_recording(_spark(), recording, decode=endpoint)))


def read_rare(job: Job) -> Step:
    """Count the messages of one endpoint in thousands."""
    recording = _make_recording(_only(job, OURS))
    return _step(job, lambda: read_recording(_spark(), recording, endpoints="rare*").count())


def read_some_time(job: Job) -> Step:
    """Count the messages of 1 % of the time."""
    recording = _make_recording(_only(job, OURS))
    times = read_recording(_spark(), recording, columns=["log_time"]).selectExpr("min(log_time)", "max(log_time)")
    ((first, last),) = times.collect()
    some = {"start": first + (last - first) // 2, "end": first + (last - first) * 51 // 100}
    return _step(job, lambda: read_recording(_spark(), recording, **some).count())


def _make_recording(job: Job) -> str:
    return str((recordings.make_cut if job.case.kind == "cut" else recordings.make_recording)(job))


def _parquet(job: Job, recording: str) -> Any:
    """Return the messages of a recording as Spark writes them."""

    def write(path: Path) -> None:
        read_recording(_spark(), recording).write.option("compression", "zstd").parquet(str(path))

    return _spark().read.parquet(str(make_once(job, f"{Path(recording).name}.parquet", write)))


def _consume(table: Any) -> None:
    """Make Spark compute all of a table, and keep none of it."""
    table.write.format("noop").mode("overwrite").save()


def _only(job: Job, *systems: str) -> Job:
    require(job.system in systems or None, "no such work")
    return job


# ------------------------------------------------------------------------------------------------------------- the lake


def bronze(job: Job) -> Step:
    """Make bronze of a recording. The floor copies from Parquet to Parquet."""
    recording = _make_recording(_only(job, OURS, FLOOR))
    if job.system == OURS:
        lake = _new_lake(job)
        return _step(job, lambda: lake.ingest([recording]))
    writer = _parquet(job, recording).write.option("compression", "zstd").mode("overwrite")
    return _step(job, lambda: writer.parquet(str(job.folder / f"{job.name}-copy")))


def gold(job: Job) -> Step:
    """Make bronze and gold of a recording."""
    recording = _make_recording(_only(job, OURS, "by-hand-duckdb", *by_hand.SPARK_READERS))
    if job.system == "by-hand-duckdb":
        return _step(job, lambda: by_hand.make_by_duckdb(_place(job), Path(recording)))
    if job.system != OURS:
        read = by_hand.SPARK_READERS[job.system]
        return _step(job, lambda: by_hand.make_by_spark(_spark(), read, _place(job), Path(recording)))
    lake = _new_lake(job)
    return _step(job, lambda: _build(lake, recording))


def lake_bytes(job: Job) -> Step:
    """Return the bytes of a lake with gold."""
    recording, lake = _make_recording(_only(job, OURS)), _new_lake(job)
    _build(lake, recording)
    files = Path(lake.uri.removeprefix("file://")).rglob("*")
    size = sum(path.stat().st_size for path in files if path.is_file())
    return _step(job, lambda: {"value": size})


def new_piece(job: Job) -> Step:
    """Add the last file of a recording to a lake with gold of all others."""
    lake, new = _old_lake(job)
    return _step(job, lambda: lake.ingest([new]))


def new_gold(job: Job) -> Step:
    """Build gold of the last file of a recording."""
    lake, new = _old_lake(job)
    lake.ingest([new])
    return _step(job, lake.build_gold)


def old_gold(job: Job) -> Step:
    """Build gold of nothing new."""
    return _step(job, _old_lake(job)[0].build_gold)


def _old_lake(job: Job) -> tuple[Lake, str]:
    """Return a lake with gold of all files of a recording but the last one, and this file."""
    recording, lake = recordings.make_recording(_only(job, OURS), segments=_PIECES), _new_lake(job)
    *old, new = sorted(map(str, recording.rglob("*.mcap")))
    lake.ingest(old)
    lake.build_gold()
    return lake, new


def silver(job: Job) -> Step:
    """Decode the messages in bronze."""
    lake = _new_lake(_only(job, OURS))
    lake.ingest([str(recordings.make_endpoints(job, 10_000))])
    return _step(job, lake.build_silver)


def _new_lake(job: Job) -> Lake:
    """Return a new lake. A number as the case's kind is the number of cores."""
    return Lake(_spark(int(job.case.kind) if job.case.kind.isdecimal() else 0), _place(job))


def _build(lake: Lake, recording: str) -> None:
    lake.ingest([recording])
    lake.build_gold()


def _place(job: Job) -> Path:
    """Return a new folder. Remove that of the previous slice."""
    path = job.folder / f"{job.name}-tables"
    shutil.rmtree(path, ignore_errors=True)
    return path


def as_of(job: Job) -> Step:
    """Join two series of 1M rows with 20 keys."""
    from msgq.spark.tables import align

    (left, right), strategy = _sides(_only(job, OURS)), job.case.kind
    return _step(job, lambda: _consume(align.asof_join(left, right, by=["key"], strategy=strategy)))


@cache
def _sides(job: Job) -> list[Any]:
    sides = []
    for name, phase in (("a", 0), ("b", 500)):
        columns = (f"id * 1000 + {phase} AS publish_time", f"CAST(id AS double) AS {name}")
        sides.append(_spark().range(1_000_000).selectExpr("id % 20 AS key", *columns).persist())
        _consume(sides[-1])
    return sides


# ------------------------------------------------------------------------------------------------------------ following


class _Sink:
    """What came, batch by batch."""

    def __init__(self) -> None:
        self.published: list[np.ndarray[Any, Any]] = []
        self.latencies: list[np.ndarray[Any, Any]] = []

    def __call__(self, frame: Any, batch: int) -> None:
        """Take a batch out of Spark."""
        published = frame.select("publish_time").toArrow()["publish_time"].to_numpy()
        self.published.append(published)
        self.latencies.append(time.time_ns() - published)

    def result(self, messages: int) -> dict[str, Any]:
        """Return the latencies in ns after the first quarter, in which Spark compiles and Python workers start."""
        published, latencies = np.concatenate(self.published), np.concatenate(self.latencies)
        warm_until = published.min() + np.ptp(published) // 4
        counted = latencies[published >= warm_until]
        return {**latency([float(each) for each in counted]), "lost": messages - len(published)}


def follow(job: Job) -> Step:
    """Take the messages of each batch out of Spark, of the live bus or of a recording that grows."""
    words, sink, source = control.words(job.words_path), _Sink(), _spark().readStream.format("msgq")
    folder = job.folder / job.name
    folder.mkdir(exist_ok=True)
    words_needed = range(control.OWN, control.OWN + 1 + len(_only(job, OURS).case.crew))

    def wait_for_all(value: int) -> None:
        control.wait_until(lambda: all(words[place] >= value for place in words_needed))

    def run() -> dict[str, Any]:
        wait_for_all(1)
        if job.case.kind == "live":
            table = source.options(live="true", endpoints=f"{job.name}-data").load()
        else:
            table = source.load(str(folder))
        writer = table.writeStream.foreachBatch(sink).option("checkpointLocation", str(folder / "checkpoint"))
        query = writer.start()
        control.wait_until(lambda: not query.isActive or query.status["message"] == "Waiting for data to arrive")
        words[control.TOTAL] = companions.PUBLISH
        control.wait_until(lambda: words[control.OWN] == 2)
        words[control.TOTAL] = companions.STOP_RECORDING
        wait_for_all(2)
        query.processAllAvailable()
        query.stop()
        words[control.TOTAL] = companions.CLOSE
        return sink.result(job.case.messages)

    return _step(job, run)
