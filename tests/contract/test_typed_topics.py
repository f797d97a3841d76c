"""Publishers with a schema: what `send` accepts, and what other programs see."""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import msgq
from msgq import stats
from msgq.errors import InvalidTypeError, InvalidValueError, MessageSizeError, RecordTypeError
from msgq.recording import LogReader, Recorder
from msgq.topic import api
from tests.cases import each_case
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, DEADLINE_MS

IMU = np.dtype([("time", "<u8"), ("acceleration", "<f4", 3)])
ROW = np.array((5, (1.0, 2.0, 3.0)), IMU)
Connect = Callable[[Any], tuple[Any, Any]]


class ImuStruct(ctypes.Structure):
    """The same bytes as `IMU`."""

    _fields_ = (("time", ctypes.c_uint64), ("acceleration", ctypes.c_float * 3))
    _layout_ = "ms"  # Python 3.14 requires a layout with `_pack_`; earlier versions ignore it
    _pack_ = 1


class PointerStruct(ctypes.Structure):
    _fields_ = (("inner", ctypes.c_char_p * 2),)


@pytest.fixture
def connect(backend: Backend, endpoint: str) -> Any:
    """Connect a publisher with a schema, and a subscriber."""
    sockets: list[Any] = []

    def connect_pair(schema: Any) -> tuple[Any, Any]:
        pub = api.pub_sock(endpoint, schema=schema, backend=backend.name)
        sub = api.sub_sock(endpoint, timeout=DEADLINE_MS, backend=backend.name)
        sockets.extend((pub, sub))
        pub.wait_for_readers(DEADLINE, n=1)
        return pub, sub

    yield connect_pair
    for socket in sockets:
        socket.close()


MESSAGES = [
    ROW[()],
    ROW,
    ROW.reshape(1),
    (5, (1, 2, 3)),
    {"acceleration": [1, 2, 3], "time": 5},
    ROW.tobytes(),
    bytearray(ROW.tobytes()),
    memoryview(ROW.tobytes()),
    ImuStruct.from_buffer_copy(ROW.tobytes()),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_record_of_each_form_arrives_with_the_same_bytes(connect: Connect, message: Any) -> None:
    pub, sub = connect(IMU)
    pub.send(message)
    data = sub.receive()
    assert np.frombuffer(data, IMU)[0] == ROW


def test_received_records_decode_as_one_array(connect: Connect) -> None:
    pub, sub = connect(IMU)
    rows = np.zeros(3, IMU)
    rows["time"] = [1, 2, 3]
    assert pub.send_many(rows) == 3
    assert pub.send_many([(4, (0, 0, 0)), ROW.tobytes()]) == 2
    assert pub.send_many(row for row in rows[:1]) == 1
    assert [int(np.frombuffer(data, IMU)[0]["time"]) for data in collect(sub, 6)] == [1, 2, 3, 4, 5, 1]


def test_reserve_accepts_only_the_size_of_a_record(connect: Connect) -> None:
    pub, sub = connect(IMU)
    for reserve in (pub.reserve, pub.loan):
        with pytest.raises(MessageSizeError, match="19 bytes, but a record has 20"):
            reserve(19)
    with pub.reserve(20) as view:
        view[:] = ROW.tobytes()
    assert sub.receive() == ROW.tobytes()


@each_case(
    "message, error, match",
    [
        (b"short", MessageSizeError, "5 bytes, but a record has 20"),
        (memoryview(bytes(24)), MessageSizeError, "24 bytes"),
        ((ctypes.c_char * 3)(), MessageSizeError, "3 bytes"),
        (ROW.tobytes().decode("latin-1"), RecordTypeError, "str is not a record"),
        (7, RecordTypeError, "int is not a record"),
        ([5, (1, 2, 3)], RecordTypeError, "give a tuple"),
        (None, RecordTypeError, "NoneType"),
        ((5,), InvalidValueError, "tuple"),
        ((5, (1, 2)), InvalidValueError, "tuple"),
        ({"time": 5}, RecordTypeError, "lacks the fields \\['acceleration'\\]"),
        ({"time": 5, "acceleration": (1, 2, 3), "extra": 1}, RecordTypeError, "has unknown fields \\['extra'\\]"),
        (np.zeros(20, "u1"), RecordTypeError, "uint8"),
        (np.zeros(2, IMU), InvalidValueError, "1 value"),
    ],
)
def test_wrong_record_raises_and_sends_nothing(
    connect: Connect, message: Any, error: type[Exception], match: str
) -> None:
    pub, sub = connect(IMU)
    with pub, sub:
        with pytest.raises(error, match=match):
            pub.send(message)
        pub.send(ROW)
        assert sub.receive() == ROW.tobytes()


POINT = np.dtype([("x", "<i2"), ("label", "S4")])


class Side(IntEnum):
    LEFT = 1


PATH = np.dtype([("id", "<u4"), ("weight", "<f4"), ("sizes", "u1", 2), ("points", POINT, 2), ("end", POINT)])
GOOD_PATH = (1, 2.5, (3, 4), [(5, b"a"), (6, b"b")], (7, b"c"))


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (0, 1.5, "id"),
        (0, 1.0, "id"),
        (0, "7", "id"),
        (0, np.float64(1.5), "id"),
        (2, (3, 4.5), "sizes"),
        (2, np.array([3, 4.5]), "sizes"),
        (3, [(5, b"a"), (6.5, b"b")], "points.x"),
        (4, (7.5, b"c"), "end.x"),
    ],
)
def test_value_of_another_kind_in_an_integer_field_raises(connect: Connect, place: int, value: Any, field: str) -> None:
    """NumPy's assignment would truncate the value."""
    pub, sub = connect(PATH)
    wrong = (*GOOD_PATH[:place], value, *GOOD_PATH[place + 1 :])
    for message in (wrong, dict(zip(PATH.names or (), wrong, strict=True))):
        with pytest.raises(RecordTypeError, match=rf"field '{field}' is .* but the schema has .*; convert it"):
            pub.send(message)
    with pytest.raises(RecordTypeError, match=rf"field '{field}'"):
        pub.send_many([wrong])
    pub.send(GOOD_PATH)
    assert sub.receive() == np.array(GOOD_PATH, PATH).tobytes()


