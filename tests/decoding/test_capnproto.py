"""Cap'n Proto, by the binary form of its schemas: what pycapnp writes, as pycapnp reads it; and hostile bytes."""

from __future__ import annotations

import struct
import time
import tracemalloc
from pathlib import Path
from typing import Any

import capnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgq.common.schema import Schema
from msgq.decoding.capnproto.capnp_types import CapnpField, CapnpList, CapnpStruct, CapnpVoid
from msgq.decoding.capnproto.compiler import compile_capnp_file
from msgq.decoding.capnproto.schema_reader import read_capnp_struct
from msgq.decoding.core import CapnpReader
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.decoding.scalar_types import ScalarType
from msgq.errors import InvalidValueError
from tests.cases import each_case

CAR = """@0x8e2af1e708af8b8d;
struct CarState {
  vEgo @0 :Float32 = 1.5;
  gear @1 :Gear = drive;
  names @2 :List(Text);
  enum Gear { park @0; drive @1; reverse @2; }
}
"""
LOG = """@0xf3b1f17e25a4285b;
using Car = import "car.capnp";
struct Map(Key, Value) {
  entries @0 :List(Entry);
  struct Entry { key @0 :Key; value @1 :Value; }
}
struct Can { address @0 :UInt32; dat @1 :Data; src @2 :UInt8; }
struct Tree { kids @0 :List(Tree); nothing @1 :List(Void); name @2 :Text; }
struct Event {
  logMonoTime @0 :UInt64;
  valid @1 :Bool = true;
  union {
    carState @2 :Car.CarState;
    can @3 :List(Can);
    nothing @4 :Void;
    tree @5 :Tree;
    texts @6 :Map(Text, Text);
    cans @7 :Map(Text, Can);
    lists @8 :Map(Data, List(Int16));
    few :group { x @9 :Int32 = -5; y @10 :Float64; }
    any @11 :AnyPointer;
  }
  i8 @12 :Int8 = -1; i16 @13 :Int16; i32 @14 :Int32; i64 @15 :Int64 = -9;
  u8 @16 :UInt8; u16 @17 :UInt16; f32 @18 :Float32; f64 @19 :Float64 = 0.5;
  truths @20 :List(Bool); bytes @21 :List(UInt8); halves @22 :List(Float32); gears @23 :List(Car.CarState.Gear);
  data @24 :Data; deep @25 :List(List(Int32));
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("capnp")
    (folder / "car.capnp").write_text(CAR)
    (folder / "log.capnp").write_text(LOG)
    return folder


@pytest.fixture(scope="module")
def schema(folder: Path) -> bytes:
    return compile_capnp_file(folder / "log.capnp")


@pytest.fixture(scope="module")
def event(folder: Path) -> Any:
    return capnp.load(str(folder / "log.capnp")).Event


@pytest.fixture(scope="module")
def reader(schema: bytes) -> CapnpReader:
    return CapnpReader(read_capnp_struct("Event", schema))


def pycapnp(event: Any, data: bytes) -> Any:
    with event.from_bytes(data) as found:
        return found.to_dict()


def plain(value: Any) -> Any:
    """Return a value as pycapnp has it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


MESSAGES: dict[str, dict[str, Any]] = {
    "nothing but what it has by default": {},
    "texts and enums": {
        "carState": {"vEgo": -2.5, "names": ["a", "", "é"], "gear": "reverse"},
        "logMonoTime": 2**64 - 1,
    },
    "structs in a list": {"can": [{"address": i, "dat": bytes(i), "src": i} for i in range(9)], "valid": False},
    "a void": {"nothing": None},
    "structs within themselves": {"tree": {"kids": [{"nothing": [None] * 3}, {"name": "x", "kids": [{}]}]}},
    "parameters: texts": {"texts": {"entries": [{"key": "k", "value": "v"}]}},
    "parameters: structs": {"cans": {"entries": [{"key": "k", "value": {"address": 5}}]}},
    "parameters: lists": {"lists": {"entries": [{"key": b"k", "value": [1, -2]}]}},
    "a group": {"few": {"x": 7, "y": -0.5}},
    "numbers": {
        "i8": 5,
        "i16": -300,
        "i32": -(2**31),
        "i64": 2**62,
        "u8": 255,
        "u16": 65535,
        "f32": 0.5,
        "f64": -1e300,
    },
    "lists of numbers": {
        **{"truths": [True, False] * 5 + [True], "halves": [0.5, -1], "gears": ["park", "reverse"], "data": b"\0\1"},
        "deep": [[1, 2], [], [3]],
    },
}


