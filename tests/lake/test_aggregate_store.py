"""What is derived of parts: each once, whoever writes, whoever was killed, and whatever is put together."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
from deltalake import DeltaTable

from msgq.lake import aggregate_store
from msgq.lake.aggregate_store import AggregateStore, FileCache
from msgq.lake.bronze import bronze_writer as writer
from msgq.lake.bronze.bronze_writer import UncommittedFiles, open_messages_table, rebuild_aggregates, write_bronze
from msgq.lake.bronze.row_group_ranges import RANGES_SCHEMA
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.table_snapshot import TableSnapshot
from msgq.lake.text_columns import TextColumn, make_text_column
from tests.lake.rows import batch, message

COUNTS = pa.schema([("endpoint", pa.string()), ("messages", pa.int64())])


def counts(rows: pa.Table) -> dict[str, pa.Table]:
    found = rows.group_by("endpoint").aggregate([("sequence", "count")])
    columns = [found.column("endpoint").cast(pa.string()), found.column("sequence_count")]
    return {"counts": pa.Table.from_arrays(columns, schema=COUNTS)}


@pytest.fixture(autouse=True)
def _counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derive one small table, whatever is derived else."""
    monkeypatch.setattr(aggregate_store, "AGGREGATE_SCHEMAS", {"counts": COUNTS})
    monkeypatch.setattr(writer, "compute_aggregates", counts)


def write_counts(lake: LakeDirectory, *numbers: int) -> UncommittedFiles:
    return write_bronze([batch(message("a", number, number) for number in numbers)], lake)


def names(of: UncommittedFiles) -> list[str]:
    return [file.path for file in of.bronze_files]


def read_counts(lake: LakeDirectory, there: list[str]) -> Any:
    """Return the rows of parts, and their ranges; None: not all is there."""
    view = AggregateStore(lake).read_snapshot(there)
    if view is None:
        return None
    rows = view.read_rows("counts").to_pylist()
    return sorted((row["bronze_file"], row["messages"]) for row in rows), sorted(
        view.read_rows("ranges").column("bronze_file").to_pylist()
    )


def test_aggregates_of_killed_worker_count_once(tmp_path: Path) -> None:
    """However far the one who was killed had come."""
    lake = LakeDirectory(tmp_path)
    one, other = write_counts(lake, 1), write_counts(lake, 2, 3)
    there = names(one) + names(other)
    tables = AggregateStore(lake)
    tables.commit_files(one.aggregate_files, names(one))
    tables._commit_to_table("counts", other.aggregate_files["counts"], names(other))  # and then was killed
    assert read_counts(lake, there) is None
    assert tables.find_missing_aggregates(there) == set(names(other))
    for _ in range(2):
        found, nowhere = tables.find_uncommitted_files(sorted(tables.find_missing_aggregates(there)))
        assert not nowhere
        tables.commit_files(found, there)
        assert read_counts(lake, there) == (sorted([(there[0], 1), (there[1], 2)]), sorted(there))


