"""`close` releases the memory of a handle, although the program still has the handle, for example in a traceback."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

import msgq
from msgq.errors import EndpointClosedError, StateError
from tests.support import SHM, Task, count_descriptors, in_fork
from visionipc import VisionIpcClient, VisionIpcServer

np = pytest.importorskip("numpy")

Files = set[tuple[str, str]]  # device and inode


def mapped_files() -> Files:
    """Return device and inode of each file in /dev/shm that this process maps."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    return {(line[3], line[4]) for line in lines if len(line) > 5 and line[5].startswith("/dev/shm/")}


@pytest.fixture(autouse=True)
def former_files() -> Files:
    """The files that handles of other tests map."""
    gc.collect()
    return mapped_files()


def open_publisher(name: str) -> Any:
    publisher = msgq.pub_sock(name)
    publisher.send(b"1")
    return publisher


def open_subscriber(name: str) -> Any:
    subscriber = msgq.sub_sock(name)
    with msgq.pub_sock(name) as publisher:
        publisher.send(b"1")
    assert subscriber.receive() == b"1"
    return subscriber


def open_passive_subscriber(name: str) -> Any:
    with msgq.pub_sock(name) as publisher:
        subscriber = msgq.sub_sock(name, passive=True)
        publisher.send(b"1")
        assert subscriber.receive() == b"1"
    return subscriber


def open_channel(name: str) -> Any:
    return msgq.Channel(name, capacity=8)


def open_channel_publisher(name: str) -> Any:
    with msgq.Channel(name) as channel:
        publisher = channel.publisher()
    publisher.send(b"1")
    publisher.send(bytes(10000))  # a larger pool
    return publisher


def open_channel_subscriber(name: str) -> Any:
    with msgq.Channel(name) as channel, channel.publisher() as publisher:
        subscriber = channel.subscriber()
        publisher.send(b"1")
        publisher.send(b"2")
        assert subscriber.receive(0) == b"1"
        subscriber.receive_view(0).release()
    return subscriber


def open_queue(name: str) -> Any:
    queue = msgq.MessageQueue(name)
    queue.send(b"1")
    return queue


def open_vector(name: str) -> Any:
    vector = msgq.SeqlockVector(name, "f8", 4)
    vector[0] = 1.0
    return vector


def open_seqlock(name: str) -> Any:
    seqlock = msgq.Seqlock(name, "f8")
    seqlock.write(1.0)
    return seqlock


def open_board(name: str) -> Any:
    board = msgq.Board(name)
    board.declare("key").write(b"value")
    board.observe("key").read()
    return board


def open_record_queue(name: str) -> Any:
    queue = msgq.RecordQueue(name, "f8")
    queue.produce(1.0)
    return queue


def open_gate(name: str) -> Any:
    return msgq.fake_event_handle(name, f"i-{name}", override=True, enable=True)


HANDLES: dict[str, Callable[[str], Any]] = {
    "publisher": open_publisher,
    "subscriber": open_subscriber,
    "passive subscriber": open_passive_subscriber,
    "channel": open_channel,
    "channel publisher": open_channel_publisher,
    "channel subscriber": open_channel_subscriber,
    "queue": open_queue,
    "vector": open_vector,
    "seqlock": open_seqlock,
    "board": open_board,
    "record queue": open_record_queue,
    "gate": open_gate,
}

each_kind = pytest.mark.parametrize("open_handle", HANDLES.values(), ids=HANDLES)


@each_kind
def test_closed_handle_maps_no_file_while_it_is_referenced(
    open_handle: Callable[[str], Any], endpoint: str, former_files: Files
) -> None:
    handle = open_handle(endpoint)
    gc.collect()
    assert mapped_files() > former_files
    handle.close()
    assert mapped_files() == former_files
    assert all(count_descriptors(path) == 0 for path in SHM.glob(f"*{endpoint}*"))


