"""The fake backend outside of a simulation: virtual time, sizes, and what is different from the ring."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from msgq.errors import (
    DeadlockError,
    InvalidValueError,
    MultiplePublishersError,
    SegmentError,
    SegmentSizeError,
    WaitTimeoutError,
)
from msgq.impl import fake, ring
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.clock import VirtualClock
from tests.support import DEADLINE, Task, run_child
from tests.unit import children

CONTEXT = fake.Context()


def pub(endpoint: str, **options: object) -> fake.PubSocket:
    socket = fake.PubSocket()
    socket.connect(CONTEXT, endpoint, **options)  # type: ignore[arg-type]
    return socket


def sub(endpoint: str, **options: object) -> fake.SubSocket:
    socket = fake.SubSocket()
    socket.connect(CONTEXT, endpoint, **options)  # type: ignore[arg-type]
    return socket


@pytest.mark.parametrize("name", ["Context", "Poller", "PubSocket", "SubSocket"])
def test_fake_classes_have_public_names_of_ring_classes(name: str) -> None:
    def public(module: object) -> set[str]:
        return {member for member in dir(getattr(module, name)) if not member.startswith("_")}

    assert public(fake) == public(ring)


class TestVirtualTime:
    def test_receive_timeout_advances_virtual_clock_exactly(self, endpoint: str) -> None:
        clock, socket = current_bus().clock, sub(endpoint)
        before = clock.now_ns
        socket.setTimeout(86_400_000)
        assert socket.receive() is None
        assert clock.now_ns - before == 86_400 * 10**9

    def test_poll_timeout_advances_virtual_clock(self, endpoint: str) -> None:
        clock, poller = current_bus().clock, fake.Poller()
        poller.registerSocket(sub(endpoint))
        before = clock.now_ns
        assert poller.poll(3) == []
        assert clock.now_ns - before == 3_000_000

    def test_wait_for_readers_timeout_advances_virtual_clock(self, endpoint: str) -> None:
        clock, socket = current_bus().clock, pub(endpoint)
        before = clock.now_ns
        with pytest.raises(WaitTimeoutError):
            socket.wait_for_readers(1.5)
        assert clock.now_ns - before == 1_500_000_000

    def test_receive_of_available_message_takes_no_virtual_time(self, endpoint: str) -> None:
        clock, source, socket = current_bus().clock, pub(endpoint), sub(endpoint)
        before = clock.now_ns
        source.send(b"x")
        assert socket.receive() == b"x"
        assert clock.now_ns == before

    def test_receive_without_timeout_raises_deadlock_error(self, endpoint: str) -> None:
        with pytest.raises(DeadlockError, match=endpoint):
            sub(endpoint).receive()

    def test_poll_without_timeout_raises_deadlock_error(self, endpoint: str) -> None:
        poller = fake.Poller()
        poller.registerSocket(sub(endpoint))
        with pytest.raises(DeadlockError, match=endpoint):
            poller.poll(-1)

    @pytest.mark.parametrize("timeout", [None, float("inf")])
    def test_wait_for_readers_without_timeout_raises_deadlock_error(self, endpoint: str, timeout: float | None) -> None:
        with pytest.raises(DeadlockError, match=endpoint):
            pub(endpoint).wait_for_readers(timeout)

    def test_socket_is_usable_after_a_deadlock_error(self, endpoint: str) -> None:
        source, socket = pub(endpoint), sub(endpoint)
        with pytest.raises(DeadlockError):
            socket.receive()
        source.send(b"x")
        assert socket.receive() == b"x"

    def test_threads_started_before_virtual_clock_sleep_in_real_time(self) -> None:
        slept: list[int] = []
        clock, begin, ended = VirtualClock(slept.append), threading.Event(), threading.Event()

        def work() -> None:
            begin.wait(DEADLINE)
            time.sleep(0.001)
            ended.set()

        other = threading.Thread(target=work)
        other.start()
        with clock.patch_time():
            time.sleep(2)
            begin.set()
            other.join(DEADLINE)
        assert ended.is_set()
        assert slept == [2 * 10**9]

    def test_patch_time_makes_time_module_virtual(self) -> None:
        clock, real = current_bus().clock, time.sleep
        with clock.patch_time():
            before = time.monotonic_ns()
            time.sleep(3600)
            assert time.time_ns() - before == 3600 * 10**9
            assert time.time() == time.monotonic() == time.perf_counter() == clock.time()
        assert time.sleep is real
        assert time.time() > clock.time()

    def test_virtual_clock_refuses_negative_sleep(self) -> None:
        with pytest.raises(ValueError, match="-1"):
            current_bus().clock.sleep(-1)


class TestSizes:
    def test_fake_topic_refuses_different_segment_size(self, endpoint: str) -> None:
        pub(endpoint, segment_size=4096)
        sub(endpoint, segment_size=4096)
        with pytest.raises(SegmentSizeError, match=r"4096.*8192"):
            sub(endpoint, segment_size=8192)

    @pytest.mark.parametrize("size", [1, 127, 2**32, -1])
    def test_fake_topic_refuses_segment_size_out_of_range(self, endpoint: str, size: int) -> None:
        with pytest.raises(InvalidValueError, match=str(size)):
            pub(endpoint, segment_size=size)

    def test_fake_topic_refuses_mode_out_of_range(self, endpoint: str) -> None:
        with pytest.raises(InvalidValueError, match="mode"):
            pub(endpoint, mode=0o777)

    def test_fake_topic_has_default_size_of_one_mebibyte(self, endpoint: str) -> None:
        source, socket = pub(endpoint), sub(endpoint)
        for _ in range(20):
            source.send(bytes(65528))  # a sixteenth of it, with its size word
        assert socket.receive(True) is None
        assert (socket.lost, socket.stats().resets) == (20, 1)


class TestPassive:
    def test_passive_fake_subscriber_of_missing_topic_is_refused(self, endpoint: str) -> None:
        with pytest.raises(SegmentError, match="topic not found"):
            sub(endpoint, passive=True)

    def test_passive_fake_subscriber_receives_without_being_counted(self, endpoint: str) -> None:
        source, watcher = pub(endpoint), sub(endpoint, passive=True)
        source.send(b"x")
        assert watcher.receive() == b"x"
        assert not source.all_readers_updated()


def test_fake_topics_of_two_prefixes_are_separate(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = sub("topic"), None
    monkeypatch.setenv("OPENPILOT_PREFIX", f"{prefix}-other")
    there = sub("topic")
    pub("topic").send(b"x")
    assert (here.receive(True), there.receive(True)) == (None, b"x")


def test_superseded_fake_publisher_keeps_its_counts(endpoint: str) -> None:
    first = pub(endpoint)
    first.send(b"123")
    second = pub(endpoint)
    second.send(b"4567")
    assert (first.stats().messages, first.stats().bytes) == (1, 3)
    assert (second.stats().messages, second.stats().bytes) == (2, 7)
    with pytest.raises(MultiplePublishersError):
        first.send(b"x")


@pytest.mark.parametrize("rows", [np.zeros((2, 3), "datetime64[ns]"), np.zeros(2, "M8[s]")])
def test_fake_backend_sends_datetime_arrays(endpoint: str, rows: np.ndarray) -> None:
    source, socket = pub(endpoint), sub(endpoint)
    source.send(rows)
    assert socket.receive() == rows.tobytes()
    assert source.send_many(rows) == 2
    assert socket.receive_many() == [rows[0].tobytes()] * 2
    source.send(rows)
    assert socket.receive_into(rows) == rows.nbytes


class TestFork:
    def test_forked_child_has_no_fake_messages_of_parent(self, endpoint: str) -> None:
        """On the ring, sockets work in a forked child. Here no process would get the child's messages, nor send any."""
        answer = run_child(children.forked_fake, endpoint)
        assert answer == {"refused": [endpoint] * 9, "own": ["own"], "parent": ["the parent's"]}


def test_another_thread_can_use_fake_socket_without_waiting(endpoint: str) -> None:
    publisher, subscriber = pub(endpoint), sub(endpoint)
    Task(publisher.send, b"x").result()
    assert Task(subscriber.receive).result() == b"x"
    with pytest.raises(DeadlockError, match=endpoint):
        Task(subscriber.receive).result()
