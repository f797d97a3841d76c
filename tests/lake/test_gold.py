"""Gold is the same whatever came when, and whoever was killed meanwhile; its readers have rows all the time."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
from msgq.errors import InvalidValueError
from msgq.lake.bronze.bronze_writer import open_messages_table
from msgq.lake.delta_table import LakeTable
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.metrics.checks import CheckThresholds
from tests.lake import golds
from tests.lake.bronze_rows import HOUR, MIDNIGHT, SECOND, add, directory, pieces, row, some_rows
from tests.lake.kills import is_killed
from tests.lake.rows import sorted_rows
from tests.spark.kind_logs import RecordedMessage
from tests.support import LONGER

# Moments before and after commits are even and odd; so a step from one tested moment to the next is odd.
FEW = range(1, 1000, 33)
MANY = list(chain(range(4), range(4, 1000, 9 if LONGER < 2 else 1)))


def at_once(path: Path, rows: list[dict[str, object]]) -> golds.Rows:
    add(directory(path), rows)
    golds.build_gold(path)
    return golds.tables(path)


@pytest.mark.seeds(1, 1, 7)
def test_gold_tables_of_pieces_equal_gold_tables_of_whole_recording(tmp_path: Path, seed: int) -> None:
    """Pieces come in any order and overlap; gold is made after some of them."""
    rng = random.Random(seed)
    rows = some_rows(rng)
    for piece in pieces(rng, rows, 4):
        add(directory(tmp_path / "lake"), piece)
        if rng.random() < 0.6:
            golds.build_gold(tmp_path / "lake")
    golds.build_gold(tmp_path / "lake")
    assert golds.tables(tmp_path / "lake") == at_once(tmp_path / "whole", rows)
    assert golds.build_gold(tmp_path / "lake") == 0


def topic(name: str, times: list[int], first: int = 0) -> list[dict[str, object]]:
    return [row(RecordedMessage(name, first + number, time, b"")) for number, time in enumerate(times)]


def test_late_recording_piece_removes_gaps_and_dropouts(tmp_path: Path) -> None:
    times = [MIDNIGHT - 60 * SECOND + i * SECOND for i in range(200)]
    rows = topic("a", times)
    add(directory(tmp_path), rows[:50] + rows[130:])
    assert golds.build_gold(tmp_path) == 1
    assert golds.table(tmp_path, "sequence_gaps").column("lost").to_pylist() == [80]
    assert golds.table(tmp_path, "dropouts").column("duration_ns").to_pylist() == [81 * SECOND]
    add(directory(tmp_path), rows[50:130])
    assert golds.build_gold(tmp_path) == 1
    assert golds.table(tmp_path, "sequence_gaps").num_rows == golds.table(tmp_path, "dropouts").num_rows == 0
    assert golds.table(tmp_path, "endpoints").column("messages").to_pylist() == [200]


def test_losses_at_epoch_ends_are_gaps(tmp_path: Path) -> None:
    rows = topic("a", [MIDNIGHT - 50 * SECOND + i * SECOND for i in range(100)], first=3)
    rows[0]["lost_before"], rows[-1]["lost_after"] = 5, 70
    for piece in (rows[60:], rows[20:60]):
        add(directory(tmp_path), piece)
    golds.build_gold(tmp_path)
    assert golds.table(tmp_path, "endpoints").column("lost").to_pylist() == [70]
    add(directory(tmp_path), rows[:20])
    golds.build_gold(tmp_path)
    gaps = sorted_rows(
        golds.table(tmp_path, "sequence_gaps"), "previous_sequence", "next_sequence", "lost", "from_time", "to_time"
    )
    times = [row["log_time"] for row in (rows[0], rows[-1])]
    assert gaps == [(102, 173, 70, times[1], times[1]), (2**32 - 3, 3, 5, times[0], times[0])]
    assert sorted_rows(golds.table(tmp_path, "endpoints"), "messages", "lost", "sequence_gaps") == [(100, 75, 2)]


@pytest.mark.parametrize("lost", [2**30 - 2, 2**31 + 5, 3 * 10**9, 2**32 + 5, 2**61])
def test_excessive_losses_at_epoch_ends_are_limited_to_maximum(tmp_path: Path, lost: int) -> None:
    (row,) = rows = topic("a", [MIDNIGHT], first=3)
    row["lost_before"] = row["lost_after"] = lost
    add(directory(tmp_path), rows)
    golds.build_gold(tmp_path)
    assert sorted_rows(golds.table(tmp_path, "endpoints"), "messages", "lost", "sequence_gaps") == [
        (1, 2 * (2**30 - 2), 2)
    ]


def test_gold_drops_endpoints_of_removed_messages(tmp_path: Path) -> None:
    add(directory(tmp_path), topic("a", [MIDNIGHT + i for i in range(5)]))
    add(directory(tmp_path), topic("b", [MIDNIGHT - 5 * HOUR]))
    golds.build_gold(tmp_path)
    messages = open_messages_table(directory(tmp_path))
    base = messages.read_snapshot()
    assert base is not None
    (gone,) = (path for path, file in base.files_by_path.items() if file.row_count == 5)
    messages.commit_files(base, BRONZE_COLUMNS, remove=[gone])
    assert golds.build_gold(tmp_path) == 1
    assert golds.table(tmp_path, "traffic_windows").column("endpoint").to_pylist() == ["b"]
    assert golds.table(tmp_path, "endpoints").column("endpoint").to_pylist() == ["b"]


def test_gold_update_reads_only_new_recording_piece(tmp_path: Path) -> None:
    """RowGroups that are made, and rows that are read for them."""
    costs = []
    for pieces_before in (1, 6):
        lake = tmp_path / str(pieces_before)
        for number in range(pieces_before):
            add(directory(lake), topic("a", [MIDNIGHT + (number * HOUR) + i * SECOND for i in range(30)], 30 * number))
        golds.build_gold(lake)
        add(directory(lake), topic("a", [MIDNIGHT + 9 * HOUR + i * SECOND for i in range(30)], 30 * pieces_before))
        with golds.here() as read:
            golds.gold_of(lake).build_gold(SECOND, None, False)
        costs.append(read)
    assert costs[0] == costs[1] == [30 + 1], "a row of windows for each second, and an island"


@pytest.mark.parametrize(
    ("rate", "endpoints", "seconds"),
    [(70, 16, 100), pytest.param(7, 16, 1000, marks=pytest.mark.nightly), (1, 9, 3600), (0.02, 9, 3600)],
)
def test_gold_size_is_bounded(tmp_path: Path, rate: float, endpoints: int, seconds: int) -> None:
    """At most 5 % of bronze, or 10 kB for each endpoint and hour; rates at which windows have as little as can be."""
    random = np.random.default_rng(1)
    rows = []
    for name in range(endpoints):
        times = MIDNIGHT + (
            (np.arange(rate * seconds) + random.uniform(0, 0.5, int(rate * seconds))) / rate * SECOND
        ).astype(int)
        late = random.lognormal(12.5, 0.6, len(times)).astype(int)
        said = zip(times.tolist(), (times - late).tolist(), strict=True)
        data = random.bytes(30)
        rows += [
            row(RecordedMessage(f"e{name}", i, at, data + random.bytes(30), publish_time=sent))
            for i, (at, sent) in enumerate(said)
        ]
    add(directory(tmp_path), rows)
    golds.build_gold(tmp_path)
    bronze = size(tmp_path / "messages")
    assert size(tmp_path / "gold") <= max(0.05 * bronze, 10_000 * endpoints)


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.parquet"))


def test_gold_window_above_one_hour_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="one hour"):
        golds.gold_of(tmp_path).build_gold(2 * HOUR, None, False)


@pytest.mark.watchdog(900)
@pytest.mark.parametrize(
    ("full_refresh", "moments"),
    [
        pytest.param(False, FEW, id="False-few"),
        pytest.param(False, MANY, id="False-many", marks=pytest.mark.nightly),
        pytest.param(True, MANY, id="True-many", marks=pytest.mark.nightly),
    ],
)
def test_gold_build_killed_at_commit_leaves_consistent_tables(
    tmp_path: Path, full_refresh: bool, moments: Iterable[int]
) -> None:
    """At some commits, with MSGQ_STRESS=2 at each. The next one makes the rest."""
    rng = random.Random(4)
    often = [
        row(RecordedMessage("often", i, MIDNIGHT + i * SECOND // 100, b"")) for i in range(1000)
    ]  # has windows of a second
    first, second = pieces(rng, [*some_rows(rng), *often], 2)
    begun = tmp_path / "begun"
    add(directory(begun), first)
    golds.build_gold(begun)
    if not full_refresh:
        add(directory(begun), second)
    old = golds.tables(begun)
    shutil.copytree(begun, tmp_path / "done")
    if full_refresh:
        golds.build_gold(tmp_path / "done", 10 * SECOND, CheckThresholds(lost=None, epochs=5), full_refresh=True)
    else:
        golds.build_gold(tmp_path / "done")
    new = golds.tables(tmp_path / "done")
    changed = {name for name in GOLD_TABLE_NAMES if old[name] != new[name]}
    assert len(changed) >= (2 if full_refresh else 8)
    seen, last = set(), 0
    for place in moments:
        lake = shutil.copytree(begun, tmp_path / f"{place}")
        if not is_killed(golds.build_killed, str(lake), place, full_refresh):
            break
        found, last = golds.tables(lake), place
        assert all(found[name] in (old[name], new[name]) for name in GOLD_TABLE_NAMES), place
        seen |= {name for name in changed if found[name] == new[name]}
        if full_refresh:
            golds.build_gold(lake, 10 * SECOND, CheckThresholds(lost=None, epochs=5), full_refresh=True)
        else:
            golds.build_gold(lake)
        assert golds.tables(lake) == new, place
        shutil.rmtree(lake)
    assert last > 30
    assert len(seen) > (len(changed) // 2 if moments == MANY else 0)  # tables are committed in any order


def test_gold_readers_see_rows_during_rebuild(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = some_rows(random.Random(4))
    there = {name for name, found in at_once(tmp_path, rows).items() if found}
    assert {
        "traffic_windows",
        "throughput",
        "endpoints",
        "checks",
        "hops",
        "queue_deliveries",
        "stages",
        "sequence_gaps",
    } <= there
    counts: list[tuple[str, int]] = []
    commit = LakeTable.commit_files

    def commit_between_reads(table: LakeTable, *arguments: Any) -> None:
        name = table.place.removeprefix("gold/")
        wanted = [name] if name in there else []
        counts.extend((name, golds.table(tmp_path, name).num_rows) for name in wanted)
        commit(table, *arguments)
        counts.extend((name, golds.table(tmp_path, name).num_rows) for name in wanted)

    monkeypatch.setattr(LakeTable, "commit_files", commit_between_reads)
    golds.build_gold(tmp_path, full_refresh=True)
    assert len(counts) == 2 * len(there)
    assert {name for name, _ in counts} == there
    assert min(count for _, count in counts) > 0


def test_two_concurrent_gold_builds_give_one_result(tmp_path: Path) -> None:
    rows = some_rows(random.Random(6))
    add(directory(tmp_path / "lake"), rows)
    failed: list[BaseException] = []

    def make() -> None:
        try:
            golds.gold_of(tmp_path / "lake").build_gold(SECOND, None, False)
        except BaseException as error:
            failed.append(error)

    with golds.here():
        threads = [threading.Thread(target=make) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert not failed
    assert golds.tables(tmp_path / "lake") == at_once(tmp_path / "whole", rows)


@pytest.mark.parametrize("name", ["sequence_gaps", "dropouts"])
def test_older_gold_build_adds_no_rows_after_newer_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The older build waits before its commit of a table without rows in the newer build."""
    rows = topic("a", [MIDNIGHT + i * SECOND for i in range(200)])
    add(directory(tmp_path), rows[:10])
    golds.build_gold(tmp_path)
    add(directory(tmp_path), rows[10:50] + rows[130:])
    commit, newer_builds = LakeTable.commit_files, list[str]()

    def commit_after_newer_build(table: LakeTable, *arguments: Any) -> None:
        if table.place == f"gold/{name}" and not newer_builds:
            newer_builds.append(name)
            add(directory(tmp_path), rows[50:130])
            assert golds.build_gold(tmp_path) == 1
        commit(table, *arguments)

    monkeypatch.setattr(LakeTable, "commit_files", commit_after_newer_build)
    golds.build_gold(tmp_path)
    assert newer_builds
    assert golds.table(tmp_path, name).num_rows == 0


def test_gold_keeps_window_and_thresholds_of_the_previous_call(tmp_path: Path) -> None:
    def build(window_ns: int | None = None, thresholds: CheckThresholds | None = None) -> None:
        with golds.here():
            golds.gold_of(tmp_path).build_gold(window_ns, thresholds, False)

    add(directory(tmp_path), topic("a", [MIDNIGHT, MIDNIGHT + SECOND]))
    build(10 * SECOND, CheckThresholds(lost=None, epochs=5))
    add(directory(tmp_path), topic("a", [MIDNIGHT + 2 * SECOND], first=2))
    build()
    checks = golds.table(tmp_path, "checks").to_pylist()
    thresholds = {row["check_name"]: row["threshold"] for row in checks}
    assert thresholds["epochs"] == 5
    assert "lost" not in thresholds
    limits = CheckThresholds(lost=None, epochs=5)
    assert golds.gold_of(tmp_path)._resolve_settings(None, None) == (10 * SECOND, limits)
    build(SECOND, CheckThresholds())
    assert golds.gold_of(tmp_path)._resolve_settings(None, None) == (SECOND, CheckThresholds())
