"""Silver: payloads as tables, of whatever schemas, each message once."""

from __future__ import annotations

import json
import random
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from mcap import records
from pyspark.sql.pandas.types import to_arrow_schema

pytest.importorskip("pyspark")
from msgq.common.schema import Schema
from msgq.decoding import arrow_types
from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.message_columns import INGEST_COLUMNS
from msgq.lake.schema_ids import compute_schema_id
from msgq.lake.silver.silver_decoder import SILVER_INPUT_COLUMNS, SilverDecoder
from msgq.recording.mcap_io.recording_files import make_safe_file_name
from msgq.spark import read, tables
from msgq.spark.lake import Lake, follow
from msgq.spark.source.arrow_batches import convert_to_spark_schema
from tests.lake import silvers
from tests.lake.test_silver import value
from tests.recording import logs
from tests.recording.logs import struct_schema
from tests.recording.ros_messages import POINT, point, point_bytes
from tests.spark.deadline import DEADLINE
from tests.spark.rows import sorted_rows
from tests.support import wait_until

POSE = np.dtype([("x", "<f8"), ("sequence", "<u4")])
WIDE = np.dtype([("x", "<f8"), ("sequence", "<u4"), ("tags", "<i2", (2,))])
DAY = 86_400_000_000_000


def record(number: Any, schema: Any) -> Any:
    return records.Schema(id=number, name=schema.name, encoding=schema.schema_encoding, data=schema.data)


# Without Spark


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, 2.5, None], "double", [1.0, 2.5, None]),
        ([True, 1], "string", ["true", "1"]),
        ([2**70, 1], "string", [str(2**70), "1"]),
        (["\ud800", "a"], "string", ['"\\ud800"', '"a"']),
        (
            [{"a": 1}, {"b": "x"}, None],
            "struct<a: int64, b: string>",
            [{"a": 1, "b": None}, {"a": None, "b": "x"}, None],
        ),
        ([{"a": 1}, {"a": "x"}], "struct<a: string>", [{"a": "1"}, {"a": "x"}]),
        (
            [{"a": [1]}, {"a": [2.5, None]}, {"a": None}],
            "struct<a: list<item: double>>",
            [{"a": [1.0]}, {"a": [2.5, None]}, {"a": None}],
        ),
        ([{"x": 1, "X": 2, "": 3}], "struct<x: int64, X_: int64, _: int64>", [{"x": 1, "X_": 2, "_": 3}]),
        ([{"a": None, "b": {}, "c": []}, {}], "null", [None, None]),
        ([[{"a": 1}], [], None], "list<item: struct<a: int64>>", [[{"a": 1}], [], None]),
        ([Decimal("1.5")], "decimal128(2, 1)", [Decimal("1.5")]),
    ],
)
def test_values_without_schema_have_common_type(values: Any, kind: Any, expected: Any) -> None:
    found = arrow_types.build_value_column(values)
    assert str(found.type) == kind
    assert found.to_pylist() == expected


def test_json_with_many_keys_or_deep_nesting_becomes_text() -> None:
    many = {f"id{i}": 1 for i in range(1001)}
    assert arrow_types.build_value_column([many]).to_pylist() == [json.dumps(many)]
    deep: Any = 1
    for _ in range(40):
        deep = {"n": deep}
    assert str(arrow_types.build_value_column([deep]).type).count("struct") == 16


@pytest.mark.parametrize(
    ("first", "second", "wider"),
    [
        ("int32", "int64", "int64"),
        ("int64", "double", "double"),
        ("int64", "string", "string"),
        ("bool", "int64", "string"),
    ],
)
def test_column_of_two_value_types_gets_wider_type_or_text(first: Any, second: Any, wider: Any) -> None:
    one, two, expected = (pa.type_for_alias(name) for name in (first, second, wider))
    assert arrow_types.find_common_type(one, two) == arrow_types.find_common_type(two, one) == expected
    assert arrow_types.find_common_type(pa.list_(one), pa.list_(two)) in (pa.list_(expected), pa.string())


def test_decimals_and_integers_have_common_type() -> None:
    exact, whole = pa.array([Decimal("1.5")]), pa.array([2**63 - 1])
    wider = arrow_types.find_common_type(exact.type, whole.type)
    assert arrow_types.cast_array(exact, wider).to_pylist() == [Decimal("1.5")]
    assert arrow_types.cast_array(whole, wider).to_pylist() == [2**63 - 1]
    assert arrow_types.find_common_type(pa.decimal128(30, 20), pa.int64()) == pa.string()


