"""Channels: what a subscriber misses is counted, and told once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from msgq.errors import LostMessagesError
from tests.contract.conftest import Channels


def publish_numbers(publisher: object, messages: int, first: int = 0) -> None:
    """Publish so many numbers."""
    for number in range(first, first + messages):
        publisher.send(number.to_bytes(4, "little"))  # type: ignore[attr-defined]


def test_lapped_subscriber_receives_stored_messages_and_counts_lost_messages(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32)
    publish_numbers(pub, 100)
    assert sub.receive(0) == (68).to_bytes(4, "little")
    assert (sub.lost, sub.resets, sub.position, sub.received) == (68, 1, 32 + 69, 1)
    assert len(sub.receive_many()) == 31
    assert sub.lost + sub.received == 100
    publish_numbers(pub, 100)
    assert len(sub.receive_many()) == 32
    assert sub.lost + sub.received == 200


def test_repeatedly_lapped_subscriber_skips_more_messages_each_time(channels: Channels) -> None:
    """So it gets ahead of publishers that overwrite a message while it is copied."""
    pub, sub = channels.pair(capacity=64)
    margins = []
    for sent in range(100, 900, 100):
        publish_numbers(pub, 100, sent - 100)
        margins.append(int.from_bytes(sub.receive(0), "little") - (sent - 64))
    assert margins == [0, 4, 8, 16, 32, 32, 32, 32]
    assert len(sub.receive_many()) == 31
    publish_numbers(pub, 100)
    assert len(sub.receive_many()) == 64
    assert sub.lost + sub.received == 900


def test_lapped_subscriber_with_on_lapped_newest_skips_all_messages(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32, on_lapped="newest")
    publish_numbers(pub, 100)
    assert sub.receive(0) is None
    assert (sub.lost, sub.resets, sub.position) == (100, 1, 132)
    pub.send(b"next")
    assert sub.receive(0) == b"next"


def test_subscriber_behind_by_at_most_the_capacity_is_not_lapped(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32)
    publish_numbers(pub, 32)
    assert len(sub.receive_many()) == 32
    assert (sub.lost, sub.resets) == (0, 0)


def test_subscriber_behind_by_more_than_the_capacity_is_lapped(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32)
    publish_numbers(pub, 33)
    assert sub.receive(0) == (1).to_bytes(4, "little")
    assert (sub.lost, sub.resets) == (1, 1)


@pytest.mark.parametrize("slots", [1, 3])
def test_publisher_with_fewer_slots_than_capacity_evicts_older_messages(channels: Channels, slots: int) -> None:
    pub, sub = channels.pair(capacity=32, publisher={"slots": slots})
    publish_numbers(pub, 10)
    assert pub.evicted == 10 - slots
    assert sub.receive_many() == [number.to_bytes(4, "little") for number in range(10 - slots, 10)]
    assert (sub.lost, sub.resets) == (10 - slots, 0)


def test_publisher_with_few_slots_keeps_messages_of_other_publishers(channels: Channels) -> None:
    channel = channels.open(capacity=32)
    sub, plenty, scarce = channel.subscriber(), channel.publisher(), channel.publisher(slots=1)
    for number in range(5):
        plenty.send(b"p%d" % number)
        scarce.send(b"s%d" % number)
    assert sub.receive_many() == [b"p0", b"p1", b"p2", b"p3", b"p4", b"s4"]
    assert sub.lost == 4


def test_messages_skipped_by_conflate_add_to_lost(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32, conflate=True)
    publish_numbers(pub, 5)
    assert sub.receive(0) == (4).to_bytes(4, "little")
    assert sub.receive(0) is None
    assert (sub.lost, sub.received, sub.resets) == (4, 1, 0)
    publish_numbers(pub, 1000, 5)
    assert sub.receive(0) == (1004).to_bytes(4, "little")
    assert (sub.lost, sub.received, sub.resets) == (4 + 999, 2, 0)


def test_conflate_with_own_false_returns_newest_message_of_other_publishers(channels: Channels) -> None:
    channel, other = channels.open(), channels.open()
    sub, mine, theirs = channel.subscriber(conflate=True, own=False), channel.publisher(), other.publisher()
    for number in range(3):
        theirs.send(b"theirs %d" % number)
        mine.send(b"mine")
    assert sub.receive(0) == b"theirs 2"
    assert sub.receive(0) is None


def test_conflate_with_own_false_finds_message_at_oldest_position(channels: Channels) -> None:
    channel, other = channels.open(capacity=4), channels.open()
    sub, mine, theirs = channel.subscriber(conflate=True, own=False), channel.publisher(), other.publisher()
    publish_numbers(theirs, 2)
    publish_numbers(mine, 3)
    assert sub.receive(0) == (1).to_bytes(4, "little")
    assert (sub.lost, sub.resets) == (1, 0)


# ---- on_lost="raise" ----


def test_on_lost_raise_raises_once_with_number_of_lost_messages(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32, on_lost="raise")
    publish_numbers(pub, 40)
    with pytest.raises(LostMessagesError, match="8 messages lost") as caught:
        sub.receive(0)
    assert caught.value.lost == 8
    assert caught.value.endpoint == channels.token
    assert sub.receive(0) == (8).to_bytes(4, "little")
    sub.receive_many()
    publish_numbers(pub, 33)
    with pytest.raises(LostMessagesError) as caught:
        sub.receive(0)
    assert caught.value.lost == 1
    assert sub.lost == 9


def test_on_lost_raise_applies_to_views_and_buffers(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=16, on_lost="raise")
    publish_numbers(pub, 20)
    with pytest.raises(LostMessagesError):
        sub.receive_view(0)
    assert bytes(sub.receive_view(0)) == (4).to_bytes(4, "little")
    sub.receive_many()
    publish_numbers(pub, 20)
    with pytest.raises(LostMessagesError):
        sub.receive_into(bytearray(4), 0)
    assert sub.receive_into(bytearray(4), 0) == 4


def lose_in_the_middle(channels: Channels) -> tuple[Any, Any]:
    """Return a publisher, and a subscriber that raised a loss: a message, a loss of two, and a message are ahead."""
    channel = channels.open(capacity=16)
    sub, pub, scarce = channel.subscriber(on_lost="raise"), channel.publisher(), channel.publisher(slots=1)
    publish_numbers(pub, 20)
    with pytest.raises(LostMessagesError):
        sub.receive(0)
    sub.receive_many()
    pub.send(b"aaaa")
    for message in (b"bbbb", b"cccc", b"dddd"):
        scarce.send(message)
    return pub, sub


@pytest.mark.parametrize("call", ["receive_many", "receive_array"])
def test_receive_many_stops_before_a_loss_and_next_call_raises(channels: Channels, call: str) -> None:
    _pub, sub = lose_in_the_middle(channels)
    bulk = getattr(sub, call)
    arguments = ("S4",) if call == "receive_array" else ()
    lost = sub.lost
    assert list(bulk(*arguments)) == [b"aaaa"]
    assert sub.lost == lost, "the call counted a loss that it did not reach"
    with pytest.raises(LostMessagesError) as caught:
        bulk(*arguments)
    assert caught.value.lost == 2  # not what was told before
    assert list(bulk(*arguments)) == [b"dddd"]


def test_poller_reports_subscriber_with_losses_as_ready(channels: Channels) -> None:
    pub, sub = channels.pair(capacity=32, on_lost="raise", on_lapped="newest")
    poller = channels.Poller()
    poller.registerSocket(sub)
    publish_numbers(pub, 40)
    assert poller.poll(0) == [sub]
    with pytest.raises(LostMessagesError) as caught:
        sub.receive(0)
    assert caught.value.lost == 40
    assert poller.poll(0) == []


# ---- arrays ----


def test_receive_array_stops_before_a_loss(channels: Channels) -> None:
    channel = channels.open(capacity=16)
    sub, pub, scarce = channel.subscriber(), channel.publisher(), channel.publisher(slots=1)
    for number in range(3):
        pub.send(np.uint32(number).tobytes())
    scarce.send(np.uint32(98).tobytes())
    scarce.send(np.uint32(99).tobytes())
    assert sub.receive_array("u4").tolist() == [0, 1, 2]
    assert sub.lost == 0
    assert sub.receive_array("u4").tolist() == [99]
    assert sub.lost == 1
