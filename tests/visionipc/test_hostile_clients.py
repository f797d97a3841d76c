"""Hostile and half-dead clients: the server gives them an error or nothing, serves the others, and loses nothing."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import random
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from msgq.errors import IpcError
from tests.support import DEADLINE, DEADLINE_MS, Child, hear, say, wait_until
from tests.visionipc.conftest import ALL_BUFFERS
from visionipc import VisionIpcClient, VisionIpcServer, wire
from visionipc.impl.core import LEASE_BUFFERS_MAX, LEASE_CLIENTS_MAX, LEASE_TABLE_BYTES

ASK = wire.REQUEST_STRUCT.pack(0)
ANSWER_BYTES = 1 << 16


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def raw(name: str, ours: bool = False) -> socket.socket:
    """Return a connection to the server, as a program of anybody may open it; `ours`: with the sign of our clients."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if ours:
        connection.bind(wire.make_client_address())
    connection.connect(wire.socket_path(name))  # waits while the server's queue is full
    connection.settimeout(DEADLINE)
    return connection


def ask(name: str, request: bytes, ours: bool = False) -> tuple[bytes, list[int]]:
    with raw(name, ours) as connection:
        connection.send(request)
        data, fds, _, _ = socket.recv_fds(connection, ANSWER_BYTES, 253)
    return data, fds


def sent_away(connection: socket.socket) -> bool:
    """Whether the server has closed the connection, without an answer."""
    try:
        return connection.recv(ANSWER_BYTES) == b""
    except ConnectionError:
        return True


@pytest.fixture
def check_clients_are_served(server: Any, connect: Any) -> Iterator[Any]:
    """A function that lets a newcomer, and one who was there, receive a frame; and sees that no descriptor is lost."""
    ids = itertools.count(1)
    client = connect()
    data = bytes(client.buffer_len)
    before = descriptors()

    def check() -> None:
        for one in (client, newcomer := VisionIpcClient(server.name, 0, False)):
            assert one.connect(False) if one is newcomer else one.is_connected()
        frame_id = next(ids)
        assert server.send(0, data, frame_id)
        for one in (client, newcomer):
            while one.frame(DEADLINE_MS).frame_id != frame_id:  # skips frames that were sent meanwhile
                assert one is client
        newcomer.close()

    yield check
    check()
    wait_until(lambda: descriptors() <= before, "the descriptors of the hostile are closed")
    assert server.stats(0).held == 0


# ---- messages of clients ----


def test_silent_client_is_disconnected(server: Any, check_clients_are_served: Any) -> None:
    with raw(server.name) as silent:
        check_clients_are_served()
        assert sent_away(silent)


@pytest.mark.parametrize("count", [64, 65, 200, 1000])
def test_many_silent_clients_do_not_block_server(server: Any, check_clients_are_served: Any, count: Any) -> None:
    with contextlib.ExitStack() as stack:
        silent = [stack.enter_context(raw(server.name)) for _ in range(count)]
        check_clients_are_served()
        assert all(sent_away(connection) for connection in silent[:-64])
        check_clients_are_served()


def test_server_after_1000_connections_answers(server: Any, check_clients_are_served: Any) -> None:
    for _ in range(1000):
        raw(server.name).close()
    check_clients_are_served()


@pytest.mark.parametrize(
    "request_",
    [b"", b"\0", b"\0\0\0", wire.REQUEST_STRUCT.pack(7), wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST - 1)],
    ids=["empty", "1 byte", "3 bytes", "unknown", "largest"],
)
@pytest.mark.parametrize("ours", [False, True], ids=["stock", "msgq"])
def test_invalid_request_gets_no_answer(server: Any, check_clients_are_served: Any, request_: Any, ours: Any) -> None:
    with raw(server.name, ours) as connection:
        connection.send(request_)
        assert sent_away(connection)


