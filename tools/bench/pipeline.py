"""The pipeline on Spark, figure by figure: ``python -m tools.bench.pipeline``.

5M messages of 64 to 256 bytes on 20 topics, none like another, zstd, chunks of 1 MiB, recorded from a bus. Each figure
has seconds of wall, and of CPU of Java, its Python workers and the driver. All jobs run in one process that is up, in
turns with what they are compared with; the lines show medians, after a first time that does not count. "floor" is what
Spark takes for the same rows natively, of Parquet. ``--against PATH`` does the same jobs in another checkout, which is
built, in turns with this one. ``--by-hand`` compares with a script on plain Spark. ``--memory`` reads so many GB with a
look at the memory of workers, ``--scaling`` makes gold on one core and on two.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from tools.bench import pipeline_recordings as recordings

_PROJECT = Path(__file__).resolve().parents[2]
_JOBS = Path(__file__).with_name("pipeline_jobs.py")
_PIECES = 12  # of a recording of which the last one is new


@dataclass(frozen=True)
class Took:
    """The time of a job in s, and its output."""

    wall: float
    cpu: float
    result: Any = None


class Checkout:
    """A process with the jobs of a checkout. To be closed."""

    def __init__(self, project: Path, where: Path, cores: int = 0) -> None:
        """cores : so many only; 0: all that this process has."""
        chosen = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
        pinned = ["taskset", "-c", chosen] if cores else []
        where.mkdir()
        self._errors = where / "errors"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [*pinned, str(project / ".venv/bin/python"), "-P", str(_JOBS), str(where)],
                cwd=project,  # workers search this folder first
                env={**os.environ, "PYTHONPATH": str(project)},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._answer()

    def do(self, job: str, **arguments: Any) -> Took:
        """Return what a job took."""
        assert self.process.stdin is not None
        print(json.dumps({"job": job, **arguments}), file=self.process.stdin, flush=True)
        return Took(**self._answer())

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(self._errors.read_text()[-3000:])
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End it."""
        self.process.communicate()


def middle(times: Sequence[Took]) -> Took:
    """Return the medians."""
    return Took(median(time.wall for time in times), median(time.cpu for time in times), times[-1].result)


class Measurements:
    """Jobs done in turns by each checkout, and a line for each as soon as it is known."""

    def __init__(self, checkouts: Sequence[Checkout], repeats: int) -> None:
        self._checkouts, self._repeats = checkouts, repeats
        titles = ["seconds", "CPU"] + ["theirs", "CPU", "CPU times"] * (len(checkouts) > 1)
        self._line("what", "a second", *titles)

    def row(self, name: str, job: str, rows: int = 0, /, **arguments: Any) -> Any:
        """Run and show a job, and return the output of this checkout. `rows`: number of rows for the speed."""
        times = self._in_turns([(job, arguments)])[0]
        self._show(name, times, rows)
        return times[0].result

    def group(self, *jobs: tuple[str, str, dict[str, Any]]) -> None:
        """Do jobs one after the other each time. A job is its title, its name and its arguments."""
        by_job = self._in_turns([(job, arguments) for _, job, arguments in jobs])
        for (title, _, _), times in zip(jobs, by_job, strict=True):
            self._show(title, times, 0)

    def _in_turns(self, jobs: Sequence[tuple[str, dict[str, Any]]]) -> list[list[Took]]:
        """Return what each job took in each checkout."""
        by_job: list[list[list[Took]]] = [[[] for _ in self._checkouts] for _ in jobs]
        for _ in range(self._repeats + 1):
            for at, checkout in enumerate(self._checkouts):
                for number, (job, arguments) in enumerate(jobs):
                    by_job[number][at].append(checkout.do(job, **arguments))
        return [[middle(times[1:]) for times in by_checkout] for by_checkout in by_job]

    def _show(self, name: str, times: Sequence[Took], rows: int) -> None:
        own = times[0]
        cells = [f"{own.wall:.2f}", f"{own.cpu:.2f}"]
        for other in times[1:]:
            cells += [f"{other.wall:.2f}", f"{other.cpu:.2f}", f"{other.cpu / own.cpu:.2f}x"]
        self._line(name, f"{rows / own.wall / 1e6:.2f}M" if rows else "", *cells)

    def _line(self, name: str, *cells: str) -> None:
        print(f"{name:58}" + "".join(f"{cell:>10}" for cell in cells), flush=True)


def everything(measurements: Measurements, where: Path, messages: int) -> None:
    """Measure the source, the lake, and joins."""
    whole = recordings.make(where / "zstd", messages)
    at: dict[str, Any] = {"recording": str(whole)}
    measurements.row("read, all columns", "read", messages, **at)
    measurements.row("  floor", "native", messages, **at)
    measurements.row("read, five columns", "read_five", messages, **at)
    measurements.row("  floor", "native_five", messages, **at)
    measurements.row("read, without the payload", "read_without_payload", messages, **at)
    measurements.row("read, cut, no index", "read", messages, recording=str(recordings.cut(whole, where / "cut")))
    measurements.row("one rare endpoint", "rare", **at)
    measurements.row("1 % of the time", "some_time", **at)
    imu = recordings.make_layout(where / "imu", messages)
    measurements.row("read, NumPy columns", "read_decoded", messages, recording=str(imu))
    measurements.row("recording to bronze", "bronze", messages, **at)
    measurements.row("  floor: Parquet to Parquet", "native_write", messages, **at)
    sizes = measurements.row("recording to gold", "gold", messages, **at)
    shown = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items() if size >= 1e5)
    print(f"  {shown}", flush=True)
    pieces = recordings.make(where / "pieces", messages, segments=_PIECES)
    new_piece = (f"a new piece, {_PIECES}th of a run", "new_piece", {"recording": str(pieces)})
    measurements.group(new_piece, ("  its gold", "refresh", {}))
    measurements.row("gold of nothing new", "refresh")
    many = recordings.make_many(where / "many", 10_000, 200_000)
    files = measurements.row("silver, 10,000 endpoints x 20 messages", "silver", 200_000, recording=str(many))
    print(f"  {files} files", flush=True)
    for strategy in ("auto", "arrow", "window"):
        measurements.row(f"as-of join 1M x 1M, 20 keys, {strategy}", "as_of", strategy=strategy)


