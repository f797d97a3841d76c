"""Strangers who announce more than there is memory for, and messages that are too large for ZMQ."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.auth

from msgq.errors import InvalidValueError, MessageTooLargeError
from msgq.impl.zeromq import Poller, sub_connection
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS, Task, wait_until

GIB = 1 << 30
DEFAULT = 1 << 28


class Stranger:
    """A connection that speaks ZMTP 3.0 by hand."""

    def __init__(self, connection: socket.socket, kind: bytes) -> None:
        self._connection = connection
        connection.settimeout(DEADLINE)
        connection.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32))
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        connection.sendall(bytes([4, len(ready)]) + ready)

    def announce(self, size: int) -> None:
        """Begin a message of so many bytes."""
        self._connection.sendall(b"\x02" + struct.pack(">Q", size))

    def send(self, message: bytes) -> None:
        self._connection.sendall(bytes([0, len(message)]) + message)

    def hear(self, what: bytes) -> None:
        """Read until this came."""
        heard = b""
        while what not in heard:
            heard += (more := self._connection.recv(4096))
            assert more, f"ended after {heard!r}"

    def wait_for_the_end(self) -> None:
        """Return when the other side has hung up; TimeoutError when it does not."""
        with contextlib.suppress(ConnectionResetError):
            while self._connection.recv(4096):
                pass


def address_space() -> int:
    """Return the bytes that this process ever had mapped."""
    found = re.search(r"VmPeak:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) * 1024


@pytest.fixture
def zmq_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.delenv("MSGQ_ZMQ_MAX_BYTES", raising=False)
    backend = Backend("zmq")
    yield backend
    backend.close()


@pytest.fixture
def listener(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where subscribers of the endpoint connect."""
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        made.listen()
        made.settimeout(DEADLINE)
        write_map(endpoint, made.getsockname()[1], tmp_path, monkeypatch)
        yield made


def write_map(endpoint: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "map.toml").write_text(f'"{endpoint}" = "tcp://127.0.0.1:{port}"')
    monkeypatch.setenv("MSGQ_ZMQ_MAP", str(tmp_path / "map.toml"))
    monkeypatch.delenv("OPENPILOT_PREFIX", raising=False)