@pytest.mark.parametrize("rest", [b"mqframe1", b"\0" * 12, b"x" * 100_000], ids=["8 bytes", "12 zeros", "100 kB"])
def test_unknown_bytes_after_request_are_ignored(server: Any, check_clients_are_served: Any, rest: Any) -> None:
    data, fds = ask(server.name, ASK + rest)
    for fd in fds:
        os.close(fd)
    assert (len(data), len(fds)) == (ALL_BUFFERS * wire.BUFFER_STRUCT.size, ALL_BUFFERS)


@pytest.mark.parametrize("address", ["", "\0mqframe", "\0mqframe2 a", "\0Mqframe1", "a path"], ids=repr)
def test_client_without_msgq_socket_name_gets_stock_answer(
    server: Any, check_clients_are_served: Any, address: Any, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        if address:
            connection.bind(str(tmp_path / "mqframe1") if address == "a path" else address)
        connection.connect(wire.socket_path(server.name))
        connection.settimeout(DEADLINE)
        connection.send(ASK)
        data, fds, _, _ = socket.recv_fds(connection, ANSWER_BYTES, 253)
    for fd in fds:
        os.close(fd)
    assert (len(data), len(fds)) == (ALL_BUFFERS * wire.BUFFER_STRUCT.size, ALL_BUFFERS)
    assert server.stats(0).clients == [os.getpid()]  # the one of `served`


def test_server_continues_after_random_requests(server: Any, check_clients_are_served: Any) -> None:
    chance = random.Random(4)
    for _ in range(500):
        with raw(server.name) as connection:
            connection.send(chance.randbytes(chance.randrange(40)))
    check_clients_are_served()


def test_descriptors_with_request_are_closed(server: Any, check_clients_are_served: Any) -> None:
    before = descriptors()
    end, other = os.pipe()
    with raw(server.name) as connection:
        socket.send_fds(connection, [ASK[:3]], [end] * 100)
        assert sent_away(connection)
    os.close(end)
    os.close(other)
    wait_until(lambda: descriptors() <= before)


# ---- ends of clients ----


@pytest.mark.parametrize("request_", [ASK, wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST)], ids=["stream", "list"])
def test_server_serves_after_500_early_disconnects_of_stock_clients(
    server: Any, check_clients_are_served: Any, request_: Any
) -> None:
    for _ in range(500):
        with raw(server.name) as connection:
            connection.send(request_)
    check_clients_are_served()


def told(child: Child, what: object) -> object:
    child.say(what)
    return child.hear()


def serve_one_stream(name: str) -> None:
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 4, 64, 48)
        server.start_listener()
        say(descriptors())
        while hear():
            say([descriptors(), server.stats(0).clients])


def test_undelivered_answer_releases_client_row(name: Any) -> None:
    """Clients whose time is up before a server that was stopped goes on; more than it has places."""
    with Child(serve_one_stream, name) as child:
        before = child.hear()
        for _ in range(3):
            child.kill(signal.SIGSTOP)
            for _ in range(100):
                with raw(name, ours=True) as connection:
                    connection.send(ASK)
            child.kill(signal.SIGCONT)
            VisionIpcClient.available_streams(name)  # answered after them
        with VisionIpcClient(name, 0, False) as client:
            assert client.connect(False)
            wait_until(lambda: told(child, True) == [before, [os.getpid()]], "all is closed and free")
        child.say(False)
        child.result()


@pytest.mark.parametrize("ours", [False, True], ids=["stock", "msgq"])
def test_clients_with_unread_answers_do_not_block_server(server: Any, check_clients_are_served: Any, ours: Any) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(100):
            connection = stack.enter_context(raw(server.name, ours))
            connection.send(ASK)
        check_clients_are_served()


def ask_and_wait(name: str) -> None:
    kept = []
    for _ in range(40):
        kept.append(raw(name, ours=True))
        kept[-1].send(ASK)
    silent = raw(name)
    for connection in kept:
        select.select([connection], [], [], DEADLINE)
    say(silent.fileno())
    hear()


