"""The pipeline on Spark, figure by figure: ``python -m tools.bench.pipeline``.

5M messages of 64 to 256 bytes on 20 topics, zstd, chunks of 1 MiB, recorded from a bus. All that is timed runs in one
session on two cores, in turns; the lines show medians. What Spark itself takes is measured beside it ("floor"): a
session without msgq, and the same rows handed over without being read. ``--memory`` reads 10 GB with a look at the
memory of workers, ``--scaling`` does the same job in sessions that have one core and two.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import psutil

import msgq
from msgq.recording import Recorder
from msgq.spark import read, session
from tools.bench.handover import handed_over
from tools.bench.workspace import remove_rings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MESSAGES = 5_000_000
_TOPICS = 20
_RARE = 1000
_SENT_BYTES = 4 << 20  # at once, of a ring of 64 MiB
_IMU = np.dtype([("time", "<i8"), ("x", "<f4", 3), ("gyro", "<f4", 3), ("count", "<u4")])
_WHAT_IS_THERE = ["run", "host", "endpoint", "epoch", "sequence", "publish_time", "log_time", "encoding", "schema"]


# ---- recordings ----


def _payloads(smallest: int, largest: int) -> list[memoryview]:
    """Half noise, half zeros, as telemetry is about as compressible."""
    random = np.random.default_rng(1)
    rows = []
    for size in random.integers(smallest, largest + 1, 1000).tolist():
        row = np.zeros(size, np.uint8)
        row[: size // 2] = random.integers(0, 256, size // 2, np.uint8)
        rows.append(row.data)
    return rows


@contextmanager
def _bus(names: list[str], schema: msgq.Schema | None = None) -> Iterator[list[msgq.PubSocket]]:
    """Publishers whose endpoints are gone afterwards."""
    sockets = [msgq.PubSocket() for _ in names]
    for socket, name in zip(sockets, names, strict=True):
        socket.connect(msgq.context, name, segment_size=64 << 20, schema=schema)
    try:
        yield sockets
    finally:
        for socket in sockets:
            socket.close()
        remove_rings(*names)


def make(where: Path, messages: int, compression: str = "zstd", size: tuple[int, int] = (64, 256)) -> Path:
    """Record messages of some topics, and a few of a rare one; return the recording."""
    names = [f"t{number:02}-{uuid4().hex[:6]}" for number in range(_TOPICS)]
    rare = f"rare-{uuid4().hex[:6]}"
    rows = _payloads(*size)[: max(1, _SENT_BYTES // size[1])]
    with (
        _bus([*names, rare]) as (*topics, seldom),
        Recorder(where, [*names, rare], compression=compression) as recorder,
    ):
        sent = 0
        while sent < messages:
            for topic in topics:
                sent += topic.send_many(rows)
            if sent * _RARE // messages > (sent - _TOPICS * len(rows)) * _RARE // messages:
                seldom.send(rows[0])
            ahead = 10 * _TOPICS * len(rows)
            while sent - recorder.stats().messages > ahead or recorder.stats().waiting_bytes > 64 << 20:
                time.sleep(0.001)
        lost = recorder.stop().lost
    if lost:
        sys.exit(f"the recorder lost {lost} messages while the recording was made; try again")
    return where


def make_layout(where: Path, messages: int) -> Path:
    """Record messages of a fixed layout on the endpoint "imu"."""
    rows = np.zeros(1000, _IMU)
    rows["count"] = np.arange(1000)
    name = f"imu-{uuid4().hex[:6]}"
    schema = msgq.Schema("imu", "struct", json.dumps(_IMU.descr).encode())
    with _bus([name], schema) as (imu,), Recorder(where, [name]) as recorder:
        for sent in range(0, messages, 1000):
            imu.send_many(rows)
            while sent - recorder.stats().messages > 200_000:
                time.sleep(0.001)
    return where


def cut(recording: Path, where: Path) -> Path:
    """Return a copy whose files lost their last kilobytes: as after a kill, without summary and index."""
    shutil.copytree(recording, where)
    for path in where.rglob("*.mcap"):
        os.truncate(path, path.stat().st_size - min(65536, path.stat().st_size // 2))
    return where


# ---- figures ----


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Return the median."""
    taken = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return median(taken)


def consumed(table: DataFrame) -> None:
    """Make Spark compute all of a table, and keep none of it."""
    table.write.format("noop").mode("overwrite").save()


