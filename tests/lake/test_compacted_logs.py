"""Tables whose log has files of several entries (N.M.compacted.json), which other programs write."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("deltalake")
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.table_head import parse_actions

NUMBERS = pa.schema([("number", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> LakeTable:
    """A table of the versions 0 to 5. Version 4 replaced the file of version 1."""
    table = LakeTable(LakeDirectory(tmp_path), "numbers", has_statistics=True)
    for number in range(6):
        append(table, number, ["1.parquet"] if number == 4 else [])
    return table


def append(table: LakeTable, number: int, remove: list[str]) -> None:
    file = table.write_file(f"{number}.parquet", pa.table({"number": [number]}, NUMBERS))
    table.commit_files(table.read_snapshot(), NUMBERS, [file], remove)


def compact(table: LakeTable, first: int, last: int) -> Path:
    """Write the file that has the last state of each path, transaction, protocol and schema of some versions."""
    state: dict[str, str] = {}
    for version in range(first, last + 1):
        entry = table.log.read_entry(version)
        assert entry is not None
        for action in parse_actions(entry):
            [(kind, value)] = action.items()
            if kind == "commitInfo":
                continue
            name = value["path"] if kind in ("add", "remove") else value.get("appId", kind)
            changed = {**value, "dataChange": False} if kind in ("add", "remove") else value
            state[name] = json.dumps({kind: changed})
    path = Path(table.resolve_file_path(f"_delta_log/{first:020}.{last:020}.compacted.json"))
    path.write_text("\n".join(state.values()))
    return path


def read_numbers(table: LakeTable, version: int | None = None) -> list[int]:
    snapshot = LakeTable(table.lake, table.place).read_snapshot(version)
    assert snapshot is not None
    numbers: list[int] = sorted(snapshot.read_rows().column("number").to_pylist())
    return numbers


@pytest.mark.parametrize(("first", "last"), [(0, 5), (1, 4), (2, 5)])
def test_table_with_compacted_entries_has_the_same_versions(table: LakeTable, first: int, last: int) -> None:
    snapshot = table.read_snapshot(1)
    assert snapshot is not None
    head = table.log.make_head(snapshot)
    assert head is not None
    before = table.log.advance_head(head)
    compact(table, first, last)
    assert read_numbers(table) == [0, 2, 3, 4, 5]
    assert [read_numbers(table, version) for version in (1, 3, 4)] == [[0, 1], [0, 1, 2, 3], [0, 2, 3, 4]]
    assert table.log.read_newest_version() == 5
    assert table.log.list_added_paths(1, 5) == {f"{number}.parquet" for number in (2, 3, 4, 5)}
    assert before is not None
    assert table.log.advance_head(head) == before
    append(table, 6, [])
    assert read_numbers(table) == [0, 2, 3, 4, 5, 6]


def test_cleanup_keeps_table_with_compacted_entries(table: LakeTable) -> None:
    compact(table, 1, 4)
    table.vacuum(0)
    assert read_numbers(table) == [0, 2, 3, 4, 5]
    append(table, 7, [])
    assert read_numbers(table) == [0, 2, 3, 4, 5, 7]


def test_file_of_compacted_entries_is_no_entry(table: LakeTable) -> None:
    path = compact(table, 1, 4)
    path.rename(path.with_name(f"{4:020}.{9:020}.compacted.json"))
    assert table.log.list_versions() == list(range(6))
    assert table.log.list_checkpoint_versions() == []
