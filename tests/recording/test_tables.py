"""Logs as tables: of Arrow, pandas and Polars, and as Parquet."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from msgq import Schema
from msgq.common.selection import SelectedEndpoints
from msgq.decoding.arrow_types import build_value_column
from msgq.errors import MissingLibraryError, RecordingError
from msgq.recording import LogReader, Writer
from msgq.recording.export import parquet
from tests.recording.logs import struct_schema
from tests.recording.ros_messages import POINT, point, point_bytes
from tests.unit.test_columnar_plans import comparable_value

ABOUT = ["log_time", "publish_time", "sequence", "epoch", "origin_time"]
NUMBER = Schema("Number", "json")


def write_messages(path: Path, messages: Iterable[tuple[str, Schema | None, bytes]], **metadata: str) -> LogReader:
    """Write messages, each 10 ns after the one before."""
    with Writer(path) as writer:
        channels: dict[tuple[str, Schema | None], int] = {}
        for i, (endpoint, schema, data) in enumerate(messages):
            if (endpoint, schema) not in channels:
                channels[endpoint, schema] = writer.channel(endpoint, schema, metadata=metadata)
            writer.write(channels[endpoint, schema], data, 1000 + 10 * i, 1000 + 10 * i - 5, i)
    return LogReader(path)


def said(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows without what there is of each message."""
    return [{name: row[name] for name in row if name not in ABOUT} for row in table.to_pylist()]


def test_table_has_message_values(tmp_path: Path) -> None:
    log = write_messages(tmp_path / "a.mcap", ((f"/p{i % 2}", POINT, point_bytes(i)) for i in range(20)))
    table = log.to_arrow("/p1")
    assert table.column_names == [*ABOUT, "x", "y", "flags", "more"]
    assert table["log_time"].to_pylist() == [1000 + 10 * i for i in range(1, 20, 2)]
    assert table["publish_time"].to_pylist() == [995 + 10 * i for i in range(1, 20, 2)]
    assert table["sequence"].to_pylist() == list(range(1, 20, 2))
    assert table["origin_time"].null_count == 10
    assert said(table) == [point(i) for i in range(1, 20, 2)]
    assert said(table) == [comparable_value(value) for message, value in log.decoded() if message.endpoint == "/p1"]
    assert log.problems == []


def test_table_of_time_range_has_only_messages_in_range(tmp_path: Path) -> None:
    log = write_messages(tmp_path / "a.mcap", (("/p", POINT, point_bytes(i)) for i in range(20)))
    assert log.between(1050, 1070).to_arrow("/p")["sequence"].to_pylist() == [5, 6]
    batches = [batch.rows["sequence"].to_pylist() for batch in log.decoded_batches("/p", rows=8)]
    assert batches == [list(range(8)), list(range(8, 16)), list(range(16, 20))]
    other = LogReader(tmp_path / "a.mcap", endpoints=SelectedEndpoints(["nothing"]))
    assert other.to_arrow("/p").num_rows == 20
    assert [other.endpoints, list(other)] == [{}, []]
    with pytest.raises(RecordingError, match="no messages"):
        log.to_arrow("/q")


