"""The poller: which of many subscribers have something."""

from __future__ import annotations

import contextlib

import pytest

from msgq.errors import EndpointClosedError, InvalidTypeError
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS, Task, wait_until


def test_poll_returns_registered_objects_that_are_ready(backend: Backend, prefix: str) -> None:
    (pub_a, sub_a), (_, sub_b), (pub_c, sub_c) = (backend.pair(name) for name in "abc")
    poller = backend.poller(sub_a, sub_b, sub_c)
    pub_a.send(b"x")
    pub_c.send(b"x")
    ready = wait_until(lambda: len(found := poller.poll(DEADLINE_MS)) == 2 and found)
    assert ready[0] is sub_a
    assert ready[1] is sub_c


def test_poller_reports_a_socket_until_all_messages_are_read(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    poller = backend.poller(sub)
    pub.send_many([b"1", b"2"])
    backend.settle()
    for message in (b"1", b"2"):
        assert poller.poll(DEADLINE_MS) == [sub]
        assert sub.receive(True) == message
    assert poller.poll(0) == []


def test_poller_without_messages_waits_the_whole_timeout(backend: Backend, endpoint: str) -> None:
    poller = backend.poller(backend.sub(endpoint))
    started = backend.monotonic_ns()
    assert poller.poll(60) == []
    assert backend.monotonic_ns() - started >= 60_000_000


@pytest.mark.needs("threads")
@pytest.mark.parametrize("timeout", [DEADLINE_MS, -1])
def test_poller_returns_when_a_message_arrives(backend: Backend, prefix: str, timeout: int) -> None:
    pairs = [backend.pair(name) for name in "abc"]
    poller = backend.poller(*(sub for _, sub in pairs))
    for pub, sub in pairs:
        task = Task(poller.poll, timeout)
        task.wait_asleep()
        pub.send(b"x")
        assert task.result() == [sub]
        assert sub.receive(True) == b"x"


def test_poller_reports_a_doubly_registered_socket_once(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    poller = backend.poller(sub, sub)
    pub.send(b"x")
    assert poller.poll(DEADLINE_MS) == [sub]


def test_two_pollers_may_share_a_socket(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    one, two = backend.poller(sub), backend.poller(sub)
    pub.send(b"x")
    assert one.poll(DEADLINE_MS) == two.poll(DEADLINE_MS) == [sub]


def test_poller_reports_two_subscribers_of_one_endpoint(backend: Backend, endpoint: str) -> None:
    pub, first = backend.pair(endpoint)
    second = backend.sub(endpoint)
    pub.wait_for_readers(DEADLINE, n=2)
    poller = backend.poller(first, second)
    pub.send(b"x")
    assert wait_until(lambda: len(found := poller.poll(DEADLINE_MS)) == 2 and found) == [first, second]


def test_poller_refuses_an_unconnected_socket(backend: Backend, endpoint: str) -> None:
    poller = backend.Poller()
    with pytest.raises(EndpointClosedError, match="connect"):
        poller.registerSocket(backend.SubSocket())
    closed = backend.sub(endpoint)
    closed.close()
    with pytest.raises(EndpointClosedError, match=endpoint):
        poller.registerSocket(closed)
    assert poller.poll(0) == []


def test_poller_refuses_objects_of_unsupported_types(backend: Backend, endpoint: str) -> None:
    poller = backend.Poller()
    for wrong in (None, backend.pub(endpoint), "sub"):
        with pytest.raises(TypeError):
            poller.registerSocket(wrong)


def test_poll_error_names_the_closed_socket(backend: Backend, endpoint: str) -> None:
    sub = backend.sub(endpoint)
    poller = backend.poller(sub)
    sub.close()
    with pytest.raises(EndpointClosedError, match=endpoint):
        poller.poll(0)


@pytest.mark.needs("threads")
def test_poller_wakes_when_a_socket_closes(backend: Backend, prefix: str) -> None:
    subs = [backend.sub("a"), backend.sub("b")]
    task = Task(backend.poller(*subs).poll, -1)
    task.wait_asleep()
    subs[1].close()
    with pytest.raises(EndpointClosedError, match="'b'"):
        task.result()
    assert subs[1].closed
    assert not subs[0].closed
    assert subs[0].receive(True) is None


@pytest.mark.needs("threads")
def test_socket_registered_and_closed_during_poll_stays_closed(backend: Backend, prefix: str) -> None:
    pub, sub = backend.pair("a")
    other = backend.sub("b")
    poller = backend.poller(sub)
    task = Task(poller.poll, -1)
    task.wait_asleep()
    poller.registerSocket(other)
    other.close()
    pub.send(b"x")
    with contextlib.suppress(EndpointClosedError):  # whether this poll looks at it already is open
        task.result()
    assert other.closed


@pytest.mark.parametrize("timeout", [-2, -1000, 2**31])
def test_poller_with_invalid_timeout_is_refused(backend: Backend, endpoint: str, timeout: int) -> None:
    poller = backend.poller(backend.sub(endpoint))
    with pytest.raises(ValueError, match=str(timeout)):
        poller.poll(timeout)


def test_poller_without_sockets_returns_nothing(backend: Backend) -> None:
    assert backend.Poller().poll(1) == []


def test_poller_keeps_its_sockets_alive(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint)
    poller = backend.Poller()
    sub = backend.SubSocket()
    sub.connect(backend.context, endpoint)
    poller.registerSocket(sub)
    del sub
    pub.wait_for_readers(DEADLINE, n=1)
    pub.send(b"x")
    (ready,) = poller.poll(DEADLINE_MS)
    with ready:
        assert ready.receive() == b"x"


def test_poller_refuses_a_publisher_with_advice(backend: Backend, endpoint: str) -> None:
    with pytest.raises(InvalidTypeError, match="poller cannot wait for PubSocket; give a subscriber"):
        backend.Poller().registerSocket(backend.pub(endpoint))
