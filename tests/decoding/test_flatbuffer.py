"""FlatBuffers, by the binary form of their schema: what its compiler and its library write, and hostile bytes."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgq.common.schema import Schema
from msgq.decoding.core import FlatBufferReader
from msgq.decoding.flatbuffer.flatbuffer_types import (
    FlatbufferArray,
    FlatbufferStruct,
    FlatbufferTable,
    FlatbufferType,
    FlatbufferUnion,
    FlatbufferVector,
)
from msgq.decoding.flatbuffer.schema_reader import read_flatbuffer_table
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.decoding.scalar_types import ScalarType, TextType
from tests.decoding.random_values import same

FILES = Path(__file__).parent / "files"
SCHEMA = (FILES / "every.bfbs").read_bytes()
MESSAGE = (FILES / "every.bin").read_bytes()
EVERY = FlatBufferReader(read_flatbuffer_table("tests.Every", SCHEMA))


def point(x: float, y: float, z: int) -> dict[str, Any]:
    return {"x": x, "y": y, "z": z}


NOTHING = {
    **{"truth": True, "small": -3, "octet": 0, "short_": 0, "ushort_": 0, "count": 42, "ucount": 0, "long_": 0},
    **{"ulong_": 0, "single": 0.0, "real": 1.5, "maybe": None, "color": "Green", "bits": "Two", "name": None},
    **dict.fromkeys(("data", "truths", "reals", "counts", "colors", "names", "point", "box", "points", "tag", "tags")),
    **{"body_type": "NONE", "body": None, "inner": None, "others": None},
}


def test_flatbuffer_reader_reads_flatc_message() -> None:
    """See every.json, which flatc made the message of."""
    box = {"low": point(1.0, 2.0, 3), "high": point(4.0, 5.0, 6), "sides": np.array([7, 8, 9], "i4"), "color": "Blue"}
    inner = NOTHING | {"name": "in", "body_type": "Shape", "body": {"name": "n", "box": None}}
    expected = NOTHING | {
        **{"truth": False, "small": 7, "octet": 255, "short_": -30000, "ushort_": 65535, "ucount": 4294967295},
        **{"long_": -5000000000, "ulong_": 9, "single": 0.5, "maybe": 0, "color": "Blue", "bits": 2**63 + 1},
        **{"name": "é", "data": b"\0\1\xff", "truths": np.array([True, False]), "reals": np.array([0.5, -1e300])},
        **{"counts": np.array([-1, 2147483647], "i4"), "colors": ["Red", "Green"], "names": ["a", ""]},
        **{"point": point(1.5, -2.0, 3), "box": box, "points": [point(1.0, 2.0, 3), point(4.0, 5.0, 6)]},
        **{"tag": {"key": "k", "value": "v"}, "tags": [{"key": "a", "value": None}, {"key": "b", "value": "c"}]},
        **{"body_type": "Tag", "body": {"key": "9", "value": None}, "inner": inner},
        "others": [NOTHING, NOTHING | {"body_type": "Shape", "body": {"name": "s", "box": None}}],
    }
    assert same(EVERY.read(MESSAGE), expected)


def finish_builder(builder: Any, root: int) -> bytes:
    builder.Finish(root)
    return bytes(builder.Output())


def place(number: int) -> int:
    """Return where a table's list of places has a field."""
    return 4 + 2 * number


def test_flatbuffer_reader_reads_message_of_library() -> None:
    builder = flatbuffers.Builder()
    text, data = builder.CreateString("text"), builder.CreateByteVector(b"data")
    numbers = builder.CreateNumpyVector(np.arange(5, dtype=np.uint16))
    builder.StartObject(5)
    builder.PrependUOffsetTRelativeSlot(0, text, 0)
    builder.PrependUOffsetTRelativeSlot(1, data, 0)
    builder.PrependUOffsetTRelativeSlot(2, numbers, 0)
    builder.PrependFloat32Slot(3, 0.25, 0)
    message = finish_builder(builder, builder.EndObject())
    kinds: list[FlatbufferType] = [
        TextType(),
        FlatbufferVector(ScalarType("u1")),
        FlatbufferVector(ScalarType("u2")),
        ScalarType("f4"),
        ScalarType("i8"),
    ]
    table = FlatbufferTable("Root", [(f"f{i}", place(i), kind, 7) for i, kind in enumerate(kinds)])
    expected = {"f0": "text", "f1": b"data", "f2": np.arange(5, dtype=np.uint16), "f3": 0.25, "f4": 7}
    assert same(FlatBufferReader(table).read(message), expected)


def test_flatbuffer_unions_of_structs_and_strings_are_read() -> None:
    kinds: dict[int, FlatbufferType] = {
        1: FlatbufferStruct(8, (("x", 0, ScalarType("i4")), ("y", 4, ScalarType("f4")))),
        2: TextType(),
    }
    reader = FlatBufferReader(
        FlatbufferTable(
            "Root", [("kind", place(0), ScalarType("u1"), 0), ("body", place(1), FlatbufferUnion(kinds), None)]
        )
    )
    builder = flatbuffers.Builder()
    builder.Prep(4, 8)
    builder.PrependFloat32(0.5)
    builder.PrependInt32(3)
    pair = builder.Offset()
    text = builder.CreateString("hello")
    for kind, body, expected in ((1, pair, {"x": 3, "y": 0.5}), (2, text, "hello")):
        builder.StartObject(2)
        builder.PrependUint8Slot(0, kind, 0)
        builder.PrependUOffsetTRelativeSlot(1, body, 0)
        root = builder.EndObject()
        copy = bytes(builder.Bytes[builder.Head() :])
        message = struct.pack("<I", 4 + len(copy) - root) + copy
        assert reader.read(message) == {"kind": kind, "body": expected}
    builder.StartObject(2)
    builder.PrependUint8Slot(0, 9, 0)
    builder.PrependUOffsetTRelativeSlot(1, text, 0)
    with pytest.raises(ValueError, match="body: union has type 9, which the schema does not define"):
        reader.read(finish_builder(builder, builder.EndObject()))


