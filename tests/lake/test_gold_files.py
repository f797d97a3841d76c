"""Files of gold tables: many small hours share files, and an update replaces only stale rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")

from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import LakeTable
from msgq.lake.gold import gold_files
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.gold.gold_files import (
    find_files_of_runs,
    get_stored_columns,
    open_gold_table,
    replace_groups,
    write_gold_files,
)
from msgq.lake.lake_directory import LakeDirectory
from tests.lake import golds
from tests.lake.bronze_rows import HOUR, MIDNIGHT, SECOND, add, directory
from tests.lake.rows import message

HOURLY, BY_RUN = "_intervals", "latency_summary"
FIRST_HOUR = MIDNIGHT // HOUR


def make_rows(name: str, run: str, hour: int) -> pa.Table:
    """Return a row of a table with a run and an hour. A table without hours has it in its first column of integers."""
    schema = get_stored_columns(name)
    first = next(field.name for field in schema if pa.types.is_integer(field.type))
    return pa.Table.from_pylist([{"run": run, first: hour, "hour": hour}], schema)


def commit_file(lake: LakeDirectory, name: str, *groups: tuple[str, int]) -> str:
    """Add a file with a row of each group, and return its path."""
    rows = pa.concat_tables([make_rows(name, *group) for group in groups])
    table = open_gold_table(lake, name)
    (file,) = write_gold_files(lake, {name: rows})[name]
    table.commit_files(table.read_snapshot(), get_stored_columns(name), [file])
    return file.path


def apply_update(lake: LakeDirectory, name: str, stale: dict[str, set[int]]) -> tuple[set[str], list[tuple[str, int]]]:
    """Remove stale rows; return the removed files, and run and hour of the rows that were written again."""
    table = open_gold_table(lake, name)
    replaced = replace_groups(table, name, table.read_snapshot(), stale)
    kept = table.read_rows([file.path for file in replaced.kept_files], get_stored_columns(name))
    first = next(field.name for field in kept.schema if pa.types.is_integer(field.type))
    groups = zip(kept.column("run").to_pylist(), kept.column(first).to_pylist(), strict=True)
    return set(replaced.removed_paths), sorted(groups)


def test_file_of_stale_group_is_removed_without_new_file(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    stale = commit_file(lake, HOURLY, ("r", 5))
    commit_file(lake, HOURLY, ("r", 6))
    commit_file(lake, HOURLY, ("s", 5))
    assert apply_update(lake, HOURLY, {"r": {5}}) == ({stale}, [])


def test_other_rows_of_file_with_stale_group_stay(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    shared = commit_file(lake, HOURLY, ("r", 5), ("r", 7), ("s", 6))
    hours = commit_file(lake, HOURLY, ("r", 5), ("r", 6))
    commit_file(lake, HOURLY, ("r", 6), ("r", 9))
    assert apply_update(lake, HOURLY, {"r": {5}}) == ({shared, hours}, [("r", 6), ("r", 7), ("s", 6)])


def test_file_with_stale_run_only_between_its_runs_stays(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    commit_file(lake, HOURLY, ("a", 5), ("z", 7))
    commit_file(lake, BY_RUN, ("a", 5), ("z", 7))
    assert apply_update(lake, HOURLY, {"m": {5}}) == (set(), [])
    assert apply_update(lake, BY_RUN, {"m": {5}}) == (set(), [])


def test_kept_rows_are_sorted_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold_files, "_KEPT_FILE_ROWS", 2)
    lake = LakeDirectory(tmp_path)
    commit_file(lake, HOURLY, ("s", 1), ("r", 2), ("s", 0), ("r", 1))
    table = open_gold_table(lake, HOURLY)
    kept = replace_groups(table, HOURLY, table.read_snapshot(), {"r": {2}}).kept_files
    assert [file.column_bounds["run"] for file in kept] == [("r", "s"), ("s", "s")]


def test_run_table_loses_rows_of_stale_run(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    shared = commit_file(lake, BY_RUN, ("a", 1), ("b", 2), ("c", 3))
    single = commit_file(lake, BY_RUN, ("b", 4))
    commit_file(lake, BY_RUN, ("c", 5), ("d", 6))
    assert apply_update(lake, BY_RUN, {"b": {0}}) == ({shared, single}, [("a", 1), ("c", 3)])


def test_update_merges_many_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold_files, "SMALL_FILES_MAX", 3)
    lake = LakeDirectory(tmp_path)
    paths = {commit_file(lake, HOURLY, ("r", hour)) for hour in range(2)}
    assert apply_update(lake, HOURLY, {"z": {0}}) == (set(), [])
    paths.add(commit_file(lake, HOURLY, ("r", 2)))
    assert apply_update(lake, HOURLY, {"z": {0}}) == (paths, [("r", 0), ("r", 1), ("r", 2)])


def test_full_files_are_not_merged_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of frames compress well: a file with the most rows can have few bytes."""
    monkeypatch.setattr(gold_files, "SMALL_FILES_MAX", 3)
    monkeypatch.setattr(gold_files, "_KEPT_FILE_ROWS", 2)
    lake = LakeDirectory(tmp_path)
    for hour in range(4):
        commit_file(lake, HOURLY, ("r", 2 * hour), ("r", 2 * hour + 1))
    paths = {commit_file(lake, HOURLY, ("s", hour)) for hour in range(2)}
    assert apply_update(lake, HOURLY, {"z": {0}}) == (set(), [])
    paths.add(commit_file(lake, HOURLY, ("s", 2)))
    assert apply_update(lake, HOURLY, {"z": {0}}) == (paths, [("s", 0), ("s", 1), ("s", 2)])


