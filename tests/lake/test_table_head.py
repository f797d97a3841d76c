"""Writers that only add files do not load the list of all files, and see the same table as delta-rs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
from deltalake import DeltaTable

from msgq.errors import RecordingError
from msgq.lake import log_retention, table_head
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import open_messages_table, write_bronze
from msgq.lake.bronze.ingest_log import IngestedFile, IngestLog
from msgq.lake.delta_table import CommitConflictError, LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import TaskResult
from msgq.lake.table_head import TableHead, restore_head, store_head
from tests.lake.in_place import InPlaceExecutor
from tests.lake.rows import batch, message

NUMBERS = pa.schema([("number", pa.int64())])


def make_table(root: Path) -> LakeTable:
    return LakeTable(LakeDirectory(root), "numbers", has_statistics=True)


def append(table: LakeTable, number: int, base: TableHead | None = None) -> None:
    """Add a file with a number to the newest version, or to a head."""
    file = table.write_file(f"{number}.parquet", pa.table({"number": [number]}, NUMBERS))
    table.commit_files(base or table.read_snapshot(), NUMBERS, [file])


def get_head(table: LakeTable) -> TableHead:
    snapshot = table.read_snapshot()
    assert snapshot is not None
    head = table.log.make_head(snapshot)
    assert head is not None
    return head


def advance(table: LakeTable, head: TableHead) -> tuple[TableHead, set[str]]:
    found = table.log.advance_head(head)
    assert found is not None
    return found


def describe(table: LakeTable) -> Any:
    """Return all that delta-rs knows of the files, except for times."""
    delta = DeltaTable(table.resolve_file_path(""))
    actions = pa.table(delta.get_add_actions()).drop(["modification_time"]).to_pylist()
    operations = [(entry["operation"], entry["operationParameters"]) for entry in delta.history()[:-1]]
    return sorted(map(str, actions)), delta.version(), delta.transaction_version("msgq"), operations


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_append_to_head_equals_append_by_delta(tmp_path: Path, has_checkpoint: bool) -> None:
    one, two = make_table(tmp_path / "one"), make_table(tmp_path / "two")
    for table in (one, two):
        append(table, 0)
        append(table, 1)
        if has_checkpoint:
            DeltaTable(table.resolve_file_path("")).create_checkpoint()
    head = get_head(two)
    for number in (2, 3):
        append(one, number)
        append(two, number, head)
        head, added = advance(two, head)
        assert added == {f"{number}.parquet"}
        assert head == get_head(two)
    assert describe(one) == describe(two)
    assert [path.name for path in (tmp_path / "two/numbers/_delta_log").iterdir() if path.name[0] == "."] == []


def test_stored_head_is_restored(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0)
    head = get_head(table)
    assert restore_head(json.loads(json.dumps(store_head(head)))) == head
    assert restore_head({"table_id": "of an earlier release", "version": 3}) is None
    assert restore_head(None) is None


def test_writers_on_one_version_conflict(tmp_path: Path) -> None:
    """Two writers with heads, and writers of which only one has a head, in both orders."""
    table = make_table(tmp_path)
    append(table, 0)
    head, snapshot = get_head(table), table.read_snapshot()
    append(table, 1, head)
    file = table.write_file("2.parquet", pa.table({"number": [2]}, NUMBERS))
    for late in (head, snapshot):
        with pytest.raises(CommitConflictError, match="by another process"):
            table.commit_files(late, NUMBERS, [file])
    head = get_head(table)
    append(table, 3)
    with pytest.raises(CommitConflictError, match="by another process"):
        table.commit_files(head, NUMBERS, [file])
    newest = table.read_snapshot()
    assert newest is not None
    assert sorted(newest.paths) == ["0.parquet", "1.parquet", "3.parquet"]


@pytest.mark.parametrize("optimized", [False, True])
def test_appends_leave_checkpoints_to_optimize(
    tmp_path: Path, optimized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An append writes a checkpoint only if `optimize` has not run for two intervals."""
    monkeypatch.setattr(log_retention, "_VERSIONS_PER_CHECKPOINT", 3)
    table, log = make_table(tmp_path), tmp_path / "numbers/_delta_log"
    append(table, 0)
    for number in range(1, 14):
        if optimized and number == 5:
            DeltaTable(tmp_path / "numbers").create_checkpoint()
        append(table, number, get_head(table))
    versions = sorted(int(path.name[:20]) for path in log.glob("*.checkpoint.parquet"))
    assert versions == ([4, 12] if optimized else [6, 12])


