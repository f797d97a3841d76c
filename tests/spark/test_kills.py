"""An ingest that is killed wherever: what readers see is whole, and the next ingest makes the lake right."""

from __future__ import annotations

import itertools
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from mcap import records

pytest.importorskip("pyspark")
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_writer import open_messages_table, rebuild_aggregates
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.spark.lake import Lake
from tests.recording import logs
from tests.spark.mortal import kill_ingests
from tests.support import LONGER, Child


def recording(path: Path, first: int, count: int = 10) -> Path:
    """Write numbers of three endpoints, one of them of large messages; what follows is cut off."""
    schema = records.Schema(id=1, name="B", encoding="jsonschema", data=b'{"type": "object"}')
    channels = [logs.channel(1, "a"), logs.channel(2, "b", schema_id=1, encoding="json"), logs.channel(3, "large")]
    sent = [
        logs.message(channel, number, 1000 + 1000 * number + channel, b"{}" + bytes(70_000 if channel == 3 else 0))
        for number in range(first, first + count)
        for channel in (1, 2, 3)
    ]
    chunk = logs.build_chunk_record(schema, *channels, *sent)
    return logs.write_unclosed_file(path, chunk, chunk[:-7])


def read_messages(lake: Path) -> list[tuple[str, int]]:
    """Return what a reader finds, without Spark."""
    snapshot = open_messages_table(LakeDirectory(lake)).read_snapshot()
    rows = [] if snapshot is None else snapshot.read_rows(["endpoint", "sequence"]).to_pylist()
    return sorted((row["endpoint"], row["sequence"]) for row in rows)


def numbers(first: int, end: int) -> list[tuple[str, int]]:
    return [(name, number) for name in ("a", "b", "large") for number in range(first, end)]


def assert_right(root: Path, expected: list[tuple[str, int]]) -> None:
    """Assert that a lake has these messages once, and of each part what derives of it, once."""
    lake = LakeDirectory(root)
    assert read_messages(root) == expected
    snapshot = open_messages_table(lake).read_snapshot()
    assert snapshot is not None
    tables = AggregateStore(lake)
    view = tables.read_snapshot(set(snapshot.files_by_path))
    assert view is not None, "all parts have what is derived of them"
    for name, table in tables.tables.items():
        there = table.read_snapshot()
        assert there is not None
        wanted = [
            row
            for part in sorted(snapshot.files_by_path)
            for file in rebuild_aggregates(lake, part).aggregate_files.get(name, ())
            for row in pq.ParquetFile(table.resolve_file_path(file.path)).read().to_pylist()
        ]
        found = there.read_rows().to_pylist()
        assert sorted(map(repr, found)) == sorted(map(repr, wanted)), f"{name} is not what its parts say"


@pytest.fixture
def killer() -> Iterator[Any]:
    """A function that ingests in a process of its own, and says how that ended."""
    with Child(kill_ingests) as child:
        child.hear()

        def ingest(lake: Path, recordings: list[Path], until: float | None = None) -> int:
            child.say([str(lake), list(map(str, recordings)), until])
            found: int = child.hear()
            return found

        yield ingest
        child.say(None)


@pytest.mark.parametrize(
    ("before", "stride"),
    [
        ("a lake", 12),
        pytest.param("nothing", 3, marks=pytest.mark.nightly),
        pytest.param("a lake", 2, marks=pytest.mark.nightly),
    ],
)
def test_ingest_killed_at_each_step_loses_no_message(
    spark: Any, tmp_path: Path, killer: Any, before: str, stride: int
) -> None:
    """What: an ingest is killed instead of changes that it makes to the disk, and before and after commits: at one of
    `stride` steps, and with MSGQ_STRESS=2 at each.

    Failure would mean: messages that are lost or there twice, derived tables that do not fit, half of an ingest that a
    reader sees, or a lake that nobody can write any more.
    """
    one, two = recording(tmp_path / "1.mcap", 0), recording(tmp_path / "2.mcap", 10)
    if before == "a lake":
        assert killer(tmp_path / "base", [one]) == 0
    there, new = (read_messages(tmp_path / "base"), [two]) if before == "a lake" else ([], [one, two])
    outcomes = []
    for step in itertools.count(0, 1 if LONGER > 1 else stride):
        root = tmp_path / "lake"
        if there:
            shutil.copytree(tmp_path / "base", root)
        ended = killer(root, new, step)
        outcomes.append(read_messages(root))
        assert outcomes[-1] in (there, numbers(0, 20)), f"half of an ingest is there after {step} steps"
        lake = Lake(spark, root)
        lake.ingest(new)
        assert_right(root, numbers(0, 20))
        assert len(lake.read_errors().collect()) == len({row["file"] for row in lake.read_errors().collect()}) == 2
        ingested = LakeTable(LakeDirectory(lake.uri), "ingested_files").read_snapshot()
        assert ingested is not None
        assert {Path(path).name for path in ingested.read_rows().column("path").to_pylist()} == {
            "1.mcap",
            "2.mcap",
        }
        again = lake.ingest([one, two])
        assert (again.messages, again.files) == (0, 0)
        shutil.rmtree(root)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
    assert there in outcomes[:-1]
    assert numbers(0, 20) in outcomes[:-1]
    assert step > 20


@pytest.mark.nightly
def test_ingest_killed_at_random_time_loses_no_message(spark: Any, tmp_path: Path, killer: Any) -> None:
    """Kills within a commit, and within the writing of a file, too."""
    one, two = recording(tmp_path / "1.mcap", 0), recording(tmp_path / "2.mcap", 10)
    begin = time.monotonic()
    assert killer(tmp_path / "base", [one]) == 0
    took = time.monotonic() - begin
    dice = random.Random(21)
    ended: list[int] = []
    while len(ended) < int(8 * LONGER) or -signal.SIGALRM not in ended:
        assert len(ended) < 100 * max(LONGER, 1), "no ingest was killed before its end"
        shutil.copytree(tmp_path / "base", tmp_path / "lake")
        for first in (True, False):
            begin = time.monotonic()
            ended.append(killer(tmp_path / "lake", [two], dice.uniform(0.001, took)))
            if first and ended[-1] == 0:  # the load was higher before
                took = min(took, time.monotonic() - begin)
        assert read_messages(tmp_path / "lake") in (numbers(0, 10), numbers(0, 20))
        Lake(spark, tmp_path / "lake").ingest([two])
        assert_right(tmp_path / "lake", numbers(0, 20))
        shutil.rmtree(tmp_path / "lake")
