"""Sockets come and go: connecting, closing, taking over, and ending without a word."""

from __future__ import annotations

import gc
from functools import partial
from typing import Any

import pytest

from msgq import stats
from msgq.errors import (
    EndpointClosedError,
    EndpointNameError,
    MessageSizeError,
    MultiplePublishersError,
    StateError,
)
from tests.contract import children
from tests.contract.conftest import Backend, collect
from tests.support import DEADLINE, Child, run_child, wait_until

KINDS = ["PubSocket", "SubSocket"]


def make(backend: Backend, kind: str, endpoint: str) -> Any:
    return backend.pub(endpoint) if kind == "PubSocket" else backend.sub(endpoint)


def calls(socket: Any) -> list[Any]:
    """Return every call that needs a connection."""
    if hasattr(socket, "send"):
        return [
            lambda: socket.send(b"x"),
            lambda: socket.send(b""),
            lambda: socket.send(bytearray(300_000)),
            lambda: socket.send_many([b"x"]),
            lambda: socket.send_many([]),
            lambda: socket.send_many(iter([b"x"])),
            lambda: socket.reserve(1).__enter__(),
            socket.all_readers_updated,
            socket.wait_for_readers,
        ]
    return [
        socket.receive,
        lambda: socket.receive(True),
        socket.receive_many,
        lambda: socket.receive_many(wait_for_one=True),
        lambda: socket.receive_into(bytearray(1)),
        lambda: socket.receive_array("u1"),
    ]


@pytest.mark.parametrize("kind", KINDS)
class TestSocket:
    def test_new_socket_is_closed_until_connect(self, backend: Backend, endpoint: str, kind: str) -> None:
        socket = getattr(backend, kind)()
        assert socket.closed
        assert socket.endpoint == ""
        socket.connect(backend.context, endpoint)
        assert not socket.closed
        assert socket.endpoint == endpoint
        socket.close()
        assert socket.closed

    def test_unconnected_socket_error_says_not_connected(self, backend: Backend, kind: str) -> None:
        socket = getattr(backend, kind)()
        for call in calls(socket):
            with pytest.raises(EndpointClosedError, match="connect"):
                call()
        socket.close()

    def test_closed_socket_error_says_closed(self, backend: Backend, endpoint: str, kind: str) -> None:
        socket = make(backend, kind, endpoint)
        socket.close()
        for call in calls(socket):
            with pytest.raises(EndpointClosedError, match="closed") as caught:
                call()
            assert caught.value.endpoint == endpoint

    def test_second_close_has_no_effect(self, backend: Backend, endpoint: str, kind: str) -> None:
        socket = make(backend, kind, endpoint)
        socket.close()
        socket.close()

    def test_context_manager_closes_the_socket(self, backend: Backend, endpoint: str, kind: str) -> None:
        with make(backend, kind, endpoint) as socket:
            assert not socket.closed
        assert socket.closed

    def test_second_connect_is_refused_and_keeps_first_connection(
        self, backend: Backend, prefix: str, kind: str
    ) -> None:
        socket = make(backend, kind, "first")
        with pytest.raises(StateError, match="connected already"):
            socket.connect(backend.context, "second")
        assert not socket.closed
        assert socket.endpoint == "first"

    def test_closed_socket_may_connect_to_another_endpoint(self, backend: Backend, prefix: str, kind: str) -> None:
        socket = make(backend, kind, "first")
        socket.close()
        socket.connect(backend.context, "second")
        assert socket.endpoint == "second"

    def test_repr_names_endpoint_and_state(self, backend: Backend, endpoint: str, kind: str) -> None:
        socket = make(backend, kind, endpoint)
        assert kind in repr(socket)
        assert endpoint in repr(socket)
        assert "closed" not in repr(socket)
        socket.close()
        assert "closed" in repr(socket)
        assert endpoint in repr(socket)

    def test_stats_are_kept_after_close(self, backend: Backend, endpoint: str, kind: str) -> None:
        pub, sub = backend.pair(endpoint)
        pub.send(b"123")
        sub.receive()
        socket = pub if kind == "PubSocket" else sub
        before = socket.stats()
        socket.close()
        assert socket.stats() == before
        assert before.endpoint == endpoint

    def test_connect_with_invalid_name_leaves_the_socket_usable(
        self, backend: Backend, endpoint: str, kind: str
    ) -> None:
        socket = getattr(backend, kind)()
        with pytest.raises(EndpointNameError):
            socket.connect(backend.context, "a/b")
        assert socket.closed
        with socket:
            socket.connect(backend.context, endpoint)
            assert not socket.closed

    def test_connect_without_context_is_refused(self, backend: Backend, endpoint: str, kind: str) -> None:
        with pytest.raises(TypeError):
            getattr(backend, kind)().connect(None, endpoint)

    def test_terminated_context_connects_no_sockets(self, backend: Backend, endpoint: str, kind: str) -> None:
        with backend.Context() as context:
            assert not context.closed
        assert context.closed
        with pytest.raises(StateError, match="terminated"):
            getattr(backend, kind)().connect(context, endpoint)


