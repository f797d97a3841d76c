"""A server from before a fork: children send its streams, and the parent answers clients."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

from msgq import errors
from tests.stock.frames import StockClient
from tests.support import DEADLINE, DEADLINE_MS, in_fork, run_child, wait_until
from tests.visionipc.conftest import ALL_BUFFERS, BUFFERS, HEIGHT, WIDTH
from visionipc import VisionIpcClient, VisionIpcServer

SIZE = WIDTH * HEIGHT * 3 // 2
FRAMES = 60


def picture(number: int) -> Any:
    return np.full(SIZE, number % 256, np.uint8)


def send(server: VisionIpcServer, numbers: range, kind: int = 0) -> None:
    for number in numbers:
        assert server.send(kind, picture(number), number)


def received(client: VisionIpcClient) -> list[int]:
    """Return the numbers of all frames that are there. Each frame has the right picture."""
    numbers = []
    while (frame := client.recv(0)) is not None:
        assert (frame.array == frame.frame_id % 256).all()
        numbers.append(frame.frame_id)
        del frame
    return numbers


class Forked:
    """A forked child that runs a function at each `go`."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._connection, inner = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            while inner.recv():
                try:
                    function()
                    inner.send(None)
                except BaseException:
                    inner.send(traceback.format_exc())
            os._exit(0)

    def go(self) -> None:
        self._connection.send(True)
        assert self._connection.poll(DEADLINE), "the child does not answer"
        assert self._connection.recv() is None

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = 0

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pid:
            self._connection.send(False)
            os.waitpid(self.pid, 0)
        self._connection.close()


def test_children_send_streams_of_parents_server(server: VisionIpcServer, connect: Any) -> None:
    """As the compressed camera stream of openpilot: one child for each stream."""
    server.create_buffers(1, BUFFERS, WIDTH, HEIGHT)
    early = [connect(kind) for kind in (0, 1)]
    numbers = iter(range(FRAMES))

    def send_next(kind: int) -> None:
        number = next(numbers)
        send(server, range(number, number + 1), kind)

    children = [Forked(partial(send_next, kind)) for kind in (0, 1)]
    late = [connect(kind) for kind in (0, 1)]
    for number in range(FRAMES):
        for kind, child in enumerate(children):
            child.go()
            assert received(early[kind]) == received(late[kind]) == [number]
    for child in children:
        child.__exit__()
    assert [client.lost for client in (*early, *late)] == [0] * 4
    assert [client.connections for client in (*early, *late)] == [1] * 4
    assert [server.stats(kind).published for kind in (0, 1)] == [FRAMES] * 2


def test_stock_client_receives_frames_of_child(server: VisionIpcServer) -> None:
    with StockClient(server.name, 0) as client:
        assert client.connect().buffers == ALL_BUFFERS
        numbers = iter(range(FRAMES))
        with Forked(lambda: send(server, range(n := next(numbers), n + 1))) as child:
            for number in range(FRAMES):
                child.go()
                frame: Any = client.receive(DEADLINE_MS)
                assert (frame.frame_id, frame.trailing, frame.data) == (number, number, picture(number).tobytes())


def test_child_renders_frame_of_parents_server(server: VisionIpcServer, connect: Any) -> None:
    client = connect()

    def child() -> None:
        with server.frame(0) as frame:
            frame.array[:] = 0

    assert in_fork(child) == 0
    assert received(client) == [0]


def test_child_continues_after_frames_of_parent(server: VisionIpcServer, connect: Any) -> None:
    """Frames that a client holds or has not received stay, also those that the parent sent after the fork."""
    client = connect()
    send(server, range(2))
    held = client.frame(DEADLINE_MS)
    with Forked(lambda: send(server, range(4, 4 + ALL_BUFFERS - 4))) as child:
        send(server, range(2, 4))
        child.go()
        assert received(client) == list(range(1, ALL_BUFFERS))
        assert (held.array == 0).all()
    assert client.lost == 0


