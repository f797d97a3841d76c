"""Subscribers of `sub_sock(decoded=)`: values by the schema of each message, and messages without a value."""

from __future__ import annotations

import asyncio
import signal
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.decoding import payload_decoder
from msgq.decoding.capnproto.compiler import compile_capnp_file
from msgq.decoding.payload_decoder import Undecoded
from msgq.errors import (
    Again,
    EndpointClosedError,
    InvalidTypeError,
    InvalidValueError,
    RecordTypeError,
    StateError,
    UndecodableMessageError,
)
from msgq.simulation import Simulation
from msgq.topic import api
from msgq.topic.typed_subscriber import make_typed_subscriber
from tests.cases import each_case
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS

IMU = np.dtype([("time", "<u8"), ("acceleration", "<f4", 3)])
ROW = np.array((5, (1.0, 2.0, 3.0)), IMU)
STATE = msgq.Schema.json("State")
Connect = Callable[..., tuple[Any, Any]]


@pytest.fixture
def connect(backend: Backend, endpoint: str) -> Iterator[Connect]:
    """Connect a publisher with a schema, and a typed subscriber. On ZMQ, the subscriber knows the schema."""
    sockets: list[Any] = []

    def connect_pair(schema: Any, decoded: Any = True, **options: Any) -> tuple[Any, Any]:
        pub = api.pub_sock(endpoint, schema=schema, backend=backend.name, **options)
        given = schema if decoded is True and backend.name == "zmq" else decoded
        sub = api.sub_sock(endpoint, timeout=DEADLINE_MS, decoded=given, backend=backend.name)
        sockets.extend((pub, sub))
        pub.wait_for_readers(DEADLINE, n=1)
        return pub, sub

    yield connect_pair
    for socket in sockets:
        socket.close()


async def receive_twice(sub: Any) -> list[Any]:
    return [await sub.areceive(), await anext(sub)]


def test_each_receive_returns_the_decoded_value(connect: Connect) -> None:
    pub, sub = connect(STATE)
    values = [{"number": number} for number in range(7)]
    pub.send_many(values)
    received: list[Any] = [sub.receive(), sub.receive(timeout=DEADLINE), sub.recv(), next(sub)]
    received += asyncio.run(receive_twice(sub))
    assert [*received, *sub.receive_many(1, wait_for_one=True)] == values
    assert sub.receive(True) is None
    assert (sub.receive_many(), sub.undecoded) == ([], 0)
    with pytest.raises(Again):
        sub.recv(msgq.NOBLOCK)


def test_waiting_values_are_received_together(connect: Connect, backend: Backend) -> None:
    pub, sub = connect(STATE)
    pub.send_many([{"number": number} for number in range(5)])
    backend.settle()
    assert [value["number"] for value in sub.receive_many(2, wait_for_one=True)] == [0, 1]
    rest: list[Any] = [*msgq.drain_sock_raw(sub)]
    assert [value["number"] for value in rest] == [2, 3, 4]
    with pytest.raises(InvalidValueError, match="limit is -1"):
        sub.receive_many(-1)


def test_record_is_a_view_of_the_received_message(connect: Connect) -> None:
    pub, sub = connect(IMU)
    pub.send(ROW)
    record: Any = sub.receive()
    assert record == ROW
    assert record.dtype == IMU
    assert isinstance(record.base.base, bytes)
    with pytest.raises(ValueError, match="read-only"):
        record["time"] = 1


def test_bytes_methods_of_typed_subscriber_do_not_decode(connect: Connect) -> None:
    pub, sub = connect(IMU)
    pub.send_many([ROW, ROW])
    buffer = bytearray(20)
    assert sub.receive_into(buffer) == 20
    assert bytes(buffer) == ROW.tobytes()
    assert sub.receive_array(IMU, wait_for_one=True)[0] == ROW


def test_null_is_a_value_and_not_the_end_of_the_wait(connect: Connect) -> None:
    pub, sub = connect(STATE)
    pub.send_many([None] * 4)
    assert sub.recv() is None
    assert asyncio.run(receive_twice(sub)) == [None, None]
    assert sub.receive_many(wait_for_one=True) == [None]


def test_task_waits_for_a_value(connect: Connect) -> None:
    pub, sub = connect(STATE)

    async def receive_later() -> Any:
        receiver = asyncio.create_task(sub.areceive())
        await asyncio.sleep(0)
        pub.send({"ready": True})
        return await asyncio.wait_for(receiver, DEADLINE)

    assert asyncio.run(receive_later()) == {"ready": True}


