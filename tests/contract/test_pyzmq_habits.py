"""What users of pyzmq type by habit."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from msgq.errors import (
    Again,
    EndpointClosedError,
    InvalidTypeError,
    InvalidValueError,
    SocketOptionError,
    StateError,
)
from msgq.impl.base.argument_checks import NOBLOCK, POLLIN, POLLOUT
from tests.contract.conftest import Backend
from tests.support import DEADLINE, DEADLINE_MS, Task


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


class TestReceiving:
    def test_recv_returns_a_message_or_raises_the_again_error(self, backend: Backend, endpoint: str) -> None:
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

    def test_rcvtimeo_limits_the_wait_of_recv(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        sub.rcvtimeo = 1
        assert sub.rcvtimeo == 1
        with pytest.raises(Again):
            sub.recv()
        with pytest.raises(InvalidValueError):
            sub.rcvtimeo = -2

    @pytest.mark.parametrize("flags", [0, NOBLOCK])
    def test_recv_and_send_flags_equal_zmq_flags(self, backend: Backend, endpoint: str, flags: int) -> None:
        zmq = pytest.importorskip("zmq")
        pub, sub = backend.pair(endpoint)
        pub.send(b"x", zmq.Flag(flags))
        pub.send(b"y", flags=flags)
        assert [sub.recv(), sub.recv()] == [b"x", b"y"]
        with pytest.raises(Again):
            sub.recv(zmq.NOBLOCK)

    @pytest.mark.parametrize(("flags", "word"), [(2, "SNDMORE"), (3, "multipart"), (4, "flags are 4")])
    def test_send_with_unknown_flags_is_refused(self, backend: Backend, endpoint: str, flags: int, word: str) -> None:
        pub, sub = backend.pair(endpoint)
        with pytest.raises(InvalidValueError, match=word) as caught:
            pub.send(b"x", flags)
        assert caught.value.endpoint == endpoint
        pub.send(b"y")
        assert sub.recv() == b"y"

    def test_msgq_again_error_is_caught_as_zmq_again(self, backend: Backend, endpoint: str) -> None:
        zmq = pytest.importorskip("zmq")
        sub = backend.sub(endpoint)
        with pytest.raises(zmq.Again, match=endpoint) as caught:
            sub.recv(zmq.NOBLOCK)
        found = pickle.loads(pickle.dumps(caught.value))
        for error in (caught.value, found):
            assert isinstance(error, Again)
            assert (error.errno, error.endpoint) == (zmq.EAGAIN, endpoint)

    def test_recv_with_copy_false_returns_a_frame(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send_many([b"xyz", b"xyz"])
        assert type(sub.recv(copy=True)) is bytes
        frame = sub.recv(copy=False)
        assert (bytes(frame), frame.bytes, len(frame)) == (b"xyz", b"xyz", 3)
        assert type(frame.bytes) is bytes
        assert isinstance(frame.buffer, memoryview)
        assert np.frombuffer(frame, np.uint8).tolist() == [120, 121, 122]
        with pytest.raises(Again):
            sub.recv(NOBLOCK, copy=False)

    @pytest.mark.parametrize("copy", [True, False])
    def test_send_copies_message_for_any_copy_argument(self, backend: Backend, endpoint: str, copy: bool) -> None:
        pub, sub = backend.pair(endpoint)
        data = bytearray(b"x")
        pub.send(data, copy=copy)
        data[:] = b"y"
        pub.send(data, NOBLOCK, copy)
        assert [sub.recv(), sub.recv()] == [b"x", b"y"]

    @pytest.mark.parametrize("call", ["receive", "receive_into", "receive_tracked"])
    @pytest.mark.parametrize("time", [timedelta(seconds=1), 0.5, "1"], ids=["timedelta", "float", "str"])
    def test_receive_with_number_argument_raises_error_that_names_set_timeout(
        self, backend: Backend, endpoint: str, call: str, time: object
    ) -> None:
        sub: Any = backend.sub(endpoint)
        buffer = [bytearray(1)] if call == "receive_into" else []
        with pytest.raises(InvalidTypeError, match=r"non_blocking.*setTimeout") as caught:
            getattr(sub, call)(*buffer, time)
        assert isinstance(caught.value, TypeError)
        assert sub.receive(np.True_) is None


class TestOptions:
    @pytest.mark.parametrize("role", ["PubSocket", "SubSocket"])
    @pytest.mark.parametrize("name", ["nonsense", "sndbuf", "rcvbuf", "identity"])
    def test_unknown_socket_attribute_error_lists_known_attributes(
        self, backend: Backend, endpoint: str, role: str, name: str
    ) -> None:
        known = "linger, sndhwm, sndtimeo" if role == "PubSocket" else "conflate, linger, rcvhwm, rcvtimeo"
        with getattr(backend, role)() as socket:
            for _ in range(2):
                with pytest.raises(SocketOptionError, match=f"no attribute {name!r}.* {known}") as caught:
                    setattr(socket, name, 1)
                assert isinstance(caught.value, AttributeError)
                assert not hasattr(socket, name)
                socket.closed or socket.connect(backend.context, endpoint)

    @pytest.mark.parametrize("role", ["PubSocket", "SubSocket"])
    def test_read_only_socket_attribute_cannot_be_set(self, backend: Backend, role: str) -> None:
        with getattr(backend, role)() as socket, pytest.raises(SocketOptionError, match=r"endpoint.*read"):
            socket.endpoint = "x"

    def test_sndhwm_may_be_set_before_connect(self, backend: Backend, endpoint: str) -> None:
        pub = backend.PubSocket()
        assert pub.sndhwm == (1000 if backend.name == "zmq" else 0)
        pub.sndhwm = 1_100_000
        with pub:
            pub.connect(backend.context, endpoint)
            assert pub.sndhwm == (1_100_000 if backend.name == "zmq" else 0)
            if backend.name == "zmq":
                assert pub._socket.sndhwm == 1_100_000
                with pytest.raises(StateError, match="sndhwm"):
                    pub.sndhwm = 8

    def test_sndtimeo_has_no_effect_on_send(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        for milliseconds in (0, 100, -1):
            pub.sndtimeo = milliseconds
            assert pub.sndtimeo == 0

    @pytest.mark.parametrize("role", ["PubSocket", "SubSocket"])
    @pytest.mark.parametrize("linger", [None, 0, 50])
    def test_close_accepts_linger_argument(
        self, backend: Backend, endpoint: str, role: str, linger: int | None
    ) -> None:
        socket = getattr(backend, role)()
        socket.connect(backend.context, endpoint)
        with pytest.raises(InvalidValueError, match="linger"):
            socket.close(linger=-2)
        assert not socket.closed
        socket.close(linger=linger)
        socket.close(linger)
        assert socket.closed

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

    def test_conflate_argument_of_connect_does_not_persist_after_close(self, backend: Backend, endpoint: str) -> None:
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

    @pytest.mark.parametrize(
        ("option", "value"), [("linger", -2), ("linger", 2**31), ("rcvhwm", -1), ("sndhwm", -1), ("sndtimeo", -2)]
    )
    def test_invalid_socket_option_values_are_refused(self, backend: Backend, option: str, value: int) -> None:
        socket = backend.PubSocket() if option.startswith("snd") else backend.SubSocket()
        with pytest.raises(InvalidValueError, match=option):
            setattr(socket, option, value)


class TestPoller:
    def test_poller_register_makes_poll_return_pairs(self, backend: Backend, prefix: str) -> None:
        (pub, left), (_, right) = backend.pair("left"), backend.pair("right")
        poller = backend.Poller()
        poller.register(left, POLLIN)
        poller.register(right)
        assert dict(poller.poll(0)) == {}
        pub.send(b"x")
        assert dict(poller.poll(DEADLINE_MS)) == {left: POLLIN}

    def test_poller_accepts_msgq_and_pyzmq_registration_together(self, backend: Backend, prefix: str) -> None:
        (one, left), (other, right) = backend.pair("left"), backend.pair("right")
        poller = backend.poller(left)
        poller.register(right)
        one.send(b"x")
        assert poller.poll(DEADLINE_MS) == [left]
        other.send(b"x")
        backend.settle()
        assert sorted(map(repr, poller.poll(DEADLINE_MS))) == sorted(map(repr, [left, (right, POLLIN)]))

    def test_second_registration_by_register_makes_poll_return_a_pair(self, backend: Backend, prefix: str) -> None:
        pairs = [backend.pair(name) for name in ("first", "second", "third")]
        first, second, third = (sub for _, sub in pairs)
        poller = backend.poller(first, second, third)
        poller.register(second)
        poller.registerSocket(second)
        for pub, _ in pairs:
            pub.send(b"x")
        backend.settle()
        assert poller.poll(DEADLINE_MS) == [first, (second, POLLIN), third]
        poller.unregister(second)
        assert poller.poll(DEADLINE_MS) == [first, third]
        poller.registerSocket(second)
        assert poller.poll(DEADLINE_MS) == [first, third, second]

    def test_poller_unregister_removes_a_socket(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        poller = backend.Poller()
        for register in (poller.register, poller.registerSocket):
            register(sub)
            poller.unregister(sub)
            with pytest.raises(KeyError):
                poller.unregister(sub)
        pub.send(b"x")
        assert poller.poll(0) == []

    def test_closed_socket_can_be_unregistered_from_poller(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        poller = backend.poller(sub)
        sub.close()
        with pytest.raises(EndpointClosedError):
            poller.poll(0)
        poller.unregister(sub)
        assert poller.poll(0) == []

    def test_poller_accepts_descriptors_and_subscribers_together(
        self, backend: Backend, endpoint: str, pipe: tuple[int, int]
    ) -> None:
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
    def test_poller_wait_ends_for_a_descriptor_or_a_subscriber(
        self, backend: Backend, endpoint: str, pipe: tuple[int, int]
    ) -> None:
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

    def test_poller_accepts_system_sockets_with_flags(self, backend: Backend) -> None:
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

    def test_poller_register_with_invalid_flags_is_refused(self, backend: Backend, endpoint: str) -> None:
        poller = backend.Poller()
        with pytest.raises(InvalidValueError, match="POLLIN"):
            poller.register(backend.sub(endpoint), POLLOUT)
        with pytest.raises(InvalidValueError, match="flags"):
            poller.register(0, 0)

    def test_poller_refuses_a_pyzmq_socket(self, backend: Backend) -> None:
        """Its descriptor says that something happened, once; whether there is a message, only its EVENTS say."""
        zmq = pytest.importorskip("zmq")
        with zmq.Context() as context, context.socket(zmq.PULL) as pull, pytest.raises(TypeError, match="pyzmq"):
            backend.Poller().register(pull)