def test_parent_after_takeover_by_child_raises(server: VisionIpcServer, connect: Any) -> None:
    client = connect()
    send(server, range(1))
    with Forked(lambda: send(server, range(1, 2))) as child:
        child.go()
        with pytest.raises(errors.MultiplePublishersError, match="from one process"):
            server.send(0, picture(9))
        with pytest.raises(errors.MultiplePublishersError), server.frame(0):
            pass
    assert received(client) == [0, 1]
    server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
    send(server, range(7, 8))
    assert received(client) == [7]


def test_parents_frame_during_takeover_is_not_published(server: VisionIpcServer, connect: Any) -> None:
    """The child leaves the buffer alone that the parent still writes."""
    client = connect()
    numbers = iter(range(2 * ALL_BUFFERS))
    with Forked(lambda: send(server, range(n := next(numbers), n + 1))) as child:
        frame = server.frame(0).__enter__()
        frame.array[:] = 77
        for number in range(ALL_BUFFERS):
            child.go()
            assert received(client) == [number]
            assert (frame.array == 77).all()
        with pytest.raises(errors.MultiplePublishersError):
            frame.__exit__(None, None, None)
        for number in range(ALL_BUFFERS, 2 * ALL_BUFFERS):
            child.go()
            assert received(client) == [number]
    assert client.lost == 0


def test_second_child_takes_over_from_first(server: VisionIpcServer, connect: Any) -> None:
    client = connect()
    turns = iter((0, 1))

    def again() -> None:
        if next(turns) == 0:
            send(server, range(1))
        else:
            with pytest.raises(errors.MultiplePublishersError):
                server.send(0, picture(9))

    with Forked(again) as first, Forked(lambda: send(server, range(1, 2))) as second:
        first.go()
        second.go()
        first.go()
    assert received(client) == [0, 1]


def test_parent_serves_clients_after_death_of_sending_child(server: VisionIpcServer, connect: Any) -> None:
    client = connect()
    with Forked(lambda: send(server, range(1))) as child:
        child.go()
        child.kill()
    assert received(client) == [0]
    late = connect()
    assert in_fork(lambda: send(server, range(1, 2))) == 0
    assert received(client) == received(late) == [1]


def test_next_child_uses_buffers_that_killed_children_were_writing(server: VisionIpcServer, connect: Any) -> None:
    client = connect()
    for _ in range(ALL_BUFFERS):
        pid = os.fork()
        if pid == 0:
            with server.frame(0):
                os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(pid, 0)
    assert in_fork(lambda: send(server, range(ALL_BUFFERS))) == 0
    assert received(client) == list(range(ALL_BUFFERS))


def test_child_of_stream_that_parent_created_again_raises(server: VisionIpcServer, connect: Any) -> None:
    client = connect()

    def send_frame() -> None:
        with pytest.raises(errors.EndpointClosedError, match="created the stream again"):
            server.send(0, picture(1), 1)

    with Forked(send_frame) as child:
        server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
        child.go()
    send(server, range(2, 3))
    assert client.frame(DEADLINE_MS).frame_id == 2


def test_child_reclaims_frames_of_client_that_died(server: VisionIpcServer, connect: Any) -> None:
    """The client joined after the fork, so only the parent's thread has seen it come."""
    client = connect()

    def hold_frames() -> None:
        with VisionIpcClient(server.name, 0, False) as holder:
            assert holder.connect(True)
            os.write(told, b"!")
            for _ in range(BUFFERS):
                frames.append(holder.frame(DEADLINE_MS))
            os.write(told, b"!")
            signal.pause()

    frames: list[Any] = []
    runs, told = os.pipe()
    numbers = iter(range(1000))
    with Forked(lambda: send(server, range(n := next(numbers), n + 1))) as child:
        pid = os.fork()
        if pid == 0:
            hold_frames()
        os.read(runs, 1)
        for number in range(BUFFERS):
            child.go()
            assert received(client) == [number]
        os.read(runs, 1)
        assert server.stats(0).held == BUFFERS
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

        def reclaimed() -> bool:
            child.go()
            received(client)
            return server.stats(0).taken_back == 1

        wait_until(reclaimed, "the child finds the dead client")
    os.close(runs)
    os.close(told)


