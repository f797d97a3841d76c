"""Running the channel's driver, and checking what it left."""

from __future__ import annotations

import contextlib
import signal
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from msgq.channel import Channel
from msgq.errors import EndpointClosedError
from tests.crash.victims import WRITES, Driver, message, number_of
from tests.support import SHM
from tools.fuzz.build import cached_program

CAPACITY = 16  # small, so that a few messages make a lap
BURST = 4
LAPS = 10
VICTIM, FORMER, OTHER, LATER = 0, 1000, 2000, 3000  # where the numbers of each publisher's messages begin


class Place:
    """A channel, and everything that a test opens on it, closed at its end."""

    def __init__(self, program: Path, endpoint: str) -> None:
        self.program, self.endpoint = program, endpoint
        self._stack = contextlib.ExitStack()
        self.channel = self._stack.enter_context(Channel(endpoint, capacity=CAPACITY, create=True))
        self._stack.callback(self.channel.unlink)
        self.watcher = self._stack.enter_context(Channel(endpoint, passive=True))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def another(self, name: object) -> Place:
        """Return a channel of its own for another round of the same test."""
        return Place(self.program, f"{self.endpoint}-{name}")

    def driver(self, operations: str, point: str = WRITES, at: int = 1, number: int = signal.SIGKILL) -> Driver:
        """Start the driver; it ends at the `at`-th point of this pattern that it passes after the operation "arm"."""
        files = [str(SHM / f"msgqchan_{self.endpoint}"), str(SHM / f"msgqpool_{self.endpoint}:")]
        command = [str(self.program), *files, str(int(number)), point, str(at), *operations.split()]
        return self._stack.enter_context(Driver(command))

    def publisher(self, **options: Any) -> Any:
        return self._stack.enter_context(self.channel.publisher(**options))

    def reader(self, kind: str) -> Reader:
        """Return a subscriber: "copy", "view" or "passive"."""
        reader = Reader((self.watcher if kind == "passive" else self.channel).subscriber(), kind)
        self._stack.callback(reader.close)
        return reader

    def readers(self) -> list[Reader]:
        return [self.reader(kind) for kind in ("copy", "view", "passive")]

    def pools(self) -> list[Path]:
        return sorted(SHM.glob(f"msgqpool_{self.endpoint}:*"))


def wait_for_driver_kill(victim: Driver, at: int) -> list[str]:
    """Wait for the victim to be killed at its `at`-th point; 0: it ends well. Returns the points that it then named."""
    return [line for line in victim.ended(-signal.SIGKILL if at else 0) if ": " in line]


class Reader:
    """A subscriber that keeps account of all that it got."""

    def __init__(self, subscriber: Any, kind: str) -> None:
        self.subscriber, self.kind = subscriber, kind
        self.begun = subscriber.position
        self.numbers: list[int] = []
        self._last: dict[int, int] = defaultdict(lambda: -1)
        self._position = -1
        assert self._next() is None  # a viewer takes its row now

    def close(self) -> None:
        with contextlib.suppress(EndpointClosedError):
            self.subscriber.close()

    def _next(self) -> bytes | None:
        if self.kind != "view":
            data: bytes | None = self.subscriber.receive(0)
            return data
        view = self.subscriber.receive_view(0)
        if view is None:
            return None
        with view:
            return bytes(view)

    def drain(self) -> list[int]:
        """Return the numbers of what is there: whole, each publisher's in order, and no position twice."""
        new = []
        while (data := self._next()) is not None:
            number = number_of(data)
            assert number > self._last[number // 1000], f"{self.kind}: {number} after {self._last[number // 1000]}"
            assert self.subscriber.last.position > self._position
            self._last[number // 1000], self._position = number, self.subscriber.last.position
            new.append(number)
        self.numbers += new
        return new

    def check(self, messages: int) -> None:
        """Everything that was published since it joined was received or lost; it has been drained."""
        sub, start = self.subscriber, CAPACITY if self.begun == 0 else self.begun
        assert sub.position == messages + CAPACITY, f"{self.kind}: at {sub.position}, of {messages} messages"
        assert sub.received + sub.lost == sub.position - start, f"{self.kind}: {sub.received} + {sub.lost}"
        assert sub.received == len(self.numbers)


def flood(publisher: Any, numbers: Iterable[int]) -> None:
    for number in numbers:
        publisher.send(message(number))


def all_slots_are_to_be_had(publisher: Any) -> None:
    """Each slot of the publisher can be lent: none is lost. What is in the order is retracted for that."""
    with contextlib.ExitStack() as stack:
        for _ in range(publisher.slots):
            stack.callback(publisher.loan(1).discard)


def life_goes_on(place: Place, readers: list[Reader], publisher: Any) -> None:
    """Others pass ten capacities of messages: all are received by those who keep up, then exactly counted.

    Afterwards no file is there but those of `publisher` and of one that joins.
    """
    for start in range(OTHER, OTHER + LAPS * CAPACITY, BURST):
        lost = [reader.subscriber.lost for reader in readers]
        flood(publisher, range(start, start + BURST))
        for reader, before in zip(readers, lost, strict=True):
            assert reader.drain() == [*range(start, start + BURST)], reader.kind
            assert reader.subscriber.lost == before, reader.kind
            reader.check(place.channel.messages)
    late = place.reader("view")
    newcomer = place.publisher()
    flood(newcomer, range(LATER, LATER + LAPS * CAPACITY))
    for reader in [*readers, late]:
        last = reader.drain()
        assert last == [*range(LATER + LAPS * CAPACITY - len(last), LATER + LAPS * CAPACITY)], reader.kind
        reader.check(place.channel.messages)
    place.publisher().close()  # one join
    assert len(place.pools()) <= 3, "files of the dead"  # its own may stay: the row is free, and no message was sent
    all_slots_are_to_be_had(publisher)
    all_slots_are_to_be_had(newcomer)


def pins(place: Place) -> Iterator[int]:
    """Yield who holds each slot of each pool."""
    for path in place.pools():
        data = path.read_bytes()
        for slot in range(int.from_bytes(data[24:32], "little")):
            yield int.from_bytes(data[192 + 64 * slot : 200 + 64 * slot], "little")


@pytest.fixture(scope="session")
def program() -> Path:
    """The driver, compiled."""
    return cached_program(Path(__file__).with_name("channel.c"), "-O1")


@pytest.fixture
def place(program: Path, endpoint: str) -> Iterator[Place]:
    with Place(program, endpoint) as place:
        yield place
