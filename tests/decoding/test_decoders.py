"""Payloads to values, encoding by encoding: what is right, what is not, and schemas that make no sense."""

from __future__ import annotations

import datetime
from typing import Any

import cbor2
import msgpack
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from msgq import Schema
from msgq.decoding.payload_decoder import PayloadDecoder
from msgq.recording import Undecoded

Types = descriptor_pb2.FieldDescriptorProto


def value(schema: Schema, data: bytes) -> Any:
    return PayloadDecoder().decode_payload(schema, data)


def decode_failure_reason(schema: Schema, data: bytes) -> str:
    found = value(schema, data)
    assert isinstance(found, Undecoded)
    assert found.data == data
    return found.reason


def point_files() -> descriptor_pb2.FileDescriptorSet:
    """Return files.Point {int64 count; repeated double axes; Color color; Point next; map<string, int32> tags}, and the
    file that it needs, behind it: the order is anybody's."""
    color = descriptor_pb2.FileDescriptorProto(name="color.proto", package="files", syntax="proto3")
    names = color.enum_type.add(name="Color").value
    names.add(name="RED", number=0)
    names.add(name="BLUE", number=1)
    point = descriptor_pb2.FileDescriptorProto(name="point.proto", package="files", syntax="proto3")
    point.dependency.append("color.proto")
    kind = point.message_type.add(name="Point")
    entry = kind.nested_type.add(name="TagsEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    entry.field.add(name="key", number=1, type=Types.TYPE_STRING, label=Types.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=Types.TYPE_INT32, label=Types.LABEL_OPTIONAL)
    kind.field.add(name="count", number=1, type=Types.TYPE_INT64, label=Types.LABEL_OPTIONAL)
    kind.field.add(name="axes", number=2, type=Types.TYPE_DOUBLE, label=Types.LABEL_REPEATED)
    kind.field.add(name="color", number=3, type=Types.TYPE_ENUM, label=Types.LABEL_OPTIONAL, type_name=".files.Color")
    kind.field.add(name="next", number=4, type=Types.TYPE_MESSAGE, label=Types.LABEL_OPTIONAL, type_name=".files.Point")
    kind.field.add(
        name="tags", number=5, type=Types.TYPE_MESSAGE, label=Types.LABEL_REPEATED, type_name=".files.Point.TagsEntry"
    )
    return descriptor_pb2.FileDescriptorSet(file=[point, color])


def point_schema() -> Schema:
    return Schema("files.Point", "protobuf", point_files().SerializeToString())


def point(**fields: Any) -> bytes:
    """Return a message as another program would write it."""
    pool = descriptor_pool.DescriptorPool()
    for file in reversed(point_files().file):
        pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("files.Point"))(**fields)
    data: bytes = made.SerializeToString()
    return data


def test_protobuf_is_decoded_by_file_descriptor_set() -> None:
    found = value(point_schema(), point(count=2**62, axes=[0.5, 1.5], color=1, next={"count": 7}, tags={"a": 1}))
    assert (found.count, list(found.axes), found.color) == (2**62, [0.5, 1.5], 1)
    assert (found.next.count, found.next.HasField("next")) == (7, False)
    assert dict(found.tags) == {"a": 1}
    assert value(point_schema(), b"").count == 0


def test_invalid_protobuf_gives_reason() -> None:
    assert decode_failure_reason(point_schema(), b"\xff\xff\xff").startswith("protobuf: ")
    files = point_files()
    assert "'files.Line' is invalid" in decode_failure_reason(
        Schema("files.Line", "protobuf", files.SerializeToString()), b""
    )
    assert "is invalid: " in decode_failure_reason(Schema("files.Point", "protobuf", b"\xff\xff"), b"")
    files.file[1].dependency.append("point.proto")
    assert "in a circle" in decode_failure_reason(Schema("files.Point", "protobuf", files.SerializeToString()), b"")
    del files.file[1]
    assert "is invalid: " in decode_failure_reason(Schema("files.Point", "protobuf", files.SerializeToString()), b"")


def test_msgpack_payload_is_decoded() -> None:
    schema = Schema("a", "msgpack")
    for sent in ({"a": [1, 2.5, None, True, "é", b"\xff"], 3: "key"}, [2**64 - 1, -(2**63)], msgpack.Timestamp(5, 6)):
        assert value(schema, msgpack.packb(sent)) == sent
    for data in (b"", b"\x91", msgpack.packb(1) + b"more", b"\xc1", b"\xa1\xff"):
        assert decode_failure_reason(schema, data).startswith("msgpack: ")
    assert decode_failure_reason(schema, b"\xdd\xff\xff\xff\xff").startswith("msgpack: "), (
        "an array of 4 billion, of which none is there"
    )


def test_cbor_payload_is_decoded() -> None:
    schema = Schema("a", "cbor")
    time = datetime.datetime(2026, 1, 31, tzinfo=datetime.UTC)
    for sent in ({"a": [1, 2.5, None, True, "é", b"\xff"], 3: "key"}, [2**64 - 1, -(2**64), 2**100], time):
        assert value(schema, cbor2.dumps(sent)) == sent
    for data in (b"", b"\x81", b"\x1c", b"\x61\xff"):
        assert decode_failure_reason(schema, data).startswith("cbor: ")
    shared = bytes.fromhex("d81c81d81d00")
    assert "tag 29" in decode_failure_reason(schema, shared), "a list that has itself in it"
    assert "tag 29" in decode_failure_reason(schema, b"\xd8\x1c\x82\xd8\x1c\x81\x01\xd9\x00\x1d\x01"), "written longer"
    assert value(schema, cbor2.dumps([29, [], [], {"a": 29}])) == [29, [], [], {"a": 29}]
    assert decode_failure_reason(schema, b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff").startswith("cbor: "), (
        "a long array that is not there"
    )


def test_json_payload_is_decoded() -> None:
    schema = Schema("a", "json")
    assert value(schema, b'{"a": [1, 2.5, null, "\xc3\xa9"]}') == {"a": [1, 2.5, None, "é"]}
    for data in (b"", b"{", b"\xff\xfe\x00", b"[" * 100_000, b"1" * 5000):
        assert decode_failure_reason(schema, data).startswith("json: ")


@pytest.mark.parametrize("data", [b'"<i4', b"5", b'[["a", "O"]]', b'[["a", "<i4"], ["a", "<i4"]]', b'"V0"', b"{}", b""])
def test_invalid_dtype_gives_reason(data: bytes) -> None:
    assert "is invalid: " in decode_failure_reason(Schema("a", "struct", data), bytes(8))


def test_payload_decoder_reads_schema_once() -> None:
    payload_decoder, schema = PayloadDecoder(), point_schema()
    first, second = (payload_decoder.decode_payload(schema, point(count=i)) for i in range(2))
    assert type(first) is type(second)
