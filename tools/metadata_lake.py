"""A lake of many recordings, of which only the metadata exist: the files of ranges, and the logs of the tables.

`show_lakes` measures what the driver needs for an ingest, a refresh and a question, as the number of recordings grows.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table as Shown

from msgq.lake.aggregate_store import RANGES_TABLE, AggregateStore, make_aggregate_file_name, open_aggregate_table
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import UncommittedFiles, open_messages_table, write_bronze
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA
from msgq.lake.data_file import DataFile, make_add_action
from msgq.lake.delta_table import LakeTable, is_merged_file
from msgq.lake.gold import increment_inputs
from msgq.lake.gold.increment_inputs import commit_inputs, find_input_changes, open_inputs_table
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor, TaskResult
from msgq.lake.message_columns import BRONZE_COLUMNS, INGEST_COLUMNS
from msgq.lake.message_filter import MessageFilter

SEGMENT_BYTES = 256 << 20
DAY_S = 86_400
FIRST_DAY = date(2026, 5, 1)
_MIDNIGHT_S = 1_777_593_600  # midnight of the first day
_HOUR_NS = 3600 * 10**9

# A recording of 10 GB: 20 GB before compression, in files of 512 MiB.
_RECORDINGS_PER_DAY = 100
_RECORDING_NS = DAY_S // _RECORDINGS_PER_DAY * 10**9
_BRONZE_FILES = 40
_ROW_GROUPS = 8
_ENDPOINTS = 20
_SEGMENTS = 40
NEW_RECORDINGS = 10  # new recordings of an ingest


def measure_time(work: Callable[[], Any]) -> float:
    """Return CPU seconds of this process, as other machines and loads may compare them."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def make_ranges(parts: list[str], first_group: int, groups: int, endpoints: int, every_s: float) -> pa.Table:
    """Return what parts have, together so many row groups: each has messages of all endpoints."""
    group, endpoint = np.divmod(np.arange(groups * endpoints), endpoints)
    begin = _MIDNIGHT_S * 10**9 + ((first_group + group) * every_s / groups * 10**9).astype(np.int64)
    columns = {
        "bronze_file": np.array(parts, object)[group * len(parts) // groups],
        "run": ["run"] * len(group),
        "endpoint": [f"endpoint{number}" for number in endpoint.tolist()],
        "epoch": np.ones(len(group), np.int64),
        "schema_id": np.zeros(len(group), np.int64),
        "row_count": np.full(len(group), 1000),
        "first_sequence": begin // 10**6,
        "last_sequence": begin // 10**6 + 999,
        "start_time": begin,
        "end_time": begin + int(every_s / groups * 10**9) - 1,
        "has_duplicates": np.zeros(len(group), bool),
    }
    return pa.table(columns, schema=RANGES_SCHEMA)


@dataclass(frozen=True)
class Recording:
    """A recording of one run. The recordings of a lake follow each other, 100 a day."""

    number: int

    @property
    def run(self) -> str:
        """Name of the run."""
        return f"run{self.number:07}"

    @property
    def own_endpoint(self) -> str:
        """Name of the endpoint that no other recording has."""
        return f"{self.run}/status"

    @property
    def start_time(self) -> int:
        """Time of the first message, ns since the epoch."""
        return _MIDNIGHT_S * 10**9 + self.number * _RECORDING_NS

    @property
    def day(self) -> str:
        """Date of the recording."""
        return (FIRST_DAY + timedelta(days=self.number // _RECORDINGS_PER_DAY)).isoformat()

    def describe_files(self, template: DataFile) -> list[DataFile]:
        """Return descriptions of bronze files with other names and bounds than the template."""
        day = self.day
        step = _RECORDING_NS // _BRONZE_FILES
        files = []
        for start in range(self.start_time, self.start_time + _RECORDING_NS, step):
            times = dict.fromkeys(("publish_time", "log_time", "origin_time"), (start, start + step - 1))
            names = {"run": (self.run, self.run), "endpoint": ("endpoint0", self.own_endpoint)}
            path = f"date={day}/size_class=small/{uuid4().hex}.parquet"
            bounds = {**template.column_bounds, **times, **names}
            values = {"date": day, "size_class": "small"}
            files.append(replace(template, path=path, partition_values=values, column_bounds=bounds))
        return files

    def make_ranges(self, files: Sequence[DataFile]) -> pa.Table:
        """Return the ranges of the bronze files: 20 endpoints in each row group, at irregular times."""
        groups = _BRONZE_FILES * _ROW_GROUPS
        paths = [file.path for file in files]
        ranges = make_ranges(paths, self.number * groups, groups, _ENDPOINTS, _RECORDING_NS / 10**9)
        last = pc.equal(ranges["endpoint"], f"endpoint{_ENDPOINTS - 1}")
        random = np.random.default_rng(self.number)
        counts, earlier, later = (random.integers(1, 10**6, len(ranges)) for _ in range(3))
        columns = {
            "run": pa.repeat(self.run, len(ranges)),
            "endpoint": pc.if_else(last, self.own_endpoint, ranges["endpoint"]),
            "row_count": pa.array(counts),
            "last_sequence": pc.add(ranges["first_sequence"], counts),
            "start_time": pc.add(ranges["start_time"], earlier),
            "end_time": pc.subtract(ranges["end_time"], later),
        }
        for name, column in columns.items():
            ranges = ranges.set_column(ranges.schema.get_field_index(name), name, column)
        return ranges.cast(RANGES_SCHEMA)

    def list_inputs(self) -> list[IngestedFile]:
        """Return the segments of the recording."""
        step = _RECORDING_NS // _SEGMENTS
        return [
            IngestedFile(f"/recordings/{self.run}/{index:06}.mcap", SEGMENT_BYTES, self.start_time + (index + 1) * step)
            for index in range(_SEGMENTS)
        ]


def make_template(directory: Path) -> DataFile:
    """Write a bronze file with one message. Return its description, with the statistics of all columns."""
    texts = {"run": "run", "host": "host", "endpoint": "e", "encoding": "", "schema": "", "kind": "topic"}
    numbers = dict.fromkeys(("epoch", "sequence", "publish_time", "log_time", "origin_time", "schema_id"), 1)
    row = pa.Table.from_pylist([{**texts, **numbers, "data": b""}], INGEST_COLUMNS)
    (file,) = write_bronze(row.to_batches(), LakeDirectory(directory)).bronze_files
    return replace(file, size_bytes=2 * SEGMENT_BYTES, row_count=1_000_000)


def _write_log_entry(table: LakeTable, version: int, files: Sequence[DataFile]) -> None:
    """Add a version to a Delta log. The files need not exist."""
    actions: list[dict[str, Any]] = [{"txn": {"appId": "msgq", "version": version, "lastUpdated": 1}}]
    for file in files:
        action = make_add_action(file)
        entry = {"path": action.path, "partitionValues": action.partition_values, "size": action.size}
        entry |= {"modificationTime": action.modification_time, "dataChange": True, "stats": action.stats}
        actions.append({"add": entry})
    log = Path(table.resolve_file_path("_delta_log"))
    (log / f"{version:020}.json").write_text("\n".join(map(json.dumps, actions)))


def _merge_ranges(table: LakeTable, new: pa.Table) -> None:
    """Add ranges in one file, and merge the ranges of single bronze files, as `lake optimize` does."""
    base = table.read_snapshot()
    small = [] if base is None else [path for path in base.files_by_path if not is_merged_file(path)]
    rows = pa.concat_tables([table.read_rows(small, RANGES_SCHEMA), new])
    file = table.write_file(f"merged-{uuid4().hex}.parquet", rows)
    table.commit_files(base, RANGES_SCHEMA, [file], small)


def _make_gold_inputs(ranges: pa.Table) -> pa.Table:
    """Return the rows of an update of gold that has used these ranges."""
    hours = pc.divide(ranges["start_time"], _HOUR_NS)
    rows = ranges.select(["run", "bronze_file", "row_count"]).append_column("hour", hours)
    rows = rows.group_by(["run", "bronze_file", "hour"]).aggregate([("row_count", "sum")])
    columns = {
        "run": rows["run"],
        "hour": rows["hour"],
        "about": ["messages"] * len(rows),
        "bronze_file": rows["bronze_file"],
        "message_count": rows["row_count_sum"],
        "format": [increment_inputs._INPUT_FORMAT] * len(rows),
    }
    return pa.table(columns, schema=increment_inputs._INPUTS_SCHEMA)


def add_recordings(directory: Path, template: DataFile, numbers: range) -> None:
    """Add the metadata of recordings to a lake, day by day. Each recording has one commit in the log of `messages`."""
    lake = LakeDirectory(directory)
    messages = open_messages_table(lake)
    if not numbers.start:
        messages.commit_files(None, BRONZE_COLUMNS)
        AggregateStore(lake).commit_files({}, [])
    next_version = messages.log.read_newest_version() + 1
    days: dict[int, list[Recording]] = {}
    for number in numbers:
        days.setdefault(number // _RECORDINGS_PER_DAY, []).append(Recording(number))
    for recordings in days.values():
        ranges = []
        for recording in recordings:
            files = recording.describe_files(template)
            _write_log_entry(messages, next_version, files)
            next_version += 1
            ranges.append(recording.make_ranges(files))
        _merge_ranges(open_aggregate_table(lake, RANGES_TABLE), pa.concat_tables(ranges))
        open_inputs_table(lake).append_rows(_make_gold_inputs(pa.concat_tables(ranges)))
        IngestLog(lake).record_inputs([file for recording in recordings for file in recording.list_inputs()], [])
    _open_store(directory).complete_aggregates()  # also done by each ingest


def write_recordings(directory: Path, template: DataFile, recordings: Sequence[Recording]) -> TaskResult:
    """Write what the workers of an ingest write: empty bronze files, and files of ranges."""
    files_by_recording = [recording.describe_files(template) for recording in recordings]
    files = [file for some in files_by_recording for file in some]
    files_of_recordings = zip(recordings, files_by_recording, strict=True)
    ranges = pa.concat_tables([recording.make_ranges(some) for recording, some in files_of_recordings])
    table = open_aggregate_table(LakeDirectory(directory), RANGES_TABLE)
    written = []
    for file in files:
        place = directory / "messages" / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
        own = ranges.filter(pc.equal(ranges["bronze_file"], file.path))
        written.append(table.write_file(make_aggregate_file_name(file.path), own))
    return TaskResult(UncommittedFiles(files, {RANGES_TABLE: written}, ranges))


def _open_store(directory: Path) -> BronzeStore:
    return BronzeStore(LakeDirectory(directory), cast(LakeExecutor, None))  # no step needs a worker


def ingest(directory: Path, inputs: list[IngestedFile], result: TaskResult) -> None:
    """Do the work of an ingest's driver."""
    store = _open_store(directory)
    store.complete_aggregates()
    store.find_ingested_files(inputs)
    store.commit_task_result(inputs, [], result)


def refresh(directory: Path) -> None:
    """Find the hours of gold to build, and commit the inputs of gold, as the driver of a refresh does."""
    inputs = open_inputs_table(LakeDirectory(directory))
    base = inputs.read_snapshot()
    commit_inputs(inputs, base, find_input_changes(base, _open_store(directory).read_aggregates(), False))


def ask(directory: Path, message_filter: MessageFilter) -> None:
    """Select the files of a query."""
    BronzeReader(LakeDirectory(directory)).list_paths([message_filter])


def open_log(directory: Path) -> None:
    """Load the files of the table of messages with delta-rs alone, which each of the other steps does, too."""
    pa.table(DeltaTable(directory / "messages").get_add_actions(flatten=True))


def _read_memory(name: str) -> float:
    """Return a size of this process in MB. `name`: VmRSS, or VmHWM for the peak."""
    text = re.search(rf"{name}:\s*(\d+)", Path("/proc/self/status").read_text())
    assert text is not None
    return int(text[1]) / 1000


def _measure_work(work: Callable[..., None], *arguments: Any) -> tuple[float, float]:
    before = _read_memory("VmRSS")
    seconds = measure_time(lambda: work(*arguments))
    return seconds, _read_memory("VmHWM") - before


def measure_in_process(work: Callable[..., None], *arguments: Any) -> tuple[float, float]:
    """Return CPU seconds of a new process, and the growth of its memory to the peak in MB."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(_measure_work, work, *arguments).result()


def measure_ingest(directory: Path, template: DataFile, first: int) -> tuple[float, float]:
    """Return CPU seconds and MB of the driver for an ingest of 10 recordings. `first`: number of the first one."""
    new = [Recording(first + number) for number in range(NEW_RECORDINGS)]
    inputs = [file for recording in new for file in recording.list_inputs()]
    return measure_in_process(ingest, directory, inputs, write_recordings(directory, template, new))


def measure_lakes(directory: Path, largest: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Fill a lake with 10, 100, 1,000 ... recordings. Yield the number of recordings and the metrics."""
    template, lake = make_template(directory / "template"), directory / "lake"
    filled = 0
    for size in (10**power for power in range(1, 1 + round(math.log10(largest)))):
        add_recordings(lake, template, range(filled, size))
        filled, middle = size + NEW_RECORDINGS, Recording(size // 2)
        log = lake / "messages" / "_delta_log"
        if size >= _RECORDINGS_PER_DAY:  # commits make a checkpoint of each hundredth version
            DeltaTable(log.parent).create_checkpoint()
        hour = MessageFilter(None, middle.start_time, middle.start_time + _HOUR_NS)
        endpoint = MessageFilter(frozenset({middle.own_endpoint}))
        metrics = {}
        for name, work in (
            ("delta-rs alone", partial(measure_in_process, open_log, lake)),
            ("ingest", partial(measure_ingest, lake, template, size)),
            ("refresh", partial(measure_in_process, refresh, lake)),
            ("question by time", partial(measure_in_process, ask, lake, hour)),
            ("question by endpoint", partial(measure_in_process, ask, lake, endpoint)),
        ):
            metrics[f"{name}, CPU s"], metrics[f"{name}, MB"] = work()
        metrics["log entries of messages, MB"] = _sum_sizes(log.glob("*.json"))
        metrics["newest checkpoint of messages, MB"] = _sum_sizes(sorted(log.glob("*.checkpoint*.parquet"))[-1:])
        yield size, metrics


def _sum_sizes(files: Iterable[Path]) -> float:
    return sum(file.stat().st_size for file in files) / 1e6


def _draw_panel(title: str, sizes: list[int], rows: dict[str, list[float]], left: int) -> Iterator[str]:
    """Yield the elements of a diagram with logarithmic axes."""
    values = [value for row in rows.values() for value in row if value]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    x = [left + 60 + 80 * math.log10(size / sizes[0]) for size in sizes]

    def get_y(value: float) -> float:
        return 290 - 250 * (math.log10(value) - low) / (high - low)

    yield f'<text x="{left}" y="20" font-weight="bold">{title}</text>'
    for power in range(low, high + 1):
        y = get_y(10**power)
        yield f'<path d="M{x[0]:.0f} {y:.0f}H{x[-1]:.0f}" stroke="#ccc"/>'
        yield f'<text x="{left}" y="{y + 4:.0f}">{10**power:g}</text>'
    for place, size in zip(x, sizes, strict=True):
        yield f'<text x="{place:.0f}" y="310" text-anchor="middle">{size:,}</text>'
    for index, (name, row) in enumerate(rows.items()):
        color = ("#1b6ca8", "#c0392b", "#2e8b57", "#8e44ad", "#b9770e", "#555", "#c2185b")[index]
        points = " ".join(f"{place:.0f},{get_y(value):.0f}" for place, value in zip(x, row, strict=True) if value)
        yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2"/>'
        yield f'<text x="{left + 60}" y="{335 + 16 * index}" fill="{color}">{name}</text>'


def draw_lakes(sizes: list[int], rows: dict[str, list[float]]) -> str:
    """Return a picture of the metrics in SVG: seconds on the left, MB on the right."""
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 450" font-family="sans-serif" font-size="12">']
    lines.append('<rect width="720" height="450" fill="white"/>')
    for unit, left, title in (
        ("CPU s", 20, "CPU seconds of the driver"),
        ("MB", 380, "MB: memory of the driver, and log"),
    ):
        suffix = f", {unit}"
        chosen = {name.removesuffix(suffix): row for name, row in rows.items() if name.endswith(suffix)}
        lines += _draw_panel(title, sizes, chosen, left)
    return "\n".join([*lines, "</svg>", ""])


def show_lakes(console: Console, largest: int, picture: Path | None) -> None:
    """Print the metrics of a lake of many recordings, and draw them."""
    with tempfile.TemporaryDirectory(prefix="msgq-scale-") as name:
        measured = list(measure_lakes(Path(name), largest))
    sizes = [size for size, _ in measured]
    rows = {what: [metrics[what] for _, metrics in measured] for what in measured[0][1]}
    shown = Shown("recordings", *(f"{size:,}" for size in sizes), title="a lake of many recordings, metadata only")
    for what, row in rows.items():
        shown.add_row(what, *(f"{value:,.2f}" for value in row))
    console.print(shown)
    if picture is not None:
        picture.write_text(draw_lakes(sizes, rows))
