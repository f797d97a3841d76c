"""Messages go from a publisher to every subscriber, once each, in order, unchanged."""

from __future__ import annotations

import random
from typing import Any

import pytest

import msgq
from tests.cases import each_case
from tests.contract import children
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, DEADLINE_MS, Child


def test_topic_message_arrives_unchanged(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"\0 any bytes \xff")
    assert sub.receive() == b"\0 any bytes \xff"


def test_messages_arrive_in_order_and_once(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    sent = [b"%d" % i for i in range(500)]
    for message in sent:
        pub.send(message)
    assert [sub.receive() for _ in sent] == sent
    assert sub.receive(non_blocking=True) is None


@each_case(
    "size", [1, 7, 8, 9, 63, 64, 65, 4095, 4096, 65535, 65536, 65537, 262144, 300_000], reset="backend.close_sockets"
)
def test_messages_of_any_size_arrive_unchanged(backend: Backend, endpoint: str, size: int) -> None:
    pub, sub = backend.pair(endpoint)
    message = random.Random(size).randbytes(size)
    for _ in range(4):  # the largest go around the ring
        pub.send(message)
        assert sub.receive() == message


def test_empty_message_is_delivered(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"")
    pub.send(b"after")
    assert [sub.receive(), sub.receive()] == [b"", b"after"]


def test_all_subscribers_receive_all_messages(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    subs = [backend.sub(endpoint) for _ in range(5)]
    pub.wait_for_readers(DEADLINE, n=5)
    sent = [b"%d" % i for i in range(50)]
    pub.send_many(sent)
    assert [collect(sub, 50) for sub in subs] == [sent] * 5


def test_subscriber_receives_no_messages_sent_before_connection(backend: Backend, endpoint: str) -> None:
    pub, early = backend.pair(endpoint)
    pub.send(b"before")
    assert early.receive() == b"before"
    late = backend.sub(endpoint)
    pub.wait_for_readers(DEADLINE, n=2)
    pub.send(b"after")
    assert late.receive() == b"after"


def test_subscriber_may_start_before_its_publisher(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint)
    pub = backend.pub(endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(b"first")
    assert sub.receive() == b"first"


def test_messages_of_one_topic_do_not_reach_another_topic(backend: Backend, prefix: str) -> None:
    (pub_a, sub_a), (pub_b, sub_b) = backend.pair("a"), backend.pair("b")
    pub_a.send(b"for a")
    pub_b.send(b"for b")
    assert (sub_a.receive(), sub_b.receive()) == (b"for a", b"for b")
    assert (sub_a.receive(True), sub_b.receive(True)) == (None, None)


def test_endpoint_and_address_may_be_bytes(backend: Backend, endpoint: str) -> None:
    pub = backend.PubSocket()
    sub = backend.SubSocket()
    with pub, sub:
        pub.connect(backend.context, endpoint.encode())
        sub.connect(backend.context, endpoint.encode(), b"127.0.0.1")
        sub.setTimeout(DEADLINE_MS)
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(b"x")
        assert sub.receive() == b"x"
        assert pub.endpoint == sub.endpoint == endpoint


def test_connect_address_of_wrong_type_is_refused(backend: Backend, endpoint: str) -> None:
    with pytest.raises(TypeError, match="address"):
        backend.SubSocket().connect(backend.context, endpoint, 127)


@pytest.mark.parametrize("count", [1, 3, 64, 65, 200])
def test_receive_many_takes_at_most_the_limit(backend: Backend, endpoint: str, count: int) -> None:
    pub, sub = backend.pair(endpoint)
    sent = [b"%d" % i for i in range(200)]
    pub.send_many(sent)
    got: list[bytes] = []
    while len(got) < 200:
        part = sub.receive_many(count, wait_for_one=True)
        assert 1 <= len(part) <= count
        got += part
    assert got == sent
    assert sub.receive_many(count) == []


def test_receive_many_with_limit_zero_takes_nothing(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"stays")
    assert sub.receive_many(0) == []
    assert sub.receive_many(0, wait_for_one=True) == []
    assert sub.receive() == b"stays"


@pytest.mark.needs("processes")
def test_message_reaches_another_process(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    with Child(children.subscriber, backend.name, endpoint) as child:
        assert child.hear() == "connected"
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(b"hello")
        child.say("receive")
        assert child.hear() == ["hello"]


@pytest.mark.needs("processes")
def test_message_of_another_process_is_received(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint)
    with Child(children.publisher, backend.name, endpoint, 1) as child:
        assert child.hear() == "connected"
        child.say("from afar")
        assert sub.receive() == b"from afar"
    backend.pub(endpoint)  # files of a killed publisher are removed with its successor


class TestHelperFunctions:
    """The functions of stock msgq, on the chosen backend."""

    def test_pub_sock_and_sub_sock_connect(self, endpoint: str) -> None:
        with msgq.pub_sock(endpoint, 4096) as pub, msgq.sub_sock(endpoint, timeout=DEADLINE_MS) as sub:
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"x")
            assert sub.receive() == b"x"

    def test_sub_sock_registers_with_a_poller(self, endpoint: str) -> None:
        poller = msgq.Poller()
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, poller) as sub:
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send(b"x")
            assert poller.poll(DEADLINE_MS) == [sub]

    def test_sub_sock_accepts_conflate_address_and_size(self, endpoint: str) -> None:
        with msgq.sub_sock(endpoint, None, "127.0.0.1", True, 0, 4096) as sub:
            assert sub.conflate
            assert sub.receive() is None

    @pytest.mark.parametrize("wait_for_one", [False, True])
    def test_drain_sock_raw_returns_all_waiting_messages(self, endpoint: str, wait_for_one: bool) -> None:
        with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint, timeout=DEADLINE_MS) as sub:
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send_many([b"1", b"2", b"3"])
            assert msgq.drain_sock_raw(sub, wait_for_one) == [b"1", b"2", b"3"]

    def test_drain_sock_raw_without_messages_returns_at_once(self, endpoint: str) -> None:
        with msgq.sub_sock(endpoint) as sub:  # waits for ever if it waits
            assert msgq.drain_sock_raw(sub) == []

    def test_constant_no_traversal_limit_is_largest_64_bit_number(self) -> None:
        assert msgq.NO_TRAVERSAL_LIMIT == 2**64 - 1


@pytest.mark.parametrize("wrong", [{"limit": -1}, {"limit": -(2**70)}])
def test_receive_many_with_negative_limit_is_refused(backend: Backend, endpoint: str, wrong: dict[str, Any]) -> None:
    sub = backend.sub(endpoint)
    with pytest.raises(ValueError, match="limit"):
        sub.receive_many(**wrong)


def test_backend_argument_selects_backend_by_name(backend: Backend, endpoint: str) -> None:
    """Whatever MSGQ_BACKEND says: for programs that mix them."""
    poller = backend.Poller()
    with (
        msgq.pub_sock(endpoint, backend=backend.name) as pub,
        msgq.sub_sock(endpoint, poller, timeout=DEADLINE_MS, backend=backend.name) as sub,
    ):
        assert (type(pub), type(sub)) == (backend.PubSocket, backend.SubSocket)
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(b"x")
        assert poller.poll(DEADLINE_MS) == [sub]
        assert sub.receive() == b"x"
