"""Statistics of files in the Delta log, as delta-rs uses them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

pytest.importorskip("deltalake")

from msgq.lake.delta_table import LakeTable
from msgq.lake.file_statistics import collect_statistics
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.table_snapshot import TableSnapshot

COLUMNS = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
        ("fraction", pa.float64()),
        ("flag", pa.bool_()),
        ("data", pa.binary()),
        ("numbers", pa.list_(pa.int64())),
        ("pairs", pa.list_(pa.struct([("first", pa.int64())]))),
    ]
)


def commit_files(root: Path, *files: pa.Table) -> TableSnapshot:
    """Write each table as a file of a table of a lake, and return a snapshot."""
    table = LakeTable(LakeDirectory(root), "table", has_statistics=True)
    written = [table.write_file(f"{number}.parquet", rows) for number, rows in enumerate(files)]
    table.commit_files(None, files[0].schema, written)
    snapshot = table.read_snapshot()
    assert snapshot is not None
    return snapshot


def make_random_rows(rng: random.Random) -> pa.Table:
    """Return a few rows; some columns have only NULLs."""
    choices: dict[str, Sequence[Any]] = {
        "text": ["", "a", "b" * 100, "b" * 100 + "c", "b" * 64 + "\U0010ffffx", "\ud7ff" * 70, "\u00e9", "z"],
        "number": [-(1 << 60), -1, 0, 5, 1 << 60],
        "fraction": [-1.5, 0.0, 2.5, float("inf")],
        "flag": [True, False],
        "data": [b"", b"x"],
        "numbers": [[], [1], [1, 2]],
        "pairs": [[], [{"first": 1}]],
    }
    count = rng.randrange(1, 4)
    columns = {}
    for name, values in choices.items():
        some = [None] if rng.random() < 0.2 else rng.sample([*values, None], rng.randrange(1, len(values) + 1))
        columns[name] = [rng.choice(some) for _ in range(count)]
    return pa.table(columns, COLUMNS)


def test_random_conditions_find_same_rows_with_and_without_statistics(tmp_path: Path) -> None:
    rng = random.Random(3)
    for case in range(15):
        files = [make_random_rows(rng) for _ in range(3)]
        snapshot, rows = commit_files(tmp_path / str(case), *files), pa.concat_tables(files)
        for name in ("text", "number", "fraction", "flag", "data"):
            field = pc.field(name)
            conditions = [field.is_null(), field.is_valid()]
            for value in rows.column(name).drop_null().unique().to_pylist():
                scalar = pa.scalar(value, COLUMNS.field(name).type)
                conditions += [field == scalar, field >= scalar, field < scalar]
            for condition in conditions:
                found = snapshot.read_rows(["number"], condition).num_rows
                assert found == rows.filter(condition).num_rows, (case, str(condition))


@pytest.mark.parametrize(
    ("bounds", "count"),
    [
        ({"number": (5, None)}, 1),
        ({"number": (None, 4)}, 1),
        ({"number": (4, 5)}, 2),
        ({"number": (3, 4), "text": ("a", "a")}, 1),
        ({"text": ("m", "m")}, 0),
        ({"text": ("b" * 100 + "x", None)}, 1),
        ({"text": ("b" * 70, "b" * 70)}, 1),
        ({"fraction": (0.0, 0.0), "missing": (1, 1)}, 2),
    ],
)
def test_bounds_select_files_of_snapshot(tmp_path: Path, bounds: dict[str, tuple[Any, Any]], count: int) -> None:
    files = [
        pa.table({"text": ["a", None], "number": [3, 4], "fraction": [float("nan"), None]}),
        pa.table({"text": ["b" * 100, "b" * 99], "number": [5, None], "fraction": [float("inf"), 1.0]}),
    ]
    schema = pa.schema([("text", pa.string()), ("number", pa.int64()), ("fraction", pa.float64())])
    snapshot = commit_files(tmp_path, *(rows.drop(["fraction"]).cast(schema.remove(2)) for rows in files))
    assert len(snapshot.find_paths(bounds)) == count


@pytest.mark.parametrize(
    "text",
    ["\U00020000", "\U0010ffff" * 64, "\U0001f600", '"\\\n\0', "\u2028", "\ud7ff\ue000"],
    ids=["plane-2", "last", "plane-1", "escapes", "separator", "surrogate-borders"],
)
def test_snapshot_has_bounds_of_special_characters(tmp_path: Path, text: str) -> None:
    snapshot = commit_files(tmp_path, pa.table({"text": [text]}))
    (file,) = snapshot.describe_files()
    assert file.column_bounds == {"text": (text, text)}
    assert snapshot.find_paths({"text": (text, text)}) == [file.path]
    assert snapshot.read_rows(["text"], pc.field("text") == text).num_rows == 1


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("a" * 64, "a" * 64),
        ("a" * 65, "a" * 63 + "b"),
        ("a" * 63 + "\U0010ffff" * 9, "a" * 62 + "b"),
        ("\ud7ff" * 65, "\ud7ff" * 63 + "\ue000"),
    ],
)
def test_bound_of_long_text_is_above_text(tmp_path: Path, text: str, bound: str) -> None:
    pq.write_table(pa.table({"text": [text]}), tmp_path / "file.parquet")
    assert collect_statistics(pq.read_metadata(tmp_path / "file.parquet"))[0]["text"][1] == bound
    assert text <= bound


def test_text_of_largest_characters_has_no_bounds(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["\U0010ffff" * 65]}), tmp_path / "file.parquet")
    assert collect_statistics(pq.read_metadata(tmp_path / "file.parquet")) == ({}, {"text": 0})


def test_number_without_bounds_removes_bounds_of_all_columns(tmp_path: Path) -> None:
    path = tmp_path / "file.parquet"
    pq.write_table(pa.table({"number": [1, 2], "fraction": [1.0, float("inf")]}), path)
    assert collect_statistics(pq.read_metadata(path)) == ({}, {"number": 0, "fraction": 0})
    pq.write_table(pa.table({"number": [1, 2], "text": ["b", "a"]}), path, row_group_size=1)
    assert collect_statistics(pq.read_metadata(path))[0] == {"number": (1, 2), "text": ("a", "b")}
    pq.write_table(pa.table({"number": [1, 2], "text": ["b", "a"]}), path, write_statistics=["number"])
    assert collect_statistics(pq.read_metadata(path)) == ({}, {"number": 0})