def test_aggregates_torn_by_power_failure_are_recomputed(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    made = [write_counts(lake, number) for number in range(3)]
    there = [name for one in made for name in names(one)]
    (tmp_path / "aggregates" / "1" / "counts" / made[0].aggregate_files["counts"][0].path).write_bytes(b"")
    ranges = tmp_path / "aggregates" / "1" / "ranges" / made[1].aggregate_files["ranges"][0].path
    ranges.write_bytes(bytes(ranges.stat().st_size))
    files, others = AggregateStore(lake).find_uncommitted_files(there)
    assert others == there[:2]
    assert [file.path for file in files["counts"]] == [made[2].aggregate_files["counts"][0].path]


def test_aggregates_recomputed_by_two_processes_count_once(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    there = names(write_counts(lake, 1, 2))
    both = [rebuild_aggregates(lake, there[0]) for _ in range(2)]
    AggregateStore(lake)._commit_to_table("counts", both[0].aggregate_files["counts"], there)
    for one in both:
        AggregateStore(lake).commit_files(one.aggregate_files, there)
    assert read_counts(lake, there) == ([(there[0], 2)], there)


def test_compaction_merges_small_files_and_drops_removed_rows(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    tables = AggregateStore(lake)
    every = [write_counts(lake, number) for number in range(5)]
    there = [names(one)[0] for one in every]
    for one in every:
        tables.commit_files(one.aggregate_files, names(one))
    before = read_counts(lake, there)
    old = tables.read_snapshot(there)
    tables.compact_tables(lambda: make_text_column(there))
    assert read_counts(lake, there) == before
    assert old is not None
    assert len(old.read_rows("counts")) == 5, "who has looked before sees what was there"
    for table in tables.tables.values():
        snapshot = table.read_snapshot()
        assert snapshot is not None
        assert len(snapshot.files_by_path) == 1
    tables.compact_tables(lambda: make_text_column(there[1:]))
    for table in tables.tables.values():
        snapshot = table.read_snapshot()
        assert snapshot is not None
        assert sorted(snapshot.read_rows(["bronze_file"]).column("bronze_file").to_pylist()) == sorted(there[1:])


def test_compaction_skips_incomplete_aggregates(tmp_path: Path) -> None:
    """Who makes it whole looks for files by the names of parts."""
    lake = LakeDirectory(tmp_path)
    tables = AggregateStore(lake)
    every = [write_counts(lake, number) for number in range(3)]
    there = [names(one)[0] for one in every]
    tables.commit_files(every[0].aggregate_files, there[:1])
    for one in every[1:]:
        tables._commit_to_table("counts", one.aggregate_files["counts"], names(one))  # and then was killed
    tables.compact_tables(lambda: make_text_column(there))
    found, _ = tables.find_uncommitted_files(there[1:])
    tables.commit_files(found, there)
    assert read_counts(lake, there) == (sorted((part, 1) for part in there), sorted(there))


def test_range_commits_leave_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msgq.lake.delta_table._SMALL_FILES_MAX", 4)
    lake = LakeDirectory(tmp_path)
    tables = AggregateStore(lake)
    there = []
    for number in range(10):
        one = write_counts(lake, number)
        tables.commit_files(one.aggregate_files, names(one))
        there += names(one)
    assert read_counts(lake, there) == (sorted((part, 1) for part in there), sorted(there))
    snapshot = tables.tables["ranges"].read_snapshot()
    assert snapshot is not None
    assert len(snapshot.files_by_path) <= 5
    view = tables.read_snapshot(there)
    assert view is not None
    assert view.read_rows("ranges").schema == RANGES_SCHEMA


def test_nearby_ranges_are_read_from_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = LakeDirectory(tmp_path)
    tables = AggregateStore(lake)
    written = [write_counts(lake, 10 * number, 10 * number + 5) for number in range(6)]
    there = [name for one in written for name in names(one)]
    for one in written:
        tables.commit_files(one.aggregate_files, names(one))
    read: list[str] = []
    reading = AggregateStore._read_ranges_file

    def count_file(store: AggregateStore, path: str) -> pa.Table:
        read.append(path)
        return reading(store, path)

    monkeypatch.setattr(AggregateStore, "_read_ranges_file", count_file)
    near, known = written[2].row_group_ranges, make_text_column(there)
    assert tables.read_nearby_ranges(near, known).column("bronze_file").to_pylist() == names(written[2])
    assert len(read) == 1
    assert not tables.read_nearby_ranges(RANGES_SCHEMA.empty_table(), known).num_rows
    other_run = near.set_column(near.schema.get_field_index("run"), "run", pa.array(["s"]))
    assert not tables.read_nearby_ranges(other_run.cast(RANGES_SCHEMA), known).num_rows


def test_bronze_files_of_merged_ranges_are_not_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("msgq.lake.delta_table._SMALL_FILES_MAX", 2)
    lake = LakeDirectory(tmp_path)
    tables = AggregateStore(lake)
    there = []
    for number in range(4):
        one = write_counts(lake, number)
        tables.commit_files(one.aggregate_files, names(one))
        there += names(one)
    assert any(path.startswith("merged-") for path in tables.tables["ranges"].read_snapshot().files_by_path)  # type: ignore[union-attr]
    assert tables.find_missing_aggregates([*there, "date=1970-01-01/size_class=small/new.parquet"]) == {
        "date=1970-01-01/size_class=small/new.parquet"
    }


def test_caches_of_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream of many batches makes a merged file again and again."""
    monkeypatch.setattr("msgq.lake.delta_table._SMALL_FILES_MAX", 2)
    cache = FileCache[TextColumn](2)
    monkeypatch.setattr(aggregate_store, "_BRONZE_FILES_CACHE", cache)
    tables, sizes, bronze_files = AggregateStore(LakeDirectory(tmp_path)), [], list[str]()
    for number in range(8):
        one = write_counts(LakeDirectory(tmp_path), number)
        bronze_files += names(one)
        tables.commit_files(one.aggregate_files, names(one))
        # The rows of the first bronze files are only in the merged file, so this search always reads it.
        assert not tables.find_missing_aggregates(bronze_files)
        sizes.append(len(cache))
    assert 0 < max(sizes) <= 2


def test_cache_keeps_newest_files(tmp_path: Path) -> None:
    cache, lake, read = FileCache[str](2), LakeDirectory(tmp_path), list[str]()

    def read_file(path: str) -> str:
        def load() -> str:
            read.append(path)
            return path

        return cache.read_file(lake, path, load)

    assert [read_file(path) for path in "ababcbca"] == list("ababcbca")
    assert read == list("abca")


def commit_messages(lake: LakeDirectory, written: UncommittedFiles) -> TableSnapshot:
    table = open_messages_table(lake)
    table.commit_files(table.read_snapshot(), BRONZE_COLUMNS, written.bronze_files)
    snapshot = table.read_snapshot()
    assert snapshot is not None
    return snapshot


def test_only_bronze_files_of_later_commits_are_checked(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    messages, tables = open_messages_table(lake), AggregateStore(lake)
    first, second = write_counts(lake, 1), write_counts(lake, 2)
    complete = commit_messages(lake, first)
    assert tables.list_unchecked_files(complete, messages).to_pylist() == names(first)
    tables.record_complete_version(complete)
    assert tables.list_unchecked_files(complete, messages).to_pylist() == []
    newer = commit_messages(lake, second)
    assert tables.list_unchecked_files(newer, messages).to_pylist() == names(second)
    assert sorted(tables.list_unchecked_files(complete, messages).to_pylist()) == [], "an older version is complete"


@pytest.mark.parametrize("lost", ["messages", "log entry", "record"])
def test_all_bronze_files_are_checked_after_loss(tmp_path: Path, lost: str) -> None:
    """After a loss of the table, a log entry or the record, all bronze files are unchecked."""
    lake = LakeDirectory(tmp_path)
    tables, written = AggregateStore(lake), [write_counts(lake, number) for number in range(3)]
    commit_messages(lake, written[0])
    tables.record_complete_version(commit_messages(lake, written[1]))
    log = tmp_path / "messages" / "_delta_log"
    if lost == "messages":
        shutil.rmtree(log)
        commit_messages(lake, written[0])
        commit_messages(lake, written[1])
    if lost == "record":
        (tmp_path / "aggregates" / "1" / "_complete.json").write_bytes(b"")
    newest = commit_messages(lake, written[2])
    if lost == "log entry":
        DeltaTable(tmp_path / "messages").create_checkpoint()
        (log / f"{2:020}.json").unlink()
    unchecked = tables.list_unchecked_files(newest, open_messages_table(lake)).to_pylist()
    assert sorted(unchecked) == sorted(name for one in written for name in names(one))