def ingested(spark: SparkSession, recording: Path, lake: Path) -> None:
    """Make bronze of a recording, anew."""
    from msgq.spark.lake import Lake

    shutil.rmtree(lake, ignore_errors=True)
    Lake(spark, lake).ingest([recording])


def series(spark: SparkSession, rows: int, keys: int) -> tuple[DataFrame, DataFrame]:
    """Two tables of rows for an as-of join, in memory."""
    made = []
    for name, phase in (("a", 0), ("b", 500)):
        table = spark.range(rows).selectExpr(
            f"id % {keys} AS key", f"id * 1000 + {phase} AS publish_time", f"CAST(id AS double) AS {name}"
        )
        made.append(table.persist())
        consumed(made[-1])
    return made[0], made[1]


class Figures:
    """What is measured, a line each, as soon as it is known."""

    def row(self, what: str, figure: str, wanted: str) -> None:
        """Print a line."""
        print(f"{what:60} {figure:>12}   {wanted}", flush=True)

    def rate(self, what: str, messages: int, taken: float, wanted: str) -> None:
        """Print a speed."""
        self.row(what, f"{messages / taken / 1e6:.2f}M/s", wanted)

    def time(self, what: str, taken: float, wanted: str) -> None:
        """Print a time."""
        self.row(what, f"{taken:.2f} s", wanted)


def start_times() -> tuple[float, float]:
    """Return how long our session takes in a new process, with its import and a first job, and how long Spark's own."""
    ours = "from msgq.spark import session; session('local[2]').range(1).count()"
    bare = "from pyspark.sql import SparkSession as S; S.builder.master('local[2]').getOrCreate().range(1).count()"
    runs = (
        partial(subprocess.run, [sys.executable, "-c", text], check=True, capture_output=True) for text in (ours, bare)
    )
    first, second = (seconds(run, 3) for run in runs)
    return first, second


def against_floor(
    spark: SparkSession,
    figures: Figures,
    what: str,
    wanted: str,
    table: DataFrame,
    messages: int,
    repeats: int,
    path: Path,
    **options: str,
) -> float:
    """Measure a table of messages, and in turns what Spark takes of as many rows like these; return the seconds."""
    floor = handed_over(spark, str(path), messages, table.schema, **options)
    consumed(table)  # the first job pays for what others find there
    consumed(floor)
    pairs = [(seconds(lambda: consumed(table), 1), seconds(lambda: consumed(floor), 1)) for _ in range(repeats)]
    ours, least = median(taken for taken, _ in pairs), median(taken for _, taken in pairs)
    figures.rate(what, messages, ours, wanted)
    figures.rate(f"  its floor: the same rows, not read ({ours / least:.2f}x)", messages, least, "")
    return ours