@pytest.fixture
def port(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Where publishers of the endpoint bind."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = int(probe.getsockname()[1])
    write_map(endpoint, found, tmp_path, monkeypatch)
    return found


def received_after_a_poll(sub: Any) -> bytes:
    poller = Poller()
    poller.registerSocket(sub)
    assert poller.poll(DEADLINE_MS) == [sub]
    return bytes(sub.receive(True))


async def awaited(sub: Any) -> bytes:
    return bytes(await asyncio.wait_for(sub.arecv(), DEADLINE))


WAYS = {
    "receive": lambda sub: sub.receive(),
    "poll": received_after_a_poll,
    "arecv": lambda sub: asyncio.run(awaited(sub)),
    "receive_many": lambda sub: sub.receive_many(1, wait_for_one=True)[0],
}


@pytest.mark.parametrize(
    ("size", "way"),
    [(DEFAULT + 100, "receive"), (GIB, "poll"), (10 * GIB, "arecv"), (2**63 - 1, "receive_many")],
)
def test_publisher_that_announces_too_large_message_uses_no_memory(
    zmq_backend: Backend, endpoint: str, listener: socket.socket, size: int, way: str
) -> None:
    sub = zmq_backend.sub(endpoint)
    with listener.accept()[0] as connection:
        before = address_space()
        stranger = Stranger(connection, b"PUB")
        stranger.announce(size)
        stranger.wait_for_the_end()
        assert address_space() - before < DEFAULT / 2
    receiving = Task(WAYS[way], sub)
    with listener.accept()[0] as connection:  # it comes back, and what is sent then arrives
        stranger = Stranger(connection, b"PUB")
        stranger.hear(b"\x00\x01\x01")  # its subscription to everything, so the handshake is over
        stranger.send(b"small")
        assert receiving.result() == b"small"


@pytest.mark.parametrize("way", WAYS)
def test_subscriber_connects_to_publisher_after_three_broken_peers(
    zmq_backend: Backend, endpoint: str, listener: socket.socket, way: str
) -> None:
    receiving = Task(WAYS[way], zmq_backend.sub(endpoint))
    for _ in range(3):
        with listener.accept()[0] as connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            Stranger(connection, b"PUB").wait_for_the_end()
    with listener.accept()[0] as connection:
        stranger = Stranger(connection, b"PUB")
        stranger.hear(b"\x00\x01\x01")
        stranger.send(b"small")
        assert receiving.result() == b"small"


class TestNobodyLooks:
    """ZMQ's thread serves all sockets, so what it tells of one must never make it wait."""

    @pytest.fixture(autouse=True)
    def in_a_hurry(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sub_connection, "RECONNECT_INTERVAL_MS", 1)
        monkeypatch.setattr(sub_connection, "RECONNECT_INTERVAL_MAX_MS", 1)

    def test_subscriber_without_publisher_queues_no_monitor_events(
        self, zmq_backend: Backend, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # A connection to a port of the kernel's range sometimes gets that port itself, and so reaches itself.
        write_map(endpoint, 1, tmp_path, monkeypatch)
        sub = zmq_backend.sub(endpoint)
        assert sub._monitor_socket.poll(300) == 0  # hundreds of attempts

    def test_frequently_reconnecting_publisher_does_not_block_other_publishers(
        self, zmq_backend: Backend, endpoint: str, listener: socket.socket
    ) -> None:
        zmq_backend.sub(endpoint)
        pub, sub = zmq_backend.pair(f"{endpoint}-healthy")
        for _ in range(1500):  # each tells of its begin and its end, and a queue of ZMQ's takes 2000 unless told
            listener.accept()[0].close()
        pub.send(b"still here")
        assert sub.receive() == b"still here"


@pytest.mark.parametrize("size", [100_000, DEFAULT, GIB, 10 * GIB])
def test_subscriber_that_announces_too_large_message_uses_no_memory(
    zmq_backend: Backend, endpoint: str, port: int, size: int
) -> None:
    pub = zmq_backend.pub(endpoint)
    before = address_space()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        stranger = Stranger(connection, b"SUB")
        stranger.announce(size)
        stranger.wait_for_the_end()
    assert address_space() - before < DEFAULT / 2
    sub = zmq_backend.sub(endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(b"x")
    assert sub.receive() == b"x"


def test_subscription_of_60000_bytes_is_accepted(zmq_backend: Backend, endpoint: str, port: int) -> None:
    pub = zmq_backend.pub(endpoint)
    with zmq.Context() as context, context.socket(zmq.SUB) as plain:
        plain.subscribe(b"x" * 60_000)
        plain.connect(f"tcp://127.0.0.1:{port}")
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send_many([b"y", b"x" * 60_001])
        assert len(plain.recv()) == 60_001


def curve(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("server", "client"):
        zmq.auth.create_certificates(directory, name)
    monkeypatch.setenv("MSGQ_ZMQ_CURVE", str(directory))


@pytest.mark.parametrize("encrypted", [False, True])
def test_message_at_size_limit_arrives_and_larger_message_is_refused(
    zmq_backend: Backend, endpoint: str, port: int, encrypted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if encrypted:
        curve(tmp_path, monkeypatch)
    monkeypatch.setenv("MSGQ_ZMQ_MAX_BYTES", "1000")
    pub, sub = zmq_backend.pair(endpoint)
    for data in (bytes(1001), bytearray(1001)):
        with pytest.raises(MessageTooLargeError, match=r"1001 bytes.*1000.*MSGQ_ZMQ_MAX_BYTES") as caught:
            pub.send(data)
        assert caught.value.endpoint == endpoint
    pub.send(bytes(1000))
    assert sub.receive() == bytes(1000)
    assert pub.stats().messages == 1


def test_size_limit_0_allows_messages_of_any_size(
    zmq_backend: Backend, endpoint: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_MAX_BYTES", "0")
    pub, sub = zmq_backend.pair(endpoint)
    pub.send(bytes(2000))
    assert sub.receive() == bytes(2000)


def test_subscriber_with_lower_limit_reconnects_without_the_large_message(
    zmq_backend: Backend, endpoint: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what the user sees of two sides that were told different limits."""
    pub = zmq_backend.pub(endpoint)
    monkeypatch.setenv("MSGQ_ZMQ_MAX_BYTES", "1000")
    sub = zmq_backend.sub(endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(bytes(2000))
    receiving = Task(sub.receive)

    def came() -> bool:
        pub.send(b"later")
        return not receiving.is_alive()

    wait_until(came, interval=0.01)
    assert receiving.result() == b"later"


@pytest.mark.parametrize("value", ["many", "-1", "1.5", "1e9", "9" * 30])
@pytest.mark.parametrize("kind", ["pub", "sub"])
def test_size_limit_error_names_invalid_value(
    zmq_backend: Backend, endpoint: str, monkeypatch: pytest.MonkeyPatch, value: str, kind: str
) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_MAX_BYTES", value)
    connect: Callable[[str], object] = getattr(zmq_backend, kind)
    with pytest.raises(InvalidValueError, match="MSGQ_ZMQ_MAX_BYTES"):
        connect(endpoint)