def test_values_are_cast_to_wider_type() -> None:
    found = pa.array([{"a": 1, "b": [1]}, None, {"a": 2, "b": None}])
    wider = pa.struct([("a", pa.float64()), ("b", pa.list_(pa.float64())), ("c", pa.string())])
    expected = [None, {"a": 2.0, "b": None, "c": None}]
    assert arrow_types.cast_array(found.slice(1), wider).to_pylist() == expected
    assert arrow_types.cast_array(found, pa.string()).to_pylist() == ['{"a": 1, "b": [1]}', None, '{"a": 2, "b": null}']


def messages_of_each_schema(*messages: Any) -> Any:
    """Messages of an endpoint each: endpoint, encoding, schema, payload."""
    rows = [
        {
            "run": "r",
            "endpoint": endpoint,
            "epoch": 1,
            "sequence": i,
            "publish_time": i,
            "log_time": i,
            "encoding": encoding,
            "schema_id": None if schema is None else compute_schema_id(schema),
            "data": data,
        }
        for i, (endpoint, encoding, schema, data) in enumerate(messages)
    ]
    return pa.Table.from_pylist(rows, SILVER_INPUT_COLUMNS)


def by_number(*schemas: Schema) -> dict[int, Schema]:
    """Return schemas by the numbers that stand for them."""
    return {number: schema for schema in schemas if (number := compute_schema_id(schema)) is not None}


def decode_rows(table: Any, *schemas: Any) -> Any:
    """Return the fields of each endpoint, and of those that failed the sequence, the reason and the payload."""
    found: dict[str, list[Any]] = {}
    failed = []
    for one in SilverDecoder(by_number(*schemas)).decode_messages(table):
        for row in one.decoded_rows.to_pylist():
            found.setdefault(row["endpoint"], []).append(row)
        failed += [(row["sequence"], row["reason"], row["data"]) for row in one.decode_errors.to_pylist()]
    return found, failed


def test_silver_rows_have_schema_fields_with_unique_names() -> None:
    pose, wide = struct_schema(POSE), struct_schema(WIDE)
    both = np.array([(0.5, 7), (1.5, 8)], POSE)
    table = messages_of_each_schema(
        ("gps", "struct", pose, both.tobytes()),
        ("imu", "json", None, b'{"Run": 1, "a": {"b": 2}}'),
        ("gps", "struct", wide, np.array((2.5, 9, (1, 2)), WIDE).tobytes()),
        ("n", "json", None, b"3"),
        ("gps", "struct", pose, b"odd"),
        ("imu", "json", None, b'"text"'),
        ("raw", "", None, b"?"),
    )
    found, failed = decode_rows(table, pose, wide)
    keys = ("sequence", "element_index", "x", "sequence_", "tags")
    assert [tuple(row.get(key) for key in keys) for row in found["gps"]] == [
        (0, 0, 0.5, 7, None),
        (0, 1, 1.5, 8, None),
        (2, 0, 2.5, 9, [1, 2]),
    ]
    imu = [(row.get("Run_"), row.get("a"), row.get("value")) for row in found["imu"]]
    assert imu == [(1, {"b": 2}, None), (None, None, "text")]
    assert [row["value"] for row in found["n"]] == [3]
    assert "raw" not in found
    assert [(sequence, data) for sequence, _, data in failed] == [(4, b"odd")]


def test_silver_decode_errors_have_reason() -> None:
    pose = struct_schema(POSE)
    table = messages_of_each_schema(
        ("a", "json", None, b"{broken"),
        ("a", "json", None, b'{"x": 1}'),
        ("b", "struct", pose, b"x" * 12),
        ("c", "strange", None, b"payload"),
        ("d", "xml", None, b"payload"),
        ("e", "struct", None, b"payload"),
    )
    found, failed = decode_rows(table)
    assert [row["x"] for row in found["a"]] == [1]
    reasons = {sequence: (reason, data) for sequence, reason, data in failed}
    assert sorted(reasons) == [0, 2, 3, 4, 5]
    assert reasons[0][1] == b"{broken"
    assert "which the lake does not contain" in reasons[2][0]
    assert reasons[3] == ("encoding 'strange' is not supported", None)
    assert reasons[4] == ("encoding 'xml' is not supported", None)


