"""A table of a lake: what is committed, by whom, and what others see of it."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

pytest.importorskip("deltalake")
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

from msgq.errors import InvalidValueError, RecordingError
from msgq.lake import delta_table as table_module
from msgq.lake import log_retention
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import SMALL_FILE_BYTES, CommitConflictError, LakeTable, list_table_paths
from msgq.lake.lake_directory import LakeDirectory
from tests.support import run_child

NUMBERS = pa.schema([("number", pa.int64())])
PAYLOADS = pa.schema([("data", pa.binary())])


def table(root: Path, place: str = "some/numbers") -> LakeTable:
    return LakeTable(LakeDirectory(root), place)


def put(into: LakeTable, *numbers: int) -> DataFile:
    return into.write_file(f"{'-'.join(map(str, numbers))}.parquet", pa.table({"number": numbers}, NUMBERS))


def read_numbers(of: LakeTable, version: int | None = None) -> Iterable[int]:
    snapshot = of.read_snapshot(version)
    assert snapshot is not None
    return sorted(snapshot.read_rows().column("number").to_pylist())


def test_table_commit_is_visible_and_snapshot_is_unchanged(tmp_path: Path) -> None:
    numbers = table(tmp_path)
    assert numbers.read_snapshot() is None
    assert not list(tmp_path.iterdir()), "who looks leaves nothing"
    numbers.commit_files(None, NUMBERS, [put(numbers, 1, 2)])
    before = numbers.read_snapshot()
    numbers.commit_files(before, NUMBERS, [put(numbers, 3)], ["1-2.parquet"])
    assert read_numbers(numbers) == [3]
    assert read_numbers(numbers, 0) == [1, 2]
    assert before is not None
    assert sorted(before.read_rows().column("number").to_pylist()) == [1, 2]
    with pytest.raises(RecordingError, match="some/numbers' has no such version; its newest version is 1"):
        numbers.read_snapshot(7)


def test_table_commit_on_old_version_raises_conflict(tmp_path: Path) -> None:
    numbers = table(tmp_path)
    numbers.commit_files(None, NUMBERS)
    base = numbers.read_snapshot()
    numbers.commit_files(base, NUMBERS, [put(numbers, 1)])
    for late, remove in ((None, ()), (base, ()), (base, None)):
        with pytest.raises(CommitConflictError, match="by another process"):
            numbers.commit_files(late, NUMBERS, [put(numbers, 2)], remove)
    more = pa.schema([*NUMBERS, ("text", pa.string())])
    with pytest.raises(CommitConflictError, match="by another process"):
        numbers.commit_files(base, more, [put(numbers, 2)])
    assert read_numbers(numbers) == [1]


def test_table_commit_failure_is_not_a_conflict(tmp_path: Path) -> None:
    """Who takes it for one would try again for ever."""
    (tmp_path / "some" / "numbers").mkdir(parents=True)
    (tmp_path / "some" / "numbers" / "_delta_log").write_text("no directory")
    numbers = table(tmp_path)
    with pytest.raises(RecordingError, match="cannot") as error:
        numbers.commit_files(None, NUMBERS)
    assert not isinstance(error.value, CommitConflictError)


@pytest.mark.parametrize("writers", [2, pytest.param(3, marks=pytest.mark.nightly)])
def test_concurrent_table_appends_keep_all_rows_in_few_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: int
) -> None:
    monkeypatch.setattr(LakeTable, "sync_files", lambda *_: None)  # skips the slowest part

    def append(who: int) -> None:
        mine = table(tmp_path)
        for number in range(40):
            mine.append_rows(pa.table({"number": [100 * who + number]}, NUMBERS))

    threads = [threading.Thread(target=append, args=(who,)) for who in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    numbers = table(tmp_path)
    assert read_numbers(numbers) == [100 * who + number for who in range(writers) for number in range(40)]
    snapshot = numbers.read_snapshot()
    assert snapshot is not None
    assert len(snapshot.files_by_path) < 70


@pytest.mark.parametrize("name", ["a b", "[x] {y} *?'\"", "ü#&;+~`$:,=@<>|^", "50%"])
def test_table_path_may_have_any_characters(tmp_path: Path, name: str) -> None:
    numbers = table(tmp_path / name)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    numbers.commit_files(numbers.read_snapshot(), pa.schema([*NUMBERS, ("text", pa.string())]), [put(numbers, 2)])
    put(numbers, 3)
    numbers.vacuum(0)
    assert read_numbers(numbers) == [1, 2]
    assert sorted(path.name for path in (tmp_path / name).rglob("?.parquet")) == ["1.parquet", "2.parquet"]
    assert list_table_paths(numbers.lake) == ["some/numbers"]


@pytest.mark.parametrize("name", ["a\\b", "a%20b", "%5Bx"])
def test_ambiguous_table_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidValueError, match=r"its path contains .*; rename the folder"):
        table(tmp_path / name)


def test_table_cleanup_removes_only_old_unreferenced_files(tmp_path: Path) -> None:
    numbers = table(tmp_path)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, 2)], ["1.parquet"])
    put(numbers, 3)
    numbers.vacuum(1)
    assert {path.name for path in tmp_path.rglob("?.parquet")} == {"1.parquet", "2.parquet", "3.parquet"}
    numbers.vacuum(0)
    assert {path.name for path in tmp_path.rglob("?.parquet")} == {"2.parquet"}
    assert read_numbers(numbers) == [2]


@pytest.fixture
def sync_log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return what the disk was told to write, in this order."""
    found: list[str] = []
    monkeypatch.setattr("os.fsync", lambda number: found.append(os.readlink(f"/proc/self/fd/{number}")))
    return found


