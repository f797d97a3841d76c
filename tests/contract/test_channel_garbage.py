"""Channels as garbage: the collector may take publishers, subscribers, loans and views in any order."""

from __future__ import annotations

import gc

import pytest

from tests.contract.conftest import Channels


def create_reference_cycle(*things: object) -> None:
    """Make a cycle that keeps them until the collector comes."""
    cycle: list[object] = [*things]
    cycle.append(cycle)


@pytest.mark.parametrize("order", range(6))
def test_reference_cycle_of_all_channel_objects_is_collected(channels: Channels, order: int) -> None:
    """Failure would mean: the collector took the mapping away before what writes there as its last act."""
    for _ in range(5):
        channel, other = channels.open(subscribers=1, publishers=1), channels.open()  # each needs the former's row
        publisher, subscriber = other.publisher(), channel.subscriber(max_views=1)
        publisher.send(b"message")
        things = [channel, other, publisher, subscriber, subscriber.receive_view(0), publisher.loan(3)]
        create_reference_cycle(*things[order:], *things[:order])
        del channel, other, publisher, subscriber, things
        gc.collect()


def test_channel_handles_in_collected_cycle_release_their_slots(channels: Channels) -> None:
    channel = channels.open()
    subscriber, publisher = channel.subscriber(), channel.publisher(slots=2)
    for _ in range(3):
        publisher.send(b"message")
        create_reference_cycle(subscriber.receive_view(0), publisher.loan(1))
        gc.collect()
    publisher.send_many([b"message"] * 10)
    assert subscriber.views_held == 0
