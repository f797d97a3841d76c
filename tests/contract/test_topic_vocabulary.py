"""The names that topics share with the other kinds: timeout in seconds, limit, loan, prefix, unlink, areceive."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import msgq
from msgq.errors import EndpointClosedError, InvalidTypeError, InvalidValueError
from msgq.topic import api
from tests.contract.conftest import Backend

SHORT = 0.05


def test_receive_with_a_timeout_returns_the_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"one")
    assert sub.receive(timeout=60) == b"one"


def test_receive_timeout_is_in_seconds_and_keeps_socket_timeout(backend: Backend, endpoint: str) -> None:
    _, sub = backend.pair(endpoint)
    started = backend.monotonic_ns()
    assert sub.receive(timeout=SHORT) is None
    assert backend.monotonic_ns() - started >= SHORT * 1e9 * 0.99
    sub.setTimeout(0)
    assert sub.receive() is None


def test_receive_with_timeout_none_uses_the_socket_timeout(backend: Backend, endpoint: str) -> None:
    _, sub = backend.pair(endpoint)
    sub.setTimeout(0)
    assert sub.receive(timeout=None) is None


@pytest.mark.parametrize("options", [{"timeout": 0}, {"timeout": 60, "non_blocking": True}])
def test_receive_non_blocking_returns_at_once(backend: Backend, endpoint: str, options: dict[str, Any]) -> None:
    _, sub = backend.pair(endpoint)
    started = backend.monotonic_ns()
    assert sub.receive(**options) is None
    assert backend.monotonic_ns() - started < 30e9


@pytest.mark.parametrize(
    ("timeout", "error"),
    [(-1, InvalidValueError), (1e12, InvalidValueError), ("1", InvalidTypeError), (True, InvalidTypeError)],
)
def test_receive_with_invalid_timeout_takes_nothing(
    backend: Backend, endpoint: str, timeout: Any, error: type[Exception]
) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"one")
    with pytest.raises(error):
        sub.receive(timeout=timeout)
    assert sub.receive() == b"one"


def test_iteration_ends_at_the_receive_timeout(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send_many([b"1", b"2", b"3"])
    first = sub.receive()
    backend.settle()
    sub.setTimeout(0)
    assert [first, *sub] == [b"1", b"2", b"3"]


def test_iteration_of_a_closed_subscriber_raises(backend: Backend, endpoint: str) -> None:
    _, sub = backend.pair(endpoint)
    sub.close()
    with pytest.raises(EndpointClosedError):
        next(iter(sub))


def test_areceive_and_arecv_return_messages(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send_many([b"1", b"2"])

    async def both() -> list[bytes]:
        return [await sub.areceive(), await sub.arecv()]

    assert asyncio.run(both()) == [b"1", b"2"]


def test_limit_argument_bounds_receive_many_and_receive_array(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send_many([b"12345678"] * 5)
    first = sub.receive()
    backend.settle()
    assert sub.receive_many(limit=2) == [first] * 2
    assert len(sub.receive_array("u8", limit=1)) == 1
    assert sub.receive_many(limit=0) == []


def test_loan_writes_a_message_in_place(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    with pub.loan(4) as view:
        view[:] = b"abcd"
    assert sub.receive() == b"abcd"


def test_topics_of_different_prefixes_are_separate(
    backend: Backend, endpoint: str, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENPILOT_PREFIX")
    pub, outside = backend.pub(endpoint, prefix=prefix), backend.sub(endpoint)
    inside = backend.sub(endpoint, prefix=prefix)
    pub.wait_for_readers(n=1, timeout=30)
    pub.send(b"inside")
    assert inside.receive() == b"inside"
    assert outside.receive(timeout=SHORT) is None


def test_pub_sock_and_sub_sock_accept_a_prefix_argument(backend: Backend, endpoint: str, prefix: str) -> None:
    options: Any = {"backend": backend.name, "prefix": prefix}
    with api.pub_sock(endpoint, **options) as pub, api.sub_sock(endpoint, timeout=10_000, **options) as sub:
        pub.wait_for_readers(n=1, timeout=30)
        pub.send(b"x")
        assert sub.receive() == b"x"


def test_unlink_keeps_connected_sockets_working(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    assert pub.unlink() is (backend.name != "zmq")
    assert pub.unlink() is False
    pub.send(b"old")
    assert sub.receive() == b"old"
    if backend.name != "zmq":
        successor, new = backend.pair(endpoint)
        successor.send(b"new")
        assert new.receive() == b"new"
        assert sub.receive(timeout=0) is None
        successor.unlink()


def test_unlink_of_a_closed_publisher_raises(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    pub.close()
    with pytest.raises(EndpointClosedError):
        pub.unlink()


@pytest.mark.parametrize("master", [msgq.PubMaster, msgq.SubMaster])
def test_masters_accept_a_prefix_argument(
    endpoint: str, prefix: str, master: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENPILOT_PREFIX")
    with master([endpoint], prefix=prefix), msgq.sub_sock(endpoint, prefix=prefix) as sub:
        assert sub.endpoint == endpoint
