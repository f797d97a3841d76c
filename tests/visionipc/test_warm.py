"""Which buffer a frame goes into: the warmest that nobody holds or awaits; the oldest, where somebody counts on it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from msgq.common import settings
from msgq.errors import IpcError
from tests.support import DEADLINE_MS, Child, hear, say, wait_until
from tests.unit.ringfile import RingFile
from tests.visionipc.conftest import ALL_BUFFERS, BUFFERS, HEIGHT, WIDTH
from visionipc import VisionIpcClient, VisionIpcServer, connection, memfd, wire
from visionipc import client as receiving
from visionipc.connection import _unix_socket

SIZE = WIDTH * HEIGHT * 3 // 2


def publish(server: VisionIpcServer, value: int) -> None:
    with server.frame(0) as frame:
        frame.array[:] = value
    assert not frame.dropped


def passed_on(server: VisionIpcServer, *clients: VisionIpcClient, count: int = 1) -> list[int]:
    """Return the buffers of so many frames, which each client takes and lets go of before the next one."""
    used = []
    for number in range(count):
        publish(server, number)
        frames = [client.frame(DEADLINE_MS) for client in clients]
        assert all((frame.array == number).all() for frame in frames)
        used.append(frames[0].idx)
        del frames
    return used


def is_warm(server: VisionIpcServer, client: VisionIpcClient) -> bool:
    return len(set(passed_on(server, client, count=BUFFERS))) == 1


def received(client: VisionIpcClient) -> list[int]:
    """Return the values of all frames that are there."""
    return [int(frame.array[0]) for frame in iter(lambda: client.recv(0), None)]


Settled = Callable[..., VisionIpcClient]


@pytest.fixture
def connect_settled_client(server: VisionIpcServer, connect: Any) -> Settled:
    """A function that returns a client that all know: the round after it came is over."""

    def made(*others: VisionIpcClient) -> VisionIpcClient:
        client: VisionIpcClient = connect()
        assert set(passed_on(server, client, *others, count=BUFFERS)) == set(range(BUFFERS))
        return client

    return made


def test_frame_reuses_latest_buffer_seen_by_all_clients(server: Any, connect_settled_client: Settled) -> None:
    assert is_warm(server, connect_settled_client())


def test_buffer_is_reused_only_after_two_clients_have_seen_its_frame(
    server: Any, connect_settled_client: Settled
) -> None:
    first = connect_settled_client()
    second = connect_settled_client(first)
    assert len(set(passed_on(server, first, second, count=BUFFERS))) == 1
    values = [10 + number for number in range(BUFFERS)]
    for value in values:
        publish(server, value)
        assert received(first) == [value]
    assert received(second) == values


def test_two_buffers_suffice_while_client_holds_one_frame(server: Any, connect_settled_client: Settled) -> None:
    client, used, held = connect_settled_client(), set(), None
    for value in range(10):
        publish(server, value)
        frame = client.frame(DEADLINE_MS)
        used.add(frame.idx)
        assert held is None or (held.array == value - 1).all()
        held = frame
    assert len(used) == 2
    assert client.lost == 0


def test_client_that_lags_by_all_buffers_loses_no_frame(server: Any, connect_settled_client: Settled) -> None:
    client = connect_settled_client()
    for _ in range(3):
        for value in range(ALL_BUFFERS):
            publish(server, value)
        assert received(client) == list(range(ALL_BUFFERS))
    for value in range(ALL_BUFFERS + 3):
        publish(server, value)
    assert received(client) == [ALL_BUFFERS + 2], "who lags more goes to the present"
    assert client.lost == ALL_BUFFERS + 2
    assert is_warm(server, client)


def test_stream_adds_spare_buffers_only_for_frames_that_wait(
    server: Any, connect_settled_client: Settled, name: str
) -> None:
    client = connect_settled_client()
    with VisionIpcClient(name, 0, False) as late:
        late.connect(True)  # the frames before its connection do not wait for it
        for value in range(BUFFERS):
            publish(server, value)
        assert server.stats(0).buffers == BUFFERS
        publish(server, BUFFERS)
        assert server.stats(0).buffers == BUFFERS + 1
        assert received(late) == received(client) == list(range(BUFFERS + 1))
    assert client.lost == late.lost == 0


def test_stream_without_memory_for_spare_buffer_overwrites_waiting_frame(
    server: Any, connect_settled_client: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = connect_settled_client()
    monkeypatch.setattr(memfd, "allocate", lambda fd: False)
    for value in range(BUFFERS + 1):
        publish(server, value)
    assert received(client) == [BUFFERS]
    assert (server.stats(0).buffers, server.stats(0).dropped) == (BUFFERS, 0)


def test_buffers_rotate_while_client_does_not_receive(server: Any, connect_settled_client: Settled, name: str) -> None:
    client = connect_settled_client()
    with VisionIpcClient(name, 0, False) as idle:
        idle.connect(True)
        passed_on(server, client, count=ALL_BUFFERS)  # also uses the spare buffers
        order = passed_on(server, client, count=ALL_BUFFERS)
        assert sorted(order) == list(range(ALL_BUFFERS))
        assert passed_on(server, client, count=3 * ALL_BUFFERS) == 3 * order
        assert received(idle) == [3 * ALL_BUFFERS - 1]
    assert is_warm(server, client)


def test_conflating_client_counts_skipped_frames_as_seen(
    server: Any, connect_settled_client: Settled, connect: Any
) -> None:
    client, newest = connect_settled_client(), connect(conflate=True)
    passed_on(server, client, count=2 * ALL_BUFFERS)  # also uses the spare buffers
    assert received(newest) == [2 * ALL_BUFFERS - 1]
    assert len(set(passed_on(server, client, newest, count=BUFFERS))) == 1


def wait_connected(name: str) -> None:
    with VisionIpcClient(name, 0, False) as client:
        client.connect(True)
        say("connected")
        hear()


def test_buffers_rotate_until_death_of_client_is_detected(
    server: Any, connect_settled_client: Settled, name: str
) -> None:
    client = connect_settled_client()
    with Child(wait_connected, name) as child:
        assert child.hear() == "connected"
        passed_on(server, client, count=BUFFERS)
        assert len(set(passed_on(server, client, count=BUFFERS))) == BUFFERS
        child.kill()
    wait_until(lambda: is_warm(server, client), "the dead client stands in nobody's way")
    assert server.stats(0).taken_back == 0, "it held nothing"


def test_buffers_rotate_for_new_client(server: Any, connect_settled_client: Settled, name: str) -> None:
    """A second one may have read of the same frame in the topic, and be known only later."""
    client = connect_settled_client()
    assert is_warm(server, client)
    with VisionIpcClient(name, 0, False) as late:
        late.connect(True)
        assert len(set(passed_on(server, client, late, count=BUFFERS))) == BUFFERS
        assert len(set(passed_on(server, client, late, count=BUFFERS))) == 1


@pytest.mark.parametrize("frames", [1, 3])
def test_new_client_receives_all_frames_after_connect(
    server: Any, connect_settled_client: Settled, name: str, monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """It has read of frames, between its two steps, that were overwritten before the server knew of it."""
    client, ask = connect_settled_client(), connection.open_stream

    def ask_late(*arguments: Any) -> Any:
        passed_on(server, client, count=frames)
        return ask(*arguments)

    monkeypatch.setattr("visionipc.client.open_stream", ask_late)
    with VisionIpcClient(name, 0, False) as late:
        late.connect(True)
        monkeypatch.undo()
        for value in (11, 12, 13):
            publish(server, value)
        got = received(late)
        assert got[-3:] == [11, 12, 13]
        assert len(got) + (late.lost or 0) == frames + 3


def test_buffers_rotate_with_possible_stock_client(server: Any, connect_settled_client: Settled) -> None:
    client = connect_settled_client()
    with contextlib.closing(_unix_socket()) as stock:
        stock.connect(wire.socket_path(server.name))
        stock.send(wire.REQUEST_STRUCT.pack(0))
        assert stock.recv(1 << 16)
    order = passed_on(server, client, count=BUFFERS)
    assert sorted(order) == list(range(BUFFERS))
    assert passed_on(server, client, count=3 * BUFFERS) == 3 * order
    server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
    passed_on(server, client, count=2 * BUFFERS)
    assert is_warm(server, client), "of the stream that was made anew it has no buffers"


def test_aborted_frame_leaves_buffer_free(server: Any, connect_settled_client: Settled) -> None:
    client = connect_settled_client()
    before = passed_on(server, client)
    for _ in range(2 * BUFFERS):
        with pytest.raises(ZeroDivisionError), server.frame(0):
            raise ZeroDivisionError
    assert passed_on(server, client, count=3) == before * 3
    assert client.lost == 0


def test_buffers_rotate_while_stock_client_is_in_topic(server: Any, connect_settled_client: Settled, name: str) -> None:
    """It joins the topic first, and asks for the buffers later: then it reads frames that were published meanwhile."""
    client = connect_settled_client()
    assert is_warm(server, client)
    with RingFile(f"{settings.get_prefix()}/{wire.get_endpoint_name(name, 0)}") as topic:
        slot = topic.num_readers
        topic[264 + 8 * slot] = 1 << 32  # slot of a dead thread
        topic[0] = slot + 1
        assert sorted(passed_on(server, client, count=BUFFERS)) == list(range(BUFFERS))
        topic[264 + 8 * slot] = 0
        topic[0] = slot
    passed_on(server, client, count=2)
    assert is_warm(server, client)


@pytest.mark.parametrize("closed", [True, False])
def test_closed_client_with_held_frame_causes_no_rotation(
    server: Any, connect_settled_client: Settled, name: str, closed: bool
) -> None:
    client = connect_settled_client()
    leaving = VisionIpcClient(name, 0, False)
    leaving.connect(True)
    passed_on(server, client, leaving, count=BUFFERS)
    publish(server, 99)
    held = leaving.frame(DEADLINE_MS)
    assert received(client) == [99]
    if closed:
        leaving.close()
    else:
        del leaving
    assert len(set(passed_on(server, client, count=3 * BUFFERS))) <= 2, "all but one go where the one before was"
    assert (held.array == 99).all()


def test_client_without_usable_row_causes_no_rotation(
    server: Any, connect_settled_client: Settled, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise IpcError("protocol version", name)

    client = connect_settled_client()
    monkeypatch.setattr(connection, "_map_lease_row", refuse)
    with pytest.raises(IpcError, match="protocol version"):
        connection.open_stream(name, 0)
    wait_until(lambda: len(server.stats(0).clients) == 1, "the row is given back")
    assert is_warm(server, client)


def test_unavailable_stream_is_not_requested_at_each_frame(
    server: Any, connect_settled_client: Settled, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, asked = connect_settled_client(), []

    def refuse(*arguments: Any) -> Any:
        asked.append(arguments)
        raise IpcError("protocol version", server.name)

    monkeypatch.setattr(receiving, "open_stream", refuse)
    monkeypatch.setattr(receiving, "_RETRY_INTERVAL_S", 1000.0)
    server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
    for value in range(3 * BUFFERS):
        publish(server, value)
        assert received(client) == []
    assert len(asked) == 1
    assert client.lost == 3 * BUFFERS