def test_tables_of_log_pieces_share_no_messages(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.mcap", chunk_bytes=1024) as writer:
        number = writer.channel("/p", POINT)
        for i in range(100):
            writer.write(number, point_bytes(i), i)
    pieces = LogReader(tmp_path / "a.mcap").split(1)
    assert len(pieces) > 2
    times = [time for piece in pieces for time in piece.to_arrow("/p")["log_time"].to_pylist()]
    assert times == list(range(100))


def test_table_keeps_undecodable_messages_separate(tmp_path: Path) -> None:
    messages = [point_bytes(0), b"\0\1\0\0cut", point_bytes(2), b""]
    log = write_messages(tmp_path / "a.mcap", (("/p", POINT, data) for data in messages))
    assert said(log.to_arrow("/p")) == [point(0), point(2)]
    (problem,) = log.problems
    assert "2 messages of '/p'" in str(problem)
    assert "ends too early, after 7 bytes" in str(problem)
    (batch,) = log.decoded_batches("/p")
    assert batch.rows["sequence"].to_pylist() == [0, 2]
    aside = batch.undecoded.to_pylist()
    assert [(row["endpoint"], row["sequence"], row["log_time"], row["data"]) for row in aside] == [
        ("/p", 1, 1010, messages[1]),
        ("/p", 3, 1030, messages[3]),
    ]
    assert all(row["reason"] for row in aside)


def test_table_keeps_half_surrogate_as_key_separate(tmp_path: Path) -> None:
    log = write_messages(tmp_path / "a.mcap", [("a", NUMBER, b'{"n": 1}'), ("a", NUMBER, b'{"\\ud800": 1}')])
    assert said(log.to_arrow("a")) == [{"n": 1}]
    assert "1 message of 'a'" in str(log.problems)


def test_table_decodes_mixed_cdr_versions(tmp_path: Path) -> None:
    second = b"\0\7\0\0" + point_bytes(4)[4:]
    log = write_messages(
        tmp_path / "a.mcap", [("/p", POINT, data) for data in (point_bytes(3), second, point_bytes(5))]
    )
    assert said(log.to_arrow("/p")) == [point(3), point(4), point(5)]


def test_table_with_changed_schema_has_columns_of_both_schemas(tmp_path: Path) -> None:
    old, new = np.dtype([("n", "<i4"), ("x", "<u8")]), np.dtype([("n", "<f8"), ("y", "<i2", (2,))])
    messages = [
        ("a", struct_schema(old), np.array((1, 2**64 - 1), old).tobytes()),
        ("a", struct_schema(new), np.array((0.5, (1, 2)), new).tobytes()),
        ("a", NUMBER, b'{"n": 3, "z": "text"}'),
        ("a", struct_schema(old), np.array((4, 5), old).tobytes()),
    ]
    table = write_messages(tmp_path / "a.mcap", messages).to_arrow("a")
    assert table.schema.field("n").type == pa.float64()
    assert said(table) == [
        {"element_index": 0, "n": 1.0, "x": 2**64 - 1, "y": None, "z": None},
        {"element_index": 0, "n": 0.5, "x": None, "y": [1, 2], "z": None},
        {"element_index": None, "n": 3.0, "x": None, "y": None, "z": "text"},
        {"element_index": 0, "n": 4.0, "x": 5, "y": None, "z": None},
    ]


def test_table_has_row_for_each_element(tmp_path: Path) -> None:
    schema = struct_schema(np.dtype("<i4"))
    log = write_messages(tmp_path / "a.mcap", [("a", schema, np.arange(i, dtype="<i4").tobytes()) for i in (2, 0, 1)])
    table = log.to_arrow("a")
    assert said(table) == [
        {"element_index": 0, "value": 0},
        {"element_index": 1, "value": 1},
        {"element_index": 0, "value": 0},
    ]
    assert table["sequence"].to_pylist() == [0, 0, 2]


def test_table_converts_numpy_arrays() -> None:
    values = [
        {"a": np.array([1, 2], "u2"), "b": np.array([2**63], "u8")},
        {"a": np.array([], "u2"), "b": np.array([-1])},
    ]
    found = build_value_column(values)
    assert found.type.field("a").type == pa.list_(pa.uint16())
    assert found.field("a").to_pylist() == [[1, 2], []]
    assert [[int(one) for one in row] for row in found.field("b").to_pylist()] == [[2**63], [-1]]  # floats are inexact


def test_table_without_schema_reports_problem(tmp_path: Path) -> None:
    log = write_messages(tmp_path / "a.mcap", [("a", None, b"one"), ("b", Schema("B", "strange"), b"two")])
    assert said(log.to_arrow("a")) == [{"data": b"one"}]
    assert log.to_arrow("b").column_names == ABOUT
    assert "'strange'" in str(log.problems)


def test_table_renames_fields_with_reserved_names(tmp_path: Path) -> None:
    payload = b'{"sequence": 5, "Log_Time": 6, "value": 7, "VALUE": 8}'
    table = write_messages(tmp_path / "a.mcap", [("a", NUMBER, payload)]).to_arrow("a")
    assert said(table) == [{"sequence_": 5, "Log_Time_": 6, "value": 7, "VALUE_": 8}]


def test_order_of_keys_does_not_choose_their_columns(tmp_path: Path) -> None:
    payloads = [b'{"a": 1, "A": 2}', b'{"A": 2, "a": 1}']
    log = write_messages(tmp_path / "a.mcap", [("a", NUMBER, data) for data in payloads])
    batches = [said(batch.rows) for batch in log.decoded_batches("a", rows=1)]
    assert batches == [[{"a": 1, "A_": 2}]] * 2
    assert said(log.to_arrow("a")) == [{"a": 1, "A_": 2}] * 2


def test_table_has_publisher_and_key_columns(tmp_path: Path) -> None:
    write_messages(tmp_path / "a.mcap", [("channel/a", NUMBER, b"1")], kind="channel", publisher="left")
    write_messages(tmp_path / "b.mcap", [("records/a", NUMBER, b"1")], kind="records", key="camera")
    log = LogReader(tmp_path)
    assert said(log.to_arrow("channel/a")) == [{"publisher": "left", "key": "", "value": 1}]
    assert said(log.to_arrow("records/a")) == [{"publisher": "", "key": "camera", "value": 1}]


def test_pandas_frame_has_column_for_each_field(tmp_path: Path) -> None:
    texts = ['{"pose": {"x": 1.5, "at": {"t": 9007199254740993}}}', '{"pose": {"x": 2.5}}']
    frame = write_messages(tmp_path / "a.mcap", [("a", NUMBER, text.encode()) for text in texts]).to_pandas("a")
    assert list(frame.columns) == [*ABOUT, "pose.x", "pose.at.t"]
    assert frame["pose.x"].tolist() == [1.5, 2.5]
    assert frame["pose.at.t"].iloc[0] == 2**53 + 1  # no float has it
    assert frame["pose.at.t"].isna().tolist() == [False, True]
    assert frame["log_time"].tolist() == [1000, 1010]


def test_polars_frame_has_same_columns_as_pandas_frame(tmp_path: Path) -> None:
    log = write_messages(tmp_path / "a.mcap", [("/p", POINT, point_bytes(i)) for i in range(5)])
    frame = log.to_polars("/p")
    assert isinstance(frame, polars.DataFrame)
    assert frame.select("x", "more").rows() == [(point(i)["x"], point(i)["more"]) for i in range(5)]


@pytest.mark.parametrize("name", ["pandas", "polars", "pyarrow"])
def test_table_without_library_raises_missing_library_error(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write_messages(tmp_path / "a.mcap", [("/p", POINT, point_bytes(0))])
    for module in [module for module in sys.modules if module.startswith("msgq.recording.export.")]:
        if module.endswith((".to_pandas", ".decoded_tables")):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    ask = {"pandas": log.to_pandas, "polars": log.to_polars, "pyarrow": log.to_arrow}[name]
    with pytest.raises(MissingLibraryError, match=f"{name}, which is not installed: pip install"):
        ask("/p")


# Parquet files


def some_messages() -> list[tuple[str, Schema | None, bytes]]:
    return [
        ("/p", POINT, point_bytes(1)),
        ("_b", NUMBER, b'{"n": 1}'),
        ("/p", POINT, b"\0\1\0\0cut"),
        ("raw", None, b"payload"),
        ("_b", NUMBER, b"{broken"),
        ("/p", POINT, point_bytes(2)),
    ]


def test_parquet_export_writes_file_for_each_endpoint(tmp_path: Path) -> None:
    log = write_messages(tmp_path / "a.mcap", some_messages())
    assert log.to_parquet(tmp_path / "tables") == 6
    found = {path.name: pq.read_table(path) for path in (tmp_path / "tables").iterdir()}
    assert sorted(found) == ["_undecoded.parquet", "raw.parquet", "~2fp.parquet", "~5fb.parquet"]
    assert said(found["~2fp.parquet"]) == [point(1), point(2)]
    assert said(found["~5fb.parquet"]) == [{"n": 1}]
    assert said(found["raw.parquet"]) == [{"data": b"payload"}]
    aside = found["_undecoded.parquet"].to_pylist()
    assert [(row["endpoint"], row["data"]) for row in aside] == [("/p", b"\0\1\0\0cut"), ("_b", b"{broken")]
    assert len(log.problems) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mcap", "tables"]


def test_parquet_export_of_one_endpoint_writes_one_file(tmp_path: Path) -> None:
    write_messages(tmp_path / "a.mcap", some_messages())
    log = LogReader(tmp_path / "a.mcap", endpoints=["/p"])
    assert log.to_parquet(tmp_path / "p.parquet") == 3
    assert said(pq.read_table(tmp_path / "p.parquet")) == [point(1), point(2)]
    assert pq.read_table(tmp_path / "p.undecoded.parquet")["log_time"].to_pylist() == [1020]
    for name in ("p", "other"):
        with pytest.raises(RecordingError, match=r"p\.parquet' exists" if name == "p" else "'/p' and '_b'.*directory"):
            (log if name == "p" else LogReader(tmp_path / "a.mcap")).to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(RecordingError, match="no messages"):
        log.between(0, 1).to_parquet(tmp_path / "none.parquet")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.mcap", "p.parquet", "p.undecoded.parquet"]


def test_parquet_export_writes_undecoded_messages_to_separate_file(tmp_path: Path) -> None:
    write_messages(tmp_path / "a.mcap", [("/p", POINT, b"")]).to_parquet(tmp_path / "p.parquet")
    assert pq.read_table(tmp_path / "p.parquet").num_rows == 0
    assert pq.read_table(tmp_path / "p.undecoded.parquet").num_rows == 1


def test_parquet_file_has_columns_of_all_its_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file has the columns of all its messages, in all of its row groups."""
    monkeypatch.setattr(parquet, "_ROW_GROUP_ROWS", 2)
    monkeypatch.setattr("msgq.recording.reader.endpoint_batches.BATCH_ROWS_MAX", 1)
    texts = ['{"a": 1.5}', '{"a": 2.5}', '{"a": "three", "b": [1]}', '{"b": [2.5]}'] * 4
    messages = [(f"e{i}", NUMBER, text.encode()) for text in texts for i in range(5)]
    log = write_messages(tmp_path / "a.mcap", messages)
    assert log.to_parquet(tmp_path / "tables") == len(messages)
    for i in range(5):
        table = pq.read_table(tmp_path / "tables" / f"e{i}.parquet")
        assert table.schema.field("a").type == pa.string()
        assert [(row["a"], row["b"]) for row in table.to_pylist()] == [
            ("1.5", None),
            ("2.5", None),
            ("three", [1.0]),
            (None, [2.5]),
        ] * 4
    assert len(list((tmp_path / "tables").iterdir())) == 5


def test_parquet_export_of_many_endpoints_opens_few_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each endpoint has several row groups, and more endpoints exist than a process may open files."""
    monkeypatch.setattr(parquet, "_ROW_GROUP_ROWS", 1)
    monkeypatch.setattr("msgq.recording.reader.endpoint_batches.BATCH_ROWS_MAX", 1)
    messages = [(f"e{i}", NUMBER, b'{"a": %d}' % a) for a in range(2) for i in range(40)]
    log = write_messages(tmp_path / "a.mcap", messages)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 20, limits[1]))
    try:
        assert log.to_parquet(tmp_path / "tables") == len(messages)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for i in range(40):
        with pq.ParquetFile(tmp_path / "tables" / f"e{i}.parquet") as file:
            assert file.num_row_groups == 2
            assert file.read(["a"]).to_pydict() == {"a": [0, 1]}


