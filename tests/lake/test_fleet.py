"""Fleet tables have the gold of each lake once, after any order of changes, errors and kills."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from msgq.errors import InvalidValueError
from msgq.lake.delta_table import CommitConflictError, LakeTable
from msgq.lake.fleet import fleet_builder, fleet_tables, gold_copier
from msgq.lake.fleet.fleet_lakes import FleetLake, find_fleet_lakes, parse_lake_path
from msgq.lake.fleet.fleet_tables import LAKES_TABLE, list_rewrite_tasks, open_fleet_table, refuse_fleet_directory
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.lake_directory import LakeDirectory
from tests.lake import fleets
from tests.lake.fleets import build_fleet, endpoint, rows, tables, write_lake
from tests.lake.kills import Killed, die_at, is_killed, raise_killed
from tests.support import LONGER

DAY_NS = 86_400 * 10**9
# Moments before and after commits are even and odd.
FEW, MANY = range(1, 90, 5), range(0, 90, 3 if LONGER < 2 else 1)


def place(root: Path, host: str, day: int = 1) -> Path:
    return root / "lakes" / f"date=2026-05-{day:02}" / f"host={host}"


def list_files(fleet: Path, name: str) -> set[str]:
    snapshot = open_fleet_table(LakeDirectory(fleet), name).read_snapshot()
    assert snapshot is not None
    return set(snapshot.files_by_path)


def test_fleet_table_has_rows_of_all_lakes_with_lake_host_and_date(tmp_path: Path) -> None:
    for day, host in ((1, "b"), (1, "a"), (2, "a")):
        write_lake(
            place(tmp_path, host, day),
            endpoints=[endpoint("imu", host="recorder", messages=day)],
            checks=[{"run": "r", "endpoint": "imu", "check_name": "lost", "value": 15}],
            throughput=[{"run": "r", "endpoint": "imu", "rate": 2.5}],
        )
    done = build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "date=*" / "host=*")
    assert (done.copied, done.unchanged, done.removed, done.problems) == (3, 0, 0, [])
    lakes = [
        (date(2026, 5, day), host, str(place(tmp_path, host, day))) for day, host in ((1, "a"), (1, "b"), (2, "a"))
    ]
    assert rows(tmp_path / "fleet", "endpoints", "date", "host", "lake", "endpoint", "messages") == [
        (*lake, "imu", lake[0].day) for lake in lakes
    ]
    assert rows(tmp_path / "fleet", "checks", "date", "host", "lake", "value") == [(*lake, 15) for lake in lakes]
    assert rows(tmp_path / "fleet", "throughput", "date", "host", "lake", "rate") == [(*lake, 2.5) for lake in lakes]
    assert rows(tmp_path / "fleet", LAKES_TABLE, "date", "host", "lake") == lakes
    assert tables(tmp_path / "fleet").keys() == {*GOLD_TABLE_NAMES, LAKES_TABLE}


def test_fleet_has_one_file_per_table_and_date_sorted_by_host_and_run(tmp_path: Path) -> None:
    for host in ("c", "a", "b"):
        write_lake(place(tmp_path, host), endpoints=[endpoint("x", run) for run in ("s", "q", "r")])
    build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
    (file,) = (tmp_path / "fleet" / "endpoints" / "date=2026-05-01").iterdir()
    found = pq.read_table(file, partitioning=None).select(["host", "run"]).to_pylist()
    assert [(row["host"], row["run"]) for row in found] == [(host, run) for host in "abc" for run in "qrs"]


def test_lake_without_folders_has_recorded_host_and_date_of_first_message(tmp_path: Path) -> None:
    first = 20_000 * DAY_NS
    write_lake(
        tmp_path / "lake",
        endpoints=[
            endpoint("a", "r", "robot", start_time=first + 3 * DAY_NS),
            endpoint("b", "s", "truck", start_time=first),
            endpoint("c", "t", "truck", start_time=first + DAY_NS),
            endpoint("d", "t", "robot", start_time=first + DAY_NS),
        ],
        checks=[{"run": run, "endpoint": "a"} for run in "rst"],
    )
    write_lake(tmp_path / "empty")
    build_fleet(tmp_path / "fleet", tmp_path / "lake", tmp_path / "empty")
    day = date(2024, 10, 4)
    assert rows(tmp_path / "fleet", "endpoints", "endpoint", "host", "date") == [
        ("a", "robot", day),
        ("b", "truck", day),
        ("c", "truck", day),
        ("d", "robot", day),
    ]
    assert rows(tmp_path / "fleet", "checks", "run", "host") == [("r", "robot"), ("s", "truck"), ("t", None)]
    assert rows(tmp_path / "fleet", LAKES_TABLE, "date", "lake") == [
        (date(1970, 1, 1), str(tmp_path / "empty")),
        (day, str(tmp_path / "lake")),
    ]


def test_changed_lake_replaces_only_its_rows(tmp_path: Path) -> None:
    for host in "abc":
        write_lake(place(tmp_path, host), endpoints=[endpoint("old")], checks=[{"run": "r", "endpoint": host}])
    pattern = tmp_path / "lakes" / "date=*" / "*"
    build_fleet(tmp_path / "fleet", pattern)
    write_lake(place(tmp_path, "b"), endpoints=[endpoint("new"), endpoint("newer")], checks=[])
    done = build_fleet(tmp_path / "fleet", pattern)
    assert (done.copied, done.unchanged) == (1, 2)
    assert rows(tmp_path / "fleet", "endpoints", "host", "endpoint") == [
        ("a", "old"),
        ("b", "new"),
        ("b", "newer"),
        ("c", "old"),
    ]
    assert rows(tmp_path / "fleet", "checks", "endpoint") == [("a",), ("c",)]


def test_run_with_nothing_new_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in "ab":
        write_lake(place(tmp_path, host), endpoints=[endpoint("x")])
    build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
    before = sorted((tmp_path / "fleet").rglob("*"))
    opened: list[str] = []
    monkeypatch.setattr(gold_copier, "open_gold_table", lambda lake, name: opened.append(name))
    assert build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*").unchanged == 2
    assert sorted((tmp_path / "fleet").rglob("*")) == before
    assert opened == []


def test_files_without_rows_of_changed_lake_stay(tmp_path: Path) -> None:
    """Paths of tests are longer than the bounds in the log, so that any file of the date may have rows of the lake."""
    lakes = [tmp_path / "date=2026-05-01" / "a", tmp_path / "date=2026-05-01" / "b", tmp_path / "date=2026-05-02" / "b"]
    for lake in lakes:
        write_lake(lake, endpoints=[endpoint("x")])
        build_fleet(tmp_path / "fleet", lake)
    before = list_files(tmp_path / "fleet", "endpoints")
    write_lake(lakes[1], endpoints=[endpoint("y")])
    build_fleet(tmp_path / "fleet", lakes[1])
    assert len(list_files(tmp_path / "fleet", "endpoints") & before) == 2
    assert rows(tmp_path / "fleet", "endpoints", "endpoint") == [("x",), ("x",), ("y",)]


def test_rewrite_opens_only_files_of_host_and_date(tmp_path: Path) -> None:
    for host, day in (("a", 1), ("b", 1), ("b", 2)):
        write_lake(place(tmp_path, host, day), endpoints=[endpoint("x")])
        build_fleet(tmp_path / "fleet", place(tmp_path, host, day))
    snapshot = open_fleet_table(LakeDirectory(tmp_path / "fleet"), "endpoints").read_snapshot()
    assert snapshot is not None
    (task,) = list_rewrite_tasks("endpoints", snapshot, [parse_lake_path(str(place(tmp_path, "b")))])
    assert (task.day, len(task.paths)) == (date(2026, 5, 1), 1)


def test_lake_without_date_folder_moves_to_date_of_earlier_message(tmp_path: Path) -> None:
    for day in (5, 4):
        write_lake(tmp_path / "lake", endpoints=[endpoint("x", start_time=day * DAY_NS)])
        build_fleet(tmp_path / "fleet", tmp_path / "lake")
        assert rows(tmp_path / "fleet", "endpoints", "date") == [(date(1970, 1, 1 + day),)]


def test_many_small_files_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_tables, "SMALL_FILES_MAX", 3)
    for number in range(4):
        assert len(list_files(tmp_path / "fleet", "endpoints")) == number if number else True
        write_lake(place(tmp_path, f"h{number}"), endpoints=[endpoint("x")])
        build_fleet(tmp_path / "fleet", place(tmp_path, f"h{number}"))
    assert len(list_files(tmp_path / "fleet", "endpoints")) == 2
    assert rows(tmp_path / "fleet", "endpoints", "host") == [(f"h{number}",) for number in range(4)]


def test_large_tables_are_copied_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold_copier, "FLEET_FILE_BYTES", 1)
    for host in "abc":
        write_lake(place(tmp_path, host), endpoints=[endpoint("x")])
    build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
    assert len(list_files(tmp_path / "fleet", "endpoints")) == 3
    assert rows(tmp_path / "fleet", "endpoints", "host") == [("a",), ("b",), ("c",)]


@pytest.mark.parametrize(("lake_bytes", "files"), [(fleet_builder._LAKE_COST_BYTES, 1), (64 << 20, 3)])
def test_small_lakes_share_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lake_bytes: int, files: int) -> None:
    monkeypatch.setattr(fleet_builder, "_LAKE_COST_BYTES", lake_bytes)
    for host in "abc":
        write_lake(place(tmp_path, host), endpoints=[endpoint("x")])
    build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
    assert len(list_files(tmp_path / "fleet", "endpoints")) == files


def damage_file(lake: Path) -> None:
    (file,) = (lake / "gold" / "checks").glob("*.parquet")
    file.write_bytes(b"no parquet")


def damage_log(lake: Path) -> None:
    (entry,) = (lake / "gold" / "checks" / "_delta_log").glob("*0.json")
    entry.write_text("no json")


def remove_gold(lake: Path) -> None:
    shutil.rmtree(lake / "gold")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (damage_file, "arquet"),
        (damage_log, "cannot be read"),
        (remove_gold, "has no gold"),
        (shutil.rmtree, "not found"),
    ],
)
def test_unreadable_lake_is_reported_and_other_lakes_are_copied(tmp_path: Path, damage: Any, reason: str) -> None:
    lakes = [place(tmp_path, host) for host in "abc"]
    for lake in lakes:
        write_lake(lake, endpoints=[endpoint("x")], checks=[{"run": "r", "endpoint": "x"}])
    damage(lakes[1])
    done = build_fleet(tmp_path / "fleet", *lakes)
    assert done.copied == 2
    (problem,) = done.problems
    assert problem.lake == str(lakes[1])
    assert reason in problem.reason
    for name in ("endpoints", "checks", LAKES_TABLE):
        assert rows(tmp_path / "fleet", name, "host") == [("a",), ("c",)]
    write_lake(tmp_path / "again", endpoints=[endpoint("x")], checks=[{"run": "r", "endpoint": "x"}])
    shutil.rmtree(lakes[1], ignore_errors=True)
    shutil.move(tmp_path / "again", lakes[1])
    assert build_fleet(tmp_path / "fleet", *lakes).problems == []
    assert rows(tmp_path / "fleet", "checks", "host") == [("a",), ("b",), ("c",)]


def test_unreadable_lake_keeps_previous_rows(tmp_path: Path) -> None:
    lake = place(tmp_path, "a")
    write_lake(lake, endpoints=[endpoint("old")], checks=[{"run": "r", "endpoint": "old"}])
    build_fleet(tmp_path / "fleet", lake)
    before = tables(tmp_path / "fleet")
    write_lake(lake, endpoints=[endpoint("new")], checks=[{"run": "r", "endpoint": "new"}])
    for file in (lake / "gold" / "checks").glob("*.parquet"):
        file.write_bytes(b"no parquet")
    assert [problem.lake for problem in build_fleet(tmp_path / "fleet", lake).problems] == [str(lake)]
    assert tables(tmp_path / "fleet") == before


def test_missing_lake_keeps_its_rows_until_remove_missing(tmp_path: Path) -> None:
    for host, day in (("a", 1), ("b", 1), ("a", 2)):
        write_lake(place(tmp_path, host, day), endpoints=[endpoint("x")])
    build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
    before = tables(tmp_path / "fleet")
    shutil.rmtree(place(tmp_path, "b"))
    second_day = tmp_path / "lakes" / "date=2026-05-02" / "*"
    assert build_fleet(tmp_path / "fleet", second_day).removed == 0
    assert tables(tmp_path / "fleet") == before
    assert build_fleet(tmp_path / "fleet", second_day, place(tmp_path, "b"), remove_missing=True).removed == 1
    for name in ("endpoints", LAKES_TABLE):
        assert rows(tmp_path / "fleet", name, "date", "host") == [(date(2026, 5, 1), "a"), (date(2026, 5, 2), "a")]


def test_rebuilt_gold_is_copied_again(tmp_path: Path) -> None:
    """A deleted gold directory begins again at version 0."""
    lake = place(tmp_path, "a")
    for name in ("old", "new"):
        write_lake(lake, endpoints=[endpoint(name)])
        assert build_fleet(tmp_path / "fleet", lake).copied == 1
        assert rows(tmp_path / "fleet", "endpoints", "endpoint") == [(name,)]
        shutil.rmtree(lake / "gold")


def test_patterns_find_each_lake_once_and_never_the_fleet(tmp_path: Path) -> None:
    for name in ("lakes/x1", "lakes/x2", "lakes/y", "lakes/[1]", "lakes/fleet"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "lakes" / "x3").write_text("a file")
    lakes = tmp_path / "lakes"
    found = find_fleet_lakes(lakes / "fleet", [lakes / "*", lakes / "x?", f"{lakes}/y/", lakes / "x1" / ".." / "x2"])
    assert found == [str(lakes / name) for name in ("[1]", "x1", "x2", "y")]
    assert find_fleet_lakes(lakes / "fleet", [lakes / "[1]"]) == [str(lakes / "[1]")]
    assert find_fleet_lakes(lakes / "fleet", [f"file://{lakes}/x1/", lakes / "x1"]) == [str(lakes / "x1")]
    with pytest.raises(InvalidValueError, match="no lakes found"):
        find_fleet_lakes(lakes / "fleet", [lakes / "z*"])


def test_host_and_date_come_from_folders() -> None:
    assert parse_lake_path("/x/date=2026-05-01/host=h1") == FleetLake(
        "/x/date=2026-05-01/host=h1", "h1", date(2026, 5, 1)
    )
    assert parse_lake_path("/x/lake") == FleetLake("/x/lake", None, None)


def test_lake_with_invalid_date_folder_is_reported(tmp_path: Path) -> None:
    write_lake(tmp_path / "date=today", endpoints=[endpoint("x")])
    write_lake(tmp_path / "lake", endpoints=[endpoint("x")])
    done = build_fleet(tmp_path / "fleet", tmp_path / "date=today", tmp_path / "lake")
    assert done.copied == 1
    assert ["date=today" in problem.reason for problem in done.problems] == [True]


def test_fleet_and_lake_directories_are_not_mixed(tmp_path: Path) -> None:
    write_lake(tmp_path / "lake", endpoints=[endpoint("x")])
    with pytest.raises(InvalidValueError, match="is a lake"):
        build_fleet(tmp_path / "lake", tmp_path / "*")
    build_fleet(tmp_path / "fleet", tmp_path / "lake")
    with pytest.raises(InvalidValueError, match="has fleet tables"):
        refuse_fleet_directory(LakeDirectory(tmp_path / "fleet"))
    refuse_fleet_directory(LakeDirectory(tmp_path / "lake"))
    (problem,) = build_fleet(tmp_path / "other", tmp_path / "fleet").problems
    assert "has fleet tables" in problem.reason


def test_conflict_with_other_writer_gives_each_row_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process copies the same lakes after the first commit of this one."""
    for host in "ab":
        write_lake(place(tmp_path, host), endpoints=[endpoint("x")], checks=[{"run": "r", "endpoint": "x"}])
    commit = LakeTable.commit_files
    conflicts: list[str] = []

    def commit_after_other(table: LakeTable, *arguments: Any) -> None:
        if arguments[-1] is not None and len(arguments) == 4 and not conflicts:
            conflicts.append(table.place)
            build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
        try:
            commit(table, *arguments)
        except CommitConflictError:
            conflicts.append(table.place)
            raise

    monkeypatch.setattr(LakeTable, "commit_files", commit_after_other)
    done = build_fleet(tmp_path / "fleet", tmp_path / "lakes" / "*" / "*")
    assert len(conflicts) > 1
    assert (done.copied, done.unchanged) == (0, 2)
    for name in ("endpoints", "checks", LAKES_TABLE):
        assert rows(tmp_path / "fleet", name, "host") == [("a",), ("b",)]