def test_table_files_and_commit_are_synced_in_order(
    tmp_path: Path, sync_log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path / "lake"), "numbers")
    at_commit: list[set[str]] = []
    plain = LakeTable._write_commit

    def commit(*given: Any) -> None:
        at_commit.append({*sync_log})
        plain(*given)

    monkeypatch.setattr(LakeTable, "_write_commit", commit)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    place = tmp_path / "lake" / "numbers"
    assert at_commit == [{str(place / "1.parquet"), str(place), str(place.parent), str(tmp_path)}]
    assert {*sync_log} - at_commit[0] == {str(place / "_delta_log"), str(place / "_delta_log" / f"{0:020}.json")}


def test_table_commit_creates_lake_directory(tmp_path: Path) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path / "new" / "lake"), "numbers")
    numbers.commit_files(None, NUMBERS)
    assert read_numbers(numbers) == []


def test_table_commit_syncs_earlier_log_entries(tmp_path: Path, sync_log: list[str]) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path), "numbers")
    for number in range(3):
        numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, number)])
    sync_log.clear()  # simulates writers that were stopped before
    numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, 3)])
    assert {Path(place).name for place in sync_log} >= {f"{number:020}.json" for number in range(4)}


def test_table_checkpoint_is_synced_before_entry_removal(
    tmp_path: Path, sync_log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path), "numbers")
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    before: list[set[str]] = []
    tidied = DeltaTable.cleanup_metadata

    def tidy(delta: DeltaTable) -> None:
        before.append({*sync_log})
        tidied(delta)

    monkeypatch.setattr(DeltaTable, "cleanup_metadata", tidy)
    numbers.vacuum(1)
    made = [str(path) for path in (tmp_path / "numbers" / "_delta_log").glob("*checkpoint*")]
    assert len(made) == 2
    assert before[0] >= {*made}


def test_failed_table_checkpoint_does_not_fail_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path), "numbers")
    monkeypatch.setattr(log_retention, "_VERSIONS_PER_CHECKPOINT", 2)
    log = tmp_path / "numbers" / "_delta_log"
    (log / f"{4:020}.checkpoint.parquet").mkdir(parents=True)
    for number in range(6):
        numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, number)])
    assert [path.name[:20] for path in sorted(log.glob("*.checkpoint.parquet")) if path.is_file()] == [f"{2:020}"]
    assert read_numbers(numbers) == [0, 1, 2, 3, 4, 5]