def test_silver_ros_messages_have_spark_types() -> None:
    """By the column, or one by one: the second one is a later version of CDR, which no plan takes apart."""
    second = b"\0\7\0\0" + point_bytes(2)[4:]
    text = Schema("std_msgs/String", "ros1", b"string data\nuint64[2] n")
    ros1 = b"\2\0\0\0hi" + bytes(8) + b"\xff" * 8
    table = messages_of_each_schema(
        ("p", "cdr", POINT, point_bytes(1)), ("p", "cdr", POINT, second), ("p", "cdr", POINT, b"cut")
    )
    table = pa.concat_tables([table, messages_of_each_schema(("t", "ros1", text, ros1))])
    for one in SilverDecoder(by_number(POINT, text)).decode_messages(table):
        to_arrow_schema(convert_to_spark_schema(one.decoded_rows.schema), timezone="UTC")  # else Spark refuses it
    found, failed = decode_rows(table, POINT, text)
    assert [{name: row[name] for name in point(0)} for row in found["p"]] == [point(1), point(2)]
    assert [(row["data"], row["n"]) for row in found["t"]] == [("hi", [0, 2**64 - 1])]
    assert [(sequence, data) for sequence, _, data in failed] == [(2, b"cut")]


def test_silver_decodes_msgpack_and_cbor() -> None:
    msgpack, cbor2 = pytest.importorskip("msgpack"), pytest.importorskip("cbor2")
    value = {"x": 1, "b": b"\xff", 3: [1.5]}
    table = messages_of_each_schema(
        ("m", "msgpack", None, msgpack.packb(value)), ("c", "cbor", None, cbor2.dumps(value))
    )
    found, failed = decode_rows(table)
    assert not failed
    for endpoint in "mc":
        assert [(row["x"], row["b"], row["3"]) for row in found[endpoint]] == [(1, b"\xff", [1.5])]


def test_silver_decodes_protobuf() -> None:
    pytest.importorskip("google.protobuf")
    from google.protobuf import descriptor_pb2, struct_pb2, type_pb2

    files = descriptor_pb2.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    schema = Schema("google.protobuf.Struct", "protobuf", files.SerializeToString())
    value = struct_pb2.Struct(fields={"a": struct_pb2.Value(number_value=1.5)})
    enum = Schema("google.protobuf.Field", "protobuf", _with_dependencies(type_pb2.DESCRIPTOR))
    field = type_pb2.Field(kind="TYPE_BOOL", number=3, options=[type_pb2.Option(name="o")])
    table = messages_of_each_schema(
        ("s", "protobuf", schema, value.SerializeToString()),
        ("s", "protobuf", schema, b"\xff"),
        ("f", "protobuf", enum, field.SerializeToString()),
    )
    found, failed = decode_rows(table, schema, enum)
    ((pair,),) = (row["fields"] for row in found["s"])
    assert (pair["key"], pair["value"]["number_value"]) == ("a", 1.5)
    row = found["f"][0]
    assert (row["kind"], row["number"], row["options"][0]["name"]) == ("TYPE_BOOL", 3, "o")
    assert [sequence for sequence, *_ in failed] == [1]


def _with_dependencies(file: Any) -> Any:
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    for one in (*file.dependencies, file):
        one.CopyToProto(files.file.add())
    return files.SerializeToString()


def test_silver_directory_names_are_safe_and_unique() -> None:
    names = ["imu", "/camera/front", "~2fcamera~2ffront", "_hidden", "..", "a b", "ä", "", "x" * 300, "x" * 301]
    found = [make_safe_file_name(name) for name in names]
    assert found[0] == "imu"
    assert len(set(found)) == len(names)
    assert all(name and name[0] not in "._" and "/" not in name and len(name.encode()) < 255 for name in found)


# In a lake


def recording(path: Path, *endpoints: Any, first: int = 0) -> Any:
    """Write a segment: of each endpoint, (name, encoding, schema or None, payloads)."""
    parts = []
    for number, (name, encoding, schema, _) in enumerate(endpoints, 1):
        parts += [record(number, schema)] if schema else []
        parts.append(logs.channel(number, name, encoding=encoding, schema_id=number if schema else 0))
    parts += [
        logs.message(number, first + i, DAY + 1000 * (first + i) + number, data)
        for number, (*_, payloads) in enumerate(endpoints, 1)
        for i, data in enumerate(payloads)
    ]
    return logs.write_unclosed_file(path, logs.build_chunk_record(*parts))