@each_kind
def test_closed_handle_leaves_the_memory_of_another(
    open_handle: Callable[[str], Any], endpoint: str, former_files: Files
) -> None:
    other, handle = msgq.MessageQueue(endpoint), open_handle(endpoint)
    topic, channel = (msgq.pub_sock(endpoint), msgq.sub_sock(endpoint)), msgq.Channel(endpoint)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    handle.close()
    other.send(b"2")
    publisher.send(b"3")
    topic[0].send(b"4")
    assert [message.data for message in iter(lambda: other.receive(timeout=0), None)][-1] == b"2"
    assert subscriber.receive(0) == b"3"
    assert topic[1].receive() == b"4"
    for each in (other, *topic, publisher, subscriber, channel):
        each.close()
    assert mapped_files() == former_files


@each_kind
def test_handle_closed_in_a_child_maps_no_file_there(
    open_handle: Callable[[str], Any], endpoint: str, former_files: Files
) -> None:
    if open_handle is open_gate:
        pytest.skip("a gate belongs to the parent, and the child does not close it")
    handle = open_handle(endpoint)

    def close_in_child() -> None:
        handle.close()
        assert mapped_files() == former_files

    assert in_fork(close_in_child) == 0
    assert mapped_files() > former_files


def read_properties(handle: Any) -> dict[str, Any]:
    """Return what the properties and the statistics of a handle say."""
    found = {}
    for name in (name for name in dir(handle) if not name.startswith("_")):
        with contextlib.suppress(msgq.MsgqError):
            value = getattr(handle, name)
            value = value() if name == "stats" else value
            if not callable(value):
                found[name] = value
    return found


@each_kind
def test_closed_handle_says_what_it_said_before(open_handle: Callable[[str], Any], endpoint: str) -> None:
    """Properties that the closed handle may not tell raise an error."""
    handle = open_handle(endpoint)
    before = read_properties(handle)
    handle.close()
    after = read_properties(handle)
    for changed in ("closed", "enabled", "tracked", "stats", "recv_called_event", "recv_ready_event"):
        after.pop(changed, None)
    assert after == {name: before[name] for name in after}


@each_kind
def test_no_call_of_a_closed_handle_reads_its_memory(
    open_handle: Callable[[str], Any], endpoint: str, former_files: Files
) -> None:
    """Failure would mean: the call of a closed handle ends the process."""
    handle = open_handle(endpoint)
    handle.close()
    for name in dir(handle):
        if name in ("__class__", "__init_subclass__", "__subclasshook__", "__new__", "connect"):
            continue
        for arguments in ((), (b"x",), (0,), (0, 1.0), ("key", b"x")):
            with contextlib.suppress(Exception):
                result = getattr(handle, name)
                result = result(*arguments) if callable(result) else result
                if isinstance(result, Coroutine):
                    result.close()
    assert mapped_files() == former_files


# ---- views ----


def test_view_keeps_its_memory_until_its_release(endpoint: str, former_files: Files) -> None:
    with msgq.Channel(endpoint) as channel:
        publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send(b"seen")
    view = subscriber.receive_view(0)
    publisher.close()
    subscriber.close()
    assert bytes(view) == b"seen"
    assert mapped_files() > former_files
    array = np.frombuffer(view, "u1")
    assert array.tobytes() == b"seen"
    del array
    view.release()
    assert mapped_files() == former_files


def test_loan_keeps_its_memory_until_its_end(endpoint: str, former_files: Files) -> None:
    with msgq.Channel(endpoint) as channel:
        publisher = channel.publisher()
    loan = publisher.loan(4)
    view = memoryview(loan)
    publisher.close()
    view[:] = b"late"
    assert bytes(view) == b"late"
    assert mapped_files() > former_files
    view.release()
    loan.discard()
    assert mapped_files() == former_files


