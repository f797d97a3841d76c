"""A lake with all its tables, made in this process without Spark."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msgq.common.schema import Schema
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.bronze.ingest_log import IngestedFile
from msgq.lake.delta_table import LakeTable, list_table_paths
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.lake.schema_ids import compute_schema_id
from msgq.lake.silver.silver_builder import build_silver
from msgq.recording.mcap_io.problem import Problem
from tests.lake.bronze_rows import MIDNIGHT, SECOND, Row, some_rows, table
from tests.lake.golds import gold_of
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import sorted_rows
from tests.lake.silvers import json_message, message

WIDE = np.dtype(
    [("x", "<f4"), ("y", "<f8"), ("count", "<u8"), ("small", "<u2"), ("on", "?"), ("tags", "<i2", (2,)), ("raw", "S4")]
)


class LocalLake:
    """A lake. `ingests`: number of earlier ingests."""

    def __init__(self, path: Path, ingests: int = 0) -> None:
        self.path, self.directory = path, LakeDirectory(path)
        self.bronze = BronzeStore(self.directory, InPlaceExecutor())
        self._ingests = ingests

    def ingest(self, rows: Iterable[Row], schemas: Iterable[Schema] = ()) -> int:
        """Add messages as those of one recording, of which a part cannot be read. Return the number of new messages."""
        self._ingests += 1
        name = f"/drives/{self._ingests}.mcap"
        written = write_bronze(table(rows).to_batches(), self.directory)
        result = TaskResult(written, [Problem(name, 8 * self._ingests, "a chunk has a wrong checksum")], set(schemas))
        return self.bronze.commit_task_result([IngestedFile(name, 1, self._ingests)], [], result)

    def build(self, full_refresh: bool = False) -> None:
        """Build silver and gold. `full_refresh`: True: all rows of gold again."""
        build_silver(self.directory, InPlaceExecutor(), self.bronze.list_bronze_files)
        gold_of(self.path).build_gold(SECOND, None, full_refresh)


def read_tables(lake: LocalLake) -> dict[str, list[tuple[Any, ...]]]:
    """Return the sorted rows of the tables, without tables that contain names of files."""
    tables = {}
    for place in list_table_paths(lake.directory):
        if place.partition("/")[0] not in ("aggregates", "silver_manifest") and place != "gold/_increments":
            snapshot = LakeTable(lake.directory, place).read_snapshot()
            assert snapshot is not None
            tables[place] = sorted_rows(snapshot.read_rows())
    return tables


def check_lake_continues(written: LocalLake, directory: Path, optimize: Callable[[Path], None]) -> None:
    """Check that a lake has right rows after another program has merged and removed files of its tables.

    Args:
        written: lake of two ingests. It remains as it is.
        directory: gets two copies of the lake, of which one is changed.
        optimize: merges the files of the table in a directory, and removes the old files.
    """
    lakes = changed, unchanged = LocalLake(directory / "changed", 2), LocalLake(directory / "unchanged", 2)
    for lake in lakes:
        shutil.copytree(written.path, lake.path)
    before, places = read_tables(unchanged), list_table_paths(changed.directory)
    aggregates = [place for place in places if place.startswith("aggregates") and not place.endswith("ranges")]
    for part in (aggregates, set(places) - {*aggregates, "messages"}, ["messages"]):
        for place in part:
            optimize(changed.path / place)
        assert read_tables(changed) == before
        if "messages" not in part:
            files = changed.bronze.list_bronze_files()
            assert AggregateStore(changed.directory).find_missing_aggregates(files) == set(), "they are there"
        changed.build(full_refresh=True)
        assert read_tables(changed) == before
    for lake in lakes:
        lake.ingest(*make_rows(3, 2))
        lake.build()
    assert read_tables(changed) == read_tables(unchanged) != before
    for place in places:
        optimize(changed.path / place)
    changed.bronze.optimize()
    changed.build()
    for place in list_table_paths(changed.directory):
        LakeTable(changed.directory, place).vacuum(0)
    changed.build()
    assert read_tables(changed) == read_tables(unchanged)


def make_rows(seed: int, first: int = 0) -> tuple[list[Row], Sequence[Schema]]:
    """Return messages of many kinds, and JSON and numbers with texts and numbers that formats write in several ways."""
    schema, begin = Schema.of(WIDE, "Wide"), MIDNIGHT + (100 + first) * 3600 * SECOND
    made: list[dict[str, Any]] = []
    for number in range(40):
        time = {"log_time": begin + number * SECOND, "publish_time": begin + number * SECOND - 1000}
        values = (number / 3, -number / 7, 2**63 + number, number, number % 2, (number, -number), b"ab")
        data = np.array(values, WIDE).tobytes()
        made.append(message("wide", number, "struct", data, schema="Wide", schema_id=compute_schema_id(schema)) | time)
        value = {
            "speed": number / 10 if number % 5 else None,
            "größe µ": "x" * (number * 3),
            "pose": {"x": number, "path": [{"t": n} for n in range(number % 3)]},
            "text": ("", "\x7f", "a\nb", "日本 \U0001f600", "%20/=")[number % 5],
        }
        made.append(json_message("gps/front é", number, value) | time)
    made.append(json_message("gps/front é", 40, b"{") | {"log_time": begin + 41 * SECOND, "publish_time": None})
    run = f"run {first} ü"
    return [row | {"run": run} for row in made] + [
        row | {"run": f"{row['run']}{first}"} for row in some_rows(random.Random(seed))
    ], [schema]
