"""CDR, and messages of ROS 1: what other libraries write is read, in each of its forms; and nothing that is none."""

from __future__ import annotations

import random
import struct
import time
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msgq.common.schema import Schema
from msgq.decoding.cdr_writer import encode_cdr
from msgq.decoding.core import CdrReader
from msgq.decoding.idl import parse_idl_struct
from msgq.decoding.payload_decoder import PayloadDecoder, Undecoded
from msgq.decoding.rosmsg import parse_ros1_struct, parse_ros2_struct
from tests.decoding.random_values import random_value, same

LINE = "=" * 80
TIMES = {"sec": "secs", "nanosec": "nsecs"}  # names in rosbags of the parts of ROS 1's times
EVERY = (
    f"bool truth\nint8 a\nuint8 b\nint16 c\nuint16 d\nint32 e\nuint32 f\nint64 g\nuint64 h\nfloat32 i\nfloat64 j\n"
    f"string text\nbool[] truths\nint16[3] three\nfloat64[] some\nuint8[] octets\nuint8[5] five\nstring[] texts\n"
    f"string[2] pair\nPart part\nPart[] parts\nPart[2] two\nfloat64 last\n"
    f"{LINE}\nMSG: pkg/Part\nint8 x\nfloat64 y\nstring name\nInner[] inner\n{LINE}\nMSG: pkg/Inner\nint64[] z"
)
TYPES = ["sensor_msgs/msg/Imu", "sensor_msgs/msg/PointCloud2", "sensor_msgs/msg/JointState", "tf2_msgs/msg/TFMessage"]


def read(text: str, message: bytes) -> Any:
    return CdrReader(parse_ros2_struct("pkg/msg/Name", text), is_cdr=True).read(message)


def of_rosbags(store: Any, name: str, value: dict[str, Any]) -> Any:
    """Return a message as rosbags has it."""
    from rosbags.interfaces import Nodetype

    made = {}
    for field, (node, what) in store.fielddefs[name][1]:
        one: Any = value[field] if field in value else value[TIMES[field]] if field in TIMES else 0
        if node == Nodetype.NAME:
            one = of_rosbags(store, what, one)
        elif node != Nodetype.BASE and what[0][0] == Nodetype.NAME:
            one = [of_rosbags(store, what[0][1], part) for part in one]
        elif isinstance(one, bytes):
            one = np.frombuffer(one, np.uint8)
        made[field] = one
    return store.types[name](**made)


def store_of(text: str, name: str) -> Any:
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.EMPTY)
    store.register(get_types_from_msg(text, name))
    return store


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_cdr_reader_reads_rosbags_messages(little: bool, seed: int) -> None:
    defined, store = parse_ros2_struct("pkg/msg/Every", EVERY), store_of(EVERY, "pkg/msg/Every")
    value = random_value(defined, random.Random(seed))
    message = of_rosbags(store, "pkg/msg/Every", value)
    data = bytes(store.serialize_cdr(message, "pkg/msg/Every", little_endian=little))
    assert same(CdrReader(defined, is_cdr=True).read(data), value)
    first = parse_ros1_struct("pkg/Every", EVERY)
    data = bytes(store.serialize_ros1(message, "pkg/msg/Every"))
    assert same(CdrReader(first, is_cdr=False).read(data), value)


@pytest.mark.parametrize("seed", range(5))
def test_cdr_writer_agrees_with_rosbags(seed: int) -> None:
    defined, store = parse_ros2_struct("pkg/msg/Every", EVERY), store_of(EVERY, "pkg/msg/Every")
    value = random_value(defined, random.Random(seed))
    data = encode_cdr(defined, value)
    assert data == bytes(store.serialize_cdr(of_rosbags(store, "pkg/msg/Every", value), "pkg/msg/Every"))
    assert same(CdrReader(defined, is_cdr=True).read(data), value)


