"""A conflating subscriber gets the newest message only."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contract.conftest import Backend
from tests.support import DEADLINE, Task


def test_conflating_subscriber_receives_only_newest_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, conflate=True)
    pub.send_many([b"old", b"older", b"newest"])
    backend.settle()
    assert sub.receive() == b"newest"
    assert sub.receive(True) is None


def test_conflate_attribute_shows_subscriber_mode(backend: Backend, endpoint: str) -> None:
    assert backend.sub(endpoint, conflate=True).conflate
    assert not backend.sub(endpoint).conflate


def test_each_conflating_receive_returns_newest_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, conflate=True)
    for i in range(20):
        pub.send(b"old %d" % i)
        pub.send(b"new %d" % i)
        backend.settle()
        assert sub.receive() == b"new %d" % i


@pytest.mark.needs("lost")
def test_messages_skipped_by_conflate_add_to_lost(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, conflate=True)
    pub.send_many([b"x"] * 7)
    assert sub.receive() == b"x"
    assert (sub.lost, sub.stats().received, sub.stats().resets) == (6, 1, 0)
    pub.send(b"y")
    assert sub.receive() == b"y"
    assert sub.lost == 6


@pytest.mark.needs("lost", "segment")
def test_lapped_conflating_subscriber_receives_newest_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, segment_size=1024, conflate=True)
    for i in range(1000):
        pub.send(b"%d" % i)
    assert sub.receive() == b"999"
    assert sub.lost == 999


@pytest.mark.needs("lost", "segment", "passive", "takeover")
@pytest.mark.parametrize("passive", [False, True])
def test_lapped_conflating_subscriber_receives_newest_message_of_next_publisher(
    backend: Backend, endpoint: str, passive: bool
) -> None:
    backend.pub(endpoint, 1024)
    sub = backend.sub(endpoint, conflate=True, passive=passive)
    backend.pub(endpoint).send_many([b"%d" % i for i in range(1000)])
    assert sub.receive() == b"999"
    assert sub.lost == 999


def test_conflating_subscriber_does_not_affect_ordinary_subscribers(backend: Backend, endpoint: str) -> None:
    pub, newest = backend.pair(endpoint, conflate=True)
    everything = backend.sub(endpoint)
    pub.wait_for_readers(DEADLINE, n=2)
    pub.send_many([b"1", b"2", b"3"])
    backend.settle()
    assert newest.receive() == b"3"
    assert everything.receive_many() == [b"1", b"2", b"3"]


def test_conflating_receive_many_returns_one_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, conflate=True)
    pub.send_many([b"1", b"2", b"3"])
    backend.settle()
    assert sub.receive_many() == [b"3"]


def test_conflating_receive_into_and_receive_array_take_newest_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, conflate=True)
    buffer = bytearray(8)
    pub.send_many(np.arange(5, dtype=np.uint64))
    backend.settle()
    assert sub.receive_into(buffer) == 8
    assert int.from_bytes(buffer, "little") == 4
    pub.send_many(np.arange(5, 10, dtype=np.uint64))
    backend.settle()
    assert sub.receive_array(np.uint64).tolist() == [9]


@pytest.mark.needs("threads")
def test_blocked_conflating_receive_returns_next_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint, conflate=True)
    pub.send(b"seen")
    assert sub.receive() == b"seen"
    waiting = Task(sub.receive)
    waiting.wait_asleep()
    pub.send(b"woke it")
    assert waiting.result() == b"woke it"
