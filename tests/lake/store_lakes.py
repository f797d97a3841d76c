"""Lakes in an object store, made in this process in place of Spark's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from pyspark import cloudpickle

from msgq.common.storage.store_errors import translate_store_errors
from msgq.common.units import NS_PER_S
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import UncommittedFiles, open_messages_table, write_bronze
from msgq.lake.bronze.duplicate_messages import MESSAGE_KEY, read_message_keys, read_rows_except
from msgq.lake.gold.gold_builder import GoldBuilder
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.silver.silver_builder import build_silver
from msgq.spark.lake.ingest import ingest_recordings
from msgq.spark.lake.spark_directory import SparkDirectory
from tests.lake.in_place import InPlaceExecutor
from tests.recording import logs

ENDPOINTS = ("imu", "gps")


class PicklingExecutor(InPlaceExecutor):
    """An executor that pickles the functions, too, as Spark does."""

    def run_tasks(self, tasks: Any, function: Callable[[Any], Any]) -> list[Any]:
        pickled = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]
        return super().run_tasks(tasks, cloudpickle.loads(pickled))

    def rewrite_duplicates(
        self, lake: LakeDirectory, doubtful: Sequence[str], met: Sequence[str]
    ) -> dict[str, UncommittedFiles]:
        """Rewrite files without the messages that other files have, of which committed ones come first."""
        parts, known, duplicates = [*met, *doubtful], set[tuple[Any, ...]](), dict[str, list[int]]()
        for number, part in enumerate(parts):
            for batch in read_message_keys(lake, part, number, number < len(met)):
                for row in batch.to_pylist():
                    key = tuple(row[name] for name in MESSAGE_KEY)
                    if key in known and not row["is_committed"]:
                        duplicates.setdefault(part, []).append(row["row_number"])
                    known.add(key)
        return {
            part: write_bronze(read_rows_except(lake, part, np.array(rows)), lake) for part, rows in duplicates.items()
        }


def write_recording(path: Path, first: int = 0, count: int = 10) -> Path:
    """Write messages of two endpoints with the sequences from `first` on."""
    channels = [logs.channel(number, name, encoding="json") for number, name in enumerate(ENDPOINTS, 1)]
    sent = [
        logs.message(channel, number, 10**18 + NS_PER_S * number + channel, b'{"n": %d}' % number)
        for number in range(first, first + count)
        for channel in (1, 2)
    ]
    return logs.write_unclosed_file(path, logs.build_chunk_record(*channels, *sent))


class StoreLake:
    """The steps of a lake, without Spark. `options`: storage options; None: the environment has them."""

    def __init__(self, url: str, options: Mapping[str, str] | None = None) -> None:
        self.url, self.options = url, options
        context = SimpleNamespace(defaultParallelism=2)
        spark: Any = SimpleNamespace(_jsc=context, sparkContext=context)  # attributes that `count_cores` needs
        self.store = SparkDirectory(spark, url, options)
        self.executor = PicklingExecutor()
        self.bronze = BronzeStore(self.store, self.executor)
        self.gold = GoldBuilder(self.store, self.executor, self.bronze.read_aggregates)

    @translate_store_errors()
    def ingest(self, paths: Iterable[Path]) -> int:
        """Ingest recordings, and return the number of new messages."""
        problems: list[Any] = []
        done = ingest_recordings(self.store, self.executor, self.bronze, list(paths), problems, None)
        assert not problems
        return done.messages

    def build_silver(self) -> int:
        self.bronze.complete_aggregates()
        return build_silver(self.store, self.executor, self.bronze.list_bronze_files)

    def build_gold(self) -> int:
        return self.gold.build_gold(NS_PER_S, None, False)

    def build_all(self, paths: Iterable[Path]) -> None:
        self.ingest(paths)
        self.build_silver()
        self.build_gold()

    def read_messages(self) -> list[tuple[str, int]]:
        """Return the endpoints and sequences that a new reader finds, sorted."""
        snapshot = open_messages_table(LakeDirectory(self.url, self.options)).read_snapshot()
        rows = [] if snapshot is None else snapshot.read_rows(["endpoint", "sequence"]).to_pylist()
        return sorted((row["endpoint"], row["sequence"]) for row in rows)


def list_messages(first: int, end: int) -> list[tuple[str, int]]:
    """Return the endpoints and sequences of `write_recording`, sorted."""
    return sorted((name, number) for name in ENDPOINTS for number in range(first, end))