def test_array_of_a_reservation_keeps_the_ring(endpoint: str, former_files: Files) -> None:
    publisher = msgq.pub_sock(endpoint)
    with publisher.reserve(4) as view:
        array = np.frombuffer(view, "u1")
        array[:] = 7
    publisher.close()
    assert array.tolist() == [7] * 4
    assert mapped_files() > former_files
    del array, view
    assert mapped_files() == former_files


def test_closed_publisher_describes_its_last_message(endpoint: str) -> None:
    with msgq.Channel(endpoint) as channel, channel.publisher() as publisher, channel.subscriber() as subscriber:
        publisher.send(b"1")
        assert subscriber.receive(0) == b"1"
        last, sent = subscriber.last, publisher.stats()
    assert subscriber.last == last
    assert publisher.stats().messages == sent.messages


# ---- channels ----


def test_closed_channel_refuses_a_schema(endpoint: str) -> None:
    """Failure would mean: the schema is written to memory that no process sees."""
    channel = msgq.Channel(endpoint)
    channel.close()
    for call in (channel.claim_schema, channel.replace_schema):
        with pytest.raises(StateError, match="closed"):
            call(msgq.Schema.of("f8"))


def test_closed_channel_removes_pools_that_came_later(endpoint: str) -> None:
    former = msgq.Channel(endpoint)
    former.close()
    publisher = msgq.Channel(endpoint).publisher()
    publisher.send(b"1")
    former.unlink()
    assert list(SHM.glob(f"msgqpool_{endpoint}:*")) == []


def test_closed_channel_does_not_remove_its_successor(endpoint: str) -> None:
    former = msgq.Channel(endpoint)
    former.unlink()
    former.close()
    with msgq.Channel(endpoint), pytest.raises(msgq.errors.SegmentError, match="removed"):
        former.unlink()


# ---- other threads, and code inside a call ----


@pytest.mark.parametrize("kind", ["subscriber", "channel subscriber", "queue"])
def test_handle_closed_during_a_wait_releases_its_memory(kind: str, endpoint: str, former_files: Files) -> None:
    handle = HANDLES[kind](endpoint)
    while handle.receive(timeout=0) is not None:
        pass
    task = Task(lambda: handle.receive(timeout=60))
    task.wait_asleep()
    handle.close()
    with pytest.raises(EndpointClosedError):
        task.result()
    assert mapped_files() == former_files


def test_subscriber_closed_by_the_buffer_of_its_call_raises(endpoint: str, former_files: Files) -> None:
    with msgq.Channel(endpoint) as channel:
        publisher = channel.publisher()

    class Closing(list[bytes]):
        def __iter__(self) -> Iterator[bytes]:
            yield b"1"
            publisher.close()
            yield b"2"

    with pytest.raises(EndpointClosedError):
        publisher.send_many(Closing())
    assert mapped_files() == former_files


# ---- frames ----


@pytest.fixture
def server(token: str, prefix: str) -> Iterator[VisionIpcServer]:
    with VisionIpcServer(token) as server:
        server.create_buffers(0, 2, 8, 8)
        server.start_listener()
        yield server


def test_closed_client_of_frames_maps_no_buffer_except_those_of_held_frames(
    server: VisionIpcServer, token: str
) -> None:
    own = count_buffers(token)
    client = VisionIpcClient(token, 0, False)
    client.connect(True)
    server.send(0, bytes(8 * 8 * 3 // 2), 1, 0, 0)
    frame = client.recv(1000)
    assert frame is not None
    client.close()
    assert frame.data[0] == 0
    assert count_buffers(token) == own + 1
    frame.release()
    assert count_buffers(token) == own


def test_closed_server_of_frames_maps_no_buffer(server: VisionIpcServer, token: str) -> None:
    assert count_buffers(token) > 0
    server.close()
    assert count_buffers(token) == 0


def count_buffers(name: str) -> int:
    """Return the number of mapped buffers of frames."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum("memfd:" in line and name in line and "leases" not in line for line in lines)
