"""Tracked topics: each message carries when it was published and what it comes from. Who does not ask sees neither."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from msgq.errors import (
    InvalidValueError,
    MessageSizeError,
    MessageTooLargeError,
    MultiplePublishersError,
    StateError,
)
from msgq.impl.base import clock
from tests.cases import each_case
from tests.contract.conftest import Backend

pytestmark = pytest.mark.needs("tracked")


@pytest.fixture(autouse=True)
def _no_origin() -> Iterator[None]:
    clock.set_origin(0)
    yield
    clock.set_origin(0)


def tracked_pair(backend: Backend, endpoint: str, segment_size: int = 0, **options: Any) -> tuple[Any, Any]:
    pub = backend.pub(endpoint, segment_size, tracked=True)
    return pub, backend.sub(endpoint, **options)


RECEIVES: dict[str, Callable[[Any], Any]] = {
    "receive": lambda sub: sub.receive(),
    "recv": lambda sub: sub.recv(),
    "receive_many": lambda sub: sub.receive_many()[0],
    "receive_many, waiting": lambda sub: sub.receive_many(1, wait_for_one=True)[0],
    "receive_tracked": lambda sub: sub.receive_tracked().data,
    "receive_array": lambda sub: sub.receive_array("S8")[0],
    "receive_array, waiting": lambda sub: sub.receive_array("S8", 1, wait_for_one=True)[0],
}


@each_case("kind", ["plain", "conflate", "passive", "first"])
@each_case("how", RECEIVES, reset="backend.close_sockets")
def test_tracked_topic_hides_stamps_in_each_receive_method(
    backend: Backend, endpoint: str, how: str, kind: str
) -> None:
    if kind == "first":  # before any publisher is there to say that it is tracked
        sub = backend.sub(endpoint)
        pub = backend.pub(endpoint, tracked=True)
    else:
        pub, sub = tracked_pair(backend, endpoint, **{kind: True} if kind != "plain" else {})
    for data in (b"8 bytes.", b"8 others"):
        pub.send(data)
        assert RECEIVES[how](sub) == data
    assert (sub.lost, sub.stats().received) == (0, 2)


def test_receive_into_on_tracked_topic_takes_the_payload(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint)
    buffer = bytearray(b"........")
    pub.send_many([b"abc", b"x" * 9])
    assert sub.receive_into(buffer) == 3
    assert buffer == b"abc....."
    with pytest.raises(MessageTooLargeError, match="9 bytes, but the buffer has 8"):
        sub.receive_into(buffer)
    assert sub.receive() == b"x" * 9


def test_arrays_on_tracked_topic_are_received_without_stamps(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint)
    values = np.arange(3000, dtype="f8")
    assert pub.send_many(values) == 3000
    assert sub.receive_array("f8").tolist() == values.tolist()
    pub.send(b"other")
    with pytest.raises(MessageSizeError, match="5 bytes, but the dtype has 8"):
        sub.receive_array("f8")


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 300_000])
def test_tracked_messages_of_any_size_arrive_whole(backend: Backend, endpoint: str, size: int) -> None:
    pub, sub = tracked_pair(backend, endpoint, 8 << 20)
    data = bytes(i % 251 for i in range(size))
    pub.send(data)
    pub.send(memoryview(data))
    pub.send_many([data, bytearray(data)])
    with pub.reserve(size) as view:
        view[:] = data
    assert [sub.receive_tracked().data for _ in range(3)] == [data] * 3
    assert sub.receive_many() == [data] * 2
    assert pub.stats().bytes == 5 * size, "payload bytes only"


def test_tracked_message_has_its_publish_time(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint)
    before = backend.time_ns()
    pub.send(b"1")
    pub.send_many([b"2", b"3"])
    with pub.reserve(1) as view:
        view[:] = b"4"
        begun = backend.time_ns()
    found = [sub.receive_tracked() for _ in range(4)]
    after = backend.time_ns()
    if backend.name == "fake":  # its time stands still, and no two origins of a process are the same
        after += 1_000_000
    times = [message.publish_time for message in found]
    assert [message.data for message in found] == [b"1", b"2", b"3", b"4"]
    assert times == sorted(set(times))
    assert before <= times[0] < times[3] <= after
    assert times[3] >= begun, "published at the end of the block"


def test_tracked_message_without_origin_has_publish_time_as_origin(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint)
    pub.send_many([b"x"] * 200)
    found = [sub.receive_tracked() for _ in range(200)]
    assert all(message.origin_time == message.publish_time for message in found)
    assert len({message.origin_time for message in found}) == 200


SENDS: dict[str, Callable[..., Any]] = {
    "send": lambda pub, **options: pub.send(b"abc", **options),
    "send, no bytes": lambda pub, **options: pub.send(bytearray(b"abc"), 0, **options),
    "send, large": lambda pub, **options: pub.send(b"abc" * 100_000, **options),
    "send_many": lambda pub, **options: pub.send_many([b"abc"], **options),
    "send_many, rows": lambda pub, **options: pub.send_many(np.zeros((1, 3), "u1"), **options),
    "send_many, iterator": lambda pub, **options: pub.send_many(iter([b"abc"]), **options),
}


def send(pub: Any, how: str, **options: Any) -> None:
    if how == "reserve":
        with pub.reserve(3, **options):
            return
    SENDS[how](pub, **options)


@pytest.mark.parametrize("how", [*SENDS, "reserve"])
def test_given_origin_of_tracked_message_overrides_origin_of_thread(backend: Backend, endpoint: str, how: str) -> None:
    pub, sub = tracked_pair(backend, endpoint, 8 << 20)
    send(pub, how, origin_time=123)
    clock.set_origin(77)
    send(pub, how)
    send(pub, how, origin_time=123)
    clock.set_origin(0)
    send(pub, how)
    given, inherited, overridden, own = (sub.receive_tracked() for _ in range(4))
    assert (given.origin_time, inherited.origin_time, overridden.origin_time) == (123, 77, 123)
    assert own.origin_time == own.publish_time
    assert inherited.publish_time not in (77, 123)


@pytest.mark.parametrize("how", [*SENDS, "reserve"])
def test_untracked_topic_refuses_an_origin(backend: Backend, endpoint: str, how: str) -> None:
    pub, sub = backend.pub(endpoint), backend.sub(endpoint, timeout=0)
    with pytest.raises(StateError, match=r"not tracked.*tracked=True"):
        send(pub, how, origin_time=1)
    assert sub.receive() is None
    clock.set_origin(77)  # a thread's origin has no effect on untracked topics
    pub.send(b"abc")
    assert sub.receive() == b"abc"


def test_negative_origin_time_is_refused(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint, timeout=0)
    with pytest.raises(InvalidValueError, match="origin_time is -1"):
        pub.send(b"x", origin_time=-1)
    assert sub.receive() is None


def test_receive_tracked_of_untracked_message_raises(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pub(endpoint), backend.sub(endpoint, timeout=0)
    assert sub.receive_tracked() is None
    assert not pub.tracked
    pub.send(b"abc")
    for _ in range(2):
        with pytest.raises(StateError, match="not tracked"):
            sub.receive_tracked()
    assert not sub.tracked
    assert sub.receive() == b"abc"


def test_topic_with_untracked_messages_cannot_become_tracked(backend: Backend, endpoint: str) -> None:
    with backend.pub(endpoint) as pub:
        pub.send(b"x")
    with pytest.raises(StateError, match="cannot become tracked"):
        backend.pub(endpoint, tracked=True)
    with backend.pub(endpoint, tracked=False) as pub, backend.sub(endpoint, timeout=0) as sub:
        assert not pub.tracked
        pub.send(b"y")
        assert sub.receive() == b"y"


def test_refused_tracked_publisher_does_not_take_over(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    pub.send(b"1")
    with pytest.raises(StateError):
        backend.pub(endpoint, tracked=True)
    pub.send(b"2")
    assert sub.receive_many() == [b"1", b"2"]


def test_tracked_topic_stays_tracked(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint, timeout=0)
    assert not sub.tracked
    with backend.pub(endpoint, tracked=True):  # even if it sends nothing
        assert sub.tracked
    with pytest.raises(StateError, match=r"is tracked.*tracked=None"):
        backend.pub(endpoint, tracked=False)
    pub = backend.pub(endpoint)  # takes it as it is
    assert pub.tracked
    pub.send(b"x", origin_time=5)
    assert sub.receive_tracked()[::2] == (b"x", 5)


def test_untracked_topic_without_messages_can_become_tracked(backend: Backend, endpoint: str) -> None:
    former, sub = backend.pub(endpoint), backend.sub(endpoint)
    pub = backend.pub(endpoint, tracked=True)
    pub.send(b"x", origin_time=5)
    with pytest.raises(MultiplePublishersError):
        former.send(b"y")
    assert sub.receive_tracked().origin_time == 5


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "replaced"])
def test_tracked_topic_stays_tracked_after_change_of_publisher(backend: Backend, endpoint: str, closed: bool) -> None:
    pub, sub = tracked_pair(backend, endpoint, 1024)
    numbers = iter(range(1, 10_000))
    for _ in range(5):
        for _ in range(60):  # more than two laps
            number = next(numbers)
            pub.send(b"%4d" % number, origin_time=number)
        while (message := sub.receive_tracked(non_blocking=True)) is not None:
            assert int(message.data) == message.origin_time == sub.stats().received + sub.lost
        if closed:
            pub.close()
        pub = backend.pub(endpoint)
        pub.send(b"%4d" % (number := next(numbers)), origin_time=number)
        assert sub.receive_tracked().origin_time == number == pub.stats().messages
    assert sub.lost > 0


def test_tracked_message_may_take_a_third_of_the_ring(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint, 1024)
    most = 336 - 8 - 16
    pub.send(b"x" * most)
    assert sub.receive() == b"x" * most
    with pytest.raises(MessageTooLargeError, match=f"at most {most} with segment_size 1024"):
        pub.send(b"x" * (most + 1))
    with pytest.raises(MessageTooLargeError), pub.reserve(most + 1):
        pass


def test_conflating_subscriber_gets_newest_message_with_times(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint, conflate=True)
    for number in range(1, 8):
        pub.send(b"%d" % number, origin_time=number)
    assert backend.poller(sub).poll(0) == [sub]
    message = sub.receive_tracked()
    assert (message.data, message.origin_time, sub.lost) == (b"7", 7, 6)


def test_closed_socket_is_not_tracked(backend: Backend, endpoint: str) -> None:
    pub, sub = tracked_pair(backend, endpoint)
    assert pub.tracked
    assert sub.tracked
    pub.close()
    sub.close()
    assert not pub.tracked
    assert not sub.tracked
    assert not backend.PubSocket().tracked
    assert not backend.SubSocket().tracked