def test_undecodable_message_raises_with_its_bytes_and_the_count(connect: Connect, endpoint: str) -> None:
    pub, sub = connect(STATE)
    pub.send_many([{}, b"not JSON", b"nor this", {"ready": True}])
    assert sub.receive() == {}
    with pytest.raises(UndecodableMessageError, match="cannot be decoded, 1 of 2 received messages: json: ") as caught:
        sub.receive()
    assert (caught.value.data, caught.value.endpoint) == (b"not JSON", endpoint)
    with pytest.raises(UndecodableMessageError, match=f"'{endpoint}': .* 2 of 3 ") as caught:
        sub.recv()
    assert caught.value.data == b"nor this"
    assert sub.receive() == {"ready": True}
    assert (sub.undecoded, sub.stats().received) == (2, 4)


def test_list_keeps_undecodable_messages_at_their_places(connect: Connect, backend: Backend) -> None:
    pub, sub = connect(STATE)
    pub.send_many([{"number": 1}, b"not JSON", {"number": 2}])
    backend.settle()
    first, bad, last = sub.receive_many(wait_for_one=True)
    assert (first, last, sub.undecoded) == ({"number": 1}, {"number": 2}, 1)
    assert isinstance(bad, Undecoded)
    assert bad.data == b"not JSON"
    assert bad.reason.startswith("json: ")


class FailingSocket:
    """A subscriber that raises the errors of a list of messages and errors."""

    endpoint = "state"
    outcomes: list[bytes | BaseException]

    def receive_many(self, limit: int, wait_for_one: bool) -> list[bytes]:
        if not self.outcomes:
            return []
        if isinstance(outcome := self.outcomes.pop(0), bytes):
            return [outcome]
        raise outcome


def make_failing_subscriber(*outcomes: bytes | BaseException) -> Any:
    backend = ModuleType("backend")
    backend.SubSocket = FailingSocket  # type: ignore[attr-defined]
    sub = make_typed_subscriber(backend, "state", STATE)
    sub.outcomes = [*outcomes]
    sub._decoder.begin_connection(sub)
    return sub


def test_error_after_values_is_raised_by_the_next_call() -> None:
    sub = make_failing_subscriber(b"1", EndpointClosedError("is closed"), EndpointClosedError("is closed"))
    assert sub.receive_many() == [1]
    with pytest.raises(EndpointClosedError):
        sub.receive_many()


def test_interrupted_list_keeps_its_values_for_the_next_calls() -> None:
    sub = make_failing_subscriber(b"1", b"2", KeyboardInterrupt(), b"3", KeyboardInterrupt(), b"4")
    with pytest.raises(KeyboardInterrupt):
        sub.receive_many()
    with pytest.raises(KeyboardInterrupt):
        sub.receive_many()
    assert sub.receive_many(1) == [1]
    assert sub.receive_many(wait_for_one=True) == [2, 3, 4]
    assert sub.receive_many() == []


class Alarm(Exception):
    """What a signal handler raises. It is no BaseException, so that decoders could take it for their own error."""


def raise_alarm(*_: Any) -> None:
    raise Alarm


@pytest.fixture
def alarm() -> Iterator[Callable[[], None]]:
    """Return a function that runs a signal handler, which raises."""
    previous = signal.signal(signal.SIGUSR1, raise_alarm)
    yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, previous)


