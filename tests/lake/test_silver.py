"""Silver without Spark: which table rows go to, and what endpoints have of them."""

from __future__ import annotations

import json
import random
import shutil
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")
from msgq.common.schema import Schema
from msgq.decoding.arrow_types import build_value_column, find_common_columns
from msgq.errors import RecordingError
from msgq.lake.silver.silver_decoder import SILVER_FIXED_COLUMNS
from msgq.lake.silver.table_assignment import open_silver_table
from tests.lake.silvers import Lake, json_message, message
from tests.recording.logs import struct_schema

POSE = np.dtype([("x", "<f8"), ("n", "<u4")])
WIDE = np.dtype([("x", "<f8"), ("n", "<i8"), ("tags", "<i2", (2,))])


def pose(x: float, n: int) -> bytes:
    return np.array((x, n), POSE).tobytes()


def test_silver_endpoints_with_same_schema_share_table_and_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {5: struct_schema(POSE)})
    robots = [f"robot{i:03}" for i in range(50)]
    lake.add("a", [message(name, i, "struct", pose(0.5, 7), schema_id=5) for name in robots for i in range(4)])
    lake.add("b", [json_message(name, 4 + i, {"x": i}) for name in robots for i in range(4)])
    assert lake.decode() == 2
    assert len(lake.files()) == 2
    (typed, loose) = sorted(lake.tables(), reverse=True)
    assert (typed.startswith("struct-Point-"), loose.startswith("json-x-")) == (True, True)
    assert [len(rows) for rows in lake.tables().values()] == [200, 200]
    assert lake.manifest.list_endpoints() == robots
    first, second = [(i, 0.5, 7) for i in range(4)], [(4 + i, i, None) for i in range(4)]
    assert lake.values("robot007", "sequence", "x", "n") == first + second
    assert lake.rows("robot007").schema.names == [*SILVER_FIXED_COLUMNS.names, "x", "n"]


