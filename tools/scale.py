"""Checks the plan of docs/internals/scaling.md by simulation: ``python -m tools.scale``.

What one machine can do for real it does with the project's own code: planning over the files of a host and day; what an
ingest, a refresh and a reader find of the tables of a lake after a day of ingests; and what the driver needs for a lake
with up to 10,000 recordings, of which only the metadata exist. What needs thousands of cores is simulated: how tasks
fill them when hosts differ, and some tasks are slow.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from mcap.writer import Writer
from rich.console import Console
from rich.table import Table as Shown

from msgq.lake import aggregate_store
from msgq.lake.aggregate_store import RANGES_TABLE, AggregateStore, make_aggregate_file_name
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA, find_overlapping_files
from msgq.lake.gold.increment_inputs import commit_inputs, find_input_changes, open_inputs_table
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.text_columns import make_text_column
from msgq.spark.source.partitions import plan_file_partitions
from msgq.spark.source.source_options import SourceOptions
from tools.metadata_lake import DAY_S, FIRST_DAY, SEGMENT_BYTES, make_ranges, measure_time, show_lakes

_TB = 10**12
_TASK = 256 << 20
_GROUP = 64 << 20
_DAY = FIRST_DAY.isoformat()
# ---- real work ----


def planning(directory: Path, files: int) -> float:
    """Plan the ingest of so many segments; return CPU seconds of the driver."""
    first = directory / "first.mcap"
    with first.open("wb") as file:
        writer = Writer(file)
        writer.start()
        channel = writer.register_channel("e", "", 0)
        writer.add_message(channel, 1, b"payload", 1, 1)
        writer.finish()
    for number in range(1, files):
        (directory / f"{number}.mcap").hardlink_to(first)
    options = SourceOptions((str(directory),), core_count=1000)
    return measure_time(lambda: list(plan_file_partitions(options, options.list_files([]), [])))


@dataclass
class Day:
    """What the tables of a lake cost after a day, CPU seconds of a new process.

    Attributes:
        lookup: search for the files that the last ingest read.
        ranges: ranges of the messages in all parts, as the last ingest left them.
        overlaps: True if the new files of the last ingest may have messages that are there.
        commit: one commit of the last ingest to messages.
        groups: of a refresh: of which hours gold is to be made.
        opened: of a reader: which files the table of messages has.
    """

    lookup: float
    ranges: float
    overlaps: float
    commit: float
    groups: float
    opened: float


def day(directory: Path, entries: int, parts: int, groups: int, endpoints: int) -> Day:
    """Fill the tables of a lake as a day does.

    `parts`, `groups`, `endpoints`: of an ingest: files, row groups, names.
    """
    lake = LakeDirectory(directory)
    messages, derived, inputs = open_messages_table(lake), AggregateStore(lake), IngestLog(lake)
    table = derived.tables[RANGES_TABLE]
    payload = pa.table({"endpoint": ["e"], "data": [b""]})
    columns = payload.schema.append(pa.field("date", pa.string())).append(pa.field("size_class", pa.string()))
    every_s = DAY_S / entries
    names: list[str] = []
    new = RANGES_SCHEMA.empty_table()
    segments: list[IngestedFile] = []
    last = 0.0
    for entry in range(entries):
        parts_of_entry = [f"date={_DAY}/size_class=small/{entry:04}-{number:03}.parquet" for number in range(parts)]
        files = [messages.write_file(path, payload) for path in parts_of_entry]
        last = measure_time(partial(messages.commit_files, messages.read_snapshot(), columns, files))
        names += parts_of_entry
        new = make_ranges(parts_of_entry, entry * groups, groups, endpoints, every_s)
        ranges_files = [
            table.write_file(make_aggregate_file_name(part), new.filter(pc.equal(new["bronze_file"], part)))
            for part in parts_of_entry
        ]
        table.commit_files(table.read_snapshot(), RANGES_SCHEMA, ranges_files)
        segments = [IngestedFile(f"/recordings/{entry}/{number}.mcap", SEGMENT_BYTES, 1) for number in range(parts)]
        inputs.record_inputs(segments, [])
    aggregate_store._RANGES_CACHE = aggregate_store.FileCache(1 << 14)  # each ingest is a new process
    lookup = measure_time(lambda: IngestLog(lake).find_ingested_files(segments))
    column = make_text_column(names)
    ranges = measure_time(lambda: derived.read_nearby_ranges(new, column))
    nearby = derived.read_nearby_ranges(new, column)
    overlaps = measure_time(lambda: find_overlapping_files(new, nearby))
    gold_inputs = open_inputs_table(lake)
    before, view = derived.read_snapshot(names[:-parts]), derived.read_snapshot(names)
    assert before is not None
    assert view is not None
    commit_inputs(gold_inputs, None, find_input_changes(None, before, False))
    grouped = measure_time(lambda: find_input_changes(gold_inputs.read_snapshot(), view, False))
    opened = measure_time(lambda: open_messages_table(lake).read_snapshot().path_column)  # type: ignore[union-attr]
    return Day(lookup, ranges, overlaps, last, grouped, opened)


# ---- simulated work ----


def volumes(hosts: int, random: np.random.Generator) -> np.ndarray:
    """Return bytes a day of each host: 1 TB on average, most within a factor of 2, each thousandth 20 times as many."""
    volumes = random.lognormal(0, 0.5, hosts)
    volumes[::1000] *= 20
    sizes: np.ndarray = volumes / volumes.mean() * _TB
    return sizes


def makespan(durations: np.ndarray, cores: int) -> float:
    """Return when all is done, if each core takes the next task as soon as it is free; largest tasks first."""
    free = [0.0] * cores
    for duration in np.sort(durations)[::-1].tolist():
        heapq.heappush(free, heapq.heappop(free) + duration)
    return max(free)


def fill(hosts: int, cores: int, rate: float, split: bool, random: np.random.Generator) -> float:
    """Return how much longer a day's ingest takes than if all cores were busy to the end.

    Args:
        rate: bytes a second of a core. One task in a hundred is five times slower.
        split: whether a task is a piece of a file, or all that a host recorded.
    """
    sizes = volumes(hosts, random)
    if split:
        sizes = np.full(int(sizes.sum() / _TASK), float(_TASK))
    slow = np.where(random.random(len(sizes)) < 0.01, 5.0, 1.0)
    durations = sizes / rate * slow * random.lognormal(0, 0.2, len(sizes))
    return makespan(durations, cores) / (float(durations.sum()) / cores)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=119.0, help="MB a second of which a core makes bronze and gold")
    parser.add_argument("--growth", type=float, default=2.0, help="how much larger recordings are before compression")
    parser.add_argument("--every", type=float, default=300.0, help="seconds between two ingests of a host")
    parser.add_argument("--recordings", type=int, default=10_000, help="recordings of the largest lake, a power of 10")
    parser.add_argument("--picture", type=Path, help="SVG file to write")
    options = parser.parse_args()
    random = np.random.default_rng(1)
    shown = Shown("what", "figure", title=f"{options.hosts} hosts, 1 TB a day each", title_justify="left")
    segments, rate = _TB / SEGMENT_BYTES, options.rate * 1e6
    entries = int(DAY_S / options.every)
    cores = options.hosts * _TB / rate / DAY_S
    parts = max(1, round(_TB / entries * options.growth / _TASK))
    shown.add_row("segments a day: a host, all", f"{segments:,.0f}, {segments * options.hosts:,.0f}")
    shown.add_row("cores that are busy all day, with gold", f"{cores:,.0f}")
    shown.add_row("core hours a TB", f"{_TB / rate / 3600:.1f}")
    shown.add_row(f"an ingest of a host every {options.every:.0f} s: parts, a day", f"{parts}, {parts * entries:,}")
    with tempfile.TemporaryDirectory(prefix="msgq-scale-") as name:
        directory = Path(name)
        (directory / "files").mkdir()
        shown.add_row("planning a host's day at once, driver", f"{planning(directory / 'files', int(segments)):.2f} s")
        groups = max(parts, int(_TB / entries * options.growth / _GROUP))
        for endpoints in (20, 100):
            seconds = day(directory / f"lake{endpoints}", entries, parts, groups, endpoints)
            ingest = f"{seconds.lookup:.2f} s, {seconds.ranges:.2f} s, {seconds.overlaps:.2f} s, {seconds.commit:.2f} s"
            text = f"last ingest of a host's day, {endpoints} endpoints"
            shown.add_row(f"{text}: files known, ranges, overlaps, commit", ingest)
            shown.add_row(f"its refresh, {endpoints} endpoints: which hours changed", f"{seconds.groups:.2f} s")
            shown.add_row(f"a reader, {endpoints} endpoints: the files of messages", f"{seconds.opened:.2f} s")
    sample = min(options.hosts, 1000)
    some = max(1, int(cores * sample / options.hosts))
    for unit, split in (("pieces of files", True), ("whole hosts", False)):
        longer = fill(sample, some, rate, split, random)
        shown.add_row(f"a day of {sample} hosts on {some} cores, tasks are {unit}: longer than ideal", f"{longer:.2f}x")
    console = Console()
    console.print(shown)
    show_lakes(console, options.recordings, options.picture)


if __name__ == "__main__":
    main()