def files(lake: Path) -> Any:
    return sorted(path for place in ("silver", "decode_errors") for path in (lake / place).rglob("date=*/*.parquet"))


def poses(*values: Any, dtype: Any = POSE) -> Any:
    return [np.array(value, dtype).tobytes() for value in values]


def test_silver_has_table_for_each_endpoint(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    lake.ingest(
        [
            recording(
                tmp_path / "one.mcap",
                ("imu", "json", None, [b'{"a": 1, "b": "x"}', b"{broken", b'{"a": 2, "log_time": 5}']),
                ("camera/front", "struct", struct_schema(POSE), poses((0.5, 1), (1.5, 2))),
                ("raw", "", None, [b"?"]),
                ("radar", "cdr", POINT, [point_bytes(i) for i in range(3)]),
                ("lidar", "xml", None, [b"?"]),
            )
        ]
    )
    assert lake.build_silver() == 1
    assert lake.endpoints() == ["camera/front", "imu", "radar"]
    assert sorted_rows(lake.silver("radar"), "x", "more") == [(i / 2, list(range(i))) for i in range(3)]
    assert sorted_rows(lake.silver("imu"), "epoch", "sequence", "element_index", "a", "b", "log_time_") == [
        (1, 0, 0, 1, "x", None),
        (1, 2, 0, 2, None, 5),
    ]
    aside = sorted_rows(lake.decode_errors(), "endpoint", "sequence", "data")
    assert aside == [("imu", 1, b"{broken"), ("lidar", 0, None)]
    query = "SELECT x, date(log_timestamp) AS day FROM `silver_camera/front` ORDER BY x"
    assert [(x, str(day)) for x, day in lake.sql(query).collect()] == [(0.5, "1970-01-02"), (1.5, "1970-01-02")]
    assert lake.sql("SELECT count(*) FROM decode_errors WHERE reason LIKE '%xml%'").collect()[0][0] == 1
    with pytest.raises(
        InvalidValueError, match="no decoded messages of 'raw'; decoded endpoints: camera/front, imu, radar"
    ):
        lake.silver("raw")
    assert lake.build_silver() == 0
    assert lake.build_silver(full_refresh=True) == 1
    assert sorted_rows(lake.silver("radar"), "x") == [(i / 2,) for i in range(3)]


def test_silver_mixed_schemas_of_endpoint_share_table(spark: Any, tmp_path: Path) -> None:
    """Columns by name; a column with two types has the wider one, or is text; files that came before, too."""
    lake = Lake(spark, tmp_path / "lake")

    def add(name: Any, first: Any, *endpoints: Any) -> None:
        lake.ingest([recording(tmp_path / name, *endpoints, first=first)])
        lake.build_silver()

    pose, wide = struct_schema(POSE), struct_schema(WIDE)
    add(
        "one.mcap", 0, ("a", "json", None, [b'{"n": 1, "t": 1, "o": {"x": 1}}']), ("g", "struct", pose, poses((0.5, 1)))
    )
    old = files(tmp_path / "lake")
    add(
        "two.mcap",
        1,
        ("a", "json", None, [b'{"n": 2, "new": true}']),
        ("g", "struct", wide, poses((1.5, 2, (3, 4)), dtype=WIDE)),
    )
    assert set(old) < set(files(tmp_path / "lake"))
    add("three.mcap", 2, ("a", "json", None, [b'{"n": 2.5, "t": "x", "o": {"x": 2, "y": "z"}}', b"7"]))
    assert sorted_rows(lake.silver("a"), "sequence", "n", "t", "o.x", "o.y", "new", "value") == [
        (0, 1.0, "1", 1, None, None, None),
        (1, 2.0, None, None, None, True, None),
        (2, 2.5, "x", 2, "z", None, None),
        (3, None, None, None, None, None, 7),
    ]
    assert sorted_rows(lake.silver("g"), "sequence", "x", "tags") == [(0, 0.5, None), (1, 1.5, [3, 4])]


def test_silver_endpoint_has_types_of_its_messages(spark: Any, tmp_path: Path) -> None:
    """Also where it shares a table, whose numbers are double, with others; texts are those of JSON."""
    lake = Lake(spark, tmp_path / "lake")
    whole = [b'{"n": 1, "o": {"x": 1, "y": [1, 2]}}', b'{"n": 2, "o": null}']
    other = [b'{"n": 1.5, "o": {"x": 2.5, "y": [0.5], "z": "text"}}']
    lake.ingest([recording(tmp_path / "1.mcap", ("w", "json", None, whole), ("f", "json", None, other))])
    lake.build_silver()
    kinds = dict(lake.silver("w").dtypes)
    assert (kinds["n"], kinds["o"]) == ("bigint", "struct<x:bigint,y:array<bigint>>")
    assert sorted_rows(lake.silver("w"), "sequence", "n", "o.x", "o.y") == [(0, 1, 1, [1, 2]), (1, 2, None, None)]
    assert lake.silver("w").where("o IS NULL").count() == 1
    assert dict(lake.silver("f").dtypes)["o"] == "struct<x:double,y:array<double>,z:string>"
    text = [b'{"n": "one", "o": [1]}', b'{"n": {"deep": true}, "s`.t": 1}']
    lake.ingest([recording(tmp_path / "2.mcap", ("w", "json", None, text), first=2)])
    lake.build_silver()
    assert sorted_rows(lake.silver("w"), "sequence", "n", "o", "`s``.t`") == [
        (0, "1", '{"x": 1, "y": [1, 2]}', None),
        (1, "2", None, None),
        (2, "one", "[1]", None),
        (3, '{"deep": true}', None, 1),
    ]
    assert [str(day) for (day,) in lake.silver("w").select("date").distinct().collect()] == ["1970-01-02"]


def mixed_value(rng: random.Random) -> bytes:
    """Return a message whose fields have one type, two numbers', some of a struct's fields, or any."""
    inner = {name: rng.choice((1, 2.5)) for name in "xyz" if rng.random() < 0.7}
    said = {"n": rng.choice((1, 2.5)), "o": inner | {"deep": [{"k": rng.choice((1, 2**60))}]}, "v": value(rng)}
    return json.dumps(said).encode()


@pytest.mark.nightly
def test_spark_and_arrow_give_same_silver_rows(spark: Any, tmp_path: Path) -> None:
    """Values of any types in a few parts: as whoever reads the files by the ledger, without Spark."""
    lake, rng = Lake(spark, tmp_path / "lake"), random.Random(11)
    for number in range(3):
        endpoints = [(name, "json", None, [mixed_value(rng) for _ in range(2)]) for name in "abcdef"]
        lake.ingest([recording(tmp_path / f"{number}.mcap", *endpoints, first=2 * number)])
        lake.build_silver()
    files, kinds = silvers.Lake(tmp_path / "lake"), set()
    for name in "abcdef":
        expected = files.rows(name).drop_columns("endpoint")
        table = lake.silver(name)
        types = dict(table.dtypes)
        assert [types[field.name] for field in convert_to_spark_schema(expected.schema)] == [
            field.dataType.simpleString() for field in convert_to_spark_schema(expected.schema)
        ]
        found = table.toArrow().sort_by("sequence").select(expected.column_names)
        assert found.to_pylist() == expected.to_pylist()
        kinds |= {types[field].partition("<")[0] for field in ("n", "o", "v")}
    assert {"double", "struct", "string"} <= kinds


@pytest.mark.nightly
def test_silver_query_of_endpoint_reads_only_its_files(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    typed = [(f"pose{i:03}", "struct", struct_schema(POSE), poses((i, i))) for i in range(150)]
    loose = [(f"state{i:03}", "json", None, [b'{"n": %d, "name": "x"}' % i]) for i in range(150)]
    for number in range(2):
        lake.ingest([recording(tmp_path / f"{number}.mcap", *typed, *loose, first=number)])
        lake.build_silver()
    assert len(list((tmp_path / "lake" / "silver").rglob("*.parquet"))) == 4
    assert sorted_rows(lake.silver("pose007"), "sequence", "x") == [(0, 7.0), (1, 7.0)]
    assert sorted_rows(lake.silver("state007"), "sequence", "n") == [(0, 7), (1, 7)]
    plan = lake.silver("state007")._jdf.queryExecution().executedPlan().toString()
    assert "EqualTo(endpoint,state007)" in plan
    assert len(lake.silver("pose007").inputFiles()) == 2
    assert lake.endpoints() == sorted(name for name, *_ in (*typed, *loose))


@pytest.mark.nightly
def test_silver_row_count_in_spark_never_decreases_during_full_decode(spark: Any, tmp_path: Path) -> None:
    lake, other = Lake(spark, tmp_path / "lake"), Lake(spark, tmp_path / "lake")
    for number in range(2):
        payloads = [b'{"n": 1}', b'{"n": "x"}', b"{"]
        lake.ingest([recording(tmp_path / f"{number}.mcap", ("a", "json", None, payloads), first=3 * number)])
        lake.build_silver()
    ends, seen = threading.Event(), []

    def count() -> None:
        while not ends.is_set():
            seen.append((other.silver("a").count(), other.decode_errors().count()))

    reader = threading.Thread(target=count)
    reader.start()
    try:
        for _ in range(3):
            before = len(seen)
            assert lake.build_silver(full_refresh=True) == 2
            wait_until(
                lambda before=before: len(seen) > before or not reader.is_alive(),  # type: ignore[misc]
                deadline=DEADLINE,
            )
    finally:
        ends.set()
        reader.join()
    assert set(seen) == {(4, 2)}


@pytest.mark.nightly
def test_silver_tables_keep_rows_after_optimize(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    for number in range(3):
        payloads = [b'{"n": %d}' % number, b"{"]
        lake.ingest([recording(tmp_path / f"{number}.mcap", ("a", "json", None, payloads), first=2 * number)])
        lake.build_silver()
    lake.optimize(retain_hours=0)
    assert sorted_rows(lake.silver("a"), "sequence", "n") == [(0, 0), (2, 1), (4, 2)]
    assert lake.decode_errors().count() == 3
    assert len(files(tmp_path / "lake")) == 2  # one of the table, one of what could not be decoded


@pytest.mark.nightly
def test_silver_decodes_again_what_other_program_removed(spark: Any, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path / "lake")
    for number in range(2):
        rows = pa.Table.from_pylist([silvers.json_message("e", number, {"x": number})], INGEST_COLUMNS)
        lake.append(spark.createDataFrame(rows, convert_to_spark_schema(INGEST_COLUMNS)))
        lake.build_silver()
    [table] = (tmp_path / "lake" / "silver").glob("json-*")
    DeltaTable(str(table)).optimize.compact()
    assert sorted_rows(lake.silver("e"), "x") == [(0,), (1,)]
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False)
    with pytest.raises(RecordingError, match="lacks a file: another program removed it"):
        lake.silver("e")
    lake.build_silver()
    assert sorted_rows(lake.silver("e"), "x") == [(0,), (1,)]


def test_stream_adds_schema_texts(spark: Any, tmp_path: Path) -> None:
    """Rows of a stream have their number only."""
    lake = Lake(spark, tmp_path / "lake")
    (tmp_path / "log").mkdir()
    for i in range(2):
        recording(tmp_path / "log" / f"{i:06}.mcap", ("g", "struct", struct_schema(POSE), poses((i, i))), first=i)
        assert follow(lake, str(tmp_path / "log"), trigger_seconds=None).awaitTermination(DEADLINE)
    assert lake.build_silver() == 2
    assert sorted_rows(lake.silver("g"), "sequence", "x") == [(0, 0.0), (1, 1.0)]


def test_silver_function_decodes_messages_of_any_source(spark: Any, tmp_path: Path) -> None:
    path = recording(tmp_path / "one.mcap", ("g", "struct", struct_schema(POSE), [*poses((0.5, 1)), b"odd"]))
    columns = ("run", "endpoint", "epoch", "sequence", "publish_time", "log_time", "encoding", "schema_id", "data")
    messages = read(spark, str(path), columns=columns)
    schemas = by_number(struct_schema(POSE))
    found = tables.silver(messages, "struct<x: float, y: string>", schemas)
    assert found.columns == ["run", "epoch", "sequence", "publish_time", "log_time", "element_index", "x", "y"]
    assert sorted_rows(found, "sequence", "x", "y") == [(0, 0.5, None)]
    assert sorted_rows(tables.decode_errors(messages, schemas=schemas), "sequence", "data") == [(1, b"odd")]
    assert tables.silver(messages.drop("schema_id"), "double").count() == 0
