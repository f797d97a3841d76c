"""What code that runs in the middle of a call may do: signal handlers, odd sequences, other threads, the end."""

from __future__ import annotations

import contextlib
import copy
import fcntl
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import msgq
from msgq.common import settings
from msgq.errors import EndpointClosedError, InvalidValueError, StateError
from msgq.impl.ring.core import TopicLock, unlink_topic
from tests.support import DEADLINE_MS, ROOT, Task, signal_when_asleep, wait_until
from tests.unit.ringfile import ring_path


@pytest.mark.parametrize("backend", ["msgq", pytest.param("zmq", marks=pytest.mark.ci)])
def test_pickling_socket_raises_with_advice(endpoint: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MSGQ_ZMQ_TRANSPORT", "ipc")
    with msgq.pub_sock(endpoint, backend=backend) as pub, msgq.sub_sock(endpoint, backend=backend) as sub:
        for socket in (pub, sub):
            for call in (pickle.dumps, copy.copy):
                with pytest.raises(TypeError, match=r"a (Pub|Sub)Socket cannot be pickled or copied; open another one"):
                    call(socket)


def test_pickling_channel_handle_raises_with_advice(endpoint: str) -> None:
    with msgq.Channel(endpoint) as channel, channel.publisher() as publisher, channel.subscriber() as subscriber:
        for member in (publisher, subscriber):
            with pytest.raises(TypeError, match=r"a (Publisher|Subscriber) cannot be pickled or copied; open another"):
                pickle.dumps(member)


@pytest.fixture
def lock(endpoint: str) -> Iterator[int]:
    """A topic that another open file has locked, so that whoever connects waits."""
    msgq.sub_sock(endpoint).close()
    fd = os.open(ring_path(endpoint), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    yield fd
    os.close(fd)


def test_signal_handler_can_close_socket_during_connect(endpoint: str, lock: int) -> None:
    sub = msgq.SubSocket()

    def close(*_: object) -> None:
        sub.close()
        fcntl.flock(lock, fcntl.LOCK_UN)

    with signal_when_asleep(close), pytest.raises(EndpointClosedError, match=endpoint):
        sub.connect(msgq.context, endpoint)
    assert sub.closed
    assert msgq.stats.topic(endpoint).subscribers == ()


@pytest.mark.parametrize("kind", [msgq.PubSocket, msgq.SubSocket])
def test_socket_cannot_connect_twice_at_the_same_time(endpoint: str, lock: int, kind: Any) -> None:
    socket = kind()
    task = Task(socket.connect, msgq.context, endpoint)
    wait_until(lambda: not socket.closed)
    with pytest.raises(StateError, match="connected"):
        socket.connect(msgq.context, f"{endpoint}-other")
    fcntl.flock(lock, fcntl.LOCK_UN)
    task.result()
    assert socket.endpoint == endpoint
    socket.close()


def test_failed_connect_leaves_socket_closed_and_reusable(endpoint: str) -> None:
    for kind in (msgq.PubSocket, msgq.SubSocket):
        socket = kind()
        with pytest.raises(InvalidValueError):
            socket.connect(msgq.context, endpoint, segment_size=1)
        assert socket.closed
        socket.connect(msgq.context, endpoint)
        socket.close()


def test_signal_handler_can_close_all_polled_sockets(endpoint: str) -> None:
    subs = [msgq.sub_sock(endpoint) for _ in range(3)]
    poller = msgq.Poller()
    for sub in subs:
        poller.registerSocket(sub)

    def close_all(*_: object) -> None:
        for sub in subs:
            sub.close()

    with signal_when_asleep(close_all), pytest.raises(EndpointClosedError):
        poller.poll(DEADLINE_MS)
    assert [sub.closed for sub in subs] == [True] * 3
    assert msgq.stats.topic(endpoint).subscribers == ()


def test_signal_handler_can_close_socket_and_raise(endpoint: str) -> None:
    sub = msgq.sub_sock(endpoint)

    def close(*_: object) -> None:
        sub.close()
        raise KeyboardInterrupt

    with signal_when_asleep(close), pytest.raises(KeyboardInterrupt):
        sub.receive()
    assert sub.closed


def test_signal_handler_that_raises_ends_wait_for_readers(endpoint: str) -> None:
    """However short the sleeps are, between which it comes."""
    interrupting = signal_when_asleep(signal.default_int_handler)
    with msgq.pub_sock(endpoint) as pub, interrupting, pytest.raises(KeyboardInterrupt):
        pub.wait_for_readers(None, interval=1e-9)


class Chatty(list[bytes]):
    """A list that sends while it is iterated."""

    pub: msgq.PubSocket

    def __iter__(self) -> Iterator[bytes]:
        for message in super().__iter__():
            yield message
            self.pub.send(bytes(300_000))


def test_iterable_of_send_many_can_call_send(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send_many([bytes(1000)] * 900)
        assert len(sub.receive_many()) == 900
        messages = Chatty([b"1", b"2"])
        messages.pub = pub
        assert pub.send_many(messages) == 2
        assert [len(message) for message in sub.receive_many()] == [1, 300_000, 1, 300_000]


@pytest.mark.parametrize("dtype", [object, np.dtype([("a", "i4"), ("b", object)])])
def test_send_refuses_arrays_of_python_objects(endpoint: str, dtype: Any) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        for send in (pub.send, pub.send_many):
            with pytest.raises(TypeError, match="objects"):
                send(np.zeros(3, dtype))
        assert sub.receive(True) is None


def test_receive_timeout_below_one_millisecond_is_accepted(endpoint: str) -> None:
    with msgq.sub_sock(endpoint, timeout=0.0625) as sub:
        task = Task(sub.receive)
        assert task.result() is None
        with pytest.raises(TypeError):
            sub.setTimeout("5")  # type: ignore[arg-type]
        with pytest.raises(InvalidValueError):
            sub.setTimeout(float("nan"))


def test_receive_many_returns_messages_before_invalid_data(endpoint: str) -> None:
    with msgq.pub_sock(endpoint) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send_many([b"12345678", b"87654321", b"x"])
        with ring_path(endpoint).open("r+b") as file:
            file.seek(384 + 32)
            file.write(b"\xee" * 8)  # the size of the third
        assert sub.receive_many() == [b"12345678", b"87654321"]
        with pytest.raises(msgq.errors.CorruptSegmentError):
            sub.receive_many()


def test_topic_lock_is_held_on_file_that_replaced_removed_file(endpoint: str) -> None:
    """Who waited for the lock of a file that was removed meanwhile holds that of its successor."""
    msgq.sub_sock(endpoint).close()
    with TopicLock(endpoint):
        waiting = TopicLock(endpoint)
        task = Task(waiting.__enter__)
        task.wait_asleep()
        unlink_topic(endpoint)
        msgq.sub_sock(endpoint).close()
    task.result()
    fd = os.open(ring_path(endpoint), os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
    waiting.__exit__(None, None, None)


@pytest.mark.parametrize("kind", ["publisher", "queue", "subscriber"])
def test_close_ends_in_child_that_signal_handler_forks(kind: str, prefix: str) -> None:
    command = [sys.executable, "-m", "tests.unit.close_forks", kind]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_exception_of_a_signal_handler_after_the_join_leaves_no_subscriber(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of `settings.overrides` runs Python code, and therefore signal handlers, after the join."""

    @contextlib.contextmanager
    def raise_at_end(**options: Any) -> Iterator[None]:
        with overrides(**options):
            yield
        raise KeyboardInterrupt

    overrides = settings.overrides
    with msgq.pub_sock(endpoint) as pub, msgq.SubSocket() as sub:
        with monkeypatch.context() as patch:
            patch.setattr(settings, "overrides", raise_at_end)
            with pytest.raises(KeyboardInterrupt):
                sub.connect(msgq.Context(), endpoint)
        assert msgq.stats.topic(endpoint).subscribers == ()
        pub.send(b"before")
        sub.connect(msgq.Context(), endpoint)
        pub.send(b"after")
        assert sub.receive() == b"after"
