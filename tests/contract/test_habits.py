"""What users of pyzmq type by habit."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator

import pytest

from msgq.errors import Again, EndpointClosedError, InvalidValueError, StateError
from msgq.impl.sockets.checks import NOBLOCK, POLLIN, POLLOUT
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS, Task


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


class TestReceiving:
    def test_recv(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pytest.raises(Again, match=endpoint) as caught:
            sub.recv(NOBLOCK)
        assert caught.value.errno == 11
        pub.send_many([b"1", b"23"])
        assert sub.recv() == b"1"
        room = bytearray(4)
        assert sub.recv_into(room) == 2
        assert room == b"23\0\0"
        with pytest.raises(Again):
            sub.recv_into(room, NOBLOCK)

    def test_rcvtimeo(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        sub.rcvtimeo = 1
        assert sub.rcvtimeo == 1
        with pytest.raises(Again):
            sub.recv()
        with pytest.raises(InvalidValueError):
            sub.rcvtimeo = -2

    @pytest.mark.parametrize("flags", [0, NOBLOCK])
    def test_flags_of_recv_and_send_are_those_of_zmq(self, backend: Backend, endpoint: str, flags: int) -> None:
        zmq = pytest.importorskip("zmq")
        pub, sub = backend.pair(endpoint)
        pub.send(b"x", zmq.Flag(flags))
        pub.send(b"y", flags=flags)
        assert [sub.recv(), sub.recv()] == [b"x", b"y"]
        with pytest.raises(Again):
            sub.recv(zmq.NOBLOCK)

    @pytest.mark.parametrize(("flags", "word"), [(2, "SNDMORE"), (3, "multipart"), (4, "flags are 4")])
    def test_other_flags_of_send_are_refused(self, backend: Backend, endpoint: str, flags: int, word: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pytest.raises(InvalidValueError, match=word) as caught:
            pub.send(b"x", flags)
        assert caught.value.endpoint == endpoint
        pub.send(b"y")
        assert sub.recv() == b"y"

    def test_again_is_caught_as_that_of_zmq(self, backend: Backend, endpoint: str) -> None:
        zmq = pytest.importorskip("zmq")
        sub = backend.sub(endpoint)
        with pytest.raises(zmq.Again, match=endpoint) as caught:
            sub.recv(zmq.NOBLOCK)
        found = pickle.loads(pickle.dumps(caught.value))
        for error in (caught.value, found):
            assert isinstance(error, Again)
            assert (error.errno, error.endpoint) == (zmq.EAGAIN, endpoint)


class TestOptions:
    def test_conflate_may_be_set_before_connect(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pub(endpoint), backend.SubSocket()
        sub.conflate = 1
        assert sub.conflate is True
        with sub:
            sub.connect(backend.context, endpoint)
            sub.setTimeout(DEADLINE_MS)
            pub.wait_for_readers(DEADLINE, n=1)
            pub.send_many([b"old", b"new"])
            backend.settle()
            assert sub.recv() == b"new"
            assert sub.conflate is True
            with pytest.raises(StateError, match="conflate"):
                sub.conflate = False
        sub.conflate = False
        with sub:
            sub.connect(backend.context, endpoint)
            assert sub.conflate is False

    def test_conflate_that_connect_was_asked_for_does_not_stay(self, backend: Backend, endpoint: str) -> None:
        sub = backend.SubSocket()
        for conflate in (True, False):
            with sub:
                sub.connect(backend.context, endpoint, conflate=conflate)
                assert sub.conflate is conflate

    def test_rcvhwm_may_be_set_before_connect(self, backend: Backend, endpoint: str) -> None:
        sub = backend.SubSocket()
        assert sub.rcvhwm == (1000 if backend.name == "zmq" else 0)
        sub.rcvhwm = 7
        with sub:
            sub.connect(backend.context, endpoint)
            assert sub.rcvhwm == (7 if backend.name == "zmq" else 0)
            if backend.name == "zmq":
                assert sub._socket.rcvhwm == 7
                with pytest.raises(StateError, match="rcvhwm"):
                    sub.rcvhwm = 8

    @pytest.mark.parametrize("role", ["PubSocket", "SubSocket"])
    def test_linger_may_be_set_at_any_time(self, backend: Backend, endpoint: str, role: str) -> None:
        socket = getattr(backend, role)()
        socket.linger = 5
        with socket:
            socket.connect(backend.context, endpoint)
            for milliseconds in (5, 0, -1, 50):
                socket.linger = milliseconds
                assert socket.linger == (milliseconds if backend.name == "zmq" else 0)
                if backend.name == "zmq":
                    assert socket._socket.linger == milliseconds
        socket.linger = 0

    @pytest.mark.parametrize(("option", "value"), [("linger", -2), ("linger", 2**31), ("rcvhwm", -1)])
    def test_values_that_cannot_be(self, backend: Backend, option: str, value: int) -> None:
        with pytest.raises(InvalidValueError, match=option):
            setattr(backend.SubSocket(), option, value)


class TestPoller:
    def test_registered_so_it_gives_pairs(self, backend: Backend, prefix: str) -> None:
        (pub, left), (_, right) = backend.pair("left"), backend.pair("right")
        poller = backend.Poller()
        poller.register(left, POLLIN)
        poller.register(right)
        assert dict(poller.poll(0)) == {}
        pub.send(b"x")
        assert dict(poller.poll(DEADLINE_MS)) == {left: POLLIN}

    def test_both_ways_in_one(self, backend: Backend, prefix: str) -> None:
        (one, left), (other, right) = backend.pair("left"), backend.pair("right")
        poller = backend.poller(left)
        poller.register(right)
        one.send(b"x")
        assert poller.poll(DEADLINE_MS) == [left]
        other.send(b"x")
        backend.settle()
        assert sorted(map(repr, poller.poll(DEADLINE_MS))) == sorted(map(repr, [left, (right, POLLIN)]))

    def test_unregistering(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        poller = backend.Poller()
        for register in (poller.register, poller.registerSocket):
            register(sub)
            poller.unregister(sub)
            with pytest.raises(KeyError):
                poller.unregister(sub)
        pub.send(b"x")
        assert poller.poll(0) == []

    def test_a_closed_socket_can_be_taken_out(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        poller = backend.poller(sub)
        sub.close()
        with pytest.raises(EndpointClosedError):
            poller.poll(0)
        poller.unregister(sub)
        assert poller.poll(0) == []

    def test_descriptors_beside_subscribers(self, backend: Backend, endpoint: str, pipe: tuple[int, int]) -> None:
        pub, sub = backend.pair(endpoint)
        poller = backend.Poller()
        poller.register(sub)
        poller.register(pipe[0], POLLIN)
        assert poller.poll(0) == []
        assert poller.poll(5) == []
        os.write(pipe[1], b"x")
        assert poller.poll(DEADLINE_MS) == [(pipe[0], POLLIN)]
        pub.send(b"x")
        backend.settle()
        assert poller.poll(DEADLINE_MS) == [(sub, POLLIN), (pipe[0], POLLIN)]
        os.read(pipe[0], 1)
        assert poller.poll(None) == [(sub, POLLIN)]
        assert sub.receive() == b"x"
        poller.unregister(pipe[0])
        os.write(pipe[1], b"x")
        assert poller.poll(0) == []

    @pytest.mark.needs("threads")
    def test_either_ends_the_wait(self, backend: Backend, endpoint: str, pipe: tuple[int, int]) -> None:
        pub, sub = backend.pair(endpoint)
        poller = backend.Poller()
        poller.register(sub)
        poller.register(pipe[0])
        task = Task(poller.poll)
        task.wait_asleep()
        pub.send(b"x")
        assert task.result() == [(sub, POLLIN)]
        assert sub.receive() == b"x"
        task = Task(poller.poll, DEADLINE * 1000)
        task.wait_asleep()
        os.write(pipe[1], b"x")
        assert task.result() == [(pipe[0], POLLIN)]

    def test_sockets_of_the_system_and_their_flags(self, backend: Backend) -> None:
        left, right = socket.socketpair()
        with left, right:
            poller = backend.Poller()
            poller.register(left, POLLIN | POLLOUT)
            assert poller.poll(0) == [(left, POLLOUT)]
            right.send(b"x")
            assert poller.poll(0) == [(left, POLLIN | POLLOUT)]
            poller.modify(left, POLLIN)
            assert poller.poll(0) == [(left, POLLIN)]
            poller.unregister(left)
            assert poller.poll(0) == []

    def test_flags_that_cannot_be(self, backend: Backend, endpoint: str) -> None:
        poller = backend.Poller()
        with pytest.raises(InvalidValueError, match="POLLIN"):
            poller.register(backend.sub(endpoint), POLLOUT)
        with pytest.raises(InvalidValueError, match="flags"):
            poller.register(0, 0)

    def test_a_socket_of_pyzmq_is_refused(self, backend: Backend) -> None:
        """Its descriptor says that something happened, once; whether there is a message, only its EVENTS say."""
        zmq = pytest.importorskip("zmq")
        with zmq.Context() as context, context.socket(zmq.PULL) as pull, pytest.raises(TypeError, match="pyzmq"):
            backend.Poller().register(pull)