@each_case("what", MESSAGES)
@each_case("first_segment", [1024, 1, 4])
def test_capnp_reader_agrees_with_pycapnp(what: str, first_segment: int, event: Any, reader: Any) -> None:
    """Segments that are too small make far pointers."""
    builder = event.new_message(first_segment, **MESSAGES[what])
    data = builder.to_bytes()
    if first_segment == 1 and len(MESSAGES[what]):
        assert struct.unpack_from("<I", data)[0], "there is one segment only"
    assert plain(reader.read(data)) == pycapnp(event, data)


def test_capnp_number_lists_are_arrays(event: Any, reader: CapnpReader) -> None:
    found = reader.read(event.new_message(truths=[True, False], bytes=[1, 255], halves=[0.5]).to_bytes())
    assert (found["truths"].dtype, found["truths"].tolist()) == (np.bool_, [True, False])
    assert found["bytes"] == b"\1\xff"
    assert (found["halves"].dtype, found["halves"].flags.writeable) == (np.float32, False)


def test_capnp_any_pointers_are_none(event: Any, reader: CapnpReader) -> None:
    message = event.new_message()
    message.init("any")
    assert reader.read(message.to_bytes())["any"] is None


GROWN = """@0x8e2af1e708af8b8{};
struct A {{ x @0 :Int16 = 3; {} list @{} :List({}); }}
struct B {{ y @0 :Int32; {} }}
"""


def test_capnp_messages_of_other_schema_versions_are_read(tmp_path: Path) -> None:
    """What a schema does not know is passed over; what a message does not have is what it is by default."""
    (tmp_path / "old.capnp").write_text(GROWN.format("a", "", 1, "Int32", ""))
    (tmp_path / "new.capnp").write_text(
        "@0x8e2af1e708af8b8b;\nstruct A { x @0 :Int16 = 3; list @1 :List(B); more @2 :Int64 = 9; text @3 :Text; }\n"
        "struct B { y @0 :Int32; z @1 :Text; w @2 :Int64 = 4; }\n"
    )
    old, new = (
        CapnpReader(read_capnp_struct("A", compile_capnp_file(tmp_path / f"{name}.capnp"))) for name in ("old", "new")
    )
    writers = [capnp.load(str(tmp_path / f"{name}.capnp")).A for name in ("old", "new")]
    of_old = writers[0].new_message(x=1, list=[5, 6]).to_bytes()
    of_new = writers[1].new_message(x=1, list=[{"y": 5, "z": "a"}, {"y": 6}], more=2, text="t").to_bytes()
    assert plain(old.read(of_old)) == {"x": 1, "list": [5, 6]}
    assert plain(old.read(of_new)) == {"x": 1, "list": [5, 6]}
    assert new.read(of_new) == {"x": 1, "list": [{"y": 5, "z": "a", "w": 4}, {"y": 6, "w": 4}], "more": 2, "text": "t"}
    assert new.read(of_old) == {"x": 1, "list": [{"y": 5, "w": 4}, {"y": 6, "w": 4}], "more": 9}


def test_capnp_struct_is_found_by_name(schema: bytes) -> None:
    assert read_capnp_struct("log.capnp:Event", schema).name == "log.capnp:Event"
    assert read_capnp_struct("Map.Entry", schema).name == "log.capnp:Map.Entry"
    assert read_capnp_struct("CarState", schema).name == "car.capnp:CarState"
    with pytest.raises(ValueError, match="struct 'Events' is not defined"):
        read_capnp_struct("Events", schema)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("struct A { x @0 :Int32; }", "File does not declare an ID"),
        ("@0x8e2af1e708af8b8c;\nstruct A { x @0 :Missing; }", "Not defined: Missing"),
        (
            '@0x8e2af1e708af8b8c;\nusing B = import "no.capnp";\nstruct A { x @0 :B.C; }',
            "import 'no.capnp' not found",
        ),
        ("@0x8e2af1e708af8b8c;\nstruct A {", "Parse error"),
        ("\xff\0", "failed"),
    ],
)
def test_invalid_capnp_schema_text_raises_error(text: str, why: str, tmp_path: Path) -> None:
    """The library ends its process then, which is not this one."""
    (tmp_path / "a.capnp").write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidValueError, match=r"a\.capnp' is invalid") as error:
        compile_capnp_file(tmp_path / "a.capnp")
    assert why in str(error.value)


def why(data: bytes, schema: bytes) -> str:
    found = PayloadDecoder().decode_payload(Schema("Event", "capnproto", schema), data)
    assert isinstance(found, Undecoded)
    return found.reason


def message(*words: int) -> bytes:
    return struct.pack(f"<II{len(words)}Q", 0, len(words), *words)