def test_failed_append_is_not_a_conflict(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0)
    head, log = get_head(table), tmp_path / "numbers/_delta_log"
    log.rename(tmp_path / "elsewhere")
    log.write_text("no directory")
    with pytest.raises(RecordingError, match="cannot be written") as error:
        append(table, 1, head)
    assert not isinstance(error.value, CommitConflictError)


def test_removed_files_are_not_added(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0)
    head = get_head(table)
    append(table, 1)
    append(table, 2)
    table.commit_files(table.read_snapshot(), NUMBERS, (), ["1.parquet", "0.parquet"])
    assert advance(table, head)[1] == {"2.parquet"}


def recreate(table: LakeTable) -> None:
    shutil.rmtree(table.resolve_file_path(""))
    append(table, 0)
    append(table, 1)


def remove_entries(table: LakeTable) -> None:
    """Remove the newer entries, as a cleanup without order can do before it removes the entry of the head."""
    append(table, 2)
    DeltaTable(table.resolve_file_path("")).create_checkpoint()
    Path(table.resolve_file_path(f"_delta_log/{2:020}.json")).unlink()


def remove_entry_of_head(table: LakeTable) -> None:
    append(table, 2)
    Path(table.resolve_file_path(f"_delta_log/{1:020}.json")).unlink()


def add_column(table: LakeTable) -> None:
    columns = pa.schema([*NUMBERS, ("text", pa.string())])
    table.commit_files(table.read_snapshot(), columns, [])


def write_torn_entry(table: LakeTable) -> None:
    Path(table.resolve_file_path(f"_delta_log/{2:020}.json")).touch()


def write_damaged_entry(table: LakeTable) -> None:
    Path(table.resolve_file_path(f"_delta_log/{2:020}.json")).write_text('{"add":')


def append_often(table: LakeTable) -> None:
    head = get_head(table)
    for number in range(table_head._FOLLOWING_ENTRIES_MAX + 1):
        append(table, 2 + number, head)
        head = advance(table, head)[0]


CHANGES = [
    recreate,
    remove_entries,
    remove_entry_of_head,
    add_column,
    write_torn_entry,
    write_damaged_entry,
    append_often,
]