def test_unwritable_cdr_value_raises_error() -> None:
    defined = parse_ros2_struct("pkg/msg/Name", "uint8 x\nuint8[2] y\nint16[] z")
    for value in (
        {"x": 1, "y": b"ab"},
        {"x": 256, "y": b"ab", "z": []},
        {"x": "a", "y": b"ab", "z": []},
        {"x": 1, "y": b"a", "z": []},
        {"x": 1, "y": b"ab", "z": b"ab"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011  # of whatever
            encode_cdr(defined, value)


def before_2038(value: Any) -> Any:
    """Return a value with times of ROS 1 that rosbags can write."""
    if isinstance(value, list):
        return [before_2038(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: one & 0x7FFFFFFF if name in TIMES.values() else before_2038(one) for name, one in value.items()}


@pytest.mark.ci
@pytest.mark.parametrize("first", [True, False])
def test_cdr_reader_reads_all_types_of_ros_distribution(first: bool) -> None:
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS1_NOETIC if first else Stores.ROS2_JAZZY)
    chance, compared = random.Random(1), 0
    for name in store.fielddefs:
        text = store.generate_msgdef(name, ros_version=1 if first else 2)[0]
        if " byte" in f" {text}".replace("\n", " "):
            continue  # rosbags takes it for a signed one in ROS 2
        defined = (parse_ros1_struct if first else parse_ros2_struct)(name, text)
        reader = CdrReader(defined, is_cdr=not first)
        value = before_2038(random_value(defined, chance))
        message = of_rosbags(store, name, value)
        forms = [store.serialize_ros1(message, name)] if first else []
        forms += [] if first else [store.serialize_cdr(message, name, little_endian=one) for one in (True, False)]
        assert all(same(reader.read(bytes(data)), value) for data in forms), name
        compared += 1
    assert compared > 150


def plain(value: Any) -> Any:
    """Return a value as mcap_ros2.writer and mcap_ros1.writer want it."""
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.mark.parametrize("seed", range(5))
def test_cdr_reader_reads_files_of_mcap_ros2_writer(seed: int, tmp_path: Any) -> None:
    from mcap_ros2.writer import Writer

    from msgq.recording import LogReader

    value = random_value(parse_ros2_struct("pkg/msg/Every", EVERY), random.Random(seed))
    with (tmp_path / "a.mcap").open("wb") as file:
        writer: Any = Writer(file)  # it has types in part
        schema = writer.register_msgdef("pkg/msg/Every", EVERY)
        writer.write_message("/every", schema, plain(value), 1, 2, 3)
        writer.finish()
    ((message, found),) = LogReader(tmp_path / "a.mcap").decoded()
    assert message.schema is not None
    assert (message.schema.encoding, message.schema.schema_encoding) == ("cdr", "ros2msg")
    assert same(found, value)


def test_ros1_reader_reads_files_of_mcap_ros1_writer(tmp_path: Any) -> None:
    from mcap.writer import Writer

    from msgq.recording import LogReader

    text = "time stamp\nduration span\nstring name\nbyte[] signed\nchar[] octets\n"
    head = struct.pack("<IIiI", 5, 6, -7, 8)
    data = head + b"\x02\0\0\0ab" + b"\x02\0\0\0\xff\x01" + b"\x02\0\0\0\xff\x01"
    with (tmp_path / "a.mcap").open("wb") as file:
        writer = Writer(file)
        writer.start("ros1")
        schema = writer.register_schema("pkg/Name", "ros1msg", text.encode())
        writer.add_message(writer.register_channel("/a", "ros1", schema), 1, data, 1)
        writer.finish()
    ((_, found),) = LogReader(tmp_path / "a.mcap").decoded()
    expected = {"stamp": {"secs": 5, "nsecs": 6}, "span": {"secs": -7, "nsecs": 8}, "name": "ab"}
    assert same(found, expected | {"signed": np.array([-1, 1], "i1"), "octets": b"\xff\x01"})


def test_cdr_arrays_are_read_only_views() -> None:
    found = read("float32[] x", b"\0\1\0\0\2\0\0\0" + struct.pack("<2f", 1, 2))["x"]
    assert found.tolist() == [1, 2]
    assert not found.flags.writeable
    assert not found.flags.owndata


def test_cdr_bool_is_true_for_nonzero_bytes() -> None:
    found = read("bool x\nbool[] y", b"\0\1\0\0\x07\0\0\0\2\0\0\0\x02\0")
    assert (found["x"], found["y"].tolist()) == (True, [True, False])


def test_cdr_padding_at_end_is_ignored() -> None:
    for more in range(4):
        assert read("uint8 x", b"\0\1\0\0\x05" + bytes(more)) == {"x": 5}
    with pytest.raises(ValueError, match="message has 9 bytes, of which the schema leaves 4 unused"):
        read("uint8 x", b"\0\1\0\0\x05" + bytes(4))
    with pytest.raises(ValueError, match="message has 2 bytes, of which the schema leaves 1 unused"):
        CdrReader(parse_ros1_struct("pkg/Name", "uint8 x"), is_cdr=False).read(b"\x05\0")


def test_empty_cdr_string_without_terminator_is_read() -> None:
    assert read("string x\nuint8 y", b"\0\1\0\0\0\0\0\0\x05") == {"x": "", "y": 5}


@pytest.mark.parametrize("little", [True, False])
def test_cdr_wide_strings_are_read_in_all_encodings(little: bool) -> None:
    number, order = ("<I", "le") if little else (">I", "be")
    head = bytes((0, little, 0, 0))
    text = "a€😀"  # four UTF-16 units
    units = text.encode(f"utf-16-{order}")
    quads = b"".join((b"\0\0" + units[i : i + 2] if not little else units[i : i + 2] + b"\0\0") for i in range(0, 8, 2))
    ways = (
        struct.pack(number, 8) + units,
        struct.pack(number, 5) + units + b"\0\0",
        struct.pack(number, 4) + quads,
    )
    for way in ways:
        for message in (way, way + bytes(-len(way) % 4) + way):
            definition = "wstring x" if message == way else "wstring x\nwstring y"
            assert set(read(definition, head + message).values()) == {text}
    reader = CdrReader(parse_ros2_struct("pkg/msg/Name", "wstring x"), is_cdr=True)
    for way in (*ways, *ways):
        assert reader.read(head + way) == {"x": text}, "each message may be another one's"


IDL = """
@final struct Fixed { octet a; double b; };
@appendable struct Grown { octet a; double b; };
enum Color { RED, GREEN };
struct Open { octet a; double b; };
struct A { octet first; double second; Fixed fixed; Grown grown; sequence<Fixed> several; sequence<string> texts;
    Color color; sequence<long> numbers; Open open; octet last; };
"""


def test_xcdr2_messages_are_read() -> None:
    """Numbers of 8 bytes are aligned to 4, and lengths stand before what may grow, and before lists of other things."""
    pair = struct.pack("<Bxxxd", 1, 0.5)
    value = {"a": 1, "b": 0.5}
    for kind, delimited in ((7, False), (0x11, False), (9, True), (0x15, True)):
        for more in (b"", b"\7\7\7\7"):
            content = pair + pair + struct.pack("<I", 12 + len(more)) + pair + more
            content += struct.pack("<II", 4 + 24, 2) + 2 * pair
            content += struct.pack("<IIIBxxxI2s", 4 + 5 + 3 + 6, 2, 1, 0, 2, b"y\0")
            content += b"\0\0" + struct.pack("<I", 1) + struct.pack("<Iii", 2, -1, 3)
            content += (struct.pack("<I", 12) if delimited else b"") + pair + b"\x09"
            if delimited:
                content = struct.pack("<I", len(content)) + content
            found = CdrReader(parse_idl_struct("A", IDL), is_cdr=True).read(bytes((0, kind, 0, 0)) + content)
            assert (found["first"], found["second"]) == (1, 0.5)
            assert found["fixed"] == found["grown"] == found["open"] == value
            assert found["several"] == [value, value]
            assert (found["texts"], found["color"]) == (["", "y"], "GREEN")
            assert (found["numbers"].tolist(), found["last"]) == ([-1, 3], 9)


def test_cdr_enum_value_without_name_is_number() -> None:
    reader = CdrReader(parse_idl_struct("A", "enum C { ONE }; struct A { C x; };"), is_cdr=True)
    assert reader.read(b"\0\1\0\0\0\0\0\0") == {"x": "ONE"}
    assert reader.read(b"\0\1\0\0\xff\xff\xff\xff") == {"x": -1}


def decode_failure_reason(text: str, message: bytes, encoding: str = "cdr") -> str:
    found = PayloadDecoder().decode_payload(Schema("pkg/msg/Name", encoding, text.encode()), message)
    assert isinstance(found, Undecoded)
    assert found.data == message
    return found.reason


HEAD = b"\0\1\0\0"
MOST = b"\xff\xff\xff\xff"
PART = f"\n{LINE}\nMSG: pkg/Part\nuint8 y\nstring z"


@pytest.mark.parametrize(
    ("text", "message", "reason"),
    [
        ("uint8 x", b"", "message has 0 bytes; a CDR header has 4"),
        ("uint8 x", b"\0\3\0\0\1", "CDR representation 0x0003 is not"),
        ("uint8 x", b"\0\x0b\0\0\1", "CDR representation 0x000b is not"),
        ("uint8 x", b"\xff\1\0\0\1", "CDR representation 0xff01 is not"),
        ("uint8 x", HEAD, "x: message ends too early, after 4 bytes"),
        ("uint8 x\nuint32 y", HEAD + bytes(6), "y: message ends too early, after 10 bytes"),
        ("uint8[] x", HEAD + MOST, "x: 4294967295 elements of 1 bytes do not fit into the remaining 0 bytes"),
        ("float64[] x", HEAD + MOST, "x: 4294967295 elements of 8 bytes do not fit into the remaining -"),
        ("string x", HEAD + MOST, "x: 4294967295 elements of 1 bytes"),
        ("wstring x", HEAD + MOST, "x: 4294967295 elements of 1 bytes"),
        ("string[] x", HEAD + MOST, "x: 4294967295 elements of 4 bytes"),
        (f"Part[] x{PART}", HEAD + MOST, "x: 4294967295 elements of 5 bytes"),
        (f"Part[2000000000] x{PART}", HEAD + MOST, "x: 2000000000 elements of 5 bytes"),
        (f"Part[] x{PART}", HEAD + b"\2\0\0\0\1\0\0\0\1\0\0\0\0" + b"\1\0\0" + MOST, r"x[1].z: 4294967295 elements"),
        ("string x", HEAD + b"\2\0\0\0\xff\0", "x: text contains invalid UTF-8 at byte 0"),
        ("wstring x", HEAD + b"\2\0\0\0\0\xd8", "x: wide text contains invalid UTF-16 at byte 0"),
    ],
)
def test_invalid_cdr_message_raises_error(text: str, message: bytes, reason: str) -> None:
    assert decode_failure_reason(text, message).startswith(f"cdr: {reason}".removesuffix("-"))


def test_unknown_schema_encoding_gives_reason() -> None:
    found = PayloadDecoder().decode_payload(Schema("a", "cdr", b"x", schema_encoding="other"), b"")
    assert isinstance(found, Undecoded)
    assert "schema encoding 'other' is not supported" in found.reason


def test_cdr_value_count_is_bounded() -> None:
    """A part of one byte costs two hundred in Python."""
    text = f"Part[] x\n{LINE}\nMSG: pkg/Part\nuint8 y"
    message = HEAD + struct.pack("<I", 2**24) + bytes(2**24)
    tracemalloc.start()
    try:
        assert decode_failure_reason(text, message) == "cdr: x: message has more than 4194304 values"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_number_of_cdr_elements_without_bytes_is_bounded() -> None:
    text = f"Part[1000000] x\n{LINE}\nMSG: pkg/Part\nuint8 A=1"
    assert "elements without bytes" in decode_failure_reason(text, b"", "ros1")


READERS = {
    "cdr": CdrReader(parse_ros2_struct("pkg/msg/Every", EVERY), is_cdr=True),
    "ros1": CdrReader(parse_ros1_struct("pkg/Every", EVERY), is_cdr=False),
}
GOOD = encode_cdr(
    parse_ros2_struct("pkg/msg/Every", EVERY), random_value(parse_ros2_struct("pkg/msg/Every", EVERY), random.Random(2))
)


@settings(max_examples=300)
@given(
    flips=st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=4),
    end=st.integers(0, len(GOOD)),
    encoding=st.sampled_from(["cdr", "ros1"]),
)
def test_changed_cdr_message_bytes_do_not_crash(flips: list[tuple[int, int]], end: int, encoding: str) -> None:
    data = bytearray(GOOD if encoding == "cdr" else GOOD[4:])
    for place, value in flips:
        data[min(place, len(data) - 1)] = value
    begin = time.process_time()
    try:
        assert isinstance(READERS[encoding].read(bytes(data[:end])), dict)
    except ValueError as error:
        assert str(error)  # noqa: PT017  # either is right
    assert time.process_time() - begin < 1