def test_table_commit_succeeds_despite_error_after_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path), "numbers")
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    plain = DeltaTable.create_write_transaction

    def lost(*given: Any, **more: Any) -> None:
        plain(*given, **more)
        raise DeltaError("no answer")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, 2)], ["1.parquet"])
    assert read_numbers(numbers) == [2]


def test_empty_first_log_entry_after_power_failure_is_rewritten(tmp_path: Path) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path), "numbers")
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    (tmp_path / "numbers" / "_delta_log" / f"{0:020}.json").write_bytes(b"")
    assert numbers.read_snapshot() is None
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    assert read_numbers(numbers) == [1]


def test_new_table_has_no_files(tmp_path: Path) -> None:
    numbers = table(tmp_path / "lake" / "deep")
    numbers.commit_files(None, NUMBERS)
    assert read_numbers(numbers) == []


def test_table_reader_opens_no_python_file(tmp_path: Path) -> None:
    """A thread of Arrow gives back a file after the last row; if Python ends meanwhile, the process aborts."""
    numbers = table(tmp_path)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    snapshot = numbers.read_snapshot()
    assert snapshot is not None
    files = snapshot.open_dataset().filesystem
    assert isinstance(files, SubTreeFileSystem)
    assert isinstance(files.base_fs, LocalFileSystem)


def test_table_keeps_snapshot_until_another_commit(tmp_path: Path) -> None:
    numbers, other = table(tmp_path), table(tmp_path)
    assert (numbers.read_snapshot(), numbers.log.read_newest_version()) == (None, -1)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    first = numbers.read_snapshot()
    assert numbers.read_snapshot() is first
    other.commit_files(other.read_snapshot(), NUMBERS, [put(other, 2)])
    assert (read_numbers(numbers), numbers.log.read_newest_version()) == ([1, 2], 1)
    other.vacuum(0)
    assert read_numbers(numbers) == [1, 2]
    assert read_numbers(other) == [1, 2]


def test_table_recreated_at_same_version_is_read_again(tmp_path: Path) -> None:
    numbers = table(tmp_path)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    before = numbers.read_snapshot()
    shutil.rmtree(tmp_path / "some")
    again = table(tmp_path)
    again.commit_files(None, NUMBERS, [put(again, 2, 3)])
    assert read_numbers(numbers) == [2, 3]
    after = numbers.read_snapshot()
    assert before is not None
    assert after is not None
    assert (before.version, before.table_id != after.table_id) == (after.version, True)


