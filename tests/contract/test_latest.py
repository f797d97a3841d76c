"""`latest=True`: a late subscriber first receives the last message."""

from __future__ import annotations

from typing import Any

import pytest

import msgq
from msgq import stats
from msgq.errors import StateError
from msgq.topic import api
from tests.contract import children
from tests.contract.conftest import Backend
from tests.support import DEADLINE, Child

SIZES = (1, 8, 30, 100, 300)  # bytes


def receive_last(backend: Backend, endpoint: str, **options: Any) -> bytes | None:
    """Return what a new subscriber receives first without waiting."""
    sub = backend.sub(endpoint, latest=True, **options)
    data: bytes | None = sub.receive(timeout=0)
    assert (sub.receive(timeout=0), sub.lost) == (None, 0)
    sub.close()
    return data


@pytest.mark.needs("replay")
def test_late_subscriber_receives_the_last_message_and_later_ones(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    pub.send_many([b"1", b"2", b"3"])
    sub = backend.sub(endpoint, latest=True)
    pub.send(b"4")
    assert sub.receive_many() == [b"3", b"4"]
    assert sub.stats().received == 2
    assert sub.lost == 0


@pytest.mark.needs("replay")
def test_late_subscriber_of_a_topic_without_messages_receives_none(backend: Backend, endpoint: str) -> None:
    assert receive_last(backend, endpoint) is None
    pub = backend.pub(endpoint)
    assert receive_last(backend, endpoint) is None
    sub = backend.sub(endpoint, latest=True)
    pub.send(b"first")
    assert sub.receive() == b"first"


@pytest.mark.needs("replay")
def test_last_message_outlives_its_publisher(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    pub.send(b"last")
    pub.close()
    assert receive_last(backend, endpoint) == b"last"
    backend.pub(endpoint)
    assert receive_last(backend, endpoint) == b"last"


@pytest.mark.needs("replay")
@pytest.mark.parametrize("size", SIZES)
def test_each_message_of_several_laps_is_found(backend: Backend, endpoint: str, size: int) -> None:
    """The ring has 1024 bytes, so that laps begin and end between the messages."""
    pub = backend.pub(endpoint, 1024)
    for number in range(100):
        message = bytes([number]) * (1 + (number * 7) % size)
        pub.send(message)
        assert receive_last(backend, endpoint) == message


@pytest.mark.needs("replay")
@pytest.mark.parametrize("size", SIZES)
def test_message_is_found_during_the_next_send_and_after_a_restart(backend: Backend, endpoint: str, size: int) -> None:
    pub = backend.pub(endpoint, 1024)
    for number in range(60):
        message = bytes([number]) * size
        pub.send(message)
        reservation = pub.reserve(size)
        reservation.__enter__()  # the next message is begun, perhaps at the start of a lap
        assert receive_last(backend, endpoint) == message
        reservation.__exit__(ValueError, ValueError(), None)
        assert receive_last(backend, endpoint) == message
        pub.send(message)  # a publisher that ends after it began a lap leaves no message to find
        if number % 3 == 0:
            pub.close()
            pub = backend.pub(endpoint)
            assert receive_last(backend, endpoint) == message


@pytest.mark.needs("replay", "tracked")
def test_last_message_of_a_tracked_topic_has_its_times(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint, tracked=True)
    pub.send(b"one", origin_time=7)
    sub = backend.sub(endpoint, latest=True)
    message = sub.receive_tracked(non_blocking=True)
    assert (message.data, message.origin_time) == (b"one", 7)


@pytest.mark.needs("replay")
@pytest.mark.parametrize("options", [{"conflate": True}, {"passive": True}])
def test_last_message_with_other_options(backend: Backend, endpoint: str, options: Any) -> None:
    pub = backend.pub(endpoint)
    pub.send_many([b"1", b"2"])
    assert receive_last(backend, endpoint, **options) == b"2"


@pytest.mark.needs("replay")
def test_poller_finds_the_last_message(backend: Backend, endpoint: str) -> None:
    backend.pub(endpoint).send(b"1")
    sub = backend.sub(endpoint, latest=True)
    assert backend.poller(sub).poll(0) == [sub]


@pytest.mark.needs("replay")
def test_sub_sock_has_latest(backend: Backend, endpoint: str) -> None:
    backend.pub(endpoint).send(b"1")
    with api.sub_sock(endpoint, latest=True, backend=backend.name) as sub:
        assert sub.receive(timeout=0) == b"1"


@pytest.mark.ci
def test_zmq_refuses_latest_and_says_why(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with pytest.raises(StateError, match="ZMQ keeps no message for later subscribers"):
        msgq.sub_sock(endpoint, latest=True, backend="zmq")


def check_message(data: bytes | None) -> int:
    """Return the number of a message of `children.endless_publisher`, which must be whole."""
    assert data
    assert data == data[:8] * (len(data) // 8)
    return int.from_bytes(data[:8], "little")


@pytest.mark.ci
def test_late_subscribers_of_a_fast_publisher_receive_whole_messages_in_order(endpoint: str) -> None:
    """The publisher laps the ring all the time, also during the search for its last message."""
    with Child(children.endless_publisher, endpoint, 4096) as child:
        child.hear()
        newest = 0
        for _ in range(500):
            with msgq.sub_sock(endpoint, latest=True) as sub:
                number = check_message(sub.receive(timeout=DEADLINE))
            assert number >= newest
            newest = number
        child.kill()


@pytest.mark.ci
def test_last_message_of_a_killed_publisher_is_found(endpoint: str) -> None:
    for _ in range(10):
        with Child(children.endless_publisher, endpoint, 4096) as child:
            child.hear()
            with msgq.sub_sock(endpoint, latest=True) as sub:
                check_message(sub.receive(timeout=DEADLINE))
            child.kill()
            topic = stats.topic(endpoint)
            with msgq.sub_sock(endpoint, latest=True) as sub:
                number = check_message(sub.receive(timeout=0))
                assert sub.receive(timeout=0) is None
        with msgq.pub_sock(endpoint) as pub:
            pub.unlink()
        assert topic.messages is not None
        assert number in (topic.messages, topic.messages + 1)  # the count follows the message