def test_flatbuffer_table_is_found_by_name_or_root() -> None:
    assert read_flatbuffer_table("tests.Tag", SCHEMA).name == "tests.Tag"
    assert read_flatbuffer_table("whatever", SCHEMA).name == "tests.Every"
    with pytest.raises(ValueError, match=r"'tests\.Point' is not a table"):
        read_flatbuffer_table("tests.Point", SCHEMA)


def decode_failure_reason(message: bytes, schema: bytes = SCHEMA) -> str:
    found = PayloadDecoder().decode_payload(Schema("tests.Every", "flatbuffer", schema), message)
    assert isinstance(found, Undecoded)
    return found.reason


def test_invalid_flatbuffer_message_raises_error() -> None:
    assert (
        decode_failure_reason(b"")
        == "flatbuffer: offset leads out of the message of 0 bytes: 1 elements of 4 bytes at byte 0"
    )
    assert "leads out of the message" in decode_failure_reason(b"\xff" * 64)
    assert "leads out of the message" in decode_failure_reason(MESSAGE[:100])


def test_invalid_flatbuffer_schema_raises_error() -> None:
    for schema in (b"", b"\xff" * 64, SCHEMA[: len(SCHEMA) // 2]):
        assert "is invalid: " in decode_failure_reason(MESSAGE, schema)


def repeated_text_message(count: int, size: int) -> tuple[FlatBufferReader, bytes]:
    """Return a message that has one text so many times."""
    builder = flatbuffers.Builder()
    text = builder.CreateString("x" * size)
    builder.StartVector(4, count, 4)
    for _ in range(count):
        builder.PrependUOffsetTRelative(text)
    texts = builder.EndVector()
    builder.StartObject(1)
    builder.PrependUOffsetTRelativeSlot(0, texts, 0)
    message = finish_builder(builder, builder.EndObject())
    return FlatBufferReader(FlatbufferTable("Root", [("texts", place(0), FlatbufferVector(TextType()), None)])), message


def test_repeated_flatbuffer_references_are_bounded() -> None:
    reader, message = repeated_text_message(3, 100)
    assert reader.read(message)["texts"] == ["x" * 100] * 3
    reader, message = repeated_text_message(5000, 100_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="repeat the bytes of the message more than 16 times"):
            reader.read(message)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.ci
def test_recursive_flatbuffer_tables_are_bounded() -> None:
    """Each level has the next one twice: without a bound that is 2^99 tables, of 1 kB."""
    node = FlatbufferTable("Node")
    node.fields.extend([("a", place(0), node, None), ("b", place(1), node, None)])
    reader, builder = FlatBufferReader(node), flatbuffers.Builder()
    builder.StartObject(2)
    last = builder.EndObject()
    for _ in range(99):
        builder.StartObject(2)
        builder.PrependUOffsetTRelativeSlot(0, last, 0)
        builder.PrependUOffsetTRelativeSlot(1, last, 0)
        last = builder.EndObject()
    begin = time.process_time()
    with pytest.raises(ValueError, match="more than 4194304 values"):
        reader.read(finish_builder(builder, last))
    assert time.process_time() - begin < 20
    chain = flatbuffers.Builder()
    chain.StartObject(2)
    last = chain.EndObject()
    for _ in range(200):
        chain.StartObject(2)
        chain.PrependUOffsetTRelativeSlot(0, last, 0)
        last = chain.EndObject()
    with pytest.raises(ValueError, match=r"^a\.a\.a.*: value is nested deeper than 100 levels"):
        reader.read(finish_builder(chain, last))


@pytest.mark.parametrize(
    "kind",
    [
        FlatbufferVector(FlatbufferVector(ScalarType("u1"))),
        FlatbufferVector(FlatbufferUnion({})),
        FlatbufferArray(TextType(), 3),
        FlatbufferUnion({1: ScalarType("u8")}),
    ],
)
def test_unsupported_flatbuffer_type_raises_error(kind: FlatbufferType) -> None:
    with pytest.raises(ValueError, match="which is not supported"):
        FlatBufferReader(FlatbufferTable("Root", [("x", 4, kind, None)]))


@settings(max_examples=300)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(MESSAGE) - 1), st.integers(0, 255)), min_size=1, max_size=6),
    end=st.integers(0, len(MESSAGE)),
    size=st.sampled_from([1, 4]),
)
def test_changed_flatbuffer_message_bytes_do_not_crash(changes: list[tuple[int, int]], end: int, size: int) -> None:
    data = bytearray(MESSAGE)
    for at, value in changes:
        data[at : at + size] = bytes([value]) * size
    try:
        assert isinstance(EVERY.read(bytes(data[: end if size == 1 else None])), dict)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either is right


@settings(max_examples=200)
@given(changes=st.lists(st.tuples(st.integers(0, len(SCHEMA) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_flatbuffer_schema_bytes_do_not_crash(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SCHEMA)
    for at, value in changes:
        data[at] = value
    found = PayloadDecoder().decode_payload(Schema("tests.Every", "flatbuffer", bytes(data)), MESSAGE)
    assert isinstance(found, dict) or (isinstance(found, Undecoded) and found.reason)