def test_table_commit_during_read_is_found_by_next_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot that was old when the table got it must not be kept."""
    numbers, other = table(tmp_path), table(tmp_path)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    load = LakeTable._load_snapshot

    def load_before_commit(self: LakeTable, version: int | None) -> Any:
        monkeypatch.undo()
        loaded = load(self, version)
        other.commit_files(other.read_snapshot(), NUMBERS, [put(other, 2)])
        return loaded

    monkeypatch.setattr(LakeTable, "_load_snapshot", load_before_commit)
    assert read_numbers(numbers) == [1]
    assert read_numbers(numbers) == [1, 2]


def test_added_paths_are_those_of_later_commits(tmp_path: Path) -> None:
    numbers = table(tmp_path)
    numbers.commit_files(None, NUMBERS, [put(numbers, 0)])
    for number in range(1, 4):
        numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, number)], [f"{number - 1}.parquet"])
    assert numbers.log.list_added_paths(1, 3) == {"2.parquet", "3.parquet"}
    assert numbers.log.list_added_paths(3, 3) == set()
    (tmp_path / "some" / "numbers" / "_delta_log" / f"{2:020}.json").unlink()
    assert numbers.log.list_added_paths(1, 3) is None


def age_log(log: Path, version: int, hours: float) -> None:
    """Let the entries up to a version be as old as if they had been written some hours ago."""
    then = time.time() - 3600 * hours
    for path in log.glob("0*"):
        if int(path.name[:20]) <= version:
            os.utime(path, (then, then))


def test_old_version_is_readable_within_retention_and_named_in_error_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_retention, "_VERSIONS_PER_CHECKPOINT", 3)
    numbers, log = table(tmp_path), tmp_path / "some" / "numbers" / "_delta_log"
    numbers.commit_files(None, NUMBERS)
    for number in range(1, 12):
        numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, number)])
    age_log(log, 7, 10)
    numbers.vacuum(5)
    newest = numbers.log.read_newest_version()
    assert [read_numbers(numbers, version) for version in range(6, 12)] == [
        list(range(1, version + 1)) for version in range(6, 12)
    ]
    with pytest.raises(RecordingError, match="no longer has version 5; `optimize` removed versions older than 6"):
        numbers.read_snapshot(5)
    with pytest.raises(RecordingError, match=f"has no such version; its newest version is {newest}"):
        numbers.read_snapshot(newest + 1)
    assert read_numbers(numbers) == list(range(1, 12))


def test_cleanup_of_log_does_not_disturb_snapshots_and_writers(tmp_path: Path) -> None:
    numbers, other = table(tmp_path), table(tmp_path)
    numbers.commit_files(None, NUMBERS, [put(numbers, 1)])
    base = numbers.read_snapshot()
    other.vacuum(24)
    assert base is not None
    assert base.read_rows().column("number").to_pylist() == [1]
    with suppress(CommitConflictError):
        numbers.commit_files(base, NUMBERS, [put(numbers, 2)])
    numbers.commit_files(numbers.read_snapshot(), NUMBERS, [put(numbers, 2)])
    assert read_numbers(numbers) == [1, 2]
    version = numbers.log.read_newest_version()
    other.vacuum(24)
    assert numbers.log.read_newest_version() == version, "nothing was removed, and the retention is the same"


def test_long_logs_have_few_checkpoints() -> None:
    due = [version for version in range(1, 20_001) if version % log_retention.get_checkpoint_interval(version) == 0]
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert due[:3] == [100, 200, 300]
    assert all(gap <= max(100, version / 8) for version, gap in zip(due, gaps, strict=False))
    assert max(gaps) == 1000
    assert sum(version for version in due if version <= 10_000) < 15 * 10_000, "files in all checkpoints together"


def test_merged_files_have_few_rows_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = LakeTable(LakeDirectory(tmp_path), "numbers", has_statistics=True)
    paths = [put(numbers, *range(10 * index, 10 * index + 10)).path for index in range(50)]
    monkeypatch.setattr(table_module, "_ROW_GROUP_ROWS", 30)
    monkeypatch.setattr(table_module, "_MERGED_FILE_ROWS_MAX", 120)
    by_rows = numbers.merge_files(paths, NUMBERS)
    assert [file.row_count for file in by_rows] == [120, 120, 120, 120, 20]
    assert [file.column_bounds["number"] for file in by_rows][:2] == [(0, 119), (120, 239)]
    assert numbers.read_rows([file.path for file in by_rows], NUMBERS).column("number").to_pylist() == [*range(500)]
    monkeypatch.setattr(table_module, "_MERGED_FILE_BYTES_MAX", 30 * 8)
    some = numbers.merge_files(paths, NUMBERS, pc.field("number") < 100)
    assert [file.row_count for file in some] == [30, 30, 30, 10]
    assert numbers.merge_files(paths, NUMBERS, pc.field("number") < 0) == []


def merge_payloads(root: str, count: int) -> int:
    """Merge files in a process of its own. Return Arrow's largest memory in bytes."""
    paths = [f"{index}.parquet" for index in range(count)]
    assert sum(file.row_count for file in table(Path(root)).merge_files(paths, PAYLOADS)) == 200 * count
    return int(pa.default_memory_pool().max_memory())


def test_merge_memory_does_not_grow_with_payloads(tmp_path: Path) -> None:
    """Payloads that compress well need little space on the disk, and 20 MB of memory per file."""
    payloads, random = table(tmp_path), np.random.default_rng(1)
    for index in range(20):
        rows = {"data": [random.bytes(100) * 1000 for _ in range(200)]}
        assert payloads.write_file(f"{index}.parquet", pa.table(rows, PAYLOADS)).size_bytes < SMALL_FILE_BYTES
    few, many = (run_child(merge_payloads, str(tmp_path), count) for count in (4, 20))
    assert few > 20 << 20
    assert many < few + (64 << 20)
