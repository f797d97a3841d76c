"""Recording and reading, side by side with what there is: ``python -m tools.bench.recording``.

A publisher in another process sends at a steady rate; the highest rate at which nothing is lost counts. The yardsticks
run in the same minute: mcap's own writer, and plain `write` of as many bytes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import numpy as np
from mcap.writer import Writer
from rich.console import Console
from rich.table import Table

import msgq
from msgq.impl.sources import open_source
from msgq.kinds import CHANNEL
from msgq.recording import LogReader, Recorder
from msgq.recording.format.chunk import Chunk
from msgq.recording.recorder.capture import Capture
from tools.bench.workspace import remove_rings

_SECONDS = 2.0
_BATCH = 2000


def _messages(size: int, count: int) -> np.ndarray:
    """Compressible as telemetry is: counters and noise."""
    rows = np.zeros((count, size), np.uint8)
    rows[:, : size // 2] = np.random.default_rng(1).integers(0, 256, (count, size // 2), np.uint8)
    return rows


def publish(endpoint: str, size: int, rate: float) -> None:
    """In another process: send at a rate until it is time."""
    rows = _messages(size, max(1, min(_BATCH, (8 << 20) // size)))
    pub = msgq.pub_sock(endpoint, segment_size=256 << 20)
    print("ready", flush=True)
    sys.stdin.readline()
    begin, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - begin) < _SECONDS:
        if sent <= now * rate:
            sent += pub.send_many(rows)
        else:
            time.sleep(0.0001)
    print(sent, flush=True)
    sys.stdin.readline()


def record(size: int, rate: float, compression: str, where: Path) -> tuple[float, float, int]:
    """Return messages a second that were published, CPU seconds of ours a second, and what was lost."""
    endpoint = f"bench-{uuid4().hex[:8]}"
    command = [sys.executable, "-m", "tools.bench.recording", "--publish", endpoint, str(size), str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        recorder = Recorder(where / endpoint, [endpoint], compression=compression)
        used, begin = time.process_time(), time.perf_counter()
        process.stdin.write("go\n")
        sent = int(process.stdout.readline())
        stats = recorder.stop()
        used, took = time.process_time() - used, time.perf_counter() - begin
        process.stdin.write("over\n")
    remove_rings(endpoint)
    shutil.rmtree(where / endpoint)
    return sent / took, used / took, sent - stats.messages


def highest(size: int, compression: str, rates: list[float], where: Path) -> tuple[float, float]:
    """Return the highest rate without loss, and the CPU that it took."""
    best = (0.0, 0.0)
    for rate in rates:
        reached, cpu, lost = record(size, rate, compression, where)
        if lost:
            break
        best = max(best, (reached, cpu))
    return best


def mcap_writer(size: int, where: Path) -> float:
    """Messages a second of the library's own writer, zstd."""
    rows = [row.tobytes() for row in _messages(size, 50_000)]
    with (where / "mcap").open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("e", "", 0)
        begin = time.perf_counter()
        for sequence, row in enumerate(rows):
            writer.add_message(channel, sequence, row, sequence, sequence)
        writer.finish()
    return len(rows) / (time.perf_counter() - begin)


def plain_write(size: int, where: Path) -> float:
    """Messages a second of `write` of 1 MiB at a time, to the same disk."""
    block = os.urandom(1 << 20)
    begin = time.perf_counter()
    with (where / "plain").open("wb", buffering=0) as file:
        for _ in range(1024):
            file.write(block)
        os.fdatasync(file.fileno())
    return 1024 * len(block) / size / (time.perf_counter() - begin)


def reading(size: int, count: int, where: Path) -> float:
    """Messages a second into Arrow batches, one core."""
    pub = msgq.pub_sock(f"bench-{uuid4().hex[:8]}", segment_size=256 << 20)
    with Recorder(where / "log", [pub.endpoint]) as recorder:
        rows = _messages(size, 10_000)
        for done in range(0, count, len(rows)):
            while done - recorder.stats().messages > 500_000:
                time.sleep(0.01)
            pub.send_many(rows)
    pub.close()
    remove_rings(pub.endpoint)
    begin = time.perf_counter()
    read: int = sum(batch.num_rows for batch in LogReader(where / "log").batches())
    return read / (time.perf_counter() - begin)


def taking(send_many: Callable[[np.ndarray], object], endpoint: str, rounds: int = 101) -> float:
    """Return nanoseconds for each message that the recorder takes, 64 B, the median: of messages that are there."""
    capture, chunk, times = Capture(), Chunk(1 << 20, 64), []
    capture.add(open_source(endpoint))
    rows = _messages(64, 4000)
    for _ in range(rounds):
        send_many(rows)
        begin = time.perf_counter_ns()
        capture.run(chunk, 0)
        times.append((time.perf_counter_ns() - begin) / len(rows))
        assert len(chunk) == len(rows)
        chunk.clear()
    return float(np.median(times))


def taking_both() -> tuple[float, float]:
    """Return what `taking` costs of a topic, and of a channel, in turn: medians of the same minute."""
    name = f"bench-{uuid4().hex[:8]}"
    topic = msgq.pub_sock(name, segment_size=16 << 20)
    channel = msgq.Channel(name, capacity=8192)
    publisher = channel.publisher(slots=8192, slot_bytes=64)
    try:
        pairs = [(taking(topic.send_many, name), taking(publisher.send_many, CHANNEL.mark + name)) for _ in range(5)]
        return float(np.median([pair[0] for pair in pairs])), float(np.median([pair[1] for pair in pairs]))
    finally:
        channel.unlink()
        topic.close()
        remove_rings(name)


def main() -> None:
    """Print the table."""
    table = Table("what", "messages/s", "cores", title=f"load {os.getloadavg()[0]:.1f}", title_justify="left")
    small = [1e6, 2e6, 3e6, 4e6, 6e6]
    large = [5e3, 1e4, 2e4, 3e4, 4e4]
    with tempfile.TemporaryDirectory(prefix="msgq-bench-") as name:
        where = Path(name)
        for size, compression, rates in ((64, "none", small), (64, "zstd", small), (65536, "none", large)):
            rate, cpu = highest(size, compression, rates, where)
            table.add_row(f"recorded, {size} B, {compression}", f"{rate:,.0f}", f"{cpu:.2f}")
        of_topic, of_channel = taking_both()
        table.add_row("taken, 64 B, from a topic", f"{1e9 / of_topic:,.0f}", f"{of_topic:.1f} ns each")
        ratio = f"{of_channel:.1f} ns each, {of_channel / of_topic:.2f} x the topic's"
        table.add_row("taken, 64 B, from a channel", f"{1e9 / of_channel:,.0f}", ratio)
        table.add_row("mcap's writer, 64 B, zstd", f"{mcap_writer(64, where):,.0f}", "1")
        table.add_row("plain write, 64 KiB", f"{plain_write(65536, where):,.0f}", "1")
        table.add_row("read into Arrow, 64 B, zstd", f"{reading(64, 3_000_000, where):,.0f}", "1")
    Console().print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", nargs=3, metavar=("ENDPOINT", "SIZE", "RATE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.publish:
        publish(arguments.publish[0], int(arguments.publish[1]), float(arguments.publish[2]))
    else:
        main()