def test_files_are_read_in_groups_of_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, read = LakeDirectory(tmp_path), list[int]()
    for run in "bca":
        commit_file(lake, HOURLY, (run, 0), (run, 1), (run, 2))
    table, read_rows = open_gold_table(lake, HOURLY), LakeTable.read_rows

    def count_rows(*arguments: Any, **options: Any) -> pa.Table:
        rows = read_rows(*arguments, **options)
        read.append(rows.num_rows)
        return rows

    monkeypatch.setattr(gold_files, "_READ_BYTES_MAX", 1)
    monkeypatch.setattr(LakeTable, "read_rows", count_rows)
    stale: dict[str, set[int]] = {run: {1} for run in "abc"}
    kept = replace_groups(table, HOURLY, table.read_snapshot(), stale).kept_files
    assert [(file.column_bounds["run"][0], file.row_count) for file in kept] == [("a", 2), ("b", 2), ("c", 2)]
    assert max(read) == 3


def test_rows_of_run_with_long_name_are_found(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    names = ["r" * 500 + letter for letter in "ab"]  # The Delta log has a prefix of long texts.
    path = commit_file(lake, HOURLY, (names[0], 5), (names[1], 5))
    snapshot = open_gold_table(lake, HOURLY).read_snapshot()
    assert snapshot is not None
    files = snapshot.files_by_path.values()
    assert [bool(find_files_of_runs(files, [name])) for name in (*names, "a", "s")] == [True, True, False, False]
    assert apply_update(lake, HOURLY, {names[0]: {5}}) == ({path}, [(names[1], 5)])


def test_file_without_statistics_may_have_any_run() -> None:
    assert find_files_of_runs([DataFile("x.parquet", 1, {}, 1)], ["a"])


def count_files(lake: Path) -> int:
    return max(
        len(snapshot.files_by_path)
        for name in GOLD_TABLE_NAMES
        if (snapshot := open_gold_table(LakeDirectory(lake), name).read_snapshot()) is not None
    )


def test_small_hours_share_files_and_updates_stay_small(tmp_path: Path) -> None:
    def make_hour(run: str, hour: int) -> list[dict[str, object]]:
        times = (MIDNIGHT + hour * HOUR + i * SECOND for i in range(3))
        return [message("e", 10 * hour + i, time, run=run) for i, time in enumerate(times)]

    rows = [one for run in ("r", "s") for hour in range(30) for one in make_hour(run, hour)]
    add(directory(tmp_path / "lake"), rows)
    assert golds.build_gold(tmp_path / "lake") == 2
    assert count_files(tmp_path / "lake") == 1
    for hour in range(30, 36):
        add(directory(tmp_path / "lake"), make_hour("r", hour))
        assert golds.build_gold(tmp_path / "lake") == 1
    assert count_files(tmp_path / "lake") <= gold_files.SMALL_FILES_MAX
    add(directory(tmp_path / "whole"), [*rows, *(one for hour in range(30, 36) for one in make_hour("r", hour))])
    golds.build_gold(tmp_path / "whole")
    assert golds.tables(tmp_path / "lake") == golds.tables(tmp_path / "whole")
