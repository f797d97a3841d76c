"""Publishers that wait for slow subscribers, and processes that are killed or stopped meanwhile."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from msgq.channel import Channel
from tests.support import DEADLINE, Child, Task, hear, say

CAPACITY = 16


@pytest.fixture
def channel(endpoint: str) -> Iterator[Channel]:
    with Channel(endpoint, capacity=CAPACITY, create=True) as channel:
        yield channel
    channel.unlink()


def subscribe_and_hold(endpoint: str, views: int) -> None:
    """Child: take views when told so, and receive nothing else."""
    with Channel(endpoint, create=False) as channel, channel.subscriber() as subscriber:
        say("ready")
        hear()
        held = [subscriber.receive_view(0) for _ in range(views)]
        say(len(held))
        hear()
        for view in held:
            view.release()
        say(len(subscriber.receive_many()))
        say(subscriber.lost)
        hear()


def publish_and_wait(endpoint: str) -> None:
    """Child: publish while there is room, and wait for more."""
    with Channel(endpoint, create=False) as channel, channel.publisher() as publisher:
        while publisher.wait_for_room(timeout=0):
            publisher.send(b"message")
        say("full")
        publisher.wait_for_room()


def fill(publisher: Any) -> None:
    while publisher.wait_for_room(timeout=0):
        publisher.send(b"message")


def start_subscriber(channel: Channel, views: int = 0) -> Child:
    child = Child(subscribe_and_hold, channel.name, views)
    assert child.hear() == "ready"
    return child


def test_kill_of_slow_subscriber_ends_wait_for_room(channel: Channel) -> None:
    """The living subscriber loses nothing, and a new owner of the dead one's row counts again."""
    publisher, living = channel.publisher(), channel.subscriber()
    with start_subscriber(channel) as child:
        fill(publisher)
        assert len(living.receive_many()) == CAPACITY
        waiting = Task(publisher.wait_for_room, CAPACITY)
        waiting.wait_asleep()
        child.kill()
        assert waiting.result() is True
    fill(publisher)
    assert not publisher.wait_for_room(timeout=0)
    assert len(living.receive_many()) == CAPACITY
    successor = channel.subscriber()
    fill(publisher)
    living.receive_many()
    assert not publisher.wait_for_room(timeout=0)
    assert len(successor.receive_many()) == CAPACITY
    assert publisher.wait_for_room(CAPACITY, timeout=0)
    assert (living.lost, successor.lost) == (0, 0)


def test_killed_subscriber_leaves_room_without_wait(channel: Channel) -> None:
    publisher = channel.publisher()
    with start_subscriber(channel) as child:
        fill(publisher)
        child.kill()
    assert publisher.wait_for_room(CAPACITY, timeout=0)


def test_stopped_subscriber_leaves_no_room_until_it_continues(channel: Channel) -> None:
    publisher = channel.publisher()
    with start_subscriber(channel) as child:
        fill(publisher)
        child.kill(signal.SIGSTOP)
        assert not publisher.wait_for_room(timeout=0.01)
        waiting = Task(publisher.wait_for_room, CAPACITY)
        waiting.wait_asleep()
        child.kill(signal.SIGCONT)
        for _ in range(2):
            child.say()
        assert child.hear() == 0
        assert (child.hear(), child.hear()) == (CAPACITY, 0)
        assert waiting.result() is True
        child.say()


def test_kill_of_viewer_ends_wait_for_its_slots(channel: Channel) -> None:
    """The publisher then takes these slots, and retracts no message that the living subscriber has not received."""
    publisher, living = channel.publisher(slots=4), channel.subscriber()
    with start_subscriber(channel, 2) as child:
        publisher.send_many([b"1", b"2", b"3"])
        child.say()
        assert child.hear() == 2
        assert len(living.receive_many(2)) == 2
        waiting = Task(publisher.wait_for_room, 3)
        waiting.wait_asleep()
        child.kill()
        assert waiting.result() is True
    publisher.send_many([b"4", b"5", b"6"])
    assert living.receive_many() == [b"3", b"4", b"5", b"6"]
    assert living.lost == 0


def test_kill_of_publisher_that_waits_for_room_leaves_no_trace(channel: Channel) -> None:
    subscriber = channel.subscriber()
    with Child(publish_and_wait, channel.name) as child:
        assert child.hear() == "full"
        child.kill()
    successor = channel.publisher()
    assert not successor.wait_for_room(timeout=0)
    assert len(subscriber.receive_many()) == CAPACITY
    assert successor.wait_for_room(CAPACITY, timeout=DEADLINE)
    fill(successor)
    assert len(subscriber.receive_many()) == CAPACITY
    assert subscriber.lost == 0
