"""Topics between this library and an implementation that was written from the docs alone."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

import msgq
from msgq.kinds.opening import open_feed
from tests.independent import shared_file
from tests.independent.ring import Publisher, Subscriber, TakenOverError
from tests.independent.ring_files import NUM_READERS, WRITE_LIMIT, Topic
from tests.support import DEADLINE, Child, Task, hear, run_child, say, wait_asleep, wait_until

RING = 4096
COUNT = 500
FLOOD = 3000


def payload(number: int) -> bytes:
    """Sizes from 4 to 503 bytes: the end of a lap comes at each possible distance."""
    return number.to_bytes(4, "little") + b"x" * (number * 37 % 500)


def publish_theirs(endpoint: str) -> None:
    publisher = Publisher(endpoint, RING)
    say("ready")
    while (command := hear()) != "close":
        for number in range(*command):
            publisher.send(payload(number))
        say("sent")
    publisher.close()


def receive_theirs(endpoint: str) -> None:
    subscriber = Subscriber(endpoint, RING)
    say("ready")
    while (count := hear()) != "close":
        messages = [subscriber.receive(60) for _ in range(count)]
        numbers = [int.from_bytes(message.data[:4], "little") for message in messages if message]
        assert all(
            message and message.data == payload(number) for message, number in zip(messages, numbers, strict=True)
        )
        say([numbers, subscriber.lost])
    subscriber.close()


def test_independent_topic_subscriber_receives_msgq_messages_over_many_laps(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher, Child(receive_theirs, endpoint) as child:
        child.hear()
        for start in range(0, COUNT, 5):
            child.say(5)
            for number in range(start, start + 5):
                publisher.send(payload(number))
            assert child.hear() == [list(range(start, start + 5)), 0]
        child.say("close")
        child.result()


def test_msgq_topic_subscriber_receives_independent_messages_over_many_laps(endpoint: str) -> None:
    with Child(publish_theirs, endpoint) as child, msgq.sub_sock(endpoint) as subscriber:
        child.hear()
        for start in range(0, COUNT, 5):
            child.say([start, start + 5])
            assert [subscriber.receive(timeout=60) for _ in range(5)] == [payload(n) for n in range(start, start + 5)]
            child.hear()
        assert subscriber.lost == 0
        child.say("close")
        child.result()


def receive_woken(endpoint: str) -> None:
    shared_file.FIRST_POLL_S = 3600.0  # only a wake ends the sleep
    receive_theirs(endpoint)


def test_msgq_topic_publisher_wakes_independent_subscriber(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher, Child(receive_woken, endpoint) as child:
        child.hear()
        for number in range(3):
            child.say(1)
            wait_asleep(child.pid)
            publisher.send(payload(number))
            assert child.hear() == [[number], 0]
        child.say("close")
        child.result()


def test_independent_topic_publisher_wakes_msgq_subscriber(endpoint: str) -> None:
    publisher = Publisher(endpoint, RING)
    with msgq.sub_sock(endpoint) as subscriber:
        for number in range(3):
            task = Task(lambda: subscriber.receive(timeout=60))
            assert task.is_woken_by(partial(publisher.send, payload(number)))
            assert task.result() == payload(number)
    publisher.close()


def check_flood(receive: Callable[[], bytes | None], counts: Callable[[], tuple[int, int]]) -> None:
    """Receive until each message of a flood was received or lost; each is whole, and has the number of the count."""

    def is_over() -> bool:
        while (data := receive()) is not None:
            number = int.from_bytes(data[:4], "little")
            assert data == payload(number)
            assert sum(counts()) == number + 1
        return sum(counts()) == FLOOD

    wait_until(is_over)


def receive_flood(endpoint: str) -> None:
    subscriber = Subscriber(endpoint, RING)
    say("ready")

    def receive() -> bytes | None:
        message = subscriber.receive()
        return message.data if message else None

    check_flood(receive, lambda: (subscriber.received, subscriber.lost))
    subscriber.close()


def test_independent_topic_subscriber_counts_each_message_of_msgq_flood(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher, Child(receive_flood, endpoint) as child:
        child.hear()
        for number in range(FLOOD):
            publisher.send(payload(number))
        child.result()


def test_msgq_topic_subscriber_counts_each_message_of_independent_flood(endpoint: str) -> None:
    with Child(publish_theirs, endpoint) as child, msgq.sub_sock(endpoint) as subscriber:
        child.hear()
        child.say([0, FLOOD])

        def counts() -> tuple[int, int]:
            stats = subscriber.stats()
            assert stats.lost is not None
            return stats.received, stats.lost

        check_flood(lambda: subscriber.receive(timeout=0), counts)
        child.hear()
        child.say("close")
        child.result()


def test_independent_topic_subscriber_counts_losses_exactly(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher:
        subscriber = Subscriber(endpoint)
        for number in range(COUNT):
            publisher.send(payload(number))
        assert msgq.stats.topic(endpoint).subscribers[0].lost == COUNT  # an observer's count, before its own look
        assert subscriber.receive() is None
        assert (subscriber.lost, subscriber.resets) == (COUNT, 1)
        publisher.send(b"now")
        message = subscriber.receive()
        assert message
        assert message.data == b"now"
        seen = msgq.stats.topic(endpoint).subscribers[0]
        assert (seen.received, seen.lost, seen.resets, seen.lag_bytes) == (1, COUNT, 1, 0)
        assert seen.participant.pid == os.getpid()
        subscriber.close()
        assert msgq.stats.topic(endpoint).subscribers == ()


@pytest.mark.parametrize("publisher_of", [lambda name: msgq.pub_sock(name, RING), lambda name: Publisher(name, RING)])
def test_topic_sequence_and_limit_are_correct_at_each_position(
    endpoint: str, publisher_of: Callable[[str], msgq.PubSocket | Publisher]
) -> None:
    publisher = publisher_of(endpoint)
    topic = Topic(endpoint)
    for number in range(COUNT):
        publisher.send(payload(number))
        newest = topic.locate_newest()
        assert newest.sequence == number + 1
        assert topic.side.load(WRITE_LIMIT) >= newest.position
        assert topic.is_intact(newest.position)
    topic.close()
    publisher.close()


def test_msgq_topic_subscriber_counts_lost_independent_messages_exactly(endpoint: str) -> None:
    publisher = Publisher(endpoint, RING)
    with msgq.sub_sock(endpoint) as subscriber:
        for number in range(COUNT):
            publisher.send(payload(number))
        assert subscriber.receive(timeout=0) is None
        assert subscriber.lost == COUNT
        publisher.send(b"now")
        assert subscriber.receive(timeout=0) == b"now"
    seen = msgq.stats.topic(endpoint)
    assert (seen.messages, seen.publisher_kind) == (COUNT + 1, "ours")
    publisher.close()


def test_publisher_takeover_between_implementations_keeps_sequence(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as ours, msgq.sub_sock(endpoint) as our_subscriber:
        their_subscriber = Subscriber(endpoint)
        ours.send(b"1")
        theirs = Publisher(endpoint)
        with pytest.raises(msgq.MultiplePublishersError):
            ours.send(b"not sent")
        theirs.send(b"2")
        with msgq.pub_sock(endpoint) as again:
            with pytest.raises(TakenOverError):
                theirs.send(b"not sent")
            again.send(b"3")
            received = [our_subscriber.receive(timeout=0) for _ in range(4)]
            assert received == [b"1", b"2", b"3", None]
            messages = [their_subscriber.receive() for _ in range(4)]
            assert [message and message.data for message in messages] == [*received[:3], None]
            assert (our_subscriber.lost, their_subscriber.lost, again.stats().messages) == (0, 0, 3)
        theirs.close()
        their_subscriber.close()


def test_msgq_publisher_takes_over_from_killed_independent_publisher(endpoint: str) -> None:
    with Child(publish_theirs, endpoint) as child, msgq.sub_sock(endpoint) as subscriber:
        child.hear()
        child.say([0, 3])
        child.hear()
        child.kill()
        with msgq.pub_sock(endpoint) as publisher:
            publisher.send(b"next")
            received = [subscriber.receive(timeout=0) for _ in range(4)]
            assert received == [payload(0), payload(1), payload(2), b"next"]
            assert publisher.stats().messages == 4


def test_row_of_killed_independent_subscriber_counts_as_dead(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher, Child(receive_theirs, endpoint) as child:
        child.hear()
        publisher.wait_for_readers(DEADLINE, n=1)
        child.kill()
        assert not any(subscriber.participant.alive for subscriber in msgq.stats.topic(endpoint).subscribers)


def test_independent_subscribers_do_not_count_as_stock_and_release_slots(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher, msgq.sub_sock(endpoint) as ours:
        theirs = [Subscriber(endpoint) for _ in range(3)]
        publisher.send(b"1")
        seen, ring = msgq.stats.topic(endpoint), theirs[0].topic.ring
        assert (seen.stock_subscribers, len(seen.subscribers), ring.load(NUM_READERS)) == (0, 4, 4)
        theirs.pop(1).close()
        theirs.append(Subscriber(endpoint))  # takes the slot that is free
        assert ring.load(NUM_READERS) == 4
        ours.close()
        received = [subscriber.receive() for subscriber in theirs]
        assert [message and message.data for message in received] == [b"1", b"1", None]
        for subscriber in theirs:
            subscriber.close()


def test_msgq_publisher_waits_for_independent_subscriber(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, RING) as publisher:
        subscriber = Subscriber(endpoint)
        publisher.send(b"1")
        assert not publisher.all_readers_updated()
        assert subscriber.receive()
        assert publisher.all_readers_updated()
        subscriber.close()


def test_msgq_and_independent_program_exchange_tracked_topic_stamps(endpoint: str) -> None:
    theirs = Publisher(endpoint, RING, tracked=True)
    their_subscriber = Subscriber(endpoint)
    with msgq.sub_sock(endpoint) as our_subscriber:
        theirs.send(b"theirs", origin_time=17)
        seen, message = our_subscriber.receive_tracked(non_blocking=True), their_subscriber.receive()
        assert seen
        assert message
        assert (seen.data, seen.origin_time) == (message.data, message.origin_time) == (b"theirs", 17)
        assert seen.publish_time == message.publish_time
        with msgq.pub_sock(endpoint) as ours:
            ours.send(b"ours", origin_time=18)
        seen, message = our_subscriber.receive_tracked(non_blocking=True), their_subscriber.receive()
        assert seen
        assert message
        assert (message.data, message.origin_time, message.publish_time) == (b"ours", 18, seen.publish_time)
    their_subscriber.close()
    theirs.close()


def test_msgq_and_independent_program_exchange_topic_schemas(endpoint: str) -> None:
    with msgq.PubSocket() as ours:
        ours.connect(msgq.context, endpoint, RING, schema=msgq.Schema("Pose", "jsonschema", b'{"type": "object"}'))
        subscriber = Subscriber(endpoint)
        assert subscriber.topic.read_schema() == ("Pose", "jsonschema", b'{"type": "object"}')
        theirs = Publisher(endpoint, schema=("Twist", "text", b"of theirs"))
        assert msgq.stats.topic(endpoint).schema == msgq.Schema("Twist", "text", b"of theirs")
        theirs.close()
        subscriber.close()


def test_unread_messages_keep_schema_when_independent_publisher_has_another(endpoint: str) -> None:
    with msgq.PubSocket() as ours:
        ours.connect(msgq.context, endpoint, RING, schema=msgq.Schema("Pose", "text"))
        feed = open_feed(endpoint)
        ours.send(b"1")
        theirs = Publisher(endpoint, schema=("Twist", "text", b"of theirs"))
        theirs.send(b"2")
        found = [(item.data, item.schema and item.schema.name) for item in feed.take_items()]
        assert found == [(b"1", "Pose"), (b"2", "Twist")]
        theirs.close()


def test_msgq_unlink_removes_topic_of_independent_program(endpoint: str) -> None:
    run_child(use_and_leave, endpoint)
    with msgq.pub_sock(endpoint) as publisher:
        publisher.unlink()
    with pytest.raises(msgq.errors.SegmentError):
        msgq.stats.topic(endpoint)


def use_and_leave(endpoint: str) -> None:
    publisher, subscriber = Publisher(endpoint, RING), Subscriber(endpoint)
    publisher.send(b"1")
    message = subscriber.receive()
    assert message
    assert message.data == b"1"
    publisher.close()
    subscriber.close()