def test_silver_update_decodes_only_new_parts(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    first = lake.add("a", [json_message("e", 0, {"x": 1})])
    assert lake.decode() == 1
    before = lake.files()
    assert lake.decode() == 0
    second = lake.add("b", [json_message("e", 1, {"x": 2.5, "new": True})])
    assert lake.decode() == 1
    assert lake.decoded == [first, second]
    assert before < lake.files()
    assert lake.values("e", "sequence", "x", "new") == [(0, 1.0, None), (1, 2.5, True)]


def test_silver_type_widening_rewrites_no_file(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    expected = [1, 2**60, 2.5, "x", [1]]
    kinds = ["int64", "int64", "double", "string", "string"]
    for i, (value, kind) in enumerate(zip(expected, kinds, strict=True)):
        lake.add(f"p{i}", [json_message("e", i, {"v": value})])
        before = {path: (tmp_path / path).read_bytes() for path in lake.files()}
        lake.decode()
        assert all((tmp_path / path).read_bytes() == text for path, text in before.items())
        assert str(lake.rows("e").schema.field("v").type) == kind
    assert [json.loads(text) if text != "x" else text for (text,) in lake.values("e", "v")] == expected
    assert len(lake.tables()) == 4  # small numbers, a large one, text, lists


def test_silver_endpoint_with_changed_schema_has_columns_of_both_schemas(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {5: struct_schema(POSE), 6: struct_schema(WIDE)})
    wide = np.array((1.5, 2**40, (3, 4)), WIDE).tobytes()
    both = [message("both", i, "struct", data, schema_id=5 + i) for i, data in enumerate((pose(0.5, 1), wide))]
    lake.add("a", [message("g", 0, "struct", pose(0.5, 1), schema_id=5), *both])
    lake.add("b", [message("g", 1, "struct", wide, schema_id=6)])
    other = [message("other", i, "struct", data, schema_id=6 - i) for i, data in enumerate((wide, pose(0.5, 1)))]
    lake.add("d", other)
    lake.add("c", [message("h", 2, "struct", pose(2.5, 3), schema_id=5)])
    lake.decode()
    assert lake.values("g", "sequence", "x", "n", "tags") == [(0, 0.5, 1, None), (1, 1.5, 2**40, [3, 4])]
    assert lake.values("both", "sequence", "x", "n", "tags") == lake.values("g", "sequence", "x", "n", "tags")
    assert lake.values("other", "sequence", "x", "tags") == [(0, 1.5, [3, 4]), (1, 0.5, None)]
    assert lake.values("h", "x", "n") == [(2.5, 3)]
    assert "tags" not in lake.rows("h").schema.names
    assert len(lake.tables()) == 1  # the numbers of both have the same type


def test_silver_json_integers_and_floats_share_one_table(tmp_path: Path) -> None:
    """Else eight fields that are whole now and then would make 256."""
    lake, rng = Lake(tmp_path), random.Random(7)
    names = [f"n{i}" for i in range(8)]
    for part in range(3):
        rows = [
            json_message(f"e{endpoint}", part, {name: rng.choice((1, 1.5)) for name in names}) for endpoint in range(40)
        ]
        lake.add(f"p{part}", [*rows, json_message("whole", part, dict.fromkeys(names, 3))])
    lake.decode()
    assert len(lake.tables()) == 1
    assert len(lake.files()) == 3
    assert {str(lake.rows("whole").schema.field(name).type) for name in names} == {"int64"}
    assert lake.values("whole", "n0", "n7") == [(3, 3)] * 3


def value(rng: random.Random, depth: int = 0) -> Any:
    """Return what a message without a schema may say: objects whose fields may be missing, and other types at times."""
    leaf = rng.choice([1, 1e20, 2.5, "x", True, None, 2**60, [1, 2], [], "7"][: rng.choice((3, 3, 3, 10))])
    if depth == 2 or rng.random() < 0.5:
        return leaf
    return {name: value(rng, depth + 1) for name in "abcde" if rng.random() < 0.6}


@pytest.mark.parametrize("seed", range(5))
def test_silver_endpoint_without_schema_has_types_of_its_messages(tmp_path: Path, seed: int) -> None:
    """What others say that share their tables makes no difference; nor does when it was decoded."""
    lake, rng = Lake(tmp_path), random.Random(seed)
    said: dict[str, list[list[Any]]] = {}
    sequence = 0
    for part in range(4):
        rows = []
        for endpoint in range(12):
            values = [{"a": value(rng), "b": value(rng)} for _ in range(rng.randrange(1, 4))]
            said.setdefault(f"e{endpoint}", []).append(values)
            for one in values:
                rows.append(json_message(f"e{endpoint}", sequence, one))
                sequence += 1
        lake.add(f"p{part}", rows)
        if rng.random() < 0.5:
            lake.decode()
    lake.decode()
    for name, parts in said.items():
        columns = pa.schema([])
        for values in parts:
            found = build_value_column(values).type
            columns = find_common_columns(columns, pa.schema([] if pa.types.is_null(found) else list(found)))
        rows = lake.rows(name)
        assert {
            field.name: str(field.type) for field in rows.schema if field.name not in SILVER_FIXED_COLUMNS.names
        } == {field.name: str(field.type) for field in columns}
        for row, one in zip(rows.to_pylist(), [one for values in parts for one in values], strict=True):
            for field in columns.names:
                assert same(row[field], one.get(field)), (row, one)


def same(found: Any, said: Any) -> bool:
    """Return whether a value of a column is what was said: fields that are missing are None, and others may be text."""
    if isinstance(found, str) and not isinstance(said, str):
        return same(json.loads(found), said)
    if isinstance(found, dict) and isinstance(said, dict):
        return all(same(found.get(name), said.get(name)) for name in {*found, *said})
    if isinstance(found, list) and isinstance(said, list):
        return len(found) == len(said) and all(map(same, found, said))
    return found == said or (not found and not said and found in (None, {}, []) and said in (None, {}, []))


def test_silver_half_surrogate_as_key_costs_only_its_message(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add("a", [json_message("e", 0, {"x": 1}), json_message("e", 1, b'{"\\ud800": 1}')])
    assert lake.decode() == 1
    assert lake.values("e", "sequence", "x") == [(0, 1)]


def test_silver_nested_fields_that_differ_in_case_have_distinct_names(tmp_path: Path) -> None:
    nested = np.dtype([("p", [("x", "<f4"), ("X", "<f4")])])
    lake = Lake(tmp_path, {5: struct_schema(nested)})
    lake.add("a", [message("e", 0, "struct", np.array(((1, 2),), nested).tobytes(), schema_id=5)])
    assert lake.decode() == 1
    assert lake.values("e", "p") == [({"x": 1, "X_": 2},)]


def test_silver_optional_fields_do_not_multiply_tables(tmp_path: Path) -> None:
    lake, rng = Lake(tmp_path), random.Random(3)
    for part in range(6):
        rows = []
        for i in range(100):
            inner = {name: i for name in "qrstuvwxyz" if rng.random() < 0.5}
            outer = {f"f{k}": "text" for k in range(10) if rng.random() < 0.7}
            rows.append(json_message(f"e{i}", part, {"inner": inner, "id": "x", **outer}))
        lake.add(f"p{part}", rows)
        lake.decode()
    assert len(lake.tables()) <= 12
    assert len(lake.files()) <= 40
    assert sum(len(rows) for rows in lake.tables().values()) == 600


def test_silver_endpoints_without_common_fields_share_files(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add("a", [json_message(f"e{i}", i, {f"f{i}_{k}": i for k in range(3)}) for i in range(600)])
    lake.decode()
    assert len(lake.tables()) <= 70
    assert len(lake.files()) <= 140
    assert lake.values("e599", "sequence", "f599_0", "f599_2") == [(599, 599, 599)]
    assert lake.rows("e599").schema.names == [*SILVER_FIXED_COLUMNS.names, "f599_0", "f599_1", "f599_2"]


def test_silver_tables_with_names_of_different_case_are_separate(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {1: Schema("Pose", "struct", b'"<f8"'), 2: Schema("pose", "struct", b'"<f8"')})
    number = np.array(0.5).tobytes()
    rows = [json_message("imu", 0, {"Speed": 1}), json_message("IMU", 1, {"speed": 2})]
    rows += [message("a", 2, "struct", number, schema_id=1), message("A", 3, "struct", number, schema_id=2)]
    lake.add("a", rows)
    lake.decode()
    assert lake.manifest.list_endpoints() == ["A", "IMU", "a", "imu"]
    assert lake.values("imu", "sequence", "Speed") == [(0, 1)]
    assert lake.values("IMU", "sequence", "speed") == [(1, 2)]
    assert lake.values("a", "sequence", "value") == [(2, 0.5)]
    names = list(lake.tables())
    assert len({name.lower() for name in names}) == len(names) == 4  # on disks that do not tell cases apart, too


HOSTILE = [
    "../../etc/passwd",
    "a/b",
    "ä ö",
    ".",
    "_hidden",
    "%2f",
    "a=b;c",
    "x" * 190,
    "new\nline",
    "date=1",
    "'\"`",
]


def test_silver_accepts_hostile_schema_and_field_names(tmp_path: Path) -> None:
    fields = [name or "empty" for name in HOSTILE]
    lake = Lake(tmp_path / "lake", {i: Schema(name, "struct", b'"<f8"') for i, name in enumerate(HOSTILE, 1)})
    rows = [message(name, i, "struct", np.array(i / 2).tobytes(), schema_id=i) for i, name in enumerate(HOSTILE, 1)]
    lake.add("a", [*rows, json_message("fields", 99, {name: i for i, name in enumerate(fields)})])
    lake.decode()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lake"]
    assert len(lake.tables()) == len(HOSTILE) + 1
    assert all(name.isascii() and name[0] not in "._" and len(name) < 100 for name in lake.tables())
    for i, name in enumerate(HOSTILE, 1):
        assert lake.values(name, "sequence", "value") == [(i, i / 2)]
    assert lake.values("fields", *fields) == [tuple(range(len(fields)))]


def test_silver_rows_have_publisher_and_key(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    rows = [json_message("topic", 0, {"publisher": "mine", "key": 5, "endpoint": "there"})]
    rows += [json_message("board", 1, {"key": 6}, kind="records", publisher="p", key="k")]
    lake.add("a", rows)
    lake.decode()
    assert lake.values("topic", "publisher", "key", "endpoint_") == [("mine", 5, "there")]
    assert lake.values("board", "publisher", "key", "key_") == [("p", "k", 6)]
    assert lake.rows("board").schema.names == [*SILVER_FIXED_COLUMNS.names, "publisher", "key", "key_"]


def test_silver_decode_errors_are_in_separate_table(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add("a", [json_message("e", 0, b"{broken"), json_message("e", 1, {"x": 1}), message("raw", 2, "", b"?")])
    lake.add("b", [message("raw", 3, "", b"?")])
    lake.add("c", [message("f", 4, "strange", b"payload")])
    assert lake.decode() == 3
    assert lake.decode() == 0  # messages without an encoding are done, too
    assert lake.manifest.list_endpoints() == ["e"]
    aside = [
        row
        for file in lake.manifest.list_decode_error_files().file_paths
        for row in pq.read_table(tmp_path / "decode_errors" / file).to_pylist()
    ]
    assert sorted((row["sequence"], row["data"]) for row in aside) == [(0, b"{broken"), (4, None)]


def test_silver_row_groups_separate_endpoints(tmp_path: Path) -> None:
    """A part has its endpoints in each of its row groups; a file of silver has them once, in order."""
    lake = Lake(tmp_path, {5: struct_schema(POSE)})
    rows = [message(f"e{i:03}", 0, "struct", pose(0.5, i), schema_id=5) for i in range(1000)]
    table = pa.Table.from_pylist(rows, lake.bronze)
    lake.add_table("a", pa.concat_tables([table] * 150))
    lake.decode()
    (path,) = lake.files()
    about = pq.read_metadata(tmp_path / path)
    column = about.schema.names.index("endpoint")
    groups = [about.row_group(i).column(column) for i in range(about.num_row_groups)]
    spans = [(group.statistics.min, group.statistics.max) for group in groups]
    assert len(spans) >= 2
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    assert all(group.has_column_index for group in groups)


def test_silver_error_names_broken_part(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add("a", [json_message("e", 0, {"x": 1})])
    (tmp_path / "messages" / lake.add("b", [])).write_bytes(b"PAR1 no more")
    with pytest.raises(RecordingError, match=r"bronze file '.*/size_class=small/b\.parquet' cannot be decoded"):
        lake.decode()


def test_silver_tables_are_readable_by_duckdb_and_polars(tmp_path: Path) -> None:
    """DuckDB and Polars, with names and types that not everybody has."""
    cbor2, duckdb, polars = (pytest.importorskip(name) for name in ("cbor2", "duckdb", "polars"))
    lake = Lake(tmp_path)
    east = timezone(timedelta(hours=2))
    said = [{"t": datetime(2026, 5, 1, 14, tzinfo=east), "a b.c": i, "o": {"x=y": [i]}} for i in range(3)]
    lake.add("a", [message("c", i, "cbor", cbor2.dumps(value)) for i, value in enumerate(said)])
    lake.add("b", [json_message("d", 3, {"a b.c": 1})], date="1970-01-02")
    lake.decode()
    manifest = dataset(tmp_path, "silver_manifest")  # noqa: F841  (DuckDB looks for variables)
    ((table,),) = duckdb.sql("SELECT DISTINCT table_name FROM manifest WHERE endpoint = 'c'").fetchall()
    rows = dataset(tmp_path, f"silver/{table}")  # noqa: F841
    query = "SELECT sequence, \"a b.c\", epoch_us(t), o FROM rows WHERE endpoint = 'c' AND sequence > 0 ORDER BY ALL"
    time = int(datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp()) * 10**6
    assert duckdb.sql(query).fetchall() == [(i, float(i), time, {"x=y": [float(i)]}) for i in (1, 2)]
    found = polars.scan_delta(str(tmp_path / "silver" / table)).filter(polars.col("endpoint") == "c").collect()
    assert found["a b.c"].to_list() == [0.0, 1.0, 2.0]
    assert {str(day) for day in found["date"]} == {"1970-01-01"}


def dataset(path: Path, place: str) -> Any:
    from deltalake import DeltaTable

    return DeltaTable(str(path / place)).to_pyarrow_dataset()


def test_silver_file_with_nan_states_no_largest_number(tmp_path: Path) -> None:
    lake = Lake(tmp_path, {5: struct_schema(POSE)})
    numbers = [0.5, float("nan")]
    for name, part in zip("ab", numbers, strict=True):
        lake.add(name, [message("e", int(name, 36), "struct", pose(part, 7), schema_id=5)])
    assert lake.decode() == 2
    groups = [pq.ParquetFile(lake.path / file).metadata.row_group(0) for file in sorted(lake.files())]
    found = [
        {column.path_in_schema: column.statistics for column in map(group.column, range(group.num_columns))}
        for group in groups
    ]
    assert sorted(statistics["x"] is not None for statistics in found) == [False, True]
    assert all(statistics["log_time"].has_min_max for statistics in found)


def test_silver_tables_follow_a_manifest_that_was_built_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.add("a", [json_message("e", 0, {"x": 1})])
    assert lake.decode() == 1
    shutil.rmtree(tmp_path / "silver_manifest")
    again = Lake(tmp_path)
    assert again.decode() == 1
    ((source,), (name,)) = again.manifest.list_endpoint_files("e"), again.tables()
    snapshot = open_silver_table(again.directory, name).read_snapshot()
    assert snapshot is not None
    assert sorted(snapshot.paths) == sorted(source.file_paths)
    assert len(again.tables()[name]) == 1
