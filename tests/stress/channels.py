"""What the processes of the stress tests of channels do, and messages that tell who sent them."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from msgq.channel import Channel
from msgq.impl.channel.core import Publisher, Sample, Subscriber
from tests.stress.roles import has_input
from tests.support import DEADLINE, hear, say

if TYPE_CHECKING:
    from typing_extensions import Buffer

HEAD = 16  # bytes: number of the publisher, of its message, and the checksum of the rest
KINDS = ("copy", "view", "conflate", "passive", "asyncio", "into")
LIFE = 300  # messages between two joins


def message(source: int, number: int, size: int) -> bytes:
    body = random.Random(source << 32 | number).randbytes(size)
    return source.to_bytes(4, "little") + number.to_bytes(8, "little") + zlib.crc32(body).to_bytes(4, "little") + body


def read(data: Buffer) -> tuple[int, int]:
    """Return the publisher and the number of a message, which must be whole."""
    view = memoryview(data).cast("B")
    assert zlib.crc32(view[HEAD:]) == int.from_bytes(view[12:HEAD], "little"), "torn"
    return int.from_bytes(view[:4], "little"), int.from_bytes(view[4:12], "little")


# ---- publishers ----


def publish(name: str, source: int, count: int, seed: int) -> dict[str, Any]:
    """Publish messages of all sizes, by send and by several loans at a time; come and go, and grow."""
    rng, channel = random.Random(seed), Channel(name, node=f"p{source}")
    positions: list[int] = []
    say("ready")
    hear()
    while len(positions) < count:
        with channel.publisher(slot_bytes=rng.choice((64, 256, 4096))) as publisher:
            for _ in range(rng.randrange(LIFE)):
                size = rng.choice((0, 10, 200, 200, 4000, rng.randrange(20_000)))
                if rng.random() < 0.2:
                    positions += _lend(publisher, source, len(positions), size, rng)
                else:
                    positions.append(publisher.send(message(source, len(positions), size), timeout=DEADLINE))
    return {"positions": positions}


def _lend(publisher: Publisher, source: int, number: int, size: int, rng: random.Random) -> list[int]:
    """Publish three loans in another order than they were taken in, and drop one."""
    loans = [publisher.loan(HEAD + size * (i + 1), timeout=DEADLINE) for i in range(4)]
    loans.pop().discard()
    rng.shuffle(loans)
    positions = []
    for i, loan in enumerate(loans):
        data = message(source, number + i, size)
        with memoryview(loan) as view:
            view[: len(data)] = data
        positions.append(loan.publish(len(data)))
    return positions


def flood(name: str) -> int:
    """Publish small messages without a pause, until the parent says so."""
    with Channel(name, node="flood").publisher() as publisher:
        say("ready")
        while not has_input():
            publisher.send_many([b"x" * 64] * 20)
        return publisher.sent


# ---- subscribers ----


class History:
    """What one subscriber got in all its lives."""

    def __init__(self, kind: str) -> None:
        self.kind, self.lives, self.received, self.lost = kind, 0, 0, 0
        self.sample: list[tuple[int, int, int]] = []

    def enter(self, subscriber: Subscriber) -> None:
        self.start, self.before = subscriber.position, -1
        self.last: dict[int, int] = {}

    def take(self, data: Buffer, position: int, publisher: str) -> None:
        """Check a message: whole, of whom it says, behind all others, and in its publisher's order."""
        source, number = read(data)
        assert publisher == f"p{source}"
        assert position > self.before, "the order went back"
        assert number > self.last.get(source, -1), f"publisher {source}: {number} came after {self.last[source]}"
        self.before, self.last[source] = position, number
        self.received += 1
        if self.received % 5 == 0 or len(self.sample) < 100:
            self.sample.append((position, source, number))

    def leave(self, subscriber: Subscriber, received: int) -> None:
        """Every position between joining and leaving was received or is lost."""
        assert subscriber.received == received
        start = self.start or Channel(subscriber.endpoint, passive=True).capacity or 0
        assert received + subscriber.lost == max(subscriber.position - start, 0), self.kind
        self.lives, self.lost = self.lives + 1, self.lost + subscriber.lost

    def report(self) -> dict[str, Any]:
        return {"kind": self.kind, "lives": self.lives, "received": self.received, "lost": self.lost} | {
            "sample": self.sample
        }