def test_child_sends_to_connected_clients_after_death_of_parent(name: str) -> None:
    """Nobody answers new clients until another server starts, which takes over the streams."""
    runs, told = os.pipe()
    go, start = os.pipe()
    parent = os.fork()
    if parent == 0:
        server = VisionIpcServer(name)
        server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
        server.start_listener()
        if os.fork() == 0:
            os.read(go, 1)
            send(server, range(1))
            os.write(told, b"!")
            os.read(go, 1)
            try:
                server.send(0, picture(1))
            except errors.MultiplePublishersError:
                os.write(told, b"!")
            os._exit(0)
        os.write(told, b"!")
        signal.pause()
    os.read(runs, 1)
    with VisionIpcClient(name, 0, False) as client:
        assert client.connect(True)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
        os.write(start, b"!")
        os.read(runs, 1)
        assert received(client) == [0]
        with VisionIpcServer(name) as successor:
            successor.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
            successor.start_listener()
            os.write(start, b"!")
            assert os.read(runs, 1) == b"!", "the child sends without an error"
            send(successor, range(2, 3))
            assert received(client) == [2]
    for end in (runs, told, go, start):
        os.close(end)


def test_child_cannot_create_streams_or_listen(server: VisionIpcServer, connect: Any) -> None:
    def child() -> None:
        with pytest.raises(errors.ForkedSocketError, match="before the fork"):
            server.create_buffers(1, 1, 2, 2)
        with pytest.raises(errors.ForkedSocketError, match="before the fork"):
            server.start_listener()
        server.close()
        with pytest.raises(errors.EndpointClosedError):
            server.send(0, picture(1))

    assert in_fork(child) == 0
    client = connect()
    send(server, range(1))
    assert received(client) == [0]


def test_open_frame_belongs_to_parent(server: VisionIpcServer, connect: Any) -> None:
    client = connect()

    def child() -> None:
        with pytest.raises(errors.ForkedSocketError, match="parent process"):
            frame.__exit__(None, None, None)
        send(server, range(5, 6))

    with pytest.raises(errors.MultiplePublishersError), server.frame(0) as frame:
        assert in_fork(child) == 0
    assert received(client) == [5]


CONNECT_CLIENTS = """
import sys
from visionipc import VisionIpcClient
for _ in range(20):
    with VisionIpcClient(sys.argv[1], 0, False) as client:
        assert client.connect(True)
"""


def send_while_clients_connect(name: str) -> None:
    """Child: send frames while the listener admits clients.

    The name of the script is unknown, so Python code looks for it in each read of the process's identity. This code
    lets the other threads run.
    """
    basename = os.path.basename

    def sleep_in_basename(path: Any) -> Any:
        time.sleep(0.001)
        return basename(path)

    sys.argv, slow = ["-c"], mock.patch("os.path.basename", sleep_in_basename)
    with slow, VisionIpcServer(name) as server, VisionIpcClient(name, 0, False) as first:
        server.create_buffers(0, BUFFERS, WIDTH, HEIGHT)
        server.start_listener()
        assert in_fork(lambda: None) == 0  # from now on, the leases have a lock between processes
        assert first.connect(True)
        with subprocess.Popen([sys.executable, "-c", CONNECT_CLIENTS, name]) as clients:
            while clients.poll() is None:
                server.send(0, picture(0))
        assert clients.returncode == 0


def test_sender_continues_while_clients_connect_after_fork(prefix: str, token: str) -> None:
    run_child(send_while_clients_connect, token)
