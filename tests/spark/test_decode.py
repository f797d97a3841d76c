"""Payloads to columns: of each encoding, and what becomes of those that cannot be decoded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cbor2
import msgpack
import numpy as np
import pyarrow as pa
import pytest
from mcap import records

from msgq import Schema
from msgq.decoding.arrow_types import build_arrow_array, cast_array
from msgq.errors import RecordingError
from msgq.lake.delta_types import convert_to_delta_type
from msgq.spark import read
from msgq.spark.source.data_source import RecordingSource
from msgq.spark.source.source_options import SourceOptions
from tests.decoding.test_decoders import point, point_schema
from tests.recording.logs import build_chunk_record, channel, message, struct_schema, write_foreign, write_unclosed_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPLEX = pa.struct([("real", pa.float64()), ("imag", pa.float64())])
POINT = np.dtype([("x", "<f8"), ("n", "<u4"), ("axes", "<i2", (3,)), ("name", "S4"), ("in", [("a", "?")])])


def dtype_schema(number: int, dtype: np.dtype[Any]) -> records.Schema:
    return records.Schema(id=number, name="Point", encoding="struct", data=struct_schema(dtype).data)


def rows(path: Path, endpoint: str = "a") -> list[dict[str, Any]]:
    """Return what the source gives, without Spark around it."""
    source = RecordingSource({"path": str(path), "decode": endpoint})
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return [row for batch in batches for row in batch.to_pylist()]


def test_struct_payloads_are_decoded_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    points = np.array([(i / 2, 2**32 - 1 - i, (i, -i, 0), b"ab", (i % 2,)) for i in range(100)], POINT)
    part = build_chunk_record(
        dtype_schema(1, POINT),
        channel(1, "a", encoding="struct", schema_id=1),
        channel(2, "b"),
        *(message(1, i, i, points[i].tobytes()) for i in range(100)),
        message(2, 0, 5, b"other"),
    )
    table = read(spark, str(write_unclosed_file(tmp_path / "a.mcap", part)), decode="a")
    assert table.select("value.*").dtypes == [
        ("x", "double"),
        ("n", "bigint"),
        ("axes", "array<smallint>"),
        ("name", "binary"),
        ("in", "struct<a:boolean>"),
    ]
    got = table.orderBy("sequence").collect()
    assert [row.value.x for row in got] == points["x"].tolist()
    assert [row.value.n for row in got] == points["n"].tolist()
    assert got[3].value.axes == [3, -3, 0]
    assert got[3].value["in"].a is True
    assert {(row.element_index, row.reason, row.data) for row in got} == {(0, None, None)}
    two = spark.read.format("msgq").option("decode", "a").schema("value struct<n: bigint, new: string>, log_time long")
    assert two.load(str(tmp_path)).where("log_time = 7").collect()[0][:] == ((2**32 - 8, None), 7)


def test_decode_of_array_payload_gives_row_for_each_element(tmp_path: Path) -> None:
    numbers = np.arange(6, dtype="<i4")
    part = build_chunk_record(
        dtype_schema(1, np.dtype("<i4")),
        channel(1, "a", encoding="struct", schema_id=1),
        message(1, 0, 10, numbers[:1].tobytes()),
        message(1, 1, 11, numbers[1:4].tobytes()),
        message(1, 2, 12, b"odd"),
        message(1, 3, 13, b""),
        message(1, 4, 14, numbers[4:].tobytes()),
    )
    got = rows(write_unclosed_file(tmp_path / "a.mcap", part))
    assert [(r["sequence"], r["element_index"], r["value"]) for r in got if r["reason"] is None] == [
        (0, 0, 0),
        (1, 0, 1),
        (1, 1, 2),
        (1, 2, 3),
        (4, 0, 4),
        (4, 1, 5),
    ]
    assert [(r["sequence"], r["data"], r["value"]) for r in got if r["reason"]] == [(2, b"odd", None), (3, b"", None)]
    assert "4 bytes" in next(r["reason"] for r in got if r["reason"])


def test_decode_of_uniform_json_gives_struct(tmp_path: Path) -> None:
    texts = [b'{"a": 1, "b": [1.5]}', b"{broken", b'{"a": null, "c": "x"}', b'{"a": "no number"}', b"[1]"]
    part = build_chunk_record(
        channel(1, "a", encoding="json"), *(message(1, i, i, text) for i, text in enumerate(texts[:3]))
    )
    later = build_chunk_record(channel(1, "a", encoding="json"), *(message(1, i, i, texts[i]) for i in (3, 4)))
    path = write_unclosed_file(tmp_path / "0.mcap", part)
    source = RecordingSource({"path": str(path), "decode": "a"})
    write_unclosed_file(path, part, later)
    reader = source.reader(source.schema())
    batches = [batch for piece in reader.partitions() for batch in reader.read(piece)]
    got = [row for batch in batches for row in batch.to_pylist()]
    assert len(got) == 5
    for row in got:
        assert (row["value"] is None) == (row["reason"] is not None) == (row["data"] is not None)


def test_decode_of_mixed_json_gives_text(tmp_path: Path) -> None:
    texts = [b'{"a": 1}', b'{"a": "one"}', b"[2]"]
    part = build_chunk_record(
        channel(1, "a", encoding="json"), *(message(1, i, i, text) for i, text in enumerate(texts))
    )
    assert [r["value"] for r in rows(write_unclosed_file(tmp_path / "a.mcap", part))] == [
        '{"a": 1}',
        '{"a": "one"}',
        "[2]",
    ]


def test_decode_of_changed_schema_gives_columns_of_both_schemas(tmp_path: Path) -> None:
    old, new = np.dtype([("x", "<i4")]), np.dtype([("x", "<f8"), ("y", "<i2")])
    part = build_chunk_record(
        dtype_schema(1, old),
        dtype_schema(2, new),
        channel(1, "a", encoding="struct", schema_id=1),
        channel(2, "a", epoch=2, encoding="struct", schema_id=2),
        channel(3, "a", epoch=3, encoding="json"),
        message(1, 0, 10, np.array((7,), old).tobytes()),
        message(3, 0, 15, b'{"x": 1, "y": 2}'),
        message(2, 0, 20, np.array((0.5, 3), new).tobytes()),
        message(3, 1, 25, b'"text"'),
        message(2, 1, 30, np.array((1.5, 4), new).tobytes()),
    )
    got = sorted(rows(write_unclosed_file(tmp_path / "a.mcap", part)), key=lambda row: row["log_time"])
    assert [row["value"] for row in got] == [
        {"x": 7.0, "y": None},
        {"x": 1.0, "y": 2},
        {"x": 0.5, "y": 3},
        None,
        {"x": 1.5, "y": 4},
    ]
    assert got[3]["data"] == b'"text"'


@pytest.mark.parametrize("encoding", ["", "unheard of"])
def test_decode_without_decoder_gives_reason(tmp_path: Path, encoding: str) -> None:
    part = build_chunk_record(channel(1, "a", encoding=encoding), message(1, 0, 10, b"\xff"))
    (row,) = rows(write_unclosed_file(tmp_path / "a.mcap", part))
    assert row["value"] == (b"\xff" if not encoding else None)
    assert row["reason"] == (None if not encoding else "encoding 'unheard of' is not supported")


def decode_sent(tmp_path: Path, encoding: str, *payloads: bytes, schema: Schema | None = None) -> list[dict[str, Any]]:
    """Return what the source makes of payloads with an encoding."""
    records_of = [records.Schema(id=1, name=schema.name, encoding=encoding, data=schema.data)] if schema else []
    part = build_chunk_record(
        *records_of,
        channel(1, "a", encoding=encoding, schema_id=len(records_of)),
        *(message(1, i, i, payload) for i, payload in enumerate(payloads)),
    )
    return rows(write_unclosed_file(tmp_path / "a.mcap", part))


def test_decode_of_protobuf_gives_schema_types(tmp_path: Path) -> None:
    full = point(count=2**62, axes=[0.5], color=1, next={"count": 7}, tags={"x": 1})
    first, second, bad = decode_sent(tmp_path, "protobuf", full, b"", b"\xff", schema=point_schema())
    assert {name: first["value"][name] for name in ("count", "axes", "color")} == {
        "count": 2**62,
        "axes": [0.5],
        "color": "BLUE",
    }
    assert (json.loads(first["value"]["next"])["count"], first["value"]["tags"]) == (7, [{"key": "x", "value": 1}])
    assert (second["value"]["count"], second["value"]["color"], second["value"]["next"]) == (0, "RED", None)
    assert (bad["value"], bad["data"]) == (None, b"\xff")
    assert bad["reason"].startswith("protobuf: ")


@pytest.mark.parametrize(("encoding", "packed"), [("msgpack", msgpack.packb), ("cbor", cbor2.dumps)])
def test_decode_of_msgpack_and_cbor_gives_values(tmp_path: Path, encoding: str, packed: Callable[[Any], bytes]) -> None:
    first, second, bad = decode_sent(tmp_path, encoding, packed({"a": 1, "b": b"\xff"}), packed({"c": [0.5]}), b"\x81")
    assert first["value"] == {"a": 1, "b": b"\xff", "c": None}
    assert second["value"] == {"a": None, "b": None, "c": [0.5]}
    assert (bad["value"], bad["data"], bad["reason"].partition(":")[0]) == (None, b"\x81", encoding)


@pytest.mark.parametrize(
    ("encoding", "payload", "value"),
    [
        ("msgpack", msgpack.packb(msgpack.Timestamp(5, 6)), '"Timestamp(seconds=5, nanoseconds=6)"'),
        ("msgpack", msgpack.packb({1: 2}), {"1": 2}),
        ("msgpack", msgpack.packb(2**64 - 1), str(2**64 - 1)),
        ("cbor", cbor2.dumps({"t": datetime(2026, 1, 31, tzinfo=UTC)}), {"t": datetime(2026, 1, 31, tzinfo=UTC)}),
        ("cbor", cbor2.dumps({(1, 2): {3, 1}}), {"(1, 2)": '"{1, 3}"'}),
        ("cbor", cbor2.dumps({"a": Decimal("1e50")}), {"a": '"1E+50"'}),
        ("cbor", cbor2.dumps(2**100), str(2**100)),
        ("json", b'{"a": NaN, "b": 1e999}', {"a": math.nan, "b": math.inf}),
        ("json", b'"\\ud800"', '"\\ud800"'),
        ("json", b'{"": 1, "a.b": 2, "A.B": 3}', {"_": 1, "a.b": 2, "A.B_": 3}),
    ],
)
def test_decode_of_type_unknown_to_spark_gives_text(tmp_path: Path, encoding: str, payload: bytes, value: Any) -> None:
    (row,) = decode_sent(tmp_path, encoding, payload)
    assert row["value"] == value or str(row["value"]) == str(value)  # NaN is no number's equal
    assert row["reason"] is None


def test_decode_of_always_empty_field_omits_column(tmp_path: Path) -> None:
    got = decode_sent(
        tmp_path, "json", b'{"a": 1, "none": {}, "list": [], "deep": {"er": [{}]}}', b'{"a": 2, "none": {}}'
    )
    assert [row["value"] for row in got] == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(("encoding", "payload"), [("json", b"[" * 90 + b"]" * 90), ("msgpack", b"\x91" * 90 + b"\1")])
def test_decode_of_deep_nesting_gives_text_for_inner_values(tmp_path: Path, encoding: str, payload: bytes) -> None:
    (row,) = decode_sent(tmp_path, encoding, payload)
    depth, value = 0, row["value"]
    while isinstance(value, list):
        depth, value = depth + 1, value[0]
    assert depth < 20, "Java's stack has an end"
    assert isinstance(value, str)


def test_decode_of_excessive_nesting_is_decode_error(tmp_path: Path) -> None:
    payload = b"[" * 900 + b"]" * 900
    (row,) = decode_sent(tmp_path, "json", payload)
    assert (row["value"], row["data"]) == (None, payload)
    assert "nested deeper than 100" in row["reason"]


def test_decode_of_cbor_list_that_contains_itself_is_decode_error(tmp_path: Path) -> None:
    payload = bytes.fromhex("d81c81d81d00")  # CBOR: a list that has itself in it
    (row,) = decode_sent(tmp_path, "cbor", payload)
    assert (row["value"], row["data"]) == (None, payload)
    assert "tag 29" in row["reason"]


def test_decode_of_endpoint_without_messages_raises_recording_error(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="no messages"):
        RecordingSource({"path": str(write_foreign(tmp_path / "a.mcap")), "decode": "nobody"}).schema()


@pytest.mark.parametrize(
    ("values", "arrow", "spark"),
    [
        (np.array([1, 255], "u1"), pa.uint8(), pa.int16()),
        (np.array([1, 2**64 - 1], "<u8"), pa.uint64(), pa.decimal128(20, 0)),
        (np.array([1, -2], ">i4"), pa.int32(), pa.int32()),
        (np.array([0.5], "<f2"), pa.float32(), pa.float32()),
        (np.array([0.5], ">f8"), pa.float64(), pa.float64()),
        (np.array(["é", "b"], "<U3"), pa.string(), pa.string()),
        (np.array([b"ab\0", b"c"], "S3"), pa.binary(), pa.binary()),
        (np.array([1000], "<m8[us]"), pa.duration("ns"), pa.int64()),
        (np.array([1000], "<M8[us]"), pa.timestamp("ns"), pa.int64()),
        (np.ones((2, 3, 2), "<i2"), pa.list_(pa.list_(pa.int16(), 2), 3), pa.list_(pa.list_(pa.int16()))),
        (np.array([1 + 2j]), COMPLEX, COMPLEX),
    ],
)
def test_numpy_types_map_to_spark_types(values: np.ndarray[Any, Any], arrow: pa.DataType, spark: pa.DataType) -> None:
    made = build_arrow_array(values)
    assert made.type == arrow
    assert convert_to_delta_type(arrow) == spark
    made = cast_array(made, spark)
    assert made.type == spark
    if values.dtype.kind not in "SmMc":
        assert np.array(made.to_pylist(), dtype=object).tolist() == values.tolist()
    if values.dtype.kind in "mM":
        assert made.to_pylist() == values.astype(f"{values.dtype.kind}8[ns]").astype(int).tolist()
    assert len(made) == len(values)


def test_source_option_names_ignore_case() -> None:
    parsed = SourceOptions.parse_options(
        {"path": "p", "ENDPOINTS": '["a,b", "c*"]', "partitionbytes": "2k", "start": "1970-01-01"}
    )
    assert parsed.endpoints is not None
    assert parsed.endpoints[0] == "a,b"
    pattern = parsed.endpoints[1]
    assert isinstance(pattern, re.Pattern)
    assert [bool(pattern.search(name)) for name in ("cd", "bc", "c")] == [True, False, True]
    assert (parsed.partition_bytes, parsed.start_time) == (2048, 0)
