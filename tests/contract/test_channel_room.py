"""Channels: a publisher that waits for slow subscribers loses none of their messages."""

from __future__ import annotations

import random
from typing import Any

import pytest

from msgq.errors import EndpointClosedError, InvalidValueError
from tests.contract.conftest import Channels

CAPACITY = 8


def fill(publisher: Any) -> int:
    """Publish while there is room; return the number of messages."""
    sent = 0
    while publisher.wait_for_room(timeout=0):
        publisher.send(b"%d" % sent)
        sent += 1
    return sent


def test_room_without_subscribers_is_endless(channels: Channels) -> None:
    publisher = channels.open(capacity=CAPACITY).publisher()
    for _ in range(5):
        assert publisher.wait_for_room(CAPACITY, timeout=0)
        publisher.send_many([b"message"] * CAPACITY)


def test_room_ends_at_oldest_message_that_slowest_subscriber_has_not_received(channels: Channels) -> None:
    channel = channels.open(capacity=CAPACITY)
    publisher, fast, slow = channel.publisher(), channel.subscriber(), channel.subscriber()
    assert fill(publisher) == CAPACITY
    assert len(fast.receive_many()) == CAPACITY
    assert not publisher.wait_for_room(timeout=0)
    assert slow.receive_many(3) == [b"0", b"1", b"2"]
    assert publisher.wait_for_room(3, timeout=0)
    assert not publisher.wait_for_room(4, timeout=0)
    assert fill(publisher) == 3
    assert len(slow.receive_many()) == CAPACITY
    assert (fast.lost, slow.lost) == (0, 0)


def test_message_beyond_room_is_lost(channels: Channels) -> None:
    """The room is not smaller than it could be."""
    publisher, subscriber = channels.pair(capacity=CAPACITY)
    fill(publisher)
    publisher.send(b"one more")
    subscriber.receive_many()
    assert subscriber.lost == 1


def test_wait_for_room_returns_false_at_timeout(channels: Channels) -> None:
    publisher, _subscriber = channels.pair(capacity=CAPACITY)
    fill(publisher)
    before = channels.monotonic_ns()
    assert publisher.wait_for_room(timeout=0.01) is False
    assert channels.monotonic_ns() - before >= 10_000_000


def test_closed_passive_and_conflating_subscribers(channels: Channels) -> None:
    """A conflating subscriber counts, because its row does not tell it from others."""
    publisher, subscriber = channels.pair(capacity=CAPACITY)
    passive = channels.open(passive=True).subscriber()
    fill(publisher)
    subscriber.close()
    assert publisher.wait_for_room(CAPACITY, timeout=0)
    conflating = channels.open().subscriber(conflate=True)
    assert fill(publisher) == CAPACITY
    assert conflating.receive(0) == b"%d" % (CAPACITY - 1)
    assert publisher.wait_for_room(CAPACITY, timeout=0)
    passive.close()


def test_history_of_late_subscriber_takes_no_room(channels: Channels) -> None:
    """What such a subscriber misses of its history is not lost."""
    publisher, early = channels.pair(capacity=CAPACITY)
    fill(publisher)
    early.close()
    late = channels.open().subscriber(history=CAPACITY)
    assert fill(publisher) == CAPACITY
    late.receive_many()
    assert late.lost == 0


def test_subscriber_that_opened_before_capacity_was_set_counts(channels: Channels) -> None:
    subscriber = channels.open().subscriber()
    publisher = channels.open(capacity=CAPACITY).publisher()
    assert fill(publisher) == CAPACITY
    assert len(subscriber.receive_many()) == CAPACITY
    assert fill(publisher) == CAPACITY
    assert len(subscriber.receive_many()) == CAPACITY
    assert subscriber.lost == 0


def test_lapped_subscriber_takes_all_room_until_it_receives(channels: Channels) -> None:
    publisher, subscriber = channels.pair(capacity=CAPACITY)
    publisher.send_many([b"message"] * (3 * CAPACITY))
    assert not publisher.wait_for_room(timeout=0)
    subscriber.receive_many()
    lost = subscriber.lost
    assert fill(publisher) == CAPACITY
    assert len(subscriber.receive_many()) == CAPACITY
    assert subscriber.lost == lost


# ---- slots ----


@pytest.mark.parametrize("slots", [1, 3])
def test_publisher_with_few_slots_has_room_for_received_messages_only(channels: Channels, slots: int) -> None:
    publisher, subscriber = channels.pair(capacity=CAPACITY, publisher={"slots": slots})
    assert fill(publisher) == slots
    assert subscriber.receive(0) == b"0"
    assert fill(publisher) == 1
    assert len(subscriber.receive_many()) == slots
    assert (subscriber.lost, publisher.evicted) == (0, 1)