def sources(spark: SparkSession, figures: Figures, where: Path, messages: int, repeats: int) -> None:
    """Measure the source, and what else reads recordings."""
    whole = make(where / "zstd", messages)
    files = {"truncated, no index": cut(whole, where / "cut"), "lz4": make(where / "lz4", messages, "lz4")}
    table = read(spark, str(whole))
    plain = against_floor(spark, figures, "source, all columns", "3.7M", table, messages, repeats, whole)
    table = read(spark, str(whole), columns=_WHAT_IS_THERE)
    against_floor(spark, figures, "source, without the payload", "5M", table, messages, repeats, whole)
    for name, path in files.items():
        taken = seconds(partial(lambda path: consumed(read(spark, str(path))), path), repeats)
        figures.rate(f"source, {name} ({taken / plain:.2f}x)", messages, taken, "1.3x")
    taken = seconds(lambda: read(spark, str(whole), endpoints="rare*").count(), repeats)
    figures.time("one rare endpoint", taken, "0.3 s")
    times = read(spark, str(whole), columns=["log_time"]).selectExpr("min(log_time)", "max(log_time)")
    ((first, last),) = times.collect()
    some = {"start": first + (last - first) // 2, "end": first + (last - first) * 51 // 100}
    figures.time("1 % of the time", seconds(lambda: read(spark, str(whole), **some).count(), repeats), "0.3 s")
    taken = seconds(lambda: ingested(spark, whole, where / "lake"), repeats)
    figures.rate("recording to bronze", messages, taken, "1.8M")
    imu = make_layout(where / "imu", messages)
    endpoint = read(spark, str(imu), columns=["endpoint"]).head(1)[0][0]
    table = read(spark, str(imu), decode=endpoint)
    against_floor(spark, figures, "decoded NumPy columns", "4M", table, messages, repeats, imu, decode=endpoint)


def joins(spark: SparkSession, figures: Figures, repeats: int) -> None:
    """Measure the as-of join."""
    from msgq.spark.tables import align

    left, right = series(spark, 1_000_000, 20)
    for strategy in ("auto", "arrow", "window"):
        taken = seconds(
            partial(lambda how: consumed(align.asof_join(left, right, by=["key"], strategy=how)), strategy), repeats
        )
        figures.time(f"as-of join 1M x 1M, 20 keys, {strategy}", taken, "2 s" if strategy == "auto" else "")


# ---- memory and cores ----


class Watch(threading.Thread):
    """Looks at the memory of the Python workers below this process, and of Java."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.largest = {"python": 0, "java": 0}
        self._over = threading.Event()

    def run(self) -> None:
        """Look until it is over."""
        while not self._over.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    kind, size = child.name(), child.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                for name in self.largest:
                    if kind.startswith(name):
                        self.largest[name] = max(self.largest[name], size)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


def memory(spark: SparkSession, figures: Figures, where: Path, size: int) -> None:
    """Read large recordings, and say how large a worker became."""
    for each in (65536, 1024):
        recording = make(where / f"large{each}", size // each, "none" if each > 1024 else "zstd", (each, each))
        for what, work in (
            ("read", lambda r=recording: consumed(read(spark, str(r)))),
            ("ingested", lambda r=recording: ingested(spark, r, where / "lake")),
        ):
            with Watch() as watch:
                taken = seconds(work, 1)
            worker, java = watch.largest["python"] >> 20, watch.largest["java"] >> 20
            text = f"{worker} MiB (Java {java} MiB), {size / taken / 1e6:.0f} MB/s"
            figures.row(f"{size / 1e9:.1f} GB of {each} B, {what}: a worker", text, "1024 MiB")
        shutil.rmtree(recording)
        shutil.rmtree(where / "lake")


def scaling(figures: Figures, where: Path, messages: int) -> None:
    """Do one job in a session on one core, and on two."""
    recording = make(where / "zstd", messages)
    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(3):
        for cores, found in taken.items():
            chosen = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
            command = ["taskset", "-c", chosen, sys.executable, "-m", "tools.bench.pipeline", "--job", str(recording)]
            found.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    one, two = median(taken[1]), median(taken[2])
    for cores, middle in ((1, one), (2, two)):
        figures.rate(f"recording to bronze and gold, {cores} of 2 cores", messages, middle, "")
    figures.row("two cores against one", f"{one / two:.2f}x", "")


def job(recording: str) -> float:
    """Make bronze and gold on all cores that this process may use; return seconds, without the session's start."""
    from msgq.spark.lake import Lake

    spark = session()
    with tempfile.TemporaryDirectory(prefix="msgq-bench-") as name:
        spark.range(1).count()
        begin = time.perf_counter()
        lake = Lake(spark, name)
        lake.ingest([recording])
        lake.refresh()
        return time.perf_counter() - begin


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=_MESSAGES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--memory", type=float, metavar="GB", help="read recordings of so many GB instead")
    parser.add_argument("--scaling", action="store_true", help="the same job on one core and on two instead")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.job:
        print(job(given.job))
        return
    figures = Figures()
    figures.row("what", "figure", f"wanted (load {os.getloadavg()[0]:.1f} at the start)")
    with tempfile.TemporaryDirectory(prefix="msgq-bench-") as name:
        where = Path(name)
        if given.scaling:
            scaling(figures, where, given.messages)
        else:
            ours, bare = start_times()
            figures.time("session start, and a first job", ours, "6 s, 8 s with the job")
            figures.time(f"  its floor: Spark without msgq ({ours / bare:.2f}x)", bare, "")
            spark = session("local[2]")
            if given.memory:
                memory(spark, figures, where, int(given.memory * 1e9))
            else:
                sources(spark, figures, where, given.messages, given.repeats)
                joins(spark, figures, given.repeats)
            spark.stop()


if __name__ == "__main__":
    main()
