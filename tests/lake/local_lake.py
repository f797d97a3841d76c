"""A lake with all its tables, made in this process without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msgq.common.schema import Schema
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.bronze.ingest_log import IngestedFile
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.lake.schema_ids import compute_schema_id
from msgq.lake.silver.silver_builder import build_silver
from msgq.recording.mcap_io.problem import Problem
from tests.lake.bronze_rows import MIDNIGHT, SECOND, Row, some_rows, table
from tests.lake.golds import gold_of
from tests.lake.in_place import InPlaceExecutor
from tests.lake.silvers import json_message, message

WIDE = np.dtype(
    [("x", "<f4"), ("y", "<f8"), ("count", "<u8"), ("small", "<u2"), ("on", "?"), ("tags", "<i2", (2,)), ("raw", "S4")]
)


class LocalLake:
    """A lake, and the number of its ingests."""

    def __init__(self, path: Path) -> None:
        self.path, self.directory = path, LakeDirectory(path)
        self.bronze = BronzeStore(self.directory, InPlaceExecutor())
        self._ingests = 0

    def ingest(self, rows: Iterable[Row], schemas: Iterable[Schema] = ()) -> int:
        """Add messages as those of one recording, of which a part cannot be read. Return the number of new messages."""
        self._ingests += 1
        name = f"/drives/{self._ingests}.mcap"
        written = write_bronze(table(rows).to_batches(), self.directory)
        result = TaskResult(written, [Problem(name, 8 * self._ingests, "a chunk has a wrong checksum")], set(schemas))
        return self.bronze.commit_task_result([IngestedFile(name, 1, self._ingests)], [], result)

    def build(self) -> tuple[int, int]:
        """Build silver and gold, and return the numbers of decoded files and of built runs."""
        decoded = build_silver(self.directory, InPlaceExecutor(), self.bronze.list_bronze_files)
        return decoded, gold_of(self.path).build_gold(SECOND, None, full_refresh=False)


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