def subscribe(name: str, kind: str, seed: int) -> dict[str, Any]:
    """Receive, leave and join again, until the parent says that nothing more comes."""
    rng, history = random.Random(seed), History(kind)
    channel = Channel(name, node=f"s-{kind}", passive=kind == "passive")
    say("ready")
    ending = False
    while not ending:
        with channel.subscriber(conflate=kind == "conflate") as subscriber:
            history.enter(subscriber)
            received, most = 0, rng.randrange(1, 2 * LIFE)
            while received < most and not ending:
                got = (
                    asyncio.run(_await(subscriber, history))
                    if kind == "asyncio"
                    else _take(subscriber, kind, history, rng)
                )
                received += got
                ending = not got and has_input()
            history.leave(subscriber, received)
    return history.report()


def _take(subscriber: Subscriber, kind: str, history: History, rng: random.Random) -> int:
    """Take some messages; return how many."""
    if kind == "view":
        return _hold(subscriber, history, rng.randrange(1, 6))
    if kind == "into":
        buffer = bytearray(70_000)
        size = subscriber.receive_into(buffer, 0.02)
        data = None if size is None else bytes(buffer[:size])
    else:
        data = subscriber.receive(0.02)
    if data is None:
        return 0
    last = subscriber.last
    assert last is not None
    history.take(data, last.position, last.publisher.name)
    return 1


def _hold(subscriber: Subscriber, history: History, most: int) -> int:
    """Hold several views at once; their bytes are the same at the end."""
    views: list[tuple[Sample, int]] = []
    while len(views) < most and (view := subscriber.receive_view(0.02)) is not None:
        history.take(view, view.position, view.publisher.name)
        views.append((view, zlib.crc32(view)))
    for view, checksum in views:
        assert zlib.crc32(view) == checksum, "somebody wrote into a view"
        view.release()
    return len(views)


async def _await(subscriber: Subscriber, history: History) -> int:
    """Take messages by a coroutine, which is cancelled when nothing comes."""
    for count in range(50):
        try:
            data = await asyncio.wait_for(subscriber.arecv(), 0.02)
        except TimeoutError:
            return count
        last = subscriber.last
        assert last is not None
        history.take(data, last.position, last.publisher.name)
    return 50


def copy_many(name: str, count: int, messages: int) -> list[int]:
    """Be many subscribers that copy; each receives so many messages."""
    channel = Channel(name, node="many")
    subscribers = [channel.subscriber() for _ in range(count)]
    say("ready")
    return [sum(1 for _ in _so_many(one, messages)) for one in subscribers]


def _so_many(subscriber: Subscriber, messages: int) -> Iterator[bytes]:
    for _ in range(messages):
        data = subscriber.receive(DEADLINE)
        assert data is not None
        yield data
    assert (subscriber.receive(0), subscriber.lost) == (None, 0)


def view_many(name: str, count: int) -> int:
    """Be many subscribers that take views, one each, and stay."""
    channel = Channel(name, node="viewers")
    subscribers = [channel.subscriber(history=1) for _ in range(count)]
    views = [subscriber.receive_view(DEADLINE) for subscriber in subscribers]
    say(len([view for view in views if view is not None]))
    hear()
    return len(subscribers)


def keep(name: str, count: int) -> int:
    """Keep the views of the messages that come, so many at most; let one go whenever the parent says so."""
    subscriber = Channel(name, node="keeper").subscriber(max_views=count)
    say("ready")
    views: list[Sample] = []
    while len(views) < count and hear() == "take":
        view = subscriber.receive_view(DEADLINE)
        assert view is not None
        views.append(view)
        say(len(views))
    while views and hear() == "release":
        views.pop(0).release()
        say(len(views))
    return len(views)
