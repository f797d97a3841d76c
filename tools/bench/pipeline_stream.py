"""From the bus to a sink of Spark, how long it takes: ``python -m tools.bench.pipeline_stream``.

A process publishes at a steady rate, another one records, and a query in this one takes the messages of each batch out
of Spark. A message's latency ends when its batch is there. The live bus as a source, without the recorder, in the same
way. The first seconds do not count: Spark compiles, and Python workers start.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from rich.console import Console
from rich.table import Table

import msgq
from msgq.spark import session
from tools.bench.workspace import remove_rings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WARM_UP_S = 5.0
_DTYPE = np.dtype([("publish_time", "<u8"), ("rest", "<u8", 15)])  # 128 bytes
_TICK_S = 0.001


def publish(endpoint: str, rate: float, seconds: float) -> None:
    """In another process: after a request, send at a rate. Print the number of messages."""
    schema = msgq.Schema("bench", "struct", json.dumps(_DTYPE.descr).encode())
    with msgq.PubSocket() as pub:
        pub.connect(msgq.context, endpoint, segment_size=64 << 20, schema=schema)
        print("ready", flush=True)
        sys.stdin.readline()
        begin, sent = time.perf_counter(), 0
        while (now := time.perf_counter() - begin) < seconds:
            due = int(now * rate) - sent
            rows = np.zeros(max(0, due), _DTYPE)
            rows["publish_time"] = time.time_ns()
            sent += pub.send_many(rows)
            time.sleep(_TICK_S)
        print(sent, flush=True)
        sys.stdin.readline()


class Sink:
    """What came, batch by batch."""

    def __init__(self) -> None:
        self.published: list[np.ndarray[Any, Any]] = []
        self.latencies: list[np.ndarray[Any, Any]] = []
        self.messages = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Take a batch out of Spark."""
        published = frame.select("publish_time").toArrow()["publish_time"].to_numpy()
        self.messages += len(published)
        self.published.append(published)
        self.latencies.append((time.time_ns() - published) / 1e9)

    def percentiles(self) -> list[float]:
        """Return p50, p90 and the maximum in s for the messages after the warm-up."""
        published, latencies = np.concatenate(self.published), np.concatenate(self.latencies)
        counted = latencies[published >= published.min() + _WARM_UP_S * 1e9]
        return [float(value) for value in np.percentile(counted, [50, 90, 100])]


def run(spark: SparkSession, rate: float, seconds: float, live: bool) -> tuple[Sink, int]:
    """Return what came, and how many were sent."""
    endpoint = f"bench-{uuid4().hex[:8]}"
    command = [
        sys.executable,
        "-m",
        "tools.bench.pipeline_stream",
        "--publish",
        endpoint,
        str(rate),
        str(seconds + _WARM_UP_S),
    ]
    sink = Sink()
    with ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="msgq-bench-")))
        stack.callback(remove_rings, endpoint)
        pipe = subprocess.PIPE
        publisher = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1)
        stack.enter_context(publisher)
        assert publisher.stdin is not None
        assert publisher.stdout is not None
        publisher.stdout.readline()
        source = spark.readStream.format("msgq")
        recorder = None
        if live:
            table = source.options(live="true", endpoints=endpoint).load()
        else:
            command = [sys.executable, "-m", "msgq", "record", endpoint, "-o", str(where / "log")]
            recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            stack.callback(_wait_for_end, recorder)
            while not list(where.glob("log")):
                time.sleep(_TICK_S)
            table = source.load(str(where))
        query = table.writeStream.foreachBatch(sink).option("checkpointLocation", str(where / "checkpoint")).start()
        stack.callback(query.stop)
        while query.isActive and query.status["message"] != "Waiting for data to arrive":
            time.sleep(_TICK_S)
        publisher.stdin.write("go\n")
        sent = int(publisher.stdout.readline())
        if recorder is not None:
            _wait_for_end(recorder)
        query.processAllAvailable()
        publisher.stdin.write("over\n")
    return sink, sent


def _wait_for_end(recorder: subprocess.Popen[bytes]) -> None:
    """End the recorder, which writes its remaining messages."""
    if recorder.poll() is None:
        recorder.send_signal(signal.SIGINT)
        recorder.wait()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=float, nargs="+", default=[5e3, 1e5], help="messages a second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--publish", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish:
        publish(options.publish[0], float(options.publish[1]), float(options.publish[2]))
        return
    table = Table("source", "messages/s", "p50", "p90", "max", "lost", title=f"load {os.getloadavg()[0]:.1f}")
    spark = session("local[2]")
    for live in (False, True):
        for rate in options.rates:
            sink, sent = run(spark, rate, options.seconds, live)
            measurements = [f"{value:.2f} s" for value in sink.percentiles()]
            name = "live bus" if live else "recording"
            table.add_row(
                name, f"{sent / (options.seconds + _WARM_UP_S):,.0f}", *measurements, str(sent - sink.messages)
            )
    spark.stop()
    Console().print(table)


if __name__ == "__main__":
    main()