def test_context_term_leaves_sockets_usable(backend: Backend, endpoint: str) -> None:
    pub, sub = backend.pair(endpoint)
    backend.context.term()
    pub.send(b"x")
    assert sub.receive() == b"x"


def test_failed_connect_leaves_the_socket_closed(backend: Backend, endpoint: str) -> None:
    for wrong in (object(), "schema", b"schema"):
        pub = backend.PubSocket()
        with pytest.raises((TypeError, AttributeError, ValueError)):
            pub.connect(backend.context, endpoint, schema=wrong)
        assert pub.closed
        with pytest.raises(EndpointClosedError):
            pub.send(b"x")


class TestOnePublisherAtATime:
    pytestmark = pytest.mark.needs("takeover")

    def test_second_publisher_takes_over_and_first_gets_an_error(self, backend: Backend, endpoint: str) -> None:
        first, sub = backend.pair(endpoint)
        first.send(b"1")
        second = backend.pub(endpoint)
        second.send(b"2")
        with pytest.raises(MultiplePublishersError, match=endpoint) as caught:
            first.send(b"never")
        assert caught.value.errno == 98
        second.send(b"3")
        assert collect(sub, 3) == [b"1", b"2", b"3"]
        assert sub.receive(True) is None

    @pytest.mark.parametrize(
        "call",
        [
            lambda pub: pub.send(b"x"),
            lambda pub: pub.send(bytes(300_000)),
            lambda pub: pub.send_many([b"x"]),
            lambda pub: pub.reserve(1).__enter__(),
            lambda pub: pub.send_many(iter([b"x"])),
        ],
    )
    def test_superseded_publisher_raises_in_every_send_method(self, backend: Backend, endpoint: str, call: Any) -> None:
        first, sub = backend.pair(endpoint)
        second = backend.pub(endpoint)
        for _ in range(2):
            with pytest.raises(MultiplePublishersError):
                call(first)
        assert sub.receive(True) is None
        second.send(b"fine")
        assert sub.receive() == b"fine"

    @pytest.mark.needs("processes")
    def test_superseded_publisher_error_names_the_new_publisher_process(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        with Child(children.publisher, backend.name, endpoint) as child:
            assert child.hear() == "connected"
            with pytest.raises(MultiplePublishersError, match=f"process {child.pid}"):
                pub.send(b"x")

    @pytest.mark.needs("processes")
    def test_publisher_sending_batches_without_pause_can_be_superseded(self, backend: Backend, endpoint: str) -> None:
        """It notices in the middle of a batch, and must not look as if it were in the middle of a send for ever."""
        rounds = 20
        with Child(children.batches, backend.name, endpoint, rounds) as child:
            for _ in range(rounds):
                enough = child.hear() + 5000
                wait_until(partial(lambda most: stats.topic(endpoint).messages > most, enough), "the child is at it")
                newcomer = backend.pub(endpoint)
                newcomer.send(b"mine")
                child.say("go on")
                newcomer.close()
            errors = child.result()
        assert len(errors) == rounds
        assert all("another publisher took over" in error for error in errors)

    def test_open_reservation_delays_takeover_by_another_publisher(self, backend: Backend, endpoint: str) -> None:
        first, sub = backend.pair(endpoint)
        with first.reserve(2) as view:
            view[:] = b"ok"
            with pytest.raises(MultiplePublishersError, match="has been sending"):
                backend.pub(endpoint)
        assert sub.receive() == b"ok"
        first.send(b"still mine")
        assert sub.receive() == b"still mine"

    def test_closing_superseded_publisher_keeps_new_publisher(self, backend: Backend, endpoint: str) -> None:
        first, sub = backend.pair(endpoint)
        second = backend.pub(endpoint)
        first.close()
        second.send(b"x")
        assert sub.receive() == b"x"

    def test_superseded_publisher_may_take_over_again(self, backend: Backend, endpoint: str) -> None:
        first, sub = backend.pair(endpoint)
        second = backend.pub(endpoint)
        first.close()
        first.connect(backend.context, endpoint)
        first.send(b"back")
        assert sub.receive() == b"back"
        with pytest.raises(MultiplePublishersError):
            second.send(b"x")

    def test_publisher_is_refused_while_16_superseded_publishers_are_open(
        self, backend: Backend, endpoint: str
    ) -> None:
        losers = [backend.pub(endpoint) for _ in range(16)]
        with pytest.raises(MultiplePublishersError, match="16"):
            backend.pub(endpoint)
        losers[3].close()
        backend.pub(endpoint).send(b"x")


class TestRestart:
    pytestmark = pytest.mark.needs("replay")

    def test_publisher_restart_keeps_reader_positions(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        for i in range(5):
            pub.send(b"%d" % i)
            pub.close()
            pub = backend.pub(endpoint)
        assert collect(sub, 5) == [b"0", b"1", b"2", b"3", b"4"]
        assert sub.lost == 0
        assert sub.stats().resets == 0
        assert pub.stats().messages == 5

    @pytest.mark.needs("processes")
    def test_killed_publisher_is_replaced_without_loss(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        for text in ("one", "two"):
            with Child(children.publisher, backend.name, endpoint) as child:
                assert child.hear() == "connected"
                child.say(text)
                assert child.hear() == "sent"
                child.kill()
        assert collect(sub, 2) == [b"one", b"two"]
        assert sub.lost == 0

    def test_connected_subscriber_counts_as_reader_of_next_publisher(self, backend: Backend, endpoint: str) -> None:
        backend.pub(endpoint).close()
        sub = backend.sub(endpoint)
        pub = backend.pub(endpoint)
        pub.wait_for_readers(DEADLINE, n=1)
        pub.send(b"x")
        assert sub.receive() == b"x"
        pub.wait_for_readers(DEADLINE)


class TestEnd:
    def test_deleted_subscriber_is_not_counted_as_reader(self, backend: Backend, endpoint: str) -> None:
        pub = backend.pub(endpoint)
        sub = backend.SubSocket()
        sub.connect(backend.context, endpoint)
        pub.wait_for_readers(DEADLINE, n=1)
        del sub
        gc.collect()
        backend.settle()
        wait_until(lambda: not pub.all_readers_updated())  # there is none
        with pytest.raises(TimeoutError, match="0 subscribers"):
            pub.wait_for_readers(0, n=1)

    @pytest.mark.needs("processes", "stats")
    @pytest.mark.parametrize("how", ["open", "deleted", "blocked daemon thread"])
    def test_process_exit_without_close_frees_its_rows(self, backend: Backend, endpoint: str, how: str) -> None:
        with Child(children.exits_without_closing, backend.name, endpoint, how) as child:
            assert child.hear() == "connected"
            child.say()
            assert child.result() is None
        topic = stats.topic(endpoint)
        assert (topic.publisher_kind, topic.subscribers) == ("none", ())

    @pytest.mark.needs("processes", "read")
    def test_killed_subscriber_is_not_counted_as_reader(self, backend: Backend, endpoint: str) -> None:
        pub, sub = backend.pair(endpoint)
        with Child(children.subscriber, backend.name, endpoint) as child:
            assert child.hear() == "connected"
            pub.wait_for_readers(DEADLINE, n=2)
            child.kill()
        pub.send(b"x")
        assert sub.receive() == b"x"
        wait_until(pub.all_readers_updated)

    def test_importing_msgq_starts_no_threads(self, backend: Backend) -> None:
        assert run_child(list_threads_after_import) == []


def list_threads_after_import() -> list[str]:
    """What importing the package opens or starts: nothing."""
    import threading

    import msgq

    assert msgq.context is not None
    return [thread.name for thread in threading.enumerate()][1:]


@pytest.mark.needs("segment")
def test_message_size_error_names_message_size_limit_and_segment_size(backend: Backend, endpoint: str) -> None:
    pub = backend.pub(endpoint, 4096)
    with pytest.raises(MessageSizeError, match=r"5000.*1352.*4096"):
        pub.send(bytes(5000))