def test_older_build_adds_no_rows_after_newer_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older build waits before its commit of a table without rows in the newer build."""
    lake, fleet = place(tmp_path, "a"), tmp_path / "fleet"
    write_lake(lake, endpoints=[endpoint("x")])
    build_fleet(fleet, lake)
    write_lake(lake, checks=[{"run": "r", "endpoint": "x"}])
    commit, newer_builds = LakeTable.commit_files, list[Any]()

    def commit_after_newer_build(table: LakeTable, *arguments: Any) -> None:
        if table.place == "checks" and not newer_builds:
            newer_builds.append(fleet)
            write_lake(lake, checks=[])
            build_fleet(fleet, lake)
        commit(table, *arguments)

    monkeypatch.setattr(LakeTable, "commit_files", commit_after_newer_build)
    build_fleet(fleet, lake)
    assert newer_builds
    assert rows(fleet, "checks") == []
    assert build_fleet(fleet, lake).unchanged == 1


def build_interrupted(fleet: Path, place: int, lakes: Path) -> bool:
    """Build fleet tables until an error at a commit; return whether it occurred."""
    try:
        with die_at(place, raise_killed, (LakeTable, "commit_files")):
            build_fleet(fleet, lakes)
    except Killed:
        return True
    return False


def build_killed(fleet: Path, place: int, lakes: Path) -> bool:
    return is_killed(fleets.build_killed, str(fleet), place, str(lakes))


@pytest.mark.watchdog(900)
@pytest.mark.parametrize(
    ("build", "is_first", "moments"),
    [
        pytest.param(build_interrupted, False, FEW, id="interrupted-update"),
        pytest.param(build_killed, False, MANY, id="killed-update", marks=pytest.mark.nightly),
        pytest.param(build_killed, True, MANY, id="killed-first", marks=pytest.mark.nightly),
    ],
)
def test_fleet_build_killed_at_commit_leaves_old_or_new_rows(
    tmp_path: Path, build: Callable[[Path, int, Path], bool], is_first: bool, moments: range
) -> None:
    """The next build copies the rest. With MSGQ_STRESS=2 at each commit."""
    pattern = tmp_path / "lakes" / "date=*" / "host=*"
    names = ("endpoints", "checks", "hops", "frames")

    def write_lakes(value: str, hosts: str) -> None:
        for host in hosts:
            write_lake(place(tmp_path, host), **{name: [{"run": value, "endpoint": value}] for name in names})

    if not is_first:
        write_lakes("old", "abc")
        build_fleet(tmp_path / "begun", pattern)
    (tmp_path / "begun").mkdir(exist_ok=True)
    old = tables(tmp_path / "begun")
    write_lakes("new", "bd")
    shutil.copytree(tmp_path / "begun", tmp_path / "done")
    build_fleet(tmp_path / "done", pattern)
    new = tables(tmp_path / "done")
    last = 0
    for moment in moments:
        fleet = shutil.copytree(tmp_path / "begun", tmp_path / f"{moment}")
        if not build(fleet, moment, pattern):
            break
        found, last = tables(fleet), moment
        assert all(found.get(name, []) in (old.get(name, []), new[name]) for name in new), moment
        build_fleet(fleet, pattern)
        assert tables(fleet) == new, moment
        shutil.rmtree(fleet)
    assert last > 4
