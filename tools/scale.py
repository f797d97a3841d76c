"""Checks the plan of docs/scaling.md by simulation: ``python -m tools.scale``.

What one machine can do for real it does with the project's own code: planning over the files of a host and day, and the
journal after a day of ingests. What needs thousands of cores is simulated: how tasks fill them when hosts differ, and
some tasks are slow.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
from mcap.writer import Writer
from rich.console import Console
from rich.table import Table

from msgq.spark.lake import journal as journals
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.journal import Input, Journal
from msgq.spark.lake.message_files import RANGES, overlapping
from msgq.spark.source.options import Options
from msgq.spark.source.partitions import file_partitions

_TB = 10**12
_SEGMENT = 256 << 20
_TASK = 256 << 20
_DAY_S = 86_400


def timed(work: Callable[[], Any]) -> float:
    """Return CPU seconds of this process, as other machines and loads may compare them."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


# ---- what is done for real ----


def planning(where: Path, files: int) -> float:
    """Plan the ingest of so many segments; return CPU seconds of the driver."""
    first = where / "first.mcap"
    with first.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("e", "", 0)
        writer.add_message(channel, 1, b"payload", 1, 1)
        writer.finish()
    for number in range(1, files):
        (where / f"{number}.mcap").hardlink_to(first)
    options = Options((str(where),))
    return timed(lambda: list(file_partitions(options, options.files([]), [])))


def _ranges(entry: int, groups: int, endpoints: int) -> pa.Table:
    """Return what one ingest writes: each row group has messages of all endpoints."""
    group, endpoint = np.divmod(np.arange(groups * endpoints), endpoints)
    begin = (entry * groups + group) * 10**9
    columns = {
        "part": [f"{entry}-{number // 8}.parquet" for number in group.tolist()],
        "run": ["run"] * len(group),
        "endpoint": [f"endpoint{number}" for number in endpoint.tolist()],
        "epoch": np.ones(len(group), np.int64),
        "schema_id": np.zeros(len(group), np.int64),
        "rows": np.full(len(group), 1000),
        "first_sequence": begin // 10**6,
        "last_sequence": begin // 10**6 + 999,
        "first_time": begin,
        "last_time": begin + 10**9 - 1,
        "repeats": np.zeros(len(group), bool),
    }
    return pa.table(columns, schema=RANGES)


def journal(where: Path, entries: int, groups: int, endpoints: int) -> tuple[float, float]:
    """Fill the journal of a lake as a day does; return CPU seconds to look what is known, and to find overlaps."""
    (where / "_journal").mkdir(parents=True)
    made = Journal(Directory(str(where)))
    for entry in range(entries):
        inputs = [Input(f"/recordings/{entry}/{number}.mcap", _SEGMENT, 1) for number in range(13)]
        made.commit(uuid4().hex, _ranges(entry, groups, endpoints), inputs, [])
    journals._ENTRIES.clear()  # each ingest is a new process
    looked = timed(made.inputs)
    new = _ranges(entries, groups, endpoints)
    return looked, timed(lambda: overlapping(new, made.ranges(["run"])))


# ---- what is simulated ----


def volumes(hosts: int, random: np.random.Generator) -> np.ndarray:
    """Return bytes a day of each host: 1 TB on average, most within a factor of 2, each thousandth 20 times as many."""
    found = random.lognormal(0, 0.5, hosts)
    found[::1000] *= 20
    sizes: np.ndarray = found / found.mean() * _TB
    return sizes


def makespan(durations: np.ndarray, cores: int) -> float:
    """Return when all is done, if each core takes the next task as soon as it is free; largest tasks first."""
    free = [0.0] * cores
    for duration in np.sort(durations)[::-1].tolist():
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def fill(hosts: int, cores: int, rate: float, split: bool, random: np.random.Generator) -> float:
    """Return how much longer a day's ingest takes than if all cores were busy to the end.

    Parameters
    ----------
    rate : bytes a second of a core. One task in a hundred is five times slower.
    split : whether a task is a piece of a file, or all that a host recorded.
    """
    sizes = volumes(hosts, random)
    if split:
        sizes = np.full(int(sizes.sum() / _TASK), float(_TASK))
    slow = np.where(random.random(len(sizes)) < 0.01, 5.0, 1.0)
    durations = sizes / rate * slow * random.lognormal(0, 0.2, len(sizes))
    return makespan(durations, cores) / (float(durations.sum()) / cores)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument(
        "--rate", type=float, default=60.0, help="MB a second of recordings that a core makes tables of"
    )
    parser.add_argument("--every", type=float, default=300.0, help="seconds between two ingests of a host")
    given = parser.parse_args()
    random = np.random.default_rng(1)
    table = Table("what", "figure", title=f"{given.hosts} hosts, 1 TB a day each", title_justify="left")
    segments, rate = _TB / _SEGMENT, given.rate * 1e6
    entries = int(_DAY_S / given.every)
    cores = given.hosts * _TB / rate / _DAY_S
    table.add_row("segments a day: a host, all", f"{segments:,.0f}, {segments * given.hosts:,.0f}")
    table.add_row("cores that are busy all day", f"{cores:,.0f}")
    table.add_row("core hours a TB", f"{_TB / rate / 3600:.1f}")
    with tempfile.TemporaryDirectory(prefix="msgq-scale-") as name:
        where = Path(name)
        (where / "files").mkdir()
        table.add_row("planning a host's day at once, driver", f"{planning(where / 'files', int(segments)):.2f} s")
        groups = int(_TB / entries / (64 << 20))
        for endpoints in (20, 100):
            looked, found = journal(where / f"lake{endpoints}", entries, groups, endpoints)
            text = f"{looked:.2f} s, {found:.2f} s"
            table.add_row(f"last ingest of a host's day, {endpoints} endpoints: files known, overlaps", text)
    parts = _TB / entries / _TASK
    table.add_row(
        f"an ingest of a host every {given.every:.0f} s: parts, and a day", f"{parts:.0f}, {parts * entries:,.0f}"
    )
    sample = min(given.hosts, 1000)
    some = max(1, int(cores * sample / given.hosts))
    for what, split in (("pieces of files", True), ("whole hosts", False)):
        longer = fill(sample, some, rate, split, random)
        table.add_row(f"a day of {sample} hosts on {some} cores, tasks are {what}: longer than ideal", f"{longer:.2f}x")
    Console().print(table)


if __name__ == "__main__":
    main()
