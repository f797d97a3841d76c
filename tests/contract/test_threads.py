"""One thread at a time uses a socket; waiting keeps nobody else from working."""

from __future__ import annotations

import time

import pytest

from msgq.errors import ConcurrentUseError, EndpointClosedError
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, Task, wait_until


@pytest.mark.needs("threads")
def test_socket_used_in_second_thread_raises_concurrent_use(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    task = Task(sub.receive)
    task.wait_asleep()
    for call in (
        sub.receive,
        lambda: sub.receive(True),
        sub.receive_many,
        lambda: sub.receive_into(bytearray(1)),
        lambda: sub.receive_array("u1"),
        lambda: backend.poller(sub).poll(0),
    ):
        with pytest.raises(ConcurrentUseError, match="thread") as caught:
            call()
        assert caught.value.endpoint == endpoint
    pub.send(b"for the first thread")
    assert task.result() == b"for the first thread"


@pytest.mark.needs("threads")
def test_poll_of_one_socket_in_two_threads_is_refused(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    task = Task(backend.poller(sub).poll, -1)
    task.wait_asleep()
    with pytest.raises(ConcurrentUseError):
        backend.poller(sub).poll(0)
    with pytest.raises(ConcurrentUseError):
        sub.receive(True)
    pub.send(b"x")
    assert task.result() == [sub]


@pytest.mark.needs("threads")
@pytest.mark.needs_shm(80 << 20)
def test_call_during_send_of_another_thread_raises_concurrent_use(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint, 64 << 20)
    frame = bytes(20 << 20)

    def overlapped() -> bool:
        task = Task(pub.send, frame)
        try:
            while task.is_alive():
                pub.all_readers_updated()
        except ConcurrentUseError:
            return True
        finally:
            task.result()
        return False

    assert wait_until(overlapped)


@pytest.mark.needs("threads")
@pytest.mark.parametrize("how", ["receive", "poll"])
def test_close_in_another_thread_ends_a_waiting_receive(backend: Backend, endpoint: str, how: str) -> None:
    sub = backend.sub(endpoint, timeout=-1)
    poller = backend.poller(sub)
    task = Task(sub.receive) if how == "receive" else Task(poller.poll, -1)
    task.wait_asleep()
    sub.close()
    assert sub.closed
    with pytest.raises(EndpointClosedError, match=endpoint):
        task.result()


@pytest.mark.needs("threads")
def test_socket_closed_during_receive_may_connect_again(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    task = Task(sub.receive)
    task.wait_asleep()
    sub.close()
    with pytest.raises(EndpointClosedError):
        task.result()
    wait_until(lambda: not pub.all_readers_updated(), "the publisher sees it go")
    sub.connect(backend.context, endpoint)
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(b"x")
    assert sub.receive() == b"x"


@pytest.mark.needs("threads")
def test_waiting_receive_releases_the_gil(backend: Backend, prefix: str) -> None:
    """While two threads sleep in receive and poll, this one computes; a held GIL would hang it."""
    pairs = [backend.pair(name) for name in "ab"]
    tasks = [Task(pairs[0][1].receive), Task(backend.poller(pairs[1][1]).poll, -1)]
    for task in tasks:
        task.wait_asleep()
    used = time.thread_time()
    while time.thread_time() < used + 0.05:
        assert all(task.is_alive() for task in tasks)
    for pub, _ in pairs:
        pub.send(b"x")
    assert [task.result() for task in tasks] == [b"x", [pairs[1][1]]]


@pytest.mark.needs("threads")
def test_receive_in_thread_that_did_not_connect_is_woken(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    sub = Task(backend.sub, endpoint).result()  # made by a thread that has ended
    for i in range(5):
        task = Task(sub.receive)
        task.wait_asleep()
        pub.send(b"%d" % i)
        assert task.result() == b"%d" % i


@pytest.mark.needs("threads")
def test_sockets_of_one_endpoint_work_in_many_threads(backend: Backend, endpoint: str) -> None:
    """Four threads, each with its own subscriber, and a fifth that publishes: all get all."""
    pub = backend.pub(endpoint)
    tasks = [Task(lambda: collect(backend.sub(endpoint), 200)) for _ in range(4)]
    pub.wait_for_readers(DEADLINE, n=4)
    sent = [b"%d" % i for i in range(200)]
    Task(lambda: [pub.send(message) for message in sent]).result()
    assert [task.result() for task in tasks] == [sent] * 4


def test_socket_may_be_used_by_threads_in_turn(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    for i in range(5):
        Task(pub.send, b"%d" % i).result()
        assert Task(sub.receive).result() == b"%d" % i
