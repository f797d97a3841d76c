"""Recordings, side by side with the libraries that write and read MCAP: ``python -m tools.bench.recording``.

All take turns in one run, and medians count. Measurements are messages per second of CPU time of the whole process and
all its threads: if another core compresses, wall time is too favourable. At the end of a measurement, written files are
on the disk: the recorder syncs its file, and the run syncs the files of the libraries. The removal of written files and
of rings is not measured. ``--json FILE`` keeps all measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
from rich.console import Console
from rich.table import Table

import msgq
from msgq.common.schema import Schema
from msgq.recording import LogReader, Player, Recorder, Writer
from msgq.recording.merge.log_copy import write_merged_log
from tools.bench.recording_peers import COMPRESSIONS, DEFINITION, LIBRARIES, MCAP_INFO_PROGRAM, TYPE
from tools.bench.workspace import SHARED, remove_rings

OURS = "msgq"
_SMALL, _MEDIUM, _LARGE = 64, 1024, 65536
_DISTINCT_PAYLOAD_BYTES = 8 << 20
_SMALL_FILE_READS = 100  # readings of a small file, because one reading is too short for a measurement
_SCHEMA = Schema(TYPE, "cdr", DEFINITION.encode())


class Case(NamedTuple):
    """A row.

    Attributes
    ----------
    name, aim : texts of the row.
    unit : the counted things, for example "files".
    systems : a function for each system. The function does the work, and returns the number of `unit`.
    read_cpu_seconds : returns the CPU time in s, of this process or of its children.
    """

    name: str
    unit: str
    systems: Mapping[str, Callable[[], float]]
    aim: str = ""
    read_cpu_seconds: Callable[[], float] = time.process_time


def payloads(size: int, count: int) -> np.ndarray:
    """Texts in CDR, half of whose bytes are noise: compressible as telemetry is."""
    rows = np.full((count, size), ord("x"), np.uint8)
    rows[:, 8 : size // 2] = np.random.default_rng(1).integers(32, 127, (count, size // 2 - 8), np.uint8)
    rows[:, :4] = (0, 1, 0, 0)
    rows[:, 4:8] = np.frombuffer(np.uint32(size - 8).tobytes(), np.uint8)
    rows[:, -1] = 0
    return rows


def make(path: Path, size: int, count: int, topics: int = 20) -> Path:
    """Write a file that every library reads."""
    rows = payloads(size, 1000)
    with Writer(path, profile="ros2") as writer:
        channels = np.array([writer.channel(f"/t{i}", _SCHEMA) for i in range(topics)])
        for done in range(0, count, len(rows)):
            times = np.arange(done, done + len(rows)) * 1000
            writer.write_columns(channels[np.arange(done, done + len(rows)) % topics], rows, times)
    return path


# ---- recording ----


def publish(endpoint: str, size: int, rate: float, count: int) -> None:
    """In another process: send messages at a rate."""
    rows = payloads(size, min(2000, _DISTINCT_PAYLOAD_BYTES // size))
    pub = msgq.pub_sock(endpoint, segment_size=64 << 20)
    print("ready", flush=True)
    sys.stdin.readline()
    begin, sent = time.perf_counter(), 0
    while sent < count:
        if sent <= (time.perf_counter() - begin) * rate:
            sent += pub.send_many(rows[: count - sent])
        else:
            time.sleep(0.0001)
    print("sent", flush=True)
    sys.stdin.readline()


def record(size: int, rate: float, count: int, compression: str, where: Path) -> float:
    """Record what another process publishes; return how many messages there were, none of which may be lost."""
    endpoint = f"bench-{uuid4().hex[:8]}"
    command = [sys.executable, "-m", "tools.bench.recording", "--publish", endpoint, str(size), str(rate), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        recorder = Recorder(where, [endpoint], compression=compression)
        process.stdin.write("go\n")
        process.stdout.readline()
        stats = recorder.stop()
        del recorder
        remove_rings(endpoint)
        process.stdin.write("over\n")  # the publisher closes the ring last, so the removal is not measured
    if stats.lost or stats.messages != count:
        print(f"the recorder lost {count - stats.messages} of {count}; another rate would be fairer", file=sys.stderr)
    return stats.messages


def recording_cases(where: Path, scale: float) -> list[Case]:
    """Return the cases of writing. The recorder reads a ring, and the libraries get payloads from memory."""
    cases = []
    for size, rate, count in ((_SMALL, 1.5e6, 1_000_000), (_MEDIUM, 3e5, 200_000), (_LARGE, 6e3, 4000)):
        total, distinct = int(count * scale), min(count, _DISTINCT_PAYLOAD_BYTES // size)
        rows = ([row.tobytes() for row in payloads(size, distinct)] * (total // distinct + 1))[:total]
        for compression in COMPRESSIONS:
            systems: dict[str, Callable[[], float]] = {OURS: partial(record, size, rate, total, compression, where)}
            for name, library in LIBRARIES.items():
                if library.write is not None and compression in library.compressions:
                    systems[name] = partial(_write, library.write, where, library.convert(rows), compression)
            aim = ">= 5x foxglove-sdk" if size == _SMALL else "ahead of all"
            cases.append(Case(f"record {size} B, {compression}", "messages", systems, aim))
    return cases


def _write(write: Callable[..., None], where: Path, rows: Sequence[Any], compression: str) -> float:
    write(where, rows, compression)
    for path in where.iterdir() if where.is_dir() else [where]:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return len(rows)


# ---- reading ----


def summary_cases(small: Path, large: Path) -> list[Case]:
    """Return the rows that read the summary of a file, for 1,000 messages and for 1 GB."""
    peers = [(name, library.summarize) for name, library in LIBRARIES.items() if library.summarize]
    return [
        Case(
            "what is in 1 GB",
            "files",
            {OURS: lambda: float(bool(LogReader(large).endpoints))}
            | {name: partial(_read_summary, summarize, large) for name, summarize in peers},
            ">= 1x mcap",
        ),
        Case(
            "what is in 1000 messages",
            "files",
            {OURS: lambda: float(sum(bool(LogReader(small).endpoints) for _ in range(_SMALL_FILE_READS)))}
            | {
                name: lambda summarize=summarize: sum(_read_summary(summarize, small) for _ in range(_SMALL_FILE_READS))
                for name, summarize in peers
            },
        ),
        Case(
            "a process: what is in 1 GB",
            "files",
            {
                OURS: partial(_run_process, "-m", "msgq", "bag", "info", large),
                "mcap": partial(_run_process, "-c", MCAP_INFO_PROGRAM, large),
            },
            read_cpu_seconds=_read_children_cpu_seconds,
        ),
    ]


def _read_summary(summarize: Callable[[Path], int], file: Path) -> float:
    """Read the summary of a file. Return 1, the number of files, or 0 for a file without messages."""
    return 1.0 if summarize(file) else 0.0


def _run_process(*arguments: str | Path) -> float:
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return 1.0


def _read_children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def reading_cases(file: Path, topic: Path, large: Path, where: Path) -> list[Case]:
    """Return the cases of reading: a file of small messages, a file with one topic, and a file of 1 GB."""
    peers = LIBRARIES.items()
    return [
        Case(
            "iterate",
            "messages",
            {OURS: lambda: sum(1 for _ in LogReader(file))}
            | {name: partial(library.iterate, file) for name, library in peers if library.iterate},
            ">= 2M/s",
        ),
        Case(
            "decode ROS 2, one by one",
            "messages",
            {OURS: lambda: sum(1 for _ in LogReader(topic).decoded())}
            | {name: partial(library.decode, topic) for name, library in peers if library.decode},
        ),
        Case("decode ROS 2, columns", "messages", {OURS: lambda: _columns(topic)}),
        Case("batches", "messages", {OURS: lambda: sum(b.num_rows for b in LogReader(file).batches())}, ">= 6M/s"),
        Case("filter: 1 of 20 topics", "messages", {OURS: lambda: _time_filter(file, where, ["/t3"])}, ">= 2M/s"),
        Case(
            "filter: all, chunks as they are", "messages", {OURS: lambda: _time_filter(file, where, None)}, "the disk's"
        ),
        Case("play, unlimited", "messages", {OURS: lambda: _time_playback(file)}, ">= 1M/s"),
        Case("begin to play 1 GB", "files", {OURS: lambda: _time_start(large)}),
    ]


def _columns(file: Path) -> int:
    return sum(batch.rows.num_rows for batch in LogReader(file).decoded_batches("/t0"))


def _time_filter(file: Path, where: Path, endpoints: list[str] | None) -> int:
    log = LogReader(file, endpoints=endpoints)
    write_merged_log([log], where / "filtered.mcap")
    (where / "filtered.mcap").unlink()
    return LogReader(file).messages  # all messages were read


def _time_playback(file: Path) -> int:
    prefix = f"bench-{uuid4().hex[:8]}"
    player = Player(file, rate=float("inf"), prefix=prefix)
    stats = player.run()
    _remove(prefix)
    return stats.messages


def _time_start(file: Path) -> float:
    prefix = f"bench-{uuid4().hex[:8]}"
    player = Player(file, prefix=prefix, start_paused=True)
    player.stop()
    _remove(prefix)
    return 1


def _remove(prefix: str) -> None:
    for path in SHARED.glob(f"msgq*_{prefix}"):
        shutil.rmtree(path, ignore_errors=True)


# ---- the run ----


def measure(cases: list[Case], repeats: int, written: Path | None = None) -> dict[str, dict[str, list[float]]]:
    """Return the work of each system in one second of CPU time, for each row. The systems take turns.

    written : file or directory that a system may write. It is removed after each measurement.
    """
    times: dict[str, dict[str, list[float]]] = {case.name: {name: [] for name in case.systems} for case in cases}
    for _ in range(repeats):
        for case in cases:
            for name, run in case.systems.items():
                begin = case.read_cpu_seconds()
                done = run()
                times[case.name][name].append(done / (case.read_cpu_seconds() - begin))
                if written is not None and written.exists():
                    shutil.rmtree(written) if written.is_dir() else written.unlink()
    return times


def table(cases: list[Case], times: dict[str, dict[str, list[float]]]) -> Table:
    """Return a table of the medians, and the ratios of msgq to the best library."""
    names = [OURS, *LIBRARIES]
    shown = Table("what", "a CPU second", *names, "ours / best", "aim", title=f"load {os.getloadavg()[0]:.1f}")
    for case in cases:
        medians = {name: median(values) for name, values in times[case.name].items()}
        peer_medians = [value for name, value in medians.items() if name != OURS]
        ratio = f"{medians[OURS] / max(peer_medians):.2f}x" if peer_medians else "-"
        measurements = [f"{medians[name]:,.0f}" if name in medians else "-" for name in names]
        shown.add_row(case.name, case.unit, *measurements, ratio, case.aim)
    return shown


def main(arguments: Any) -> None:
    """Print the table."""
    scale = 0.1 if arguments.quick else 1.0
    with tempfile.TemporaryDirectory(prefix="msgq-bench-") as name:
        where = Path(name)
        file = make(where / "small.mcap", _SMALL, int(1_000_000 * scale))
        topic = make(where / "topic.mcap", _SMALL, int(500_000 * scale), 1)
        large = make(where / "large.mcap", 1000, int(1_000_000 * scale))
        small, written = make(where / "few.mcap", _SMALL, 1000), where / "written"
        cases = [
            *recording_cases(written, scale),
            *summary_cases(small, large),
            *reading_cases(file, topic, large, where),
        ]
        if arguments.only:
            cases = [case for case in cases if arguments.only in case.name]
        times = measure(cases, 3 if arguments.quick else arguments.repeats, written)
    Console(width=180).print(table(cases, times))
    if arguments.json:
        arguments.json.write_text(json.dumps(times, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--publish", nargs=4, metavar=("ENDPOINT", "SIZE", "RATE", "COUNT"), help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a tenth of the data, three times")
    parser.add_argument("--only", metavar="TEXT", help="cases with this in their names")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.publish:
        endpoint, size, rate, count = options.publish
        publish(endpoint, int(size), float(rate), int(count))
    else:
        main(options)
