"""Channels that are used or interrupted in the middle of their own calls: by signal handlers, forks, other threads."""

from __future__ import annotations

import fcntl
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgq.channel import Channel
from msgq.common import shm_paths
from msgq.common.naming import events_channel
from msgq.errors import ConcurrentUseError, EndpointClosedError, ForkedSocketError
from msgq.impl.channel.core import Publisher
from msgq.impl.workqueue.event_channel import EventChannelPublisher
from msgq.workqueue import MessageQueue
from tests.support import DEADLINE, Child, Task, in_fork, say, signal_when_asleep, wait_asleep, wait_until


class Interruption:
    """Runs a function once, when the path of a pool is asked for next."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def arrange(self, action: Callable[[], None]) -> None:
        real = shm_paths.pool_path

        def answer(*args: Any) -> str:
            self._monkeypatch.setattr(shm_paths, "pool_path", real)
            action()
            return real(*args)

        self._monkeypatch.setattr(shm_paths, "pool_path", answer)


@pytest.fixture
def interruption(monkeypatch: pytest.MonkeyPatch) -> Interruption:
    return Interruption(monkeypatch)


def test_first_view_can_be_taken_while_pool_is_mapped(endpoint: str, interruption: Interruption) -> None:
    """A signal handler or another thread takes it; the pool is then mapped with pins that can be written."""

    def child() -> None:
        channel = Channel(endpoint)
        publisher, subscriber = channel.publisher(), channel.subscriber()
        publisher.send_many([b"1", b"2", b"3"])
        seen: list[bytes] = []

        def take_a_view() -> None:
            with subscriber.receive_view(0) as view:
                seen.append(bytes(view))

        interruption.arrange(take_a_view)
        copy = subscriber.receive(0)
        with subscriber.receive_view(0) as view:
            assert [*seen, copy, bytes(view)] == [b"1", b"2", b"3"]

    assert in_fork(child) == 0  # and not killed by a write into pins that it may only read


def wait_for_a_view(endpoint: str) -> list[int]:
    """Fork in a signal handler while waiting; say the child's pid, and how it ended."""
    subscriber = Channel(endpoint).subscriber(history=1)
    subscriber.receive_view(0).release()  # from now on it is a viewer
    children: list[int] = []

    def fork(*_: object) -> None:
        children.append(os.fork())
        if children[0]:
            say(children[0])

    signal.signal(signal.SIGUSR1, fork)
    say(os.getpid())
    with subscriber.receive_view(DEADLINE / 3) as view:
        seen = list(bytes(view))
    if not children[0]:
        os._exit(0 if seen == [1, 2] else 1)
    return [*seen, os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])]


def test_child_forked_in_signal_handler_takes_its_own_views(endpoint: str) -> None:
    publisher = Channel(endpoint).publisher()
    publisher.send(b"before")
    with Child(wait_for_a_view, endpoint) as child:
        wait_asleep(child.hear())
        child.kill(signal.SIGUSR1)
        child.hear()  # it has forked
        publisher.send(bytes([1, 2]))
        assert child.result() == [1, 2, 0]


