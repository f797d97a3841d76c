"""What the processes of a run do. Each role is one incarnation, in a process of its own."""

from __future__ import annotations

import asyncio
import random
import select
import time
from collections.abc import Callable

import msgq
from msgq.errors import MultiplePublishersError
from tests.stress import roles
from tests.stress.traffic import Ledger, largest_message_size
from tools.chaos.history import History, Messages
from tools.chaos.kinds.topics import Topic, TopicPublisher

#: How subscribers take messages, by the name that the report gives it.
KINDS = {
    "blocking": "plain",
    "polling": "poller",
    "conflating": "conflate",
    "passive": "passive",
    "fileno": "fileno",
    "asyncio": "asyncio",
    "batches": "many",
    "in place": "into",
    "slow": "slow",
    "lagging": "lagging",
}
SUPERSEDED, REFUSED = 3, 4  # exit codes: another publisher took over; a publisher in the middle of a send did not yield
LAG = 0.1  # seconds that a lagging subscriber sleeps at most, when it has read all: it reads the oldest that there is
WAIT = 0.02  # maximum seconds that a subscriber waits before it checks for the end of the run


def publish(topic: Topic, history: History, incarnation: int, rng: random.Random) -> int:
    """Publish in all ways, at a pace of this incarnation, until it is over; return an exit code."""
    steps, pause = rng.choice((5, 200, 5000, 10**9)), rng.choice((0, 0.0005, 0.005))
    try:
        publisher = TopicPublisher(topic, history, incarnation)
    except MultiplePublishersError:
        return REFUSED
    try:
        while steps and history.ending == 0:
            steps -= 1
            publisher.send(rng, pause)
            if rng.random() < 0.2:
                time.sleep(pause * rng.random())
        publisher.check()
    except MultiplePublishersError:
        return SUPERSEDED
    finally:
        publisher.close()
    return 0


def count(topic: Topic, history: History, incarnation: int, _: random.Random) -> int:
    """As the last publisher: write down how many messages the topic has."""
    with roles.publisher(topic.endpoint) as socket:
        history[incarnation].base = socket.stats().messages
    return 0


def subscribe(
    topic: Topic, history: History, incarnation: int, kind: str, first: int | None, rng: random.Random
) -> int:
    """Receive and check; a subscriber with `first` stays to the end, others leave when they like."""
    record, stream = history[incarnation], Messages(history, topic.seed, largest_message_size(topic.ring_bytes))
    steps = rng.choice((1, 30, 1000, 10**9)) if first is None else -1
    options = {"conflate": kind == "conflating", "passive": kind == "passive"}
    with roles.subscriber(topic.endpoint, **options) as socket:
        ledger, take = Ledger(stream, first, kind), _taker(KINDS[kind], socket, stream, rng)
        record.joined = 1
        while steps:
            steps -= 1
            ending = history.ending == 2
            messages = take()
            ledger.take(messages, socket.lost, kind != "batches")
            record.received, record.lost = ledger.received, ledger.lost_before
            if ending and not messages:
                break
    return 0


def _taker(kind: str, socket: msgq.SubSocket, stream: Messages, rng: random.Random) -> Callable[[], list[bytes]]:
    """Return a function that receives the waiting messages. Without a message, it waits a short time."""

    def when_readable() -> list[bytes]:
        select.select([socket], [], [], WAIT)
        message = socket.receive(non_blocking=True)
        return [] if message is None else [message]

    def now_and_then() -> list[bytes]:
        if (message := socket.receive(non_blocking=True)) is None:
            time.sleep(rng.random() * LAG)
        return [] if message is None else [message]

    if kind == "fileno":
        return when_readable
    if kind == "lagging":
        return now_and_then
    if kind != "asyncio":
        return roles.taker(kind, socket, stream)
    loop = asyncio.new_event_loop()

    async def receive_one() -> list[bytes]:
        try:
            async with asyncio.timeout(WAIT):
                return [await socket.arecv()]
        except TimeoutError:
            return []

    return lambda: loop.run_until_complete(receive_one())