@pytest.mark.parametrize(
    "message",
    [
        (True, 2, [3, 4], [(5, b""), (6, b"")], (7, "c")),
        (np.uint8(1), np.float64(2.5), np.array([3, 4]), np.zeros(2, POINT), np.zeros(1, POINT)[0]),
        (Side.LEFT, 1, 9, (5, b"a"), (7, b"c")),
    ],
    ids=["bool", "numpy", "enum"],
)
def test_integers_of_each_type_are_accepted_in_integer_fields(connect: Connect, message: tuple[Any, ...]) -> None:
    pub, sub = connect(PATH)
    pub.send(message)
    assert sub.receive() == np.array(message, PATH).tobytes()


def test_float_for_a_dtype_of_an_integer_raises(connect: Connect) -> None:
    pub, sub = connect("<i4")
    for message in (1.5, [1.5], "3"):
        with pytest.raises(RecordTypeError, match=r"value is .* but the schema has int32; convert it"):
            pub.send(message)
    pub.send(-3)
    assert np.frombuffer(sub.receive(), "<i4")[0] == -3


@pytest.mark.parametrize("messages", [ROW.tobytes(), ROW, 5, {"time": 1}, None])
def test_send_many_of_one_record_raises(connect: Connect, messages: Any) -> None:
    pub, _ = connect(IMU)
    with pytest.raises(InvalidTypeError, match="send_many got one"):
        pub.send_many(messages)
    assert pub.stats().messages == 0


def test_values_of_a_dtype_without_fields_are_converted(connect: Connect) -> None:
    pub, sub = connect("<f4")
    pub.send(2)
    pub.send(np.float64(0.5))
    pub.send_many(np.array([1, 2], "f4"))
    assert [float(np.frombuffer(data, "<f4")[0]) for data in collect(sub, 4)] == [2, 0.5, 1, 2]


def test_array_of_single_bytes_is_sent_as_one_message_each(connect: Connect) -> None:
    pub, sub = connect("u1")
    assert pub.send_many(np.arange(3, dtype="u1")) == 3
    assert collect(sub, 3) == [b"\0", b"\1", b"\2"]