def test_interruption_of_closing_event_publisher_is_raised_after_close(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close_and_interrupt(publisher: Publisher) -> None:
        Publisher.close(publisher)
        raise KeyboardInterrupt

    queue = MessageQueue(endpoint, events=True)
    queue.send(b"1")
    monkeypatch.setattr(EventChannelPublisher, "close", close_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    assert queue.closed
    assert [publisher.left for publisher in Channel(events_channel(endpoint)).diagnose().publishers] == [True]
    MessageQueue.unlink_name(endpoint)


def test_publisher_closed_during_send_raises_instead_of_waiting(endpoint: str) -> None:
    class ClosesIt(float):
        """Is compared by Python code, as all time-outs: there signal handlers run, and other threads."""

        def __ge__(self, other: float) -> bool:
            publisher.close()
            return True

    channel = Channel(endpoint)
    publisher, subscriber = channel.publisher(slots=1), channel.subscriber()
    publisher.send(b"1")
    with subscriber.receive_view(0), pytest.raises(EndpointClosedError):
        publisher.send(b"2", timeout=ClosesIt(0.1))
    assert publisher.closed


def test_signal_handler_can_close_publisher_that_waits_for_slot(endpoint: str) -> None:
    channel = Channel(endpoint)
    publisher = channel.publisher(slots=1)
    loan = publisher.loan(1)
    closing = signal_when_asleep(lambda *_: publisher.close())
    with closing, pytest.raises(EndpointClosedError, match="wait for a slot"):
        publisher.send(b"", timeout=None)
    assert publisher.closed
    loan.discard()
    assert channel.diagnose().publishers == ()


def full_channel(endpoint: str) -> tuple[Channel, Any, Any]:
    """Return a channel without room, its publisher and its subscriber."""
    channel = Channel(endpoint, capacity=8)
    publisher, subscriber = channel.publisher(), channel.subscriber()
    publisher.send_many([b""] * 8)
    return channel, publisher, subscriber


def test_signal_handler_can_close_publisher_that_waits_for_room(endpoint: str) -> None:
    channel, publisher, _subscriber = full_channel(endpoint)
    closing = signal_when_asleep(lambda *_: publisher.close())
    with closing, pytest.raises(EndpointClosedError, match="wait for room"):
        publisher.wait_for_room()
    assert publisher.closed
    assert [row.left for row in channel.diagnose().publishers] == [True]


def test_signal_handler_that_receives_ends_wait_for_room(endpoint: str) -> None:
    _channel, publisher, subscriber = full_channel(endpoint)
    with signal_when_asleep(lambda *_: subscriber.receive_many()):
        assert publisher.wait_for_room(8)
    assert publisher.send(b"") == 16


def test_exception_of_signal_handler_ends_wait_for_room(endpoint: str) -> None:
    def fail(*_: object) -> None:
        raise KeyError

    _channel, publisher, _subscriber = full_channel(endpoint)
    with signal_when_asleep(fail), pytest.raises(KeyError):
        publisher.wait_for_room()
    assert not publisher.wait_for_room(timeout=0)


def test_other_thread_can_close_publisher_that_waits_for_room(endpoint: str) -> None:
    """A second use by another thread is refused."""
    _channel, publisher, _subscriber = full_channel(endpoint)
    waiting = Task(publisher.wait_for_room)
    waiting.wait_asleep()
    with pytest.raises(ConcurrentUseError):
        publisher.send(b"")
    publisher.close()
    with pytest.raises(EndpointClosedError, match="wait for room"):
        waiting.result()
    assert publisher.closed


def test_fork_in_signal_handler_during_wait_for_room_raises_in_child(endpoint: str) -> None:
    def fork(*_: object) -> None:
        children.append(os.fork())

    children: list[int] = []
    _channel, publisher, subscriber = full_channel(endpoint)
    parent = os.getpid()
    try:
        with signal_when_asleep(fork):
            receiving = Task(lambda: wait_until(lambda: children) and subscriber.receive_many())
            found = publisher.wait_for_room(8)
        receiving.result()
    except ForkedSocketError:
        os._exit(7)
    finally:
        if os.getpid() != parent:
            os._exit(1)
    assert found
    assert os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]) == 7


def test_forked_child_waits_for_room_as_new_publisher(endpoint: str) -> None:
    def child() -> None:
        assert not publisher.wait_for_room(timeout=0)
        subscriber.receive_many()
        subscriber.close()

    channel, publisher, subscriber = full_channel(endpoint)
    assert in_fork(child) == 0
    assert len(channel.diagnose().publishers) == 2
    assert not publisher.wait_for_room(timeout=0)
    assert len(subscriber.receive_many()) == 8
    assert publisher.wait_for_room(8, timeout=0)


def test_close_during_pool_growth_raises_concurrent_use_error(endpoint: str) -> None:
    """A signal handler that runs while the growth waits for the lock cannot close the publisher under the message."""
    refused: list[BaseException] = []

    def close_and_unlock(*_: object) -> None:
        try:
            publisher.close()
        except ConcurrentUseError as error:
            refused.append(error)
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)

    publisher = Channel(endpoint).publisher(slot_bytes=64)
    with Path(shm_paths.channel_path(endpoint, "")).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with signal_when_asleep(close_and_unlock):
            sent = publisher.send(bytes(65))
    assert refused
    assert sent == publisher.send(b"") - 1
    assert not publisher.closed
