"""Silver counts by one commit: whoever reads, writes as well, or is killed in between, finds each row once."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.silver import silver_manifest as manifest
from msgq.lake.silver.silver_manifest import SilverManifest
from msgq.lake.silver.table_assignment import SilverTable
from tests.lake import silvers
from tests.lake.kills import Killed, die_at, is_killed, raise_killed
from tests.lake.silvers import Lake, json_message

ENDPOINTS = [f"e{i}" for i in range(6)]


def fill_lake(path: Path, parts: int = 3) -> Lake:
    """Return a lake in which each part has something for four tables, and something that cannot be decoded."""
    lake = Lake(path)
    for i in range(parts):
        add(lake, i)
    return lake


def add(lake: Lake, number: int) -> None:
    values = [{"a": 1}, {"b": "x"}, {"c": True}, {"d": [1]}, {"a": 2.5}, b"{broken"]
    rows = [json_message(name, number, value) for name, value in zip(ENDPOINTS, values, strict=True)]
    lake.add(f"p{number}", rows)


def check(lake: Lake, parts: int = 3) -> None:
    """Every row is there once: by the manifest, and in the tables as they are."""
    for endpoint in ENDPOINTS[:-1]:
        assert [row["sequence"] for row in lake.rows(endpoint).to_pylist()] == list(range(parts))
    rows = [(row["endpoint"], row["sequence"]) for rows in lake.tables().values() for row in rows]
    assert sorted(rows) == [(endpoint, i) for endpoint in ENDPOINTS[:-1] for i in range(parts)]
    aside = LakeTable(lake.directory, "decode_errors", ["date"]).read_snapshot()
    assert aside is not None
    assert sorted(aside.read_rows(["sequence"]).column("sequence").to_pylist()) == list(range(parts))
    files = lake.manifest.list_decode_error_files().file_paths
    assert sum(pq.read_metadata(lake.path / "decode_errors" / file).num_rows for file in files) == parts


@pytest.mark.parametrize("full_refresh", [False, True])
@pytest.mark.parametrize("moment", range(14))
def test_silver_decoder_killed_between_commits_keeps_each_row_once(
    tmp_path: Path, moment: int, full_refresh: bool
) -> None:
    lake = fill_lake(tmp_path)
    if full_refresh:
        lake.decode()
    with (
        die_at(moment, raise_killed, (LakeTable, "commit_files"), (LakeDirectory, "write_json")),
        pytest.raises(Killed),
    ):
        lake.decode(full_refresh=full_refresh)
    if full_refresh:
        for endpoint in ENDPOINTS[:-1]:
            assert lake.rows(endpoint).num_rows == 3  # at once, by the manifest
    lake.decode()
    check(lake)


@pytest.mark.watchdog(600)
@pytest.mark.parametrize(
    ("full_refresh", "step"),
    [
        (False, 7),
        pytest.param(False, 1, marks=pytest.mark.nightly),
        pytest.param(True, 1, marks=pytest.mark.nightly),
    ],
)
def test_silver_decoder_killed_at_each_commit_keeps_each_row_once(
    tmp_path: Path, full_refresh: bool, step: int
) -> None:
    """With a step, at some moments before and after commits."""
    for moment in range(0, 1000, step):
        lake = fill_lake(tmp_path / str(moment))
        if full_refresh:
            lake.decode()
        killed = is_killed(silvers.decode_killed, str(lake.path), moment, full_refresh)
        lake.decode()
        check(lake)
        if not killed:
            break
    assert moment >= 12


def test_silver_row_count_never_decreases_during_full_decode(tmp_path: Path) -> None:
    lake, other = fill_lake(tmp_path), Lake(tmp_path)
    lake.decode()
    ends = threading.Event()
    seen: list[tuple[int, ...]] = []

    def count() -> None:
        while not ends.is_set():
            by_manifest = sum(other.rows(endpoint).num_rows for endpoint in ENDPOINTS[:-1])
            seen.append((by_manifest, *(len(rows) for rows in other.tables().values())))

    reader = threading.Thread(target=count)
    reader.start()
    try:
        for _ in range(6):
            before = len(seen)
            lake.decode(full_refresh=True)
            while len(seen) < before + 2 and reader.is_alive():
                ends.wait(0.001)
    finally:
        ends.set()
        reader.join()
    assert set(seen) == {(15, *(len(rows) for rows in lake.tables().values()))}
    check(lake)


class Busy(Lake):
    """Lets somebody else do something while it decodes."""

    def __init__(self, path: Path, others: list[Any]) -> None:
        super().__init__(path)
        self.others = others

    def run(self, parts: Sequence[str], known: Mapping[str, SilverTable]) -> Iterator[pa.Table]:
        yield from super().run(parts, known)
        if self.others:
            self.others.pop()()


@pytest.mark.parametrize("full_refresh", [False, True])
def test_two_concurrent_silver_decoders_keep_each_row_once(tmp_path: Path, full_refresh: bool) -> None:
    lake = fill_lake(tmp_path)
    if full_refresh:
        lake.decode()

    def other() -> None:
        add(lake, 3)  # with a part that nobody knew of yet
        lake.decode()

    Busy(tmp_path, [other]).decode(full_refresh=full_refresh)
    lake.decode()
    check(lake, 4)


def test_silver_tables_follow_newest_manifest_despite_late_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who has looked at the manifest, and then sleeps while others go on, does not take their rows away."""
    lake = fill_lake(tmp_path)
    plain = SilverManifest._apply_version

    def late(self: SilverManifest, state: Any) -> None:
        monkeypatch.setattr(SilverManifest, "_apply_version", plain)
        add(lake, 3)
        Lake(tmp_path).decode()
        plain(self, state)

    monkeypatch.setattr(SilverManifest, "_apply_version", late)
    lake.decode()
    check(lake, 4)


