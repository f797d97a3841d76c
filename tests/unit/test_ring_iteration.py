"""A loop over a topic's subscriber: each message is checked on its own, also if the publisher changes between two."""

from __future__ import annotations

import pytest

import msgq
from msgq import stats
from msgq.errors import CorruptSegmentError, EndpointClosedError
from tests.unit.ringfile import RingFile, message_bytes_in_ring, ring_position

SIZE = 1024


def numbered_messages(start: int, count: int) -> list[bytes]:
    """Return messages of 8 bytes, which have 16 bytes in the ring."""
    return [i.to_bytes(8, "big") for i in range(start, start + count)]


def test_loop_skips_messages_that_are_overwritten_between_two_messages(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub, msgq.sub_sock(endpoint) as other:
        sub.setTimeout(0)
        pub.send_many(numbered_messages(0, 10))
        assert [next(sub), other.receive(True)] == numbered_messages(0, 1) * 2
        pub.send_many(numbered_messages(10, 70))  # overwrites the nine messages that the subscribers know
        received, expected = list(sub), other.receive_many()
        assert received == expected == numbered_messages(80 - len(expected), len(expected))
        assert sub.lost == other.lost == 79 - len(expected)
        assert sub.stats().received == 1 + len(received)


def test_loop_stores_its_position_after_each_message(endpoint: str) -> None:
    """A tool that observes the topic sees how many messages wait."""
    with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send_many(numbered_messages(0, 5))
        for taken in range(1, 6):
            next(sub)
            (subscriber,) = stats.topic(endpoint).subscribers
            assert (subscriber.received, subscriber.lag_bytes) == (taken, (5 - taken) * message_bytes_in_ring(8))


def test_loop_continues_behind_unregistered_publisher_that_starts_between_two_messages(endpoint: str) -> None:
    with (
        msgq.pub_sock(endpoint, SIZE) as pub,
        msgq.sub_sock(endpoint) as sub,
        msgq.sub_sock(endpoint) as other,
        RingFile(endpoint) as ring,
    ):
        sub.setTimeout(0)
        pub.send_many(numbered_messages(0, 5))
        assert [next(sub), other.receive(True)] == numbered_messages(0, 1) * 2
        ring.start_stranger()
        ring.publish(b"12345678")
        assert list(sub) == other.receive_many() == [*numbered_messages(1, 4), b"12345678"]
        assert sub.lost == other.lost


def test_loop_reports_invalid_size_of_known_message(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub, RingFile(endpoint) as ring:
        pub.send_many(numbered_messages(0, 3))
        assert next(sub) == numbered_messages(0, 1)[0]
        ring.write_pointer = ring_position(0, 24)  # between two messages
        with pytest.raises(CorruptSegmentError):
            list(sub)


def test_loop_over_subscriber_closed_between_two_messages_raises(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint) as sub:
        pub.send_many(numbered_messages(0, 3))
        assert next(sub) == numbered_messages(0, 1)[0]
        sub.close()
        with pytest.raises(EndpointClosedError):
            next(sub)


@pytest.mark.parametrize("tracked", [False, True])
def test_loop_receives_messages_of_each_size(endpoint: str, tracked: bool) -> None:
    messages = [bytes([size % 251]) * size for size in (0, 1, 7, 8, 9, 64, 4096, (1 << 18) - 1, 1 << 18, 1 << 20)]
    with msgq.pub_sock(endpoint, 8 << 20, tracked=tracked) as pub, msgq.sub_sock(endpoint) as sub:
        sub.setTimeout(0)
        pub.send_many([b"first", *messages])
        assert list(sub) == [b"first", *messages]
        assert sub.stats().received == len(messages) + 1


def test_loop_over_conflating_subscriber_receives_newest_message_after_poll(endpoint: str) -> None:
    poller = msgq.Poller()
    with msgq.pub_sock(endpoint, SIZE) as pub, msgq.sub_sock(endpoint, poller, conflate=True) as sub:
        pub.send_many(numbered_messages(0, 2))
        assert poller.poll(0) == [sub]  # the subscriber now knows a message
        pub.send_many(numbered_messages(2, 3))
        assert next(sub) == numbered_messages(4, 1)[0]
        assert sub.lost == 4
