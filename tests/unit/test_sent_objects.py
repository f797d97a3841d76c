"""All kinds send the bytes of objects by the same rules, and take whole numbers as limits and sizes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.errors import InvalidTypeError, InvalidValueError
from msgq.simulation import Simulation
from msgq.workqueue import JobClient, MessageQueue

Send = Callable[[Any], object]
MIXED: Any = np.zeros(2, [("number", "<i4"), ("value", object)])
MATRIX: Any = np.zeros((2, 2), object)
NAMED: Any = np.zeros(2, [("O", "<i4")])
OBJECTS: dict[str, Any] = {
    "array": MATRIX,
    "field": MIXED,
    "view": memoryview(MATRIX),
    "view of fields": memoryview(MIXED),
    "ctypes": (ctypes.py_object * 2)(),
}
#: Objects whose format has the letter O, but no object.
BYTES: dict[str, Any] = {
    "name": np.zeros(2, [("O", "<i4"), ("TO:", "<i4")]),
    "view of a name": memoryview(NAMED),
    "datetimes": np.zeros(2, "M8[ns]"),
    "ctypes": (ctypes.c_int * 4)(),
}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def open_sends(endpoint: str, stack: ExitStack) -> dict[str, Send]:
    """Return a function of each kind that sends an object."""
    queue = stack.enter_context(MessageQueue(endpoint, 64, max_message_size=100))
    topic = stack.enter_context(msgq.pub_sock(endpoint))
    zmq = stack.enter_context(msgq.pub_sock(f"{endpoint}:zmq", backend="zmq"))
    publisher = stack.enter_context(msgq.Channel(endpoint).publisher())
    board = stack.enter_context(msgq.Board(endpoint, 4, 100))
    entry = stack.enter_context(board.declare("key"))
    client = stack.enter_context(JobClient(queue))
    return {
        "topic": topic.send,
        "topic, list": lambda data: topic.send_many([data]),
        "ZMQ": zmq.send,
        "ZMQ, list": lambda data: zmq.send_many([data]),
        "channel": publisher.send,
        "queue": queue.send,
        "queue, list": lambda data: queue.send_many([data]),
        "board": entry.write,
        "job": client.submit,
    }


def test_addresses_of_objects_are_refused_by_all_kinds(endpoint: str, stack: ExitStack) -> None:
    for kind, send in open_sends(endpoint, stack).items():
        for name, objects in OBJECTS.items():
            with pytest.raises(InvalidTypeError, match="contains Python objects, which cannot be sent as bytes"):
                pytest.fail(f"{kind} has sent {name}: {send(objects)}")


def test_fields_and_times_are_sent_by_all_kinds(endpoint: str, stack: ExitStack) -> None:
    for send in open_sends(endpoint, stack).values():
        for data in BYTES.values():
            send(data)


def test_rows_of_objects_are_refused(endpoint: str, stack: ExitStack) -> None:
    zmq = stack.enter_context(msgq.pub_sock(f"{endpoint}:zmq", backend="zmq"))
    topic = stack.enter_context(msgq.pub_sock(endpoint))
    publisher = stack.enter_context(msgq.Channel(endpoint).publisher())
    objects: list[Any] = [MATRIX, memoryview(MATRIX)]
    for rows in objects:
        for send_many in (zmq.send_many, topic.send_many, publisher.send_many):
            with pytest.raises(InvalidTypeError, match="contains Python objects"):
                send_many(rows)


def test_entry_in_a_simulation_refuses_addresses() -> None:
    with Simulation(seed=1):
        board = msgq.Board("board", 4, 16)
        with board.declare("key") as entry, pytest.raises(InvalidTypeError, match="contains Python objects"):
            entry.write(OBJECTS["array"])


def test_each_limit_is_a_whole_number(endpoint: str, stack: ExitStack) -> None:
    stack.enter_context(msgq.pub_sock(endpoint))
    topic = stack.enter_context(msgq.sub_sock(endpoint))
    zmq = stack.enter_context(msgq.sub_sock(f"{endpoint}:zmq", backend="zmq"))
    queue = stack.enter_context(MessageQueue(endpoint))
    subscriber = stack.enter_context(msgq.Channel(endpoint).subscriber())
    calls: list[Callable[[Any], list[Any]]] = [
        topic.receive_many,
        zmq.receive_many,
        queue.receive_many,
        subscriber.receive_many,
    ]
    for call in calls:
        with pytest.raises(InvalidTypeError, match=r"limit is 2.5, of type float"):
            call(2.5)
        with pytest.raises(InvalidValueError, match="limit is -1; give 0 or more"):
            call(-1)
        assert list(call(2**64)) == list(call(np.int64(3))) == []


def test_numbers_of_numpy_are_sizes(endpoint: str) -> None:
    capacity: Any = np.int64(64)
    slots: Any = np.int32(4)
    with msgq.Channel(endpoint, capacity=capacity) as channel, channel.publisher(slots=slots) as pub:
        pub.send(b"1")
    with pytest.raises(InvalidTypeError, match=r"capacity is 64.0, of type float"):
        msgq.Channel(f"{endpoint}-other", capacity=64.0)  # type: ignore[arg-type]