def test_json_publisher_encodes_values_and_keeps_bytes(connect: Connect) -> None:
    pub, sub = connect(msgq.Schema.json("State"))
    pub.send({"name": "köln", "ready": True})
    pub.send(b'{"sent": "unchanged"}')
    assert pub.send_many([[1], None]) == 2
    assert [json.loads(data) for data in collect(sub, 4)] == [
        {"name": "köln", "ready": True},
        {"sent": "unchanged"},
        [1],
        None,
    ]


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (float("nan"), InvalidValueError),
        ("\ud800", InvalidValueError),
        ({1, 2}, InvalidTypeError),
        (np.zeros(3), InvalidTypeError),
    ],
)
def test_value_without_json_form_raises_and_sends_nothing(
    connect: Connect, message: Any, error: type[Exception]
) -> None:
    pub, _ = connect(msgq.Schema.json("State"))
    with pytest.raises(error, match="JSON"):
        pub.send(message)
    assert pub.stats().messages == 0


def test_other_encodings_send_bytes_unchanged(connect: Connect) -> None:
    pub, sub = connect(msgq.Schema("State", "cbor"))
    pub.send(b"\xa0")
    with pytest.raises(TypeError):
        pub.send({})
    assert sub.receive() == b"\xa0"


@each_case(
    "schema, error, match",
    [
        (object, RecordTypeError, "Python objects"),
        ([("value", "O")], RecordTypeError, "Python objects"),
        (PointerStruct, RecordTypeError, "PointerStruct has pointers"),
        (ctypes.POINTER(ctypes.c_int), RecordTypeError, "pointers"),
        (ctypes.c_void_p, RecordTypeError, "pointers"),
        ([], RecordTypeError, "no bytes"),
        (bytes, RecordTypeError, "no bytes"),
        ("(3,)f8", RecordTypeError, "use a field"),
        ("nosuch", RecordTypeError, "not a NumPy dtype"),
        (msgq.Schema("State", "jsn"), InvalidValueError, r"did you mean 'json'\?"),
        (msgq.Schema("State", ""), InvalidValueError, "unknown encoding"),
        (msgq.Schema("State", "struct"), InvalidValueError, "has no data"),
        (msgq.Schema("State", "struct", b"<ddd"), InvalidValueError, "does not describe a NumPy dtype"),
        (msgq.Schema("State", "cdr", b"nonsense"), InvalidValueError, "invalid"),
    ],
)
def test_schema_that_cannot_be_right_raises_before_connecting(
    backend: Backend, endpoint: str, schema: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        api.pub_sock(endpoint, schema=schema, backend=backend.name)
    if backend.name == "msgq":
        assert endpoint not in [topic.endpoint for topic in stats.topics()]


def test_dtype_is_announced_to_other_programs(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, schema=IMU) as pub:
        schema = stats.topic(endpoint).schema
        assert schema == msgq.Schema.of(IMU, endpoint)
        assert schema is not None
        assert schema.dtype == IMU
        assert "TypedPublisher" not in repr(pub)


def test_recording_decodes_messages_of_typed_publishers(token: str, prefix: str, tmp_path: Path) -> None:
    names = [f"{token}imu", f"{token}state"]
    with (
        msgq.pub_sock(names[0], schema=IMU) as imu,
        msgq.pub_sock(names[1], schema=msgq.Schema.json("State")) as state,
        Recorder(tmp_path / "log", names),
    ):
        imu.send(ROW)
        state.send({"ready": True})
    values = {message.endpoint: value for message, value in LogReader(tmp_path / "log").decoded()}
    assert values[names[0]] == ROW
    assert values[names[1]] == {"ready": True}


def test_passive_subscriber_of_sub_sock_is_not_counted(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, passive=True) as observer:
        pub.send(b"one")
        assert observer.receive(timeout=0) == b"one"
        assert stats.topic(endpoint).subscribers == ()


def test_long_endpoint_name_is_shortened_to_a_schema_name(token: str, prefix: str) -> None:
    name = token + "ä" * 100
    with msgq.pub_sock(name, schema="f8"):
        schema = stats.topic(name).schema
    assert schema is not None
    assert name.startswith(schema.name)
    assert len(schema.name.encode()) in (191, 192)


@pytest.mark.parametrize("schema", [msgq.Schema.json("State"), msgq.Schema("x", "struct", b"nonsense")])
def test_schema_without_dtype_raises(schema: msgq.Schema) -> None:
    with pytest.raises(ValueError, match="dtype"):
        _ = schema.dtype
