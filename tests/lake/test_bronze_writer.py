"""Parts of messages and texts of schemas in a lake, as workers write them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
from msgq.common.schema import Schema
from msgq.lake.aggregate_store import AggregateStore
from msgq.lake.bronze.bronze_store import _group_small_files
from msgq.lake.bronze.bronze_writer import merge_bronze_files, open_messages_table, rebuild_aggregates, write_bronze
from msgq.lake.data_file import DataFile
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.schema_ids import compute_schema_id
from msgq.lake.schema_texts import read_schema_ids, read_schemas, write_schemas
from tests.lake.rows import batch, message

DAY = 86_400 * 10**9


def test_bronze_parts_are_split_by_date_and_size_with_exact_ranges(tmp_path: Path) -> None:
    sent = [message("b", 1, DAY + 5), message("a", 2, 7), message("a", 1, 3), message("a", 1, 3)]
    sent.append(message("a", 3, 9, data=bytes(64 << 10)))
    written = write_bronze([batch(sent)], LakeDirectory(tmp_path))
    found = {row["bronze_file"].rpartition("/")[0]: row for row in written.row_group_ranges.to_pylist()}
    small, large = found["date=1970-01-01/size_class=small"], found["date=1970-01-01/size_class=large"]
    assert len(found) == 3
    assert (small["endpoint"], small["row_count"], small["has_duplicates"]) == ("a", 3, True)
    assert (small["first_sequence"], small["last_sequence"], small["start_time"], small["end_time"]) == (1, 2, 3, 7)
    assert (large["row_count"], large["start_time"], large["has_duplicates"]) == (1, 9, False)
    assert found["date=1970-01-02/size_class=small"]["endpoint"] == "b"
    files = {file.path: file for file in written.bronze_files}
    assert files.keys() == {row["bronze_file"] for row in found.values()}
    file = files[small["bronze_file"]]
    assert (file.row_count, dict(file.partition_values)) == (3, {"date": "1970-01-01", "size_class": "small"})
    assert file.size_bytes == (tmp_path / "messages" / file.path).stat().st_size
    assert pq.ParquetFile(tmp_path / "messages" / file.path).read()["log_time"].to_pylist() == [3, 3, 7]


def test_aggregates_recomputed_from_bronze_part_are_equal(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    sent = [message(name, i, 10 * i, data=bytes(i)) for name in "ba" for i in range(20)]
    written = write_bronze([batch(sent)], lake)
    (part,) = written.bronze_files
    again = rebuild_aggregates(lake, part.path)
    assert again.row_group_ranges == written.row_group_ranges
    for name, files in written.aggregate_files.items():
        table = AggregateStore(lake).tables[name]
        (one,), (other,) = files, again.aggregate_files[name]
        assert one.path != other.path
        assert pq.read_table(table.resolve_file_path(one.path)) == pq.read_table(table.resolve_file_path(other.path))


def test_bronze_writer_limits_open_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A day that comes again has another part then; those that come in turns have one each."""
    lake, days = LakeDirectory(f"file://{tmp_path}"), 9
    monkeypatch.setattr("msgq.lake.bronze.bronze_writer._OPEN_BRONZE_FILES_MAX", 3)
    there, most = len(os.listdir("/proc/self/fd")), 0

    def rows() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number, day in enumerate([*range(days), *[0, 1] * 4]):
            yield batch([message("a", number, day * DAY + number)])
            most = max(most, len(os.listdir("/proc/self/fd")) - there)

    monkeypatch.setattr("msgq.lake.bronze.bronze_writer._ROW_GROUP_ROWS", 1)
    written = write_bronze(rows(), lake)
    assert most <= 3
    assert len(written.bronze_files) == len({file.path for file in written.bronze_files}) == days + 2
    found = [
        pq.ParquetFile(open_messages_table(lake).resolve_file_path(file.path)).read() for file in written.bronze_files
    ]
    assert sorted(pa.concat_tables(found)["sequence"].to_pylist()) == list(range(days + 8))
    assert {row["bronze_file"]: row["row_count"] for row in written.row_group_ranges.to_pylist()}.keys() == {
        f.path for f in written.bronze_files
    }
    assert len(written.aggregate_files["ranges"]) == len(written.aggregate_files["traffic_windows"]) == days + 2


def test_compacted_bronze_part_has_all_messages_of_original_parts(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    parts = [write_bronze([batch([message("ab"[i % 2], i, i)])], lake).bronze_files[0].path for i in range(6)]
    joined = merge_bronze_files(lake, parts)
    rows = pq.ParquetFile(open_messages_table(lake).resolve_file_path(joined.bronze_files[0].path)).read()
    assert rows.select(["endpoint", "sequence", "kind", "size_bytes"]).to_pylist() == [
        {"endpoint": endpoint, "sequence": i, "kind": "topic", "size_bytes": 4}
        for endpoint, numbers in (("a", (0, 2, 4)), ("b", (1, 3, 5)))
        for i in numbers
    ]


def test_schema_texts_are_stored_once_by_number(tmp_path: Path) -> None:
    lake = LakeDirectory(tmp_path)
    schemas = [Schema("Gps", "struct", b'"<i4"'), Schema("Imu", "jsonschema", b"{}")]
    for _ in range(2):
        write_schemas(lake, [*schemas, None, Schema("Text", "json", b""), schemas[0]])
    assert read_schema_ids(lake) == set(map(compute_schema_id, schemas))
    assert {(text.name, text.encoding, text.data) for text in read_schemas(lake).values()} == {
        (schema.name, schema.encoding, schema.data) for schema in schemas
    }
    assert len(list((tmp_path / "schemas").glob("*.parquet"))) == 1


def test_groups_of_merged_bronze_files_have_few_rows_and_bytes() -> None:
    """Rows of small messages may need few bytes on the disk, but their aggregates need memory."""
    folder = "date=2026-05-01/size_class=small"
    many_rows = [DataFile(f"{folder}/{number:02}", 1000, {}, 3 << 19) for number in range(5)]
    many_bytes = [DataFile(f"{folder}/{number}", 31 << 20, {}, 10) for number in range(100, 108)]
    other_day = [DataFile(f"date=2026-05-02/size_class=small/{number}", 10, {}, 1) for number in range(2)]
    large = DataFile(f"{folder}/large", 32 << 20, {}, 1)
    groups = _group_small_files([*many_rows, *many_bytes, *other_day, large])
    by_path = {file.path: file for file in [*many_rows, *many_bytes, *other_day]}
    assert [len(group) for group in groups] == [2, 2, 3, 4, 2, 2]
    assert all(sum(by_path[path].row_count for path in group) <= 4 << 20 for group in groups)
    assert all(sum(by_path[path].size_bytes for path in group) <= 128 << 20 for group in groups)
