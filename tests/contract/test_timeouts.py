"""How long calls wait: at least as long as they were told, and not at all when there is something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from msgq.errors import InvalidValueError, WaitTimeoutError
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS, Task

WAYS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "receive": (lambda sub: sub.receive(), None),
    "receive_many": (lambda sub: sub.receive_many(wait_for_one=True), []),
    "receive_into": (lambda sub: sub.receive_into(bytearray(8)), None),
    "receive_array": (lambda sub: sub.receive_array(np.uint8, wait_for_one=True).tolist(), []),
}


@pytest.mark.parametrize("way", WAYS)
def test_receive_timeout_waits_and_returns_none(backend: Backend, endpoint: str, way: str) -> None:
    call, nothing = WAYS[way]
    sub = backend.sub(endpoint, timeout=50)
    started = backend.monotonic_ns()
    assert call(sub) == nothing
    assert backend.monotonic_ns() - started >= 50_000_000


@pytest.mark.needs("threads")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("timeout", [-1, DEADLINE_MS])
def test_message_ends_the_wait_of_receive(backend: Backend, endpoint: str, way: str, timeout: int) -> None:
    call, nothing = WAYS[way]
    pub, sub = backend.pair(endpoint)
    sub.setTimeout(timeout)
    task = Task(call, sub)
    task.wait_asleep()
    pub.send(b"x")
    assert task.result() not in (nothing, None)


@pytest.mark.parametrize("way", WAYS)
def test_receive_with_timeout_zero_does_not_wait(backend: Backend, endpoint: str, way: str) -> None:
    call, nothing = WAYS[way]
    assert call(backend.sub(endpoint, timeout=0)) == nothing


def test_non_blocking_calls_do_not_wait(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint, timeout=-1)  # a wait would last for ever
    assert sub.receive(non_blocking=True) is None
    assert sub.receive_many() == []
    assert sub.receive_into(bytearray(8), non_blocking=True) is None
    assert len(sub.receive_array(np.uint8)) == 0


def test_receive_non_blocking_takes_a_waiting_message(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    backend.poller(sub)
    pub.send(b"x")
    assert backend.poller(sub).poll(DEADLINE_MS) == [sub]
    assert sub.receive(non_blocking=True) == b"x"


@pytest.mark.parametrize("timeout", [-2, -(10**9), 2**31, 2**40])
def test_timeout_out_of_range_is_refused_and_changes_nothing(backend: Backend, endpoint: str, timeout: int) -> None:
    sub = backend.sub(endpoint, timeout=20)
    with pytest.raises(InvalidValueError, match=str(timeout)) as caught:
        sub.setTimeout(timeout)
    assert caught.value.endpoint == endpoint
    assert sub.receive() is None


@pytest.mark.parametrize("timeout", ["5", None, [1]])
def test_timeout_of_wrong_type_is_refused(backend: Backend, endpoint: str, timeout: Any) -> None:
    with pytest.raises(TypeError):
        backend.sub(endpoint).setTimeout(timeout)


def test_receive_timeout_is_unchanged_after_a_burst_of_messages(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    sub.setTimeout(30)
    for _ in range(3):
        pub.send_many([b"x"] * 100)
        while sub.receive() is not None:
            pass
    started = backend.monotonic_ns()
    assert sub.receive() is None
    assert backend.monotonic_ns() - started >= 30_000_000


class TestWaitForReaders:
    @pytest.mark.needs("threads")
    def test_wait_for_readers_with_n_returns_when_n_readers_are_attached(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        task = Task(lambda: pub.wait_for_readers(DEADLINE, n=2))
        backend.sub(endpoint)
        backend.sub(endpoint)
        assert task.result() is None

    @pytest.mark.needs("threads", "read")
    def test_wait_for_readers_returns_when_all_readers_are_up_to_date(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send_many([b"1", b"2"])
        task = Task(lambda: pub.wait_for_readers(DEADLINE))
        assert sub.receive() == b"1"
        assert sub.receive() == b"2"
        assert task.result() is None

    def test_wait_for_readers_timeout_error_names_the_reader_counts(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        started = backend.monotonic_ns()
        with pytest.raises(WaitTimeoutError, match=r"after 0\.04 s, 1 subscriber attached, 3 requested") as caught:
            pub.wait_for_readers(timeout=0.04, n=3)
        assert backend.monotonic_ns() - started >= 40_000_000
        assert isinstance(caught.value, TimeoutError)
        assert caught.value.endpoint == endpoint
        assert not sub.closed

    def test_wait_for_readers_without_subscribers_times_out(self, backend: Backend, endpoint: str) -> None:
        with pytest.raises(TimeoutError):
            backend.pub(endpoint).wait_for_readers(0.01, 0.001)

    def test_wait_for_readers_with_timeout_0_checks_once(self, backend: Backend, endpoint: str) -> None:
        pub, _sub = backend.pair(endpoint)
        pub.wait_for_readers(0)
        pub.wait_for_readers(0, n=0)

    @pytest.mark.needs("threads")
    def test_wait_for_readers_with_timeout_none_waits_without_limit(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        task = Task(lambda: pub.wait_for_readers(None, n=1))
        backend.sub(endpoint)
        assert task.result() is None

    @pytest.mark.parametrize(
        ("wrong", "advice"),
        [
            ({"timeout": -1}, "timeout is -1 s; give 0 or more"),
            ({"timeout": float("nan")}, "timeout is nan s"),
            ({"interval": 0}, "interval is 0; give seconds above 0"),
            ({"interval": -1}, "interval is -1; give seconds above 0"),
            ({"n": -1}, "n is -1; give the number of subscribers"),
        ],
    )
    def test_wait_for_readers_with_invalid_values_is_refused(
        self, backend: Backend, endpoint: str, wrong: dict[str, Any], advice: str
    ) -> None:
        with pytest.raises(InvalidValueError, match=rf"{endpoint}.*: {advice}"):
            backend.pub(endpoint).wait_for_readers(**wrong)


class TestAllReadersUpdated:
    def test_all_readers_updated_is_false_without_subscribers(self, backend: Backend, endpoint: str) -> None:
        assert not backend.pub(endpoint).all_readers_updated()

    @pytest.mark.needs("read")
    def test_all_readers_updated_is_true_after_all_messages_are_read(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"x")
        assert not pub.all_readers_updated()
        assert sub.receive() == b"x"
        pub.wait_for_readers(DEADLINE)
        assert pub.all_readers_updated()

    @pytest.mark.needs("read")
    def test_all_readers_updated_is_false_until_slowest_subscriber_has_read(
        self, backend: Backend, endpoint: str
    ) -> None:
        pub, fast = backend.pair(endpoint)
        slow = backend.sub(endpoint)
        pub.wait_for_readers(DEADLINE, n=2)
        pub.send(b"x")
        fast.receive()
        assert not pub.all_readers_updated()
        slow.close()
        pub.wait_for_readers(DEADLINE)
        assert pub.all_readers_updated()