def to_struct(words: int, pointers: int, offset: int = 0) -> int:
    return offset << 2 | words << 32 | pointers << 48


def to_list(kind: int, count: int, offset: int = 0) -> int:
    return 1 | (offset & 0x3FFFFFFF) << 2 | kind << 32 | count << 35


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "message has 0 bytes"),
        (bytes(8), "leads out of segment 0: 1 words at word 1"),
        (b"\xff" * 64, "too few for its 4294967296 segments"),
        (struct.pack("<II", 0, 1), "segment 0 ends after the 8 bytes of the message"),
        (message(0), "message has no root struct"),
        (message(to_list(2, 0)), "pointer does not lead to a struct"),
        (message(to_struct(65535, 65535)), "leads out of segment 0: 131070 words at word 2"),
        (message(2 | 5 << 32), "pointer leads to segment 5; the message has 1 segments"),
        (message(2 | 100 << 3), "leads out of segment 0: 1 words at word 101"),
        (message(6 | 1 << 3, 0, 0), "far pointer leads to an invalid landing pad"),
    ],
)
def test_invalid_capnp_message_raises_error(data: bytes, reason: str, schema: bytes) -> None:
    assert reason in why(data, schema)


LISTS = CapnpStruct(
    "Root", fields=[CapnpField("a", CapnpList(CapnpVoid()), 0), CapnpField("b", CapnpList(CapnpStruct("Empty")), 1)]
)
LISTS.fields.append(CapnpField("c", CapnpList(ScalarType("u4")), 2))


@pytest.mark.parametrize(
    ("pointers", "reason"),
    [
        ([to_list(0, 2**29 - 1), 0, 0], "a: message has more than 4194304 values"),
        ([0, to_list(7, 0, 1), 0, (2**29 - 1) << 2], "b: message has more than 4194304 values"),
        ([0, to_list(7, 0, 1), 0, to_struct(1, 0) | 4 << 2], "b: list has more elements than its words can hold"),
        ([0, 0, to_list(4, 2**29 - 1)], "c: pointer leads out of segment 0: 268435456 words at word"),
        ([0, 0, to_list(5, 0)], "c: list has element size code 5; expected 4"),
        ([0, 0, to_struct(0, 0, -1 & 0x3FFFFFFF)], "c: pointer does not lead to a list"),
    ],
)
def test_invalid_capnp_list_raises_error(pointers: list[int], reason: str) -> None:
    """Elements may have no bytes: a word can say that there are half a billion."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=reason):
            CapnpReader(LISTS).read(message(to_struct(0, 3), *pointers))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.ci
def test_recursive_capnp_structs_are_bounded() -> None:
    node = CapnpStruct("Node")
    node.fields.extend([CapnpField("a", node, 0), CapnpField("b", node, 1)])
    with pytest.raises(ValueError, match=r"^a\.a\.a.*: value is nested deeper than 64 levels"):
        CapnpReader(node).read(message(to_struct(0, 2), to_struct(0, 2, -1 & 0x3FFFFFFF), 0))
    # Each has the next one twice.
    words = [to_struct(0, 2)]
    for _ in range(60):
        words += [to_struct(0, 2, 1), to_struct(0, 2, 0)]
    begin = time.process_time()
    with pytest.raises(ValueError, match="more than 4194304 values"):
        CapnpReader(node).read(message(*words, 0, 0))
    assert time.process_time() - begin < 20


@pytest.fixture(scope="module")
def good(event: Any) -> list[bytes]:
    return [event.new_message(size, **fields).to_bytes() for size in (1, 1024) for fields in MESSAGES.values()]


@settings(max_examples=300)
@given(
    which=st.integers(0, 2 * len(MESSAGES) - 1),
    changes=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6),
    cut=st.integers(0, 64),
)
def test_changed_capnp_message_bytes_do_not_crash(
    which: int, changes: list[tuple[int, int]], cut: int, good: list[bytes], reader: CapnpReader
) -> None:
    data = bytearray(good[which])
    for at, value in changes:
        data[at % len(data)] = value
    try:
        assert isinstance(reader.read(bytes(data[: len(data) - cut])), dict)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either is right


@settings(max_examples=200)
@given(changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_capnp_schema_bytes_do_not_crash(
    changes: list[tuple[int, int]], schema: bytes, good: list[bytes]
) -> None:
    data = bytearray(schema)
    for at, value in changes:
        data[at % len(data)] = value
    found = PayloadDecoder().decode_payload(Schema("Event", "capnproto", bytes(data)), good[2])
    assert isinstance(found, dict) or (isinstance(found, Undecoded) and found.reason)
