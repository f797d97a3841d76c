"""Participants start in any order, with and without sizes: a ring takes the size that the first participant requests.

What must hold: a ring that holds nothing and whose size nobody requested takes the requested size, also while
subscribers are connected; exactly one of two requests wins; the other one is told who has won.
"""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

import msgq
from msgq.errors import SegmentSizeError
from tests.contract.conftest import Backend, race_sizes
from tests.stock import StockSubscriber, segment_path
from tests.support import DEADLINE, Child, hear, say, wait_asleep, wait_until

pytest_plugins = ("tests.stock.fixtures",)

DEFAULT, LARGE, SMALL = 1 << 20, 4 << 20, 1 << 16


def size_of_ring(endpoint: str) -> int:
    return segment_path(endpoint).stat().st_size - 384


@pytest.mark.needs("segment")
class TestOrder:
    def test_publisher_after_subscriber_without_size_gets_its_size(self, backend: Backend, endpoint: str) -> None:
        sub = backend.sub(endpoint)
        with backend.pub(endpoint, LARGE) as pub:
            message = bytes(DEFAULT)
            pub.send(message)
            assert sub.receive() == message

    def test_subscriber_that_has_left_decides_no_size(self, backend: Backend, endpoint: str) -> None:
        backend.sub(endpoint).close()
        with backend.pub(endpoint, LARGE) as pub:
            pub.send(bytes(DEFAULT))

    @pytest.mark.parametrize("size", [SMALL, LARGE])
    def test_size_of_closed_topic_without_messages_is_replaced(
        self, backend: Backend, endpoint: str, size: int
    ) -> None:
        backend.sub(endpoint).close()
        backend.pub(endpoint).close()
        with backend.pub(endpoint, size) as pub, backend.sub(endpoint, segment_size=size) as sub:
            pub.send(bytes(size // 4))
            assert sub.receive() == bytes(size // 4)
            with pytest.raises(msgq.errors.MessageTooLargeError, match=f"segment_size {size}"):
                pub.send(bytes(size // 2))

    def test_second_subscriber_may_request_same_size_and_no_other(self, backend: Backend, endpoint: str) -> None:
        backend.sub(endpoint)
        backend.pub(endpoint, LARGE)
        backend.sub(endpoint, segment_size=LARGE)
        backend.sub(endpoint)
        for size in (DEFAULT, 2 * LARGE):
            with pytest.raises(SegmentSizeError, match=f"segment_size {LARGE} .*but {size} was requested"):
                backend.sub(endpoint, segment_size=size)

    def test_subscriber_decides_size_for_publisher(self, backend: Backend, endpoint: str) -> None:
        backend.sub(endpoint)
        backend.sub(endpoint, segment_size=LARGE)
        with backend.pub(endpoint) as pub:
            pub.send(bytes(DEFAULT))
        with pytest.raises(SegmentSizeError):
            backend.pub(endpoint, DEFAULT)

    def test_requested_default_size_stays(self, backend: Backend, endpoint: str) -> None:
        backend.sub(endpoint)
        backend.sub(endpoint, segment_size=DEFAULT)
        with pytest.raises(SegmentSizeError, match=rf"requested by process {os.getpid()}"):
            backend.pub(endpoint, LARGE)

    def test_size_stays_after_first_message(self, backend: Backend, endpoint: str) -> None:
        with backend.pub(endpoint) as pub:
            pub.send(b"x")
        with pytest.raises(SegmentSizeError, match=rf"default of process {os.getpid()}.*first message"):
            backend.pub(endpoint, LARGE)

    def test_size_stays_while_another_publisher_is_open(self, backend: Backend, endpoint: str) -> None:
        backend.pub(endpoint)
        with pytest.raises(SegmentSizeError, match=rf"default of process {os.getpid()}.*without a publisher"):
            backend.pub(endpoint, LARGE)

    def test_ring_gets_no_smaller_while_a_subscriber_is_open(self, backend: Backend, endpoint: str) -> None:
        with backend.sub(endpoint), pytest.raises(SegmentSizeError, match=f"segment_size {DEFAULT} .*{SMALL} was"):
            backend.pub(endpoint, SMALL)
        backend.pub(endpoint, SMALL)

    @pytest.mark.parametrize("fill", [b"\x00", b"\xff"])
    def test_late_receive_after_growth_loses_nothing(self, backend: Backend, endpoint: str, fill: bytes) -> None:
        """Messages, also those of zeros, cover the end of the former ring before the subscriber looks."""
        sub, conflating = backend.sub(endpoint), backend.sub(endpoint, conflate=True)
        with backend.pub(endpoint, LARGE) as pub:
            messages = [bytes([i]) + fill * 100_000 for i in range(20)]
            pub.send_many(messages)
            assert sub.receive_many() == messages
            assert sub.lost == 0
            assert conflating.receive() == messages[-1]
            for _ in range(30):  # a lap and more
                pub.send(messages[3])
                assert sub.receive() == messages[3]
            assert sub.lost == 0


def receive(endpoint: str, count: int, passive: bool, conflate: bool) -> dict[str, Any]:
    """Child: subscribe without a size, and report the messages' numbers and the losses."""
    with msgq.sub_sock(endpoint, passive=passive, conflate=conflate, timeout=int(DEADLINE * 1000)) as sub:
        say("joined")
        numbers: list[int] = []
        while len(numbers) < count and (not numbers or numbers[-1] != count - 1):
            message = sub.receive()
            assert message is not None
            assert message == bytes([message[0]]) * len(message)
            numbers.append(message[0])
        return {"numbers": numbers, "lost": sub.lost}


@pytest.mark.parametrize("handler", ["1", "0"])
def test_living_subscriber_receives_messages_sent_after_the_growth(endpoint: str, handler: str) -> None:
    with Child(receive, endpoint, 12, False, False, env={"MSGQ_SIGBUS": handler}) as child:
        assert child.hear() == "joined"
        wait_asleep(child.pid)
        with msgq.pub_sock(endpoint, segment_size=LARGE) as pub:
            for i in range(12):
                pub.send(bytes([i]) * (DEFAULT if i % 3 == 0 else 1000))
                if i < 11:  # the child ends after the last message
                    wait_until(pub.all_readers_updated)
            assert child.result() == {"numbers": [*range(12)], "lost": 0}
    assert size_of_ring(endpoint) == LARGE


def test_passive_subscriber_receives_messages_sent_after_the_growth(endpoint: str) -> None:
    msgq.sub_sock(endpoint).close()
    with Child(receive, endpoint, 3, True, False) as child:
        assert child.hear() == "joined"
        with msgq.pub_sock(endpoint, segment_size=LARGE) as pub:
            for i in range(3):
                pub.send(bytes([i]) * DEFAULT)
            assert child.result() == {"numbers": [0, 1, 2], "lost": 0}


def publish(endpoint: str, size: int) -> str:
    """Child: at the parent's word, become the publisher with this size."""
    say("ready")
    hear()
    try:
        with msgq.pub_sock(endpoint, segment_size=size) as pub:
            say("won")
            hear()
            pub.send(bytes(DEFAULT))
    except SegmentSizeError as error:
        say("lost")
        hear()
        return str(error)
    return ""


def test_exactly_one_of_two_publishers_with_different_sizes_wins(endpoint: str) -> None:
    sub = msgq.sub_sock(endpoint, timeout=int(DEADLINE * 1000))
    (won, winner), (lost, text) = race_sizes(publish, endpoint, [LARGE, 2 * LARGE])
    assert f"segment_size {won} (requested by process {winner}, " in text
    assert f"{lost} was requested" in text
    assert sub.receive() == bytes(DEFAULT)
    sub.close()


def test_size_of_ring_with_stock_subscriber_stays(endpoint: str, stack: Any) -> None:
    msgq.sub_sock(endpoint).close()
    stack.enter_context(StockSubscriber(endpoint, DEFAULT))
    with pytest.raises(SegmentSizeError, match="without a publisher or stock process"):
        msgq.pub_sock(endpoint, segment_size=LARGE)
    assert size_of_ring(endpoint) == DEFAULT


def test_size_of_ring_that_stock_created_stays(endpoint: str, stack: Any) -> None:
    stack.enter_context(StockSubscriber(endpoint, DEFAULT)).close()
    with pytest.raises(SegmentSizeError, match=re.escape(f"segment_size {DEFAULT}, but {LARGE} was requested")):
        msgq.pub_sock(endpoint, segment_size=LARGE)
