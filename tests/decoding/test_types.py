"""The types of columns come from the schema, not from the messages."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import capnp
import flatbuffers
import numpy as np
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2
from hypothesis import given, settings
from hypothesis import strategies as st

from msgq.common.schema import Schema, schema_of
from msgq.decoding import column_decoder as decoding
from msgq.decoding.capnproto.compiler import compile_capnp_file
from msgq.decoding.cdr_writer import encode_cdr
from msgq.decoding.column_decoder import ColumnDecoder
from msgq.decoding.payload_decoder import load_protobuf_class
from msgq.decoding.rosmsg import parse_ros2_struct
from msgq.lake.delta_types import convert_to_delta_type
from msgq.lake.silver.silver_decoder import SILVER_INPUT_COLUMNS, SilverDecoder
from msgq.recording import LogReader, Writer
from tests.recording.logs import struct_schema

Payloads = list[bytes]
Draw = Callable[[st.SearchStrategy[Any]], Any]
UINT64 = st.integers(0, 2**64 - 1) | st.sampled_from([0, 2**63, 2**64 - 1])
TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)


# Protocol Buffers: a message with a field of each kind, and messages within it.

_TYPES = descriptor_pb2.FieldDescriptorProto
INTEGERS = {"int32": 31, "sint32": 31, "sfixed32": 31, "int64": 63, "sint64": 63, "sfixed64": 63}
UNSIGNED = {"uint32": 32, "fixed32": 32, "uint64": 64, "fixed64": 64}
PROTOBUF_VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{name: st.integers(-(2**bits), 2**bits - 1) for name, bits in INTEGERS.items()},
    **{name: st.integers(0, 2**bits - 1) | st.just(2**bits - 1) for name, bits in UNSIGNED.items()},
    "double": st.floats(),
    "float": st.floats(width=32),
    "bool": st.booleans(),
    "string": TEXTS,
    "bytes": st.binary(max_size=3),
}


def protobuf_schema() -> Schema:
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="p", syntax="proto3")
    message = file.message_type.add(name="A")
    message.oneof_decl.add(name="one")
    numbers = iter(range(1, 99))

    def add(name: str, kind: str, of: str = "", repeated: bool = False, **more: Any) -> None:
        label = _TYPES.LABEL_REPEATED if repeated else _TYPES.LABEL_OPTIONAL
        number = getattr(_TYPES, f"TYPE_{kind.upper()}")
        named = {"type_name": of} if of else {}
        message.field.add(name=name, number=next(numbers), type=number, label=label, **named, **more)

    for kind in PROTOBUF_VALUES:
        add(kind, kind)
        add(f"{kind}s", kind, repeated=True)
    add("enum", "enum", ".p.E")
    add("enums", "enum", ".p.E", repeated=True)
    add("again", "message", ".p.A")
    add("nothing", "message", ".p.N")
    add("map", "message", ".p.A.MapEntry", repeated=True)
    add("left", "uint64", oneof_index=0)
    add("right", "message", ".p.B", oneof_index=0)
    entry = message.nested_type.add(name="MapEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=_TYPES.TYPE_STRING, label=_TYPES.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=_TYPES.TYPE_UINT64, label=_TYPES.LABEL_OPTIONAL)
    file.message_type.add(name="B").field.add(name="n", number=1, type=_TYPES.TYPE_FIXED64, label=1)
    file.message_type.add(name="N")
    file.enum_type.add(name="E").value.add(name="ZERO", number=0)
    return Schema("p.A", "protobuf", descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())


PROTOBUF = protobuf_schema()
PROTOBUF_CLASS = load_protobuf_class(PROTOBUF)
_FIELDS = {
    **PROTOBUF_VALUES,
    **{f"{kind}s": st.lists(values, max_size=2) for kind, values in PROTOBUF_VALUES.items()},
    "enum": st.integers(0, 2),
    "enums": st.lists(st.integers(0, 2), max_size=2),
    "map": st.dictionaries(TEXTS, UINT64, max_size=2),
    "left": UINT64,
    "right": st.fixed_dictionaries({}, optional={"n": UINT64}),
    "nothing": st.just({}),
}
_MESSAGES = st.recursive(
    st.fixed_dictionaries({}, optional=_FIELDS),
    lambda inner: st.fixed_dictionaries({"again": inner}, optional={"left": UINT64}),
    max_leaves=3,
)


def protobuf_payloads(draw: Draw) -> Payloads:
    messages = draw(st.lists(_MESSAGES, min_size=1, max_size=4))
    return [PROTOBUF_CLASS(**one).SerializeToString() for one in messages]


# Cap'n Proto

CAPNPROTO_TEXT = """@0xf3b1f17e25a4385b;
struct Event {
  time @0 :UInt64; signed @1 :Int64; small @2 :UInt8; real @3 :Float32; kind @4 :Kind;
  numbers @5 :List(UInt64); bytes @6 :Data; octets @7 :List(UInt8); kinds @8 :List(Kind); deep @9 :List(List(UInt64));
  name @10 :Text; truths @11 :List(Bool);
  union { left @12 :UInt64; right @13 :Part; nothing @14 :Void; }
  part @15 :Part; parts @16 :List(Part); again @17 :Event; any @18 :AnyPointer;
  few :group { x @19 :UInt64; y @20 :Text; }
  struct Part { n @0 :UInt64; names @1 :List(Text); }
  enum Kind { one @0; two @1; }
}
"""
_PART = st.fixed_dictionaries({}, optional={"n": UINT64, "names": st.lists(TEXTS, max_size=2)})
_KIND = st.sampled_from(["one", "two"])
_CAPNPROTO = {
    "time": UINT64,
    "signed": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(0, 255),
    "real": st.floats(width=32),
    "kind": _KIND,
    "numbers": st.lists(UINT64, max_size=2),
    "bytes": st.binary(max_size=3),
    "octets": st.lists(st.integers(0, 255), max_size=2),
    "kinds": st.lists(_KIND, max_size=2),
    "deep": st.lists(st.lists(UINT64, max_size=2), max_size=2),
    "name": st.text("abc", max_size=3),
    "truths": st.lists(st.booleans(), max_size=2),
    "right": st.fixed_dictionaries({}, optional={"n": UINT64}),
    "part": _PART,
    "parts": st.lists(_PART, max_size=2),
    "again": st.fixed_dictionaries({}, optional={"time": UINT64}),
    "few": st.fixed_dictionaries({}, optional={"x": UINT64}),
}


@pytest.fixture(scope="module")
def capnproto(tmp_path_factory: pytest.TempPathFactory) -> tuple[Schema, Any]:
    path = tmp_path_factory.mktemp("types") / "types.capnp"
    path.write_text(CAPNPROTO_TEXT.replace("List(Text)", "List(Text)"))
    return Schema("Event", "capnproto", compile_capnp_file(path)), capnp.load(str(path)).Event


# FlatBuffers: see every.fbs for the numbers of fields.

FLATBUFFER = Schema("tests.Every", "flatbuffer", (Path(__file__).parent / "files" / "every.bfbs").read_bytes())
EVERY = (Path(__file__).parent / "files" / "every.bin").read_bytes()


def flatbuffer_payload(ulong: int | None, name: str | None, truths: list[bool] | None, body: int | None) -> bytes:
    builder = flatbuffers.Builder()
    text = None if name is None else builder.CreateString(name)
    vector = None if truths is None else builder.CreateNumpyVector(np.array(truths, np.bool_))
    table = None
    if body is not None:
        key = builder.CreateString("key")
        builder.StartObject(2)
        builder.PrependUOffsetTRelativeSlot(0, key, 0)
        table = builder.EndObject()
    builder.StartObject(32)
    if ulong is not None:
        builder.PrependUint64Slot(8, ulong, 2**64 - 1)
    for slot, offset in ((14, text), (17, vector)):
        if offset is not None:
            builder.PrependUOffsetTRelativeSlot(slot, offset, 0)
    if table is not None:
        builder.PrependUint8Slot(27, body, 0)
        builder.PrependUOffsetTRelativeSlot(28, table, 0)
    builder.Finish(builder.EndObject())
    return bytes(builder.Output())


def flatbuffer_payloads(draw: Draw) -> Payloads:
    fields = st.tuples(
        st.none() | UINT64,
        st.none() | st.text("abc", max_size=3),
        st.none() | st.lists(st.booleans(), max_size=3),
        st.none() | st.just(2),
    )
    made = [flatbuffer_payload(*one) for one in draw(st.lists(fields, min_size=1, max_size=4))]
    return made + [EVERY] * draw(st.integers(0, 1))


# ROS and DDS

MSG = Schema("p/msg/A", "cdr", b"uint64 n\nuint64[] many\nstring[] names\nuint8[] data\nfloat32 real\nbool[2] truths\n")
MSG_STRUCT = parse_ros2_struct(MSG.name, MSG.data.decode())
IDL = Schema(
    "A",
    "cdr",
    b"enum Color { RED, GREEN }; struct A { Color color; unsigned long long n; sequence<Color> colors; };",
    schema_encoding="ros2idl",
)


def msg_payloads(draw: Draw) -> Payloads:
    fields = {
        "n": UINT64,
        "many": st.lists(UINT64, max_size=2),
        "names": st.lists(TEXTS, max_size=2),
        "data": st.binary(max_size=3),
        "real": st.floats(width=32),
        "truths": st.lists(st.booleans(), min_size=2, max_size=2),
    }
    return [
        encode_cdr(MSG_STRUCT, one) for one in draw(st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=4))
    ]


def idl_payloads(draw: Draw) -> Payloads:
    colors = st.lists(st.integers(0, 2), max_size=2)
    found = draw(st.lists(st.tuples(st.integers(0, 2), UINT64, colors), min_size=1, max_size=4))
    return [struct.pack(f"<4sI4xQI{len(of)}I", b"\0\1\0\0", color, number, len(of), *of) for color, number, of in found]


# Records

DTYPE = np.dtype([("n", "<u8"), ("many", "<u8", 2), ("real", "<f4"), ("text", "<U2")])
RECORD = struct_schema(DTYPE)


def record_payloads(draw: Draw) -> Payloads:
    return [draw(st.binary(min_size=28, max_size=28)) + b"a\0\0\0" + bytes(4) for _ in range(draw(st.integers(1, 3)))]


MADE: dict[str, tuple[Schema, Callable[[Draw], Payloads]]] = {
    "protobuf": (PROTOBUF, protobuf_payloads),
    "flatbuffer": (FLATBUFFER, flatbuffer_payloads),
    "cdr": (MSG, msg_payloads),
    "cdr, idl": (IDL, idl_payloads),
    "struct": (RECORD, record_payloads),
}


def columns(schema: Schema, payloads: Payloads, **options: Any) -> pa.Array:
    """Return the values of messages, all of which are decoded."""
    (values,) = ColumnDecoder(**options).decode_values(schema, pa.array(payloads, pa.binary()))
    assert values.failure_reasons is None or values.failure_reasons.null_count == len(payloads), values.failure_reasons
    return values.value_column


def full_type(schema: Schema) -> pa.DataType:
    """Return the type of messages that have all that a schema says."""
    decoder = ColumnDecoder()
    kind = decoder.find_schema_column_type(schema)
    found = decoder.find_value_type(schema)
    if found is None:
        assert kind is not None
        found = kind.arrow_type
    return found


def check_types(schema: Schema, payloads: Payloads, optional: frozenset[str] = frozenset()) -> None:
    """Check that columns have the types that the schema says. `optional`: columns that may be missing."""
    wanted = full_type(schema)
    found = columns(schema, payloads).type
    assert {field.name for field in wanted} - {field.name for field in found} <= optional
    wanted = pa.struct([wanted.field(field.name) for field in found])
    assert found == wanted
    assert columns(schema, payloads, allowed=convert_to_delta_type).type == convert_to_delta_type(wanted)
    rows = len(payloads)
    about = {name: pa.array([0] * rows) for name in SILVER_INPUT_COLUMNS.names}
    about |= {"run": ["r"] * rows, "endpoint": ["e"] * rows}
    payload = pa.array(payloads, pa.binary())
    messages = pa.table(about | {"encoding": [schema.encoding] * rows, "data": payload})
    fields = convert_to_delta_type(wanted)
    for decoded in SilverDecoder({0: schema}).decode_messages(messages):
        assert [decoded.decoded_rows.schema.field(one.name).type for one in fields] == [one.type for one in fields]


@pytest.mark.parametrize("kind", MADE)
@given(data=st.data())
@settings(max_examples=15)
def test_schema_columns_have_same_types_for_all_values(kind: str, data: st.DataObject) -> None:
    schema, make = MADE[kind]
    check_types(schema, make(data.draw))


@given(data=st.data())
@settings(max_examples=15)
def test_capnp_columns_have_same_types_for_all_values(capnproto: tuple[Schema, Any], data: st.DataObject) -> None:
    schema, event = capnproto
    messages = st.fixed_dictionaries({}, optional=_CAPNPROTO) | st.fixed_dictionaries({"left": UINT64})
    found = data.draw(st.lists(messages, min_size=1, max_size=4))
    check_types(schema, [event.new_message(**one).to_bytes() for one in found], frozenset(("left", "right")))


def test_columns_have_types_of_schema(capnproto: tuple[Schema, Any]) -> None:
    decoder = ColumnDecoder()
    protobuf, flatbuffer = decoder.find_value_type(PROTOBUF), decoder.find_value_type(FLATBUFFER)
    event, idl = full_type(capnproto[0]), decoder.find_value_type(IDL)
    assert protobuf is not None
    assert flatbuffer is not None
    assert idl is not None
    said = {field.name: str(field.type) for field in protobuf}
    unsigned = {"uint32": "uint32", "fixed32": "uint32", "uint64": "uint64", "fixed64": "uint64"}
    assert {name: said[name] for name in UNSIGNED} == unsigned
    assert (said["float"], said["double"], said["bytes"], said["enum"]) == ("float", "double", "binary", "string")
    assert (said["uint64s"], said["again"], "nothing" in said) == ("list<item: uint64>", "string", False)
    assert said["map"] == "list<item: struct<key: string, value: uint64>>"
    assert (event.field("time").type, event.field("left").type) == (pa.uint64(), pa.uint64())
    assert event.field("deep").type == pa.list_(pa.list_(pa.uint64()))
    assert (event.field("octets").type, event.field("again").type) == (pa.binary(), pa.string())
    assert flatbuffer.field("ulong_").type == pa.uint64()
    assert flatbuffer.field("body").type == pa.struct(
        [("name", pa.string()), ("box", flatbuffer.field("box").type), ("key", pa.string()), ("value", pa.string())]
    )
    assert idl == pa.struct([("color", pa.string()), ("n", pa.uint64()), ("colors", pa.list_(pa.string()))])


def test_capnp_union_members_in_messages_are_columns(capnproto: tuple[Schema, Any]) -> None:
    schema, event = capnproto
    messages = [event.new_message(left=2**63).to_bytes(), event.new_message(right={}).to_bytes()]
    assert ColumnDecoder().find_value_type(schema) is None
    names = [{"left", "right"} & {field.name for field in columns(schema, [one]).type} for one in messages]
    assert names == [{"left"}, {"right"}]
    assert columns(schema, messages).field("left").to_pylist() == [2**63, None]


# JSON

JSON = Schema(
    "A",
    "json",
    b"""{"type": "object", "definitions": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
    "properties": {"whole": {"type": "integer"},
    "large": {"type": "integer", "minimum": 0, "maximum": 18446744073709551615},
    "number": {"type": ["number", "null"]}, "text": {"type": "string"}, "truth": {"type": "boolean"},
    "wholes": {"type": "array", "items": {"type": "integer"}}, "point": {"$ref": "#/definitions/point"},
    "points": {"type": "array", "items": {"$ref": "#/definitions/point"}}}}""",
)
_POINT = st.fixed_dictionaries({}, optional={"x": st.floats() | st.integers(-(2**70), 2**70) | st.none()})
_JSON = {
    "whole": st.integers(-(2**63), 2**63 - 1) | st.just(1.0) | st.none(),
    "large": UINT64,
    "number": st.none() | st.floats() | st.integers(),
    "text": st.text("abc"),
    "truth": st.booleans(),
    "wholes": st.lists(st.integers(0, 9), max_size=2),
    "point": _POINT,
    "points": st.lists(_POINT, max_size=2),
}


@given(st.lists(st.fixed_dictionaries({}, optional=_JSON), min_size=1, max_size=4))
@settings(max_examples=15)
def test_json_schema_columns_have_same_types_for_all_values(messages: list[dict[str, Any]]) -> None:
    check_types(JSON, [json.dumps(one).encode() for one in messages])


def test_fields_outside_json_schema_have_types_of_values() -> None:
    found = columns(JSON, [b'{"whole": 1, "more": 2}', b'{"more": 2.5, "point": {"y": "a"}}'])
    assert (found.type.field("whole").type, found.type.field("more").type) == (pa.int64(), pa.float64())
    assert found.type.field("point").type == pa.struct([("x", pa.float64()), ("y", pa.string())])
    closed = Schema("A", "json", JSON.data.replace(b'"properties"', b'"additionalProperties": false, "properties"', 1))
    assert ColumnDecoder().find_value_type(closed) is None, "points may have more"


def test_message_with_json_schema_mismatch_is_decode_error() -> None:
    payloads = [b'{"whole": 1}', b'{"whole": 9223372036854775808}', b'{"whole": 1.5}', b'{"truth": "yes"}', b"[1]"]
    payloads += [b'{"whole": true}', b'{"truth": 1}', b'{"number": "1"}', b'{"wholes": [1, "a"]}', b'{"points": {}}']
    (values,) = ColumnDecoder().decode_values(JSON, pa.array(payloads))
    assert values.failure_reasons is not None
    assert values.failed_payloads is not None
    assert values.failure_reasons.is_valid().to_pylist() == [False, *[True] * 9]
    assert values.failed_payloads.to_pylist() == [None, *payloads[1:]]
    assert "does not match its schema" in values.failure_reasons.to_pylist()[1]


def test_few_schema_mismatches_need_few_type_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def counted(column: Any, values: list[Any]) -> str | None:
        tried.append(len(values))
        return unfit(column, values)

    unfit = decoding._explain_type_mismatch
    monkeypatch.setattr(decoding, "_explain_type_mismatch", counted)
    schema = Schema("reading", "json", b'{"type": "object", "properties": {"x": {"type": "integer"}}}')
    bad = {0, 31, 32, 2999}
    payloads = [b'{"x": "far"}' if row in bad else b'{"x": %d}' % row for row in range(3000)]
    (values,) = ColumnDecoder().decode_values(schema, pa.array(payloads, pa.binary()))
    assert values.failure_reasons is not None
    assert {row for row, reason in enumerate(values.failure_reasons.to_pylist()) if reason} == bad
    assert values.value_column.field("x").to_pylist() == [None if row in bad else row for row in range(3000)]
    assert len(tried) < 500


@pytest.mark.parametrize("text", [b"", b"{}", b"[]", b'{"type": "object"}', b"nonsense", b'{"$ref": "#"}'])
def test_empty_json_schema_gives_types_of_values(text: bytes) -> None:
    schema = Schema("A", "json", text)
    assert columns(schema, [b'{"n": 1}']).type == pa.struct([("n", pa.int64())])
    assert columns(schema, [b'{"n": 1.5}']).type == pa.struct([("n", pa.float64())])


def test_recursive_json_schema_is_cut_and_large_schema_is_ignored() -> None:
    again = b'{"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}, "n": {"type": "integer"}}}'
    found = columns(Schema("A", "json", again), [b'{"n": 1, "a": {"n": 2}}']).type
    assert found == pa.struct([("a", pa.struct([("n", pa.int64())])), ("n", pa.int64())])
    many = {"type": "object", "properties": {f"f{i}": {"type": "integer"} for i in range(20000)}}
    assert ColumnDecoder().find_schema_column_type(schema_of("A", "json", json.dumps(many).encode())) is None


def test_protobuf_columns_contain_all_values() -> None:
    one = PROTOBUF_CLASS(uint64=2**63, uint64s=[1, 2**64 - 1], enum=7, enums=[0, 7], map={"k": 2**63}, float=0.5)
    one.again.again.uint64 = 5
    other = PROTOBUF_CLASS(uint64=1, right={"n": 9})
    found = columns(PROTOBUF, [one.SerializeToString(), other.SerializeToString()]).to_pylist()
    assert [row["uint64"] for row in found] == [2**63, 1]
    assert [row["uint64s"] for row in found] == [[1, 2**64 - 1], []]
    assert [row["enum"] for row in found] == ["7", "ZERO"]
    assert [row["enums"] for row in found] == [["ZERO", "7"], []]
    assert [row["map"] for row in found] == [[{"key": "k", "value": 2**63}], []]
    assert [row["right"] for row in found] == [None, {"n": 9}]
    assert [row["float"] for row in found] == [0.5, 0]
    assert '"uint64": 5' in found[0]["again"]
    assert found[1]["again"] is None


def test_number_above_int64_keeps_column_type(tmp_path: Path) -> None:
    def table(*numbers: int) -> pa.Table:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.mcap"
        with Writer(path) as writer:
            channel = writer.channel("a", PROTOBUF)
            for time, number in enumerate(numbers):
                writer.write(channel, PROTOBUF_CLASS(uint64=number).SerializeToString(), time)
        return LogReader(path).to_arrow("a")

    assert table(1, 2).schema == table(1, 2**63).schema
    assert table(1, 2**63)["uint64"].to_pylist() == [1, 2**63]


def test_lake_stores_uint64_as_decimal_with_20_digits() -> None:
    data = PROTOBUF_CLASS(uint64=2**63).SerializeToString()
    found = columns(PROTOBUF, [data], allowed=convert_to_delta_type)
    assert found.field("uint64").type == pa.decimal128(20, 0)
    assert found.field("uint64").to_pylist() == [Decimal(2**63)]


def test_integers_without_schema_keep_number_type() -> None:
    def type_of(*numbers: int) -> pa.DataType:
        payloads = [b'{"n": %d}' % number for number in numbers]
        return columns(Schema("any", "json"), payloads).field("n").type

    assert type_of(1, 2**63) == pa.uint64()
    assert type_of(-1, 2**63) == pa.decimal128(20, 0)
    assert type_of(1, 2**64) == pa.string()
