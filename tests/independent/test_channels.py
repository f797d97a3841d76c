"""Channels between this library and an implementation that was written from the docs alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

import msgq
from tests.independent import shared_file
from tests.independent.channel import PoolExhaustedError, Publisher, Subscriber
from tests.independent.interruptions import interrupt_next_read
from tests.support import Child, Task, hear, say, wait_asleep, wait_until

CAPACITY = 8
COUNT = 400
FLOOD = 2000


def payload(number: int) -> bytes:
    return number.to_bytes(4, "little") * (1 + number % 50)


def data_of(subscriber: Subscriber, count: int) -> list[bytes]:
    messages = [subscriber.receive() for _ in range(count)]
    return [message.data for message in messages if message]


def test_independent_channel_subscriber_receives_msgq_messages_over_many_laps(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    theirs = Subscriber(endpoint)
    for start in range(0, COUNT, 4):
        for number in range(start, start + 4):
            ours.send(payload(number), origin_time=number + 1)
        messages = [theirs.receive() for _ in range(5)]
        assert [message.data for message in messages if message] == [payload(n) for n in range(start, start + 4)]
        assert [message.origin_time for message in messages if message] == list(range(start + 1, start + 5))
    assert (theirs.received, theirs.lost) == (COUNT, 0)
    theirs.close()
    ours.close()


def test_msgq_channel_subscriber_receives_independent_messages_over_many_laps(endpoint: str) -> None:
    theirs = Publisher(endpoint)
    ours = msgq.Node("ours").subscribe(endpoint)
    for start in range(0, COUNT, 40):
        for number in range(start, start + 40):
            theirs.send(payload(number), origin_time=number + 1)
        assert ours.receive_many() == [payload(number) for number in range(start, start + 40)]
        last = ours.last
        assert last
        assert (last.origin_time, last.publisher.name) == (start + 40, "independent")
    assert (ours.received, ours.lost) == (COUNT, 0)
    ours.close()
    theirs.close()


def test_msgq_and_independent_publishers_share_one_order(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    theirs = Publisher(endpoint)
    our_subscriber, their_subscriber = msgq.Node("reader").subscribe(endpoint), Subscriber(endpoint)
    for number in range(0, COUNT, 2):
        ours.send(payload(number))
        theirs.send(payload(number + 1))
        expected = [payload(number), payload(number + 1)]
        assert data_of(their_subscriber, 3) == expected
        assert our_subscriber.receive_many() == expected
    for endpoint_part in (ours, theirs, our_subscriber, their_subscriber):
        endpoint_part.close()


def test_lapped_independent_subscriber_receives_stored_messages_and_counts_losses(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    theirs = Subscriber(endpoint)
    for number in range(COUNT):
        ours.send(payload(number))
    assert data_of(theirs, CAPACITY + 1) == [payload(number) for number in range(COUNT - CAPACITY, COUNT)]
    assert (theirs.received, theirs.lost, theirs.resets) == (CAPACITY, COUNT - CAPACITY, 1)
    seen = msgq.stats.channel(endpoint).subscribers[0]
    assert (seen.received, seen.lost, seen.lag, seen.resets) == (CAPACITY, COUNT - CAPACITY, 0, 1)
    assert seen.participant.pid == os.getpid()
    theirs.close()
    ours.close()


def test_independent_copy_is_valid_only_with_unchanged_entry(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    theirs = Subscriber(endpoint)
    ours.send(payload(0))
    assert theirs.receive()
    ours.send(payload(1))
    pool = next(iter(theirs._pools.values()))
    interrupt_next_read(monkeypatch, pool.file, lambda: ours.send_many([payload(n) for n in range(2, 2 + CAPACITY)]))
    assert data_of(theirs, CAPACITY + 1) == [payload(number) for number in range(2, 2 + CAPACITY)]
    assert theirs.lost == 1
    theirs.close()
    ours.close()


def test_lapped_msgq_subscriber_counts_lost_independent_messages(endpoint: str) -> None:
    msgq.Channel(endpoint, capacity=CAPACITY).close()
    theirs = Publisher(endpoint)
    ours = msgq.Node("ours").subscribe(endpoint)
    for number in range(COUNT):
        theirs.send(payload(number))
    assert ours.receive_many() == [payload(number) for number in range(COUNT - CAPACITY, COUNT)]
    assert ours.lost == COUNT - CAPACITY
    seen = msgq.stats.channel(endpoint)
    assert (seen.messages, seen.publishers[0].sent, seen.capacity) == (COUNT, COUNT, CAPACITY)
    ours.close()
    theirs.close()


def test_msgq_and_independent_subscribers_receive_channel_history(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    theirs = Publisher(endpoint)
    ours.send(b"1")
    theirs.send(b"2")
    their_subscriber, our_subscriber = Subscriber(endpoint, history=5), msgq.Node("late").subscribe(endpoint, history=5)
    assert data_of(their_subscriber, 3) == [b"1", b"2"]
    assert our_subscriber.receive_many() == [b"1", b"2"]
    assert (their_subscriber.lost, our_subscriber.lost) == (0, 0)
    for endpoint_part in (ours, theirs, our_subscriber, their_subscriber):
        endpoint_part.close()


def test_independent_view_keeps_msgq_slot(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    theirs = Subscriber(endpoint)
    ours.send(b"held")
    view = theirs.receive_view()
    assert view
    for number in range(COUNT):
        ours.send(payload(number))
    assert view.data == b"held"
    assert msgq.stats.channel(endpoint).viewers[0].views == 1
    view.release()
    assert msgq.stats.channel(endpoint).viewers[0].views == 0
    theirs.close()
    ours.close()


def test_msgq_view_keeps_independent_slot(endpoint: str) -> None:
    theirs = Publisher(endpoint, slots=2)
    ours = msgq.Node("ours").subscribe(endpoint)
    theirs.send(b"held")
    view = ours.receive_view(timeout=0)
    assert view
    for number in range(COUNT):
        theirs.send(payload(number))
    assert bytes(view) == b"held"
    second = ours.receive_view(timeout=0)
    assert second
    with pytest.raises(PoolExhaustedError):
        theirs.send(b"no slot is left")
    task = Task(partial(theirs.send, b"later", timeout=60))
    task.wait_asleep()
    view.release()
    task.result()
    second.release()
    ours.close()
    theirs.close()


def only_wakes() -> None:
    shared_file.FIRST_POLL_S = 3600.0  # only a wake ends a sleep


def receive_woken(endpoint: str) -> None:
    only_wakes()
    subscriber = Subscriber(endpoint)
    say("ready")
    for number in range(3):
        message = subscriber.receive(60)
        assert message
        say(message.data == payload(number))
    subscriber.close()


def test_msgq_channel_publisher_wakes_independent_subscriber(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint)
    with Child(receive_woken, endpoint) as child:
        child.hear()
        for number in range(3):
            wait_asleep(child.pid)
            ours.send(payload(number))
            assert child.hear()
        child.result()
    ours.close()


def test_independent_channel_publisher_wakes_msgq_subscriber(endpoint: str) -> None:
    theirs = Publisher(endpoint)
    ours = msgq.Node("ours").subscribe(endpoint)
    for number in range(3):
        task = Task(lambda: ours.receive(timeout=60))
        assert task.is_woken_by(partial(theirs.send, payload(number)))
        assert task.result() == payload(number)
    ours.close()
    theirs.close()


def publish_flood(endpoint: str) -> None:
    publisher = Publisher(endpoint)
    say("ready")
    hear()
    for number in range(FLOOD):
        publisher.send(payload(number))
    say("sent")
    hear()
    publisher.close()


def receive_flood(endpoint: str) -> None:
    subscriber = Subscriber(endpoint)
    say("ready")

    def receive() -> bytes | None:
        message = subscriber.receive()
        return message.data if message else None

    check_flood(receive, lambda: subscriber.received + subscriber.lost)
    subscriber.close()


def check_flood(receive: Callable[[], bytes | None], count: Callable[[], int]) -> None:
    """Receive until each message was received or lost; each is whole, and has the number of the count."""

    def is_over() -> bool:
        while (data := receive()) is not None:
            number = int.from_bytes(data[:4], "little")
            assert data == payload(number)
            assert count() == number + 1
        return count() == FLOOD

    wait_until(is_over)


def test_independent_channel_subscriber_counts_each_message_of_msgq_flood(endpoint: str) -> None:
    ours = msgq.Node("ours").advertise(endpoint, capacity=CAPACITY)
    with Child(receive_flood, endpoint) as child:
        child.hear()
        for number in range(FLOOD):
            ours.send(payload(number))
        child.result()
    ours.close()


def test_msgq_channel_subscriber_counts_each_message_of_independent_flood(endpoint: str) -> None:
    msgq.Channel(endpoint, capacity=CAPACITY).close()
    ours = msgq.Node("ours").subscribe(endpoint)
    with Child(publish_flood, endpoint) as child:
        child.hear()
        child.say()
        check_flood(lambda: ours.receive(timeout=0), lambda: ours.received + ours.lost)
        child.hear()
        child.say()
        child.result()
    ours.close()


def publish_and_wait(endpoint: str) -> None:
    publisher = Publisher(endpoint)
    publisher.send(b"last words")
    say("sent")
    hear()


def test_messages_of_killed_independent_publisher_stay_until_replaced(endpoint: str) -> None:
    ours = msgq.Node("ours").subscribe(endpoint)
    with Child(publish_and_wait, endpoint) as child:
        child.hear()
        child.kill()
    assert ours.receive(timeout=0) == b"last words"
    publisher = msgq.Node("next").advertise(endpoint)
    for number in range(64):
        publisher.send(payload(number))
    msgq.Node("another").advertise(endpoint).close()
    assert {row.node for row in msgq.stats.channel(endpoint).publishers} <= {"next", "another"}
    publisher.close()
    ours.close()


def test_independent_channel_subscriber_reads_schema(endpoint: str) -> None:
    channel = msgq.Channel(endpoint, schema=msgq.Schema("Pose", "json", b"{}"))
    theirs = Subscriber(endpoint)
    assert theirs.channel.read_schema() == ("Pose", "json", b"{}")
    theirs.close()
    channel.close()