def test_parquet_file_has_optional_fixed_size_lists(tmp_path: Path) -> None:
    old, new = struct_schema(np.dtype([("n", "<i4")])), struct_schema(np.dtype([("n", "<i4"), ("y", "<i2", (2,))]))
    log = write_messages(tmp_path / "a.mcap", [("a", old, bytes(4)), ("a", new, bytes(8))] * 2)
    log.to_parquet(tmp_path / "a.parquet")
    assert [row["y"] for row in pq.read_table(tmp_path / "a.parquet").to_pylist()] == [None, [0, 0], None, [0, 0]]


def test_failed_parquet_export_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = write_messages(tmp_path / "a.mcap", some_messages())

    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet._ParquetFile, "merge_pieces", fail)
    with pytest.raises(RecordingError, match="No space left"):
        log.to_parquet(tmp_path / "tables")
    assert [path.name for path in tmp_path.iterdir()] == ["a.mcap"]


def test_parquet_file_is_readable_by_other_programs(tmp_path: Path) -> None:
    write_messages(tmp_path / "a.mcap", ((f"/p{i % 2}", POINT, point_bytes(i)) for i in range(20)))
    LogReader(tmp_path / "a.mcap").to_parquet(tmp_path / "tables")
    ask = f"SELECT sum(x), max(len(more)), min(log_time) FROM '{tmp_path}/tables/*.parquet'"
    program = f"import duckdb; print(duckdb.sql({ask!r}).fetchall())"  # it complains at the end of a process like this
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said == f"[({sum(i / 2 for i in range(20))}, 2, 1000)]\n"
    frame = polars.read_parquet(tmp_path / "tables" / "~2fp0.parquet")
    assert frame["flags"].to_list() == [bytes([i, 7]) for i in range(0, 20, 2)]
    assert json.dumps(frame["y"].to_list()) == json.dumps([-float(i) for i in range(0, 20, 2)])