@pytest.mark.parametrize("change", CHANGES)
def test_head_is_unusable_after_change_of_log(
    tmp_path: Path, change: Callable[[LakeTable], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_head, "_FOLLOWING_ENTRIES_MAX", 3)
    table = make_table(tmp_path)
    append(table, 0)
    append(table, 1)
    head = get_head(table)
    change(table)
    assert table.log.advance_head(head) is None


def test_table_of_later_protocol_has_no_head(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    append(table, 0)
    head = get_head(table)
    DeltaTable(table.resolve_file_path("")).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    snapshot = table.read_snapshot()
    assert snapshot is not None
    assert table.log.make_head(snapshot) is None
    assert table.log.advance_head(head) is None


# ---- ingests ----


def ingest(root: Path, number: int) -> int:
    """Add a message and an ingested file, as an ingest in a new process does. Return the version."""
    lake = LakeDirectory(root)
    store = BronzeStore(lake, InPlaceExecutor())
    store.complete_aggregates()
    inputs = [IngestedFile(f"/recordings/{number:06}.mcap", 1, number)]
    assert not store.find_ingested_files(inputs)
    written = write_bronze([batch([message("a", number, 1000 * number)])], lake)
    assert store.commit_task_result(inputs, [], TaskResult(written)) == 1
    assert store.find_ingested_files(inputs) == set(inputs)
    return store.read_version()


def read_sequences(root: Path) -> list[int]:
    snapshot = open_messages_table(LakeDirectory(root)).read_snapshot()
    assert snapshot is not None
    return sorted(snapshot.read_rows(["sequence"]).column("sequence").to_pylist())


def add_old_files(root: Path, count: int, has_checkpoint: bool) -> None:
    """Add the metadata of many bronze files that do not exist, and of many ingested files."""
    messages, log = open_messages_table(LakeDirectory(root)), IngestLog(LakeDirectory(root))
    snapshot = messages.read_snapshot()
    assert snapshot is not None
    [file] = snapshot.describe_files()
    old = [
        file.__class__(f"date=2020-01-01/size_class=small/{number}.parquet", 1, file.partition_values, 1)
        for number in range(count)
    ]
    messages.commit_files(snapshot, snapshot.columns, old)
    log.record_inputs([IngestedFile(f"/recordings/old{number:06}.mcap", 1, -number - 1) for number in range(count)], [])
    if has_checkpoint:
        DeltaTable(messages.resolve_file_path("")).create_checkpoint()


def count_read_bytes(work: Callable[[], object]) -> int:
    """Return the bytes of files that this process reads meanwhile, in Python or elsewhere."""

    def read_count() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])

    before = read_count()
    work()
    return read_count() - before


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_ingest_reads_as_much_in_large_lake_as_in_small_lake(
    tmp_path: Path, has_checkpoint: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    plain = LakeTable._load_snapshot

    def load(table: LakeTable, version: int | None) -> Any:
        loaded.append(table.place)
        return plain(table, version)

    sizes = []
    for count in (10, 5000):
        root = tmp_path / str(count)
        ingest(root, 1)
        monkeypatch.setattr(LakeTable, "sync_files", lambda *_: None)  # the old files do not exist
        monkeypatch.setattr(BronzeStore, "_rebuild_aggregates", lambda *_: None)
        add_old_files(root, count, has_checkpoint)
        ingest(root, 2)
        monkeypatch.undo()
        ingest(root, 3)
        monkeypatch.setattr(LakeTable, "_load_snapshot", load)
        sizes.append(count_read_bytes(lambda root=root: ingest(root, 4)))  # type: ignore[misc]
        monkeypatch.undo()
    assert loaded
    assert "messages" not in loaded
    assert sizes[1] < 1.2 * sizes[0], sizes
    assert DeltaTable(root / "messages").transaction_version("msgq") == 5


def test_messages_of_removed_bronze_file_are_no_duplicates(tmp_path: Path) -> None:
    """Another program deletes a bronze file. Its ranges stay in the store."""
    for number in (1, 2):
        ingest(tmp_path, number)
    lake = LakeDirectory(tmp_path)
    messages = open_messages_table(lake)
    snapshot = messages.read_snapshot()
    assert snapshot is not None
    first = snapshot.find_paths({"sequence": (1, 1)})
    messages.commit_files(snapshot, snapshot.columns, (), first)
    assert read_sequences(tmp_path) == [2]
    store = BronzeStore(lake, InPlaceExecutor())
    again = write_bronze([batch([message("a", 1, 1000)])], lake)
    assert store.commit_task_result([], [], TaskResult(again)) == 1
    with pytest.raises(NotImplementedError, match="messages that are there twice"):
        store.commit_task_result([], [], TaskResult(write_bronze([batch([message("a", 1, 1000)])], lake)))
    assert read_sequences(tmp_path) == [1, 2]


def test_ingest_compares_with_files_of_concurrent_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other ingest commits the same messages between the comparison and the commit."""
    for number in (1, 2):
        ingest(tmp_path, number)
    plain = LakeTable.commit_files

    def commit_late(table: LakeTable, *given: Any) -> None:
        if table.place == "messages":
            assert isinstance(given[0], TableHead)
            monkeypatch.undo()
            ingest(tmp_path, 3)
        plain(table, *given)

    monkeypatch.setattr(LakeTable, "commit_files", commit_late)
    store = BronzeStore(LakeDirectory(tmp_path), InPlaceExecutor())
    same = write_bronze([batch([message("a", 3, 3000)])], LakeDirectory(tmp_path))
    with pytest.raises(NotImplementedError, match="messages that are there twice"):
        store.commit_task_result([], [], TaskResult(same))
    assert read_sequences(tmp_path) == [1, 2, 3]


def test_ingest_continues_lake_of_earlier_release(tmp_path: Path) -> None:
    """The lake has no stored head, and its list of ingested files has no statistics."""
    ingest(tmp_path, 1)
    record = tmp_path / "aggregates/1/_complete.json"
    complete = json.loads(record.read_text())
    record.write_text(json.dumps({name: complete[name] for name in ("table_id", "version")}))
    LakeTable(LakeDirectory(tmp_path), "ingested_files").append_rows(
        pa.table({"path": ["/recordings/old.mcap"], "size_bytes": [1], "mtime_ns": [1], "ingest_number": [7]})
    )
    log = IngestLog(LakeDirectory(tmp_path))
    old = IngestedFile("/recordings/old.mcap", 1, 1)
    assert log.find_ingested_files([old, IngestedFile("/recordings/old.mcap", 2, 1)]) == {old}
    assert ingest(tmp_path, 2) == 2
    assert restore_head(json.loads(record.read_text())) is not None
    assert read_sequences(tmp_path) == [1, 2]
    rows = LakeTable(LakeDirectory(tmp_path), "ingested_files").read_snapshot()
    assert rows is not None
    assert rows.find_largest_value("ingest_number")[0] == 8