@pytest.mark.ci
def test_clients_killed_during_connect_release_rows(server: Any, check_clients_are_served: Any) -> None:
    """More in all than the table has rows."""
    for _ in range(8):
        with Child(ask_and_wait, server.name) as child:
            child.hear()
            assert child.pid in server.stats(0).clients
            check_clients_are_served()
            child.kill()
        assert child.pid not in server.stats(0).clients
    check_clients_are_served()


# ---- a server without descriptors ----


def serve_with_limits(name: str) -> None:
    """A server that has, on being told a number, only so many free descriptors; it answers how many it has open."""
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 4, 64, 48)
        server.start_listener()
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        say(descriptors())
        while (room := hear()) is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            lowest = os.dup(0)  # the limit is of the numbers: this is the first free one
            os.close(lowest)
            if room >= 0:
                resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + room, hard))
            say(descriptors() if room < 0 else 0)


@pytest.mark.ci
def test_server_without_descriptors_recovers(name: Any) -> None:
    with Child(serve_with_limits, name) as child:
        before = child.hear()
        for room in (*range(7), *range(7)):
            told(child, room)
            for _ in range(LEASE_CLIENTS_MAX // 2 if 1 < room < 6 else 1):
                with VisionIpcClient(name, 0, False) as client, contextlib.suppress(IpcError):
                    client.connect(False)
            told(child, -1)
            with VisionIpcClient(name, 0, False) as client:
                assert client.connect(False)
        wait_until(lambda: told(child, -1) == before, "all descriptors are closed")
        child.say(None)
        child.result()


# ---- writes of clients ----


@contextlib.contextmanager
def table_of(name: str) -> Iterator[Any]:
    """The table of leases, as a hostile client may write into it."""
    _, fds = ask(name, ASK, ours=True)
    with mmap.mmap(fds[-1], LEASE_TABLE_BYTES) as table:
        for fd in fds:
            os.close(fd)
        yield table


ROWS_AT = 4 * LEASE_BUFFERS_MAX + 64
LEFT = (bytes(ROWS_AT) + (b"\2\0\0\0" + bytes(572)) * LEASE_CLIENTS_MAX)[:LEASE_TABLE_BYTES]


@pytest.mark.parametrize(
    "fill",
    [b"\xff" * LEASE_TABLE_BYTES, bytes(LEASE_TABLE_BYTES), LEFT, random.Random(1).randbytes(LEASE_TABLE_BYTES)],
    ids=["ones", "zeros", "all released", "random"],
)
def test_server_recovers_after_lease_table_is_overwritten(
    server: Any, check_clients_are_served: Any, fill: Any
) -> None:
    """While they are there frames may be lost, or be written anew under those who hold them; nothing breaks."""
    data = bytes(64 * 48 * 3 // 2)
    with table_of(server.name) as table:
        for _ in range(3):
            table[:] = fill
            for _ in range(10):
                server.send(0, data)
            server.stats(0)
    check_clients_are_served()
    dropped = server.stats(0).dropped
    for _ in range(100):
        check_clients_are_served()
    assert server.stats(0).dropped == dropped


@pytest.mark.ci
def test_random_words_in_lease_table_do_not_crash_server(server: Any, connect: Any) -> None:
    chance = random.Random(2)
    client, data = connect(), bytes(64 * 48 * 3 // 2)
    until = time.monotonic() + 1
    with table_of(server.name) as table:
        while time.monotonic() < until:
            start = chance.randrange(0, LEASE_TABLE_BYTES, 4)
            table[start : start + 4] = chance.choice([bytes(4), b"\xff" * 4, chance.randbytes(4), b"\1\0\0\0"])
            server.send(0, data)
            with client.recv(0) or contextlib.nullcontext():
                pass
    with VisionIpcClient(server.name, 0, False) as other:
        assert other.connect(False)
        assert server.send(0, data, 77)
        with other.frame(DEADLINE_MS) as frame:
            assert frame.frame_id == 77