def test_exception_of_a_signal_handler_loses_no_message_and_no_exception(
    connect: Connect, backend: Backend, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    pub, sub = connect(STATE)
    pub.send_many(range(1, 7))
    backend.settle()
    interrupted: list[bytes] = []

    def loads(data: bytes) -> Any:
        if data not in interrupted and int(data) % 2 == 0:
            interrupted.append(data)
            alarm()
        return int(data)

    monkeypatch.setattr(sub._decoder._payload_decoder, "_find_decode_function", lambda _: loads)
    with pytest.raises(Alarm):
        sub.receive_many()
    assert [sub.receive(), sub.receive()] == [1, 2]
    assert sub.receive() == 3
    with pytest.raises(Alarm):
        sub.receive()
    assert sub.recv() == 4
    with pytest.raises(Alarm):
        sub.receive_many()
    assert sub.receive_many() == [5, 6]
    assert sub.undecoded == 0


def test_schema_is_not_invalid_because_a_signal_handler_raised(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, alarm: Callable[[], None]
) -> None:
    pub, sub = connect(STATE)
    pub.send_many([1])

    def interrupt(schema: msgq.Schema) -> Any:
        try:
            alarm()
        except Alarm as error:
            raise ImportError("the library of the encoding replaces each error") from error

    with monkeypatch.context() as patch:
        patch.setitem(payload_decoder._DECODER_MAKERS, "json", interrupt)
        with pytest.raises(Alarm):
            sub.receive()
    assert sub.receive() == 1


@pytest.mark.needs("tracked")
def test_interrupted_value_has_no_times(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    pub, sub = connect(STATE, tracked=True)
    pub.send(1)
    monkeypatch.setattr(sub._decoder, "kept", [0])
    with pytest.raises(StateError, match="no times; take them with receive_many"):
        sub.receive_tracked()
    assert sub.receive_many() == [0, 1]


def test_limit_of_values_is_a_whole_number(connect: Connect) -> None:
    pub, sub = connect(STATE)
    pub.send(1)
    with pytest.raises(InvalidTypeError, match=r"limit is 2.5, of type float"):
        sub.receive_many(2.5)
    assert sub.receive() == 1


def test_record_of_another_size_is_undecodable(connect: Connect) -> None:
    pub, sub = connect(None, IMU)
    pub.send(b"short")
    with pytest.raises(UndecodableMessageError, match="struct: buffer size"):
        sub.receive()


def test_message_without_schema_is_undecodable(backend: Backend, connect: Connect) -> None:
    if backend.name == "zmq":
        with pytest.raises(StateError, match=r"decoded=True needs the schema .* decoded=msgq.Schema"):
            api.sub_sock("topic", decoded=True, backend="zmq")
        return
    pub, sub = connect(None)
    pub.send(b"bytes")
    with pytest.raises(UndecodableMessageError, match="has no schema; give pub_sock a schema") as caught:
        sub.receive()
    assert caught.value.data == b"bytes"


def test_given_schema_decodes_messages_without_schema(connect: Connect) -> None:
    pub, sub = connect(None, "<u2")
    pub.send(b"\1\2")
    assert sub.receive() == 0x201


@pytest.mark.needs("stats")
def test_schema_of_publisher_has_priority_over_given_schema(connect: Connect) -> None:
    pub, sub = connect(IMU, STATE)
    pub.send(ROW)
    assert sub.receive() == ROW


def test_decoded_none_means_bytes(backend: Backend, endpoint: str) -> None:
    with (
        api.pub_sock(endpoint, backend=backend.name) as pub,
        api.sub_sock(endpoint, decoded=None, timeout=DEADLINE_MS, backend=backend.name) as sub,
    ):
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(bytes(8))
        assert sub.receive() == bytes(8)


@pytest.mark.needs("stats")
def test_given_definition_completes_an_announced_encoding(backend: Backend, endpoint: str) -> None:
    with backend.PubSocket() as pub, api.sub_sock(endpoint, decoded="<u2", backend=backend.name) as sub:
        pub.connect(backend.context, endpoint, schema=msgq.Schema("Number", "struct"))
        pub.send(b"\1\2")
        assert sub.receive() == 0x201


@pytest.mark.needs("stats", "replay", "takeover")
def test_each_message_is_decoded_by_its_own_schema(backend: Backend, endpoint: str) -> None:
    with (
        api.pub_sock(endpoint, schema="<u2", backend=backend.name) as pub,
        api.sub_sock(endpoint, decoded=True, backend=backend.name) as sub,
    ):
        pub.send_many([1, 2])
        with api.pub_sock(endpoint, schema=STATE, backend=backend.name) as successor:
            successor.send_many([{"number": 3}, {"number": 4}])
        assert sub.receive() == 1
        assert sub.receive_many() == [2, {"number": 3}, {"number": 4}]


@pytest.mark.needs("stats", "replay", "takeover")
def test_message_whose_schema_was_replaced_twice_is_undecodable(backend: Backend, endpoint: str) -> None:
    with api.sub_sock(endpoint, decoded=STATE, backend=backend.name) as sub:
        for schema in ("<u2", "<u4", "<u8"):
            with api.pub_sock(endpoint, schema=schema, backend=backend.name) as pub:
                pub.send(7)
        with pytest.raises(UndecodableMessageError, match="its schema was replaced before") as caught:
            sub.receive()
        assert caught.value.data == b"\7\0"
        values = sub.receive_many()
        assert isinstance(values[0], Undecoded) or values[0] == 7
        assert values[1] == 7


@pytest.mark.needs("tracked")
def test_tracked_message_has_the_decoded_value(connect: Connect) -> None:
    pub, sub = connect(STATE, tracked=True)
    pub.send({"ready": True}, origin_time=5)
    message = sub.receive_tracked()
    assert (message.data, message.origin_time) == ({"ready": True}, 5)
    pub.send(b"not JSON")
    with pytest.raises(UndecodableMessageError):
        sub.receive_tracked()
    assert sub.receive_tracked(True) is None


@pytest.mark.needs("stats", "replay")
def test_new_connection_forgets_schema_and_counts(backend: Backend, token: str) -> None:
    names = [f"{token}first", f"{token}second"]
    with (
        api.pub_sock(names[0], schema=STATE, backend=backend.name) as first,
        api.pub_sock(names[1], schema="<u2", backend=backend.name) as second,
        api.sub_sock(names[0], decoded=True, backend=backend.name) as sub,
    ):
        first.send(b"not JSON")
        with pytest.raises(UndecodableMessageError):
            sub.receive()
        sub.close()
        sub.connect(backend.context, names[1])
        second.send(3)
        assert (sub.receive(), sub.undecoded) == (3, 0)
        first.unlink()
        second.unlink()


@pytest.mark.needs("stats")
def test_deleted_typed_subscriber_leaves_the_topic_at_once(backend: Backend, endpoint: str) -> None:
    with api.pub_sock(endpoint, schema=STATE, backend=backend.name) as pub:
        sub: Any = api.sub_sock(endpoint, decoded=True, backend=backend.name)
        pub.send({})
        assert sub.receive() == {}
        assert pub.all_readers_updated()
        del sub  # without a cycle of references
        assert not pub.all_readers_updated()


def test_poller_returns_typed_subscriber(connect: Connect, backend: Backend) -> None:
    pub, sub = connect(STATE)
    pub.send({"ready": True})
    poller = backend.poller(sub)
    assert poller.poll(DEADLINE_MS) == [sub]
    assert "SubSocket" in repr(sub)


@each_case(
    "decoded, error, match",
    [
        (msgq.Schema("State", "jsn"), InvalidValueError, r"did you mean 'json'\?"),
        (msgq.Schema("State", "struct"), InvalidValueError, "has no data"),
        (object, RecordTypeError, "Python objects"),
        ("nosuch", RecordTypeError, "not a NumPy dtype"),
    ],
)
def test_invalid_given_schema_raises_before_connecting(
    backend: Backend, endpoint: str, decoded: Any, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        api.sub_sock(endpoint, decoded=decoded, backend=backend.name)


def test_protobuf_message_is_decoded_to_its_class(connect: Connect) -> None:
    from google.protobuf import descriptor_pb2, struct_pb2

    files = descriptor_pb2.FileDescriptorSet()
    struct_pb2.DESCRIPTOR.CopyToProto(files.file.add())
    pub, sub = connect(msgq.Schema("google.protobuf.ListValue", "protobuf", files.SerializeToString()))
    sent = struct_pb2.ListValue(values=[struct_pb2.Value(bool_value=True)])
    pub.send(sent.SerializeToString())
    assert [value.bool_value for value in sub.receive().values] == [True]


def test_capnp_message_is_decoded_to_a_dict(connect: Connect, tmp_path: Path) -> None:
    text = tmp_path / "point.capnp"
    text.write_text("@0xf3b1f17e25a4285b;\nstruct Point { x @0 :Int32; }\n")
    pub, sub = connect(msgq.Schema("Point", "capnproto", compile_capnp_file(text)))
    pub.send(struct.pack("<IIQiI", 0, 2, 1 << 32, 7, 0))  # a segment of two words: the root pointer, and the struct
    assert sub.receive() == {"x": 7}


def test_subscriber_in_simulation_decodes_each_copy(prefix: str) -> None:
    received: list[Any] = []

    def publish() -> None:
        with msgq.pub_sock("state", schema=STATE) as pub:
            pub.wait_for_readers(n=1)
            for number in range(3):
                pub.send({"number": number})

    def subscribe() -> None:
        with msgq.sub_sock("state", timeout=1000, decoded=True) as sub:
            received.extend(sub)

    with Simulation(seed=3, faults=msgq.simulation.Faults(duplicate=1.0)) as sim:
        sim.add(subscribe)
        sim.add(publish)
        sim.run_until_idle()
    assert [value["number"] for value in received] == [0, 0, 1, 1, 2, 2]
