"""Connecting while servers come, go, and are held up: it succeeds, or there is no server; it is never refused."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from msgq.errors import WaitTimeoutError
from tests.support import Child, Task, hear, say, wait_until
from tests.visionipc.conftest import HEIGHT, WIDTH
from visionipc import VisionIpcClient, VisionIpcServer, wire


@contextlib.contextmanager
def serving(name: Any) -> Iterator[Any]:
    with VisionIpcServer(name) as server:
        server.create_buffers(0, 2, WIDTH, HEIGHT)
        server.start_listener()
        yield server


def test_connect_during_server_start_succeeds_or_finds_no_server(name: Any) -> None:
    """Failure would mean: a client that found nobody listening, and somebody a moment later, says it was refused."""
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            with serving(name):
                pass

    found = set()

    def both() -> bool:
        for _ in range(1000):  # some ten of them meet that moment
            with VisionIpcClient(name, 0, False) as client, contextlib.suppress(WaitTimeoutError):  # load
                found.add(client.connect(False))
        return found == {True, False}

    task = Task(come_and_go)
    try:
        wait_until(both)
    finally:
        over.set()
    task.result()


def listening(name: Any) -> Any:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(wire.socket_path(name))
    listener.listen()
    return listener


def test_client_repeats_request_after_early_disconnect_of_server(name: Any) -> None:
    client = VisionIpcClient(name, 0, False)
    with listening(name) as listener:
        task = Task(client.connect, True)
        for _ in range(3):
            connection, _ = listener.accept()
            with connection:  # closed with the request unread, as a server with too many others does
                assert connection.recv(1, socket.MSG_PEEK)
        os.unlink(wire.socket_path(name))
    # The end of the listener also ends a fourth request, which the client may have made before the unlink.
    with serving(name):
        assert task.result()
    client.close()


def test_connect_reports_no_answer_after_repeated_early_disconnects(name: Any) -> None:
    over = threading.Event()

    def send_away() -> None:
        while not over.is_set():
            listener.accept()[0].close()

    with listening(name) as listener, VisionIpcClient(name, 0, False) as client:
        task = Task(send_away)
        with pytest.raises(WaitTimeoutError, match="does not answer"):
            client.connect(True)
        over.set()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as last:
            last.connect(wire.socket_path(name))
        task.result()
    os.unlink(wire.socket_path(name))


def serve(name: Any) -> None:
    with serving(name):
        say()
        hear()


def test_delayed_server_answers_earlier_request(name: Any) -> None:
    """Its time was over by the clock, and it was there in time: a server under load answers it all the same."""
    with Child(serve, name) as child, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        child.hear()
        connection.connect(wire.socket_path(name))
        assert VisionIpcClient.available_streams(name) == {0}  # so it has taken us, who came before
        os.kill(child.pid, signal.SIGSTOP)
        connection.send(wire.REQUEST_STRUCT.pack(wire.LIST_REQUEST))
        until = time.monotonic() + 1.1  # more than a client has to say what it wants
        wait_until(lambda: time.monotonic() > until)
        os.kill(child.pid, signal.SIGCONT)
        assert connection.recv(100) == wire.REQUEST_STRUCT.pack(0)
        child.say()
        child.result()
