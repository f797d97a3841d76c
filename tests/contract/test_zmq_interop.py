"""Plain pyzmq programs on either side of the ZMQ backend, in processes of their own, over both transports."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from msgq.impl.zeromq.addresses import compute_port, publisher_address
from tests.contract import children, zmq_children
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, Child, Task


@pytest.fixture(params=["tcp", "ipc"])
def zmq_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", request.param)
    backend = Backend("zmq")
    yield backend
    backend.close()


@pytest.fixture
def topic(token: str) -> str:
    """An endpoint with a free port below the range that the kernel uses for connections of other programs."""
    kernels = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    names = (f"{token}-{number}" for number in itertools.count())
    return next(name for name in names if compute_port(name) < kernels and is_free(compute_port(name)))


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
        return True


def address(topic: str) -> str:
    return publisher_address(topic).uri


@pytest.fixture
def stock_backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """Ours, told to meet stock, with a prefix that stock's side of ZMQ does not look at."""
    for variable in ("TRANSPORT", "BIND", "MAP"):
        monkeypatch.delenv(f"MSGQ_ZMQ_{variable}", raising=False)
    monkeypatch.setenv("OPENPILOT_PREFIX", "sim")
    monkeypatch.setenv("MSGQ_ZMQ_STOCK", "1")
    backend = Backend("zmq")
    yield backend
    backend.close()


def test_subscriber_with_prefix_receives_from_stock_publisher(stock_backend: Backend, topic: str) -> None:
    sub = stock_backend.sub(topic)
    with Child(zmq_children.plain_publisher, f"tcp://*:{compute_port(topic)}") as stock:
        assert [stock.hear(), stock.hear()] == ["bound", "subscribed"]
        stock.say("of stock")
        assert sub.receive() == b"of stock"
        stock.say()
        assert stock.process.wait() is not None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_stock_subscriber_receives_from_publisher_with_prefix_on_all_interfaces(
    stock_backend: Backend, topic: str, host: str
) -> None:
    pub = stock_backend.pub(topic)
    with Child(zmq_children.plain_subscriber, f"tcp://{host}:{compute_port(topic)}") as stock:
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(b"ours")
        assert stock.hear() == "ours"


def remove_socket_file(topic: str) -> None:
    """Plain ZMQ programs that are killed leave it."""
    if path := publisher_address(topic).path:
        Path(path).unlink(missing_ok=True)


def test_plain_zmq_subscriber_receives_the_bytes_unchanged(zmq_backend: Backend, topic: str) -> None:
    pub = zmq_backend.pub(topic)
    with Child(zmq_children.plain_subscriber, address(topic)) as plain:
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(b"one")
        pub.send_many([b"two", b""])
        assert [plain.hear() for _ in range(3)] == ["one", "two", ""]


def test_plain_zmq_subscriber_may_filter_messages(zmq_backend: Backend, topic: str) -> None:
    pub = zmq_backend.pub(topic)
    with Child(zmq_children.plain_subscriber, address(topic), "a", "b") as plain:
        pub.wait_for_readers(DEADLINE, n=2)  # each filter counts
        pub.send_many([b"a1", b"c1", b"b1"])
        assert [plain.hear() for _ in range(2)] == ["a1", "b1"]


def test_msgq_subscriber_receives_bytes_of_plain_zmq_publisher(zmq_backend: Backend, topic: str) -> None:
    sub = zmq_backend.sub(topic)
    with Child(zmq_children.plain_publisher, address(topic)) as plain:
        assert [plain.hear(), plain.hear()] == ["bound", "subscribed"]
        plain.say("one")
        plain.say("")
        assert [sub.receive(), sub.receive()] == [b"one", b""]
        plain.say()
        assert plain.process.wait() is not None
    remove_socket_file(topic)


def test_each_part_of_a_multipart_message_arrives_as_one_message(zmq_backend: Backend, topic: str) -> None:
    sub = zmq_backend.sub(topic)
    with Child(zmq_children.plain_publisher, address(topic)) as plain:
        assert [plain.hear(), plain.hear()] == ["bound", "subscribed"]
        plain.say(["topic", "", "payload"])
        plain.say("next")
        assert collect(sub, 4) == [b"topic", b"", b"payload", b"next"]
        plain.kill()
    remove_socket_file(topic)


def test_conflating_subscriber_accepts_multipart_messages(zmq_backend: Backend, topic: str) -> None:
    """ZMQ's own conflating aborts the process on them."""
    sub = zmq_backend.sub(topic, conflate=True)
    with Child(zmq_children.plain_publisher, address(topic)) as plain:
        assert [plain.hear(), plain.hear()] == ["bound", "subscribed"]
        for i in range(200):
            plain.say([f"head {i}", f"body {i}"])
        plain.say("end")
        while sub.receive() != b"end":
            pass
        assert sub.stats().received + sub.lost == 401
        plain.kill()
    remove_socket_file(topic)


def test_msgq_subscriber_receives_after_plain_publisher_is_killed_and_replaced(
    zmq_backend: Backend, topic: str
) -> None:
    sub = zmq_backend.sub(topic)
    for text in ("of the first", "of the second"):
        receiving = Task(sub.receive)  # a subscriber renews its subscription while it receives
        with Child(zmq_children.plain_publisher, address(topic)) as plain:
            assert [plain.hear(), plain.hear()] == ["bound", "subscribed"]
            plain.say(text)
            assert receiving.result() == text.encode()
            plain.kill()
    remove_socket_file(topic)


def test_msgq_publisher_sends_after_plain_subscriber_is_killed_and_replaced(zmq_backend: Backend, topic: str) -> None:
    pub = zmq_backend.pub(topic)
    for text in ("to the first", "to the second"):
        with Child(zmq_children.plain_subscriber, address(topic)) as plain:
            pub.wait_for_readers(DEADLINE, n=1)
            heard = Task(plain.hear)
            while heard.is_alive():  # the subscription that is counted may still be that of the dead one
                pub.send(text.encode())
                heard.join(0.01)
            assert heard.result() == text


def test_plain_zmq_subscriber_receives_after_msgq_publisher_is_replaced(zmq_backend: Backend, topic: str) -> None:
    with Child(zmq_children.plain_subscriber, address(topic)) as plain:
        for text in ("of the first", "of the second", "of the third"):
            pub = zmq_backend.pub(topic)
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(text.encode())
            assert plain.hear() == text
            pub.close()


def test_msgq_subscriber_receives_after_msgq_publisher_is_killed_and_replaced(zmq_backend: Backend, topic: str) -> None:
    sub = zmq_backend.sub(topic)
    for text in ("of the first", "of the second"):
        receiving = Task(sub.receive)
        with Child(children.publisher, "zmq", topic, 1) as child:
            assert child.hear() == "connected"
            child.say(text)
            assert receiving.result() == text.encode()
            child.kill()
    zmq_backend.pub(topic)  # and takes the address over from the dead