def test_slots_of_views_and_loans_are_no_room(channels: Channels) -> None:
    publisher, subscriber = channels.pair(capacity=CAPACITY, publisher={"slots": 4})
    publisher.send_many([b"1", b"2"])
    views = [subscriber.receive_view(0), subscriber.receive_view(0)]
    loan = publisher.loan(1)
    assert publisher.wait_for_room(1, timeout=0)
    assert not publisher.wait_for_room(2, timeout=0)
    views.pop(0).release()
    assert publisher.wait_for_room(2, timeout=0)
    loan.discard()
    assert publisher.wait_for_room(3, timeout=0)
    assert not publisher.wait_for_room(4, timeout=0)
    views.pop().release()
    assert fill(publisher) == 4
    assert len(subscriber.receive_many()) == 4
    assert subscriber.lost == 0


def test_room_after_growth_of_pool_is_that_of_new_slots(channels: Channels) -> None:
    publisher, subscriber = channels.pair(capacity=CAPACITY, publisher={"slots": 2, "slot_bytes": 64})
    publisher.send_many([b"1", b"2"])
    assert not publisher.wait_for_room(timeout=0)
    publisher.send(bytes(100))
    assert publisher.wait_for_room(1, timeout=0)
    assert not publisher.wait_for_room(2, timeout=0)
    assert len(subscriber.receive_many()) == 3


# ---- several publishers ----


@pytest.mark.parametrize("parts", [(1, 1), (1, 1, 1), (3, 1, 2)])
def test_publishers_that_wait_for_room_of_all_lose_nothing(
    channels: Channels, parts: tuple[int, ...], seed: int
) -> None:
    """Each waits, and publishes later; between these two steps, others do the same as often as they can."""
    rng, channel = random.Random(seed), channels.open(capacity=CAPACITY)
    publishers = [channel.publisher() for _ in parts]
    subscribers = [channel.subscriber() for _ in range(2)]
    has_room = [False] * len(parts)
    for _ in range(2000):
        which = rng.randrange(len(parts) + 2)
        if which >= len(parts):
            subscribers[which - len(parts)].receive_many(rng.randrange(CAPACITY))
        elif not has_room[which]:
            has_room[which] = publishers[which].wait_for_room(sum(parts), timeout=0)
        else:
            publishers[which].send_many([b"message"] * parts[which])
            has_room[which] = False
    assert sum(publisher.sent for publisher in publishers) > 200
    assert [subscriber.lost for subscriber in subscribers] == [0, 0]


def test_two_publishers_may_both_take_last_room(channels: Channels) -> None:
    channel = channels.open(capacity=CAPACITY)
    first, second, subscriber = channel.publisher(), channel.publisher(), channel.subscriber()
    first.send_many([b"message"] * (CAPACITY - 1))
    assert first.wait_for_room(timeout=0)
    assert second.wait_for_room(timeout=0)
    first.send(b"1")
    second.send(b"2")
    subscriber.receive_many()
    assert subscriber.lost == 1


# ---- errors ----


@pytest.mark.parametrize("messages", [0, -1, CAPACITY + 1, 1 << 70, -(1 << 70)])
def test_wait_for_invalid_number_of_messages_raises(channels: Channels, messages: int) -> None:
    publisher = channels.open(capacity=CAPACITY).publisher()
    with pytest.raises(InvalidValueError, match="keeps 8 and this publisher has 10 slots; give 1 to 8"):
        publisher.wait_for_room(messages)


def test_wait_for_more_room_than_slots_raises(channels: Channels) -> None:
    publisher = channels.open(capacity=CAPACITY).publisher(slots=2)
    with pytest.raises(InvalidValueError, match="give 1 to 2"):
        publisher.wait_for_room(3)


def test_wait_for_room_with_invalid_arguments_raises(channels: Channels) -> None:
    publisher, _subscriber = channels.pair(capacity=CAPACITY)
    fill(publisher)
    with pytest.raises(InvalidValueError, match="-1"):
        publisher.wait_for_room(timeout=-1)
    with pytest.raises(TypeError):
        publisher.wait_for_room(1.5)


def test_closed_publisher_cannot_wait_for_room(channels: Channels) -> None:
    publisher = channels.open(capacity=CAPACITY).publisher()
    publisher.close()
    with pytest.raises(EndpointClosedError):
        publisher.wait_for_room()