def by_hand(measurements: Measurements, where: Path, messages: int) -> None:
    """Compare the way from a recording to gold with a script on plain Spark."""
    for count in (messages * 3 // 10, messages):
        at = {"recording": str(recordings.make(where / f"zstd{count}", count))}
        measurements.group(
            (f"recording to gold, {count:,} messages", "gold", at),
            ("  by hand, with the library mcap", "gold_by_hand", at | {"reader": "mcap"}),
            ("  by hand, with LogReader", "gold_by_hand", at | {"reader": "msgq"}),
            ("  only bronze", "bronze", at),
        )


def start_times(repeats: int) -> None:
    """Show how long a session takes in a new process, with its import and a first job, and how long Spark's own."""
    session_code = "from msgq.spark import session; session('local[2]').range(1).count()"
    bare = "from pyspark.sql import SparkSession as S; S.builder.master('local[2]').getOrCreate().range(1).count()"
    seconds: dict[str, list[float]] = {session_code: [], bare: []}
    for _ in range(repeats):
        for text, times in seconds.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", text], check=True, capture_output=True)
            times.append(time.perf_counter() - begin)
    print(
        f"session start and a first job: {median(seconds[session_code]):.2f} s, "
        f"of Spark without msgq {median(seconds[bare]):.2f} s"
    )


# ---- memory and cores ----


class Watch(threading.Thread):
    """Measures the memory of the Python workers below a process, and of Java."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.largest = {"python": 0, "java": 0}
        self._pid = pid
        self._over = threading.Event()

    def run(self) -> None:
        """Measure until the end."""
        while not self._over.wait(0.05):
            for child in psutil.Process(self._pid).children(recursive=True):
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


def memory(where: Path, size: int) -> None:
    """Read large recordings, and say how large a worker became."""
    table = Table("what", "MB/s", "a worker", "Java")
    for each in (65536, 1024):
        kind = "none" if each > 1024 else "zstd"
        recording = recordings.make(where / f"large{each}", size // each, kind, (each, each))
        checkout = Checkout(_PROJECT, where / f"jobs{each}")
        for job in ("read", "bronze"):
            with Watch(checkout.process.pid) as watch:
                took = checkout.do(job, recording=str(recording))
            worker, java = (f"{watch.largest[name] >> 20} MiB" for name in ("python", "java"))
            table.add_row(f"{size / 1e9:.1f} GB of {each} B: {job}", f"{size / took.wall / 1e6:.0f}", worker, java)
        checkout.close()
    Console().print(table)


def scaling(where: Path, messages: int, repeats: int) -> None:
    """Do jobs on one core, and on two."""
    recording = recordings.make(where / "zstd", messages)
    size = sum(path.stat().st_size for path in recording.rglob("*.mcap"))
    checkouts = {cores: Checkout(_PROJECT, where / f"jobs{cores}", cores) for cores in (1, 2)}
    table = Table("what", "cores", "seconds", "CPU", "MB/s a core", "faster")
    for job in ("bronze", "gold"):
        by_cores: dict[int, list[Took]] = {cores: [] for cores in checkouts}
        for _ in range(repeats + 1):
            for cores, checkout in checkouts.items():
                by_cores[cores].append(checkout.do(job, recording=str(recording)))
        one_core = middle(by_cores[1][1:]).wall
        for cores in checkouts:
            took = middle(by_cores[cores][1:])
            speed = f"{size / took.wall / cores / 1e6:.1f}"
            table.add_row(job, str(cores), f"{took.wall:.2f}", f"{took.cpu:.2f}", speed, f"{one_core / took.wall:.2f}x")
    for checkout in checkouts.values():
        checkout.close()
    Console().print(table)


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", type=Path, metavar="PATH", help="another checkout, which is built")
    parser.add_argument("--memory", type=float, metavar="GB", help="read recordings of so many GB instead")
    parser.add_argument("--by-hand", action="store_true", help="compare only with a script on plain Spark instead")
    parser.add_argument("--scaling", action="store_true", help="the same jobs on one core and on two instead")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f} at the start")
    with tempfile.TemporaryDirectory(prefix="msgq-bench-") as name:
        where = Path(name)
        if options.scaling:
            scaling(where, options.messages, options.repeats)
        elif options.memory:
            memory(where, int(options.memory * 1e9))
        else:
            if not options.by_hand:
                start_times(3)
            projects = [_PROJECT, *([options.against.resolve()] if options.against else [])]
            checkouts = [Checkout(project, where / f"jobs{at}") for at, project in enumerate(projects)]
            measure = by_hand if options.by_hand else everything
            measure(Measurements(checkouts, options.repeats), where, options.messages)
            for checkout in checkouts:
                checkout.close()


if __name__ == "__main__":
    main()