def test_late_writer_killed_after_its_commit_leaves_tables_of_newest_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two writers, a newer manifest was applied to the tables, and noted as applied."""
    lake, apply = fill_lake(tmp_path), SilverManifest._apply_manifest_to_table
    moments: list[str] = []

    def apply_after_other_writer(manifest: SilverManifest, *arguments: Any) -> None:
        if not moments:
            moments.append("other writer")
            add(lake, 3)
            Lake(tmp_path).decode()
            moments.append("late commit")
        apply(manifest, *arguments)
        if moments == ["other writer", "late commit"]:
            moments.append("killed")
            raise Killed

    monkeypatch.setattr(SilverManifest, "_apply_manifest_to_table", apply_after_other_writer)
    with pytest.raises(Killed):
        lake.decode()
    lake.decode()
    check(lake, 4)


def test_silver_parts_with_conflicting_types_use_two_tables(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    first = lake.add("a", [json_message("e", 0, {"a": "x", "b": "y"})])
    lake.decode()
    second = lake.add("b", [json_message("e", 1, {"a": "x", "b": "y", "new": 1})])
    third = lake.add("c", [json_message("e", 2, {"a": "x", "b": "y", "new": "z"})])
    assert lake.decode() == 2
    assert lake.decoded == [first, second, third, third]
    assert lake.values("e", "sequence", "new") == [(0, None), (1, "1"), (2, "z")]
    assert sorted(len(rows) for rows in lake.tables().values()) == [1, 2]


def test_silver_rows_stay_unique_after_bronze_compaction(tmp_path: Path) -> None:
    lake = fill_lake(tmp_path, 2)
    lake.decode()
    merged = pa.concat_tables([pq.ParquetFile(tmp_path / "messages" / part).read() for part in sorted(lake.parts())])
    for part in lake.parts():
        (tmp_path / "messages" / part).unlink()
    lake.add_table("merged", merged.sort_by("endpoint"))
    assert lake.decode() == 1
    check(lake, 2)


def test_silver_manifest_stays_small_after_many_updates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "_MANIFEST_FILES_MAX", 4)
    lake = Lake(tmp_path)
    for i in range(6):
        add(lake, i)
        lake.decode()
    snapshot = LakeTable(lake.directory, "silver_manifest").read_snapshot()
    assert snapshot is not None
    assert len(snapshot.files_by_path) == 2
    check(lake, 6)


def test_silver_manifest_lists_tables_of_endpoint(tmp_path: Path) -> None:
    lake = fill_lake(tmp_path, 1)
    lake.decode()
    snapshot = LakeTable(lake.directory, "silver_manifest").read_snapshot()
    assert snapshot is not None
    rows = [row for row in snapshot.read_rows().to_pylist() if row["endpoint"] is not None]
    assert {(row["endpoint"], row["table_name"].rpartition("-")[0], row["row_count"]) for row in rows} == {
        ("e0", "json-a", 1),
        ("e1", "json-b", 1),
        ("e2", "json-c", 1),
        ("e3", "json-d", 1),
        ("e4", "json-a", 1),
        ("e5", "decode_errors".rpartition("-")[0], 1),
    }


def test_silver_table_write_failure_raises_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from msgq.lake.delta_table import CommitConflictError

    def refuse(*_: Any) -> None:
        raise CommitConflictError("never")

    lake = fill_lake(tmp_path)
    monkeypatch.setattr(LakeTable, "commit_files", refuse)
    with pytest.raises(CommitConflictError):
        lake.decode()
    assert SilverManifest(lake.directory).list_endpoints() == []


def test_silver_files_are_synced_before_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[str] = set()
    monkeypatch.setattr("os.fsync", lambda number: synced.add(os.readlink(f"/proc/self/fd/{number}")))
    plain = LakeTable._write_commit

    def commit(table: LakeTable, *given: Any) -> None:
        if table.place == "silver_manifest":
            files = {str(path) for name in ("silver", "decode_errors") for path in (tmp_path / name).rglob("*.parquet")}
            assert len(files) == 5, "four tables, and what is none"
            assert files <= synced
        plain(table, *given)

    monkeypatch.setattr(LakeTable, "_write_commit", commit)
    fill_lake(tmp_path, 1).decode()
