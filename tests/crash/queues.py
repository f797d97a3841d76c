"""Running the work queue's driver, and checking what it left."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from msgq.errors import QueueFullError
from msgq.impl.base import clock
from msgq.workqueue import MessageQueue
from tests.crash.victims import WRITES, Driver
from tests.support import SHM
from tools.fuzz.build import cached_program

SLOTS = 6  # few, so that every slot has had many messages soon
PRIORITIES = 3
LAPS = 4
BEFORE, OTHER = 100, 1000  # where the numbers of messages begin that were sent before the victim's, and afterwards
ROWS, ROWS_AT, ROW_BYTES, HEADER = 128, 4096, 256, 57344
BITS = ("receiving", "watching", "sending", "notified")
BITS_AT = 320


def message(number: int) -> bytes:
    """Return a message as the driver makes them."""
    return number.to_bytes(8, "little") * 3


def in_order(numbers: Iterable[int]) -> list[int]:
    """Return numbers in the order in which the messages are to come, when they were sent in the order of numbers."""
    return sorted(numbers, key=lambda number: (-(number % PRIORITIES), number))


class File:
    """A queue's file as its bytes are."""

    def __init__(self, name: str, slots: int) -> None:
        self.path, self.slots = SHM / f"msgqjobs_{name}", slots

    def slot_states(self) -> list[int]:
        """Return the word of each slot."""
        at = HEADER + 64 * -(-self.slots // 512)
        data = self.path.read_bytes()[at : at + 8 * self.slots]
        return [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]

    def _in_head(self, slot: int, offset: int) -> int:
        at = HEADER + 64 * -(-self.slots // 512) + 64 * -(-self.slots // 8) + 64 * slot + offset
        return int.from_bytes(self.path.read_bytes()[at : at + 8], "little")

    def sent_time(self, slot: int) -> int:
        """Return when the message in a slot was sent, in ns of the host's clock."""
        return self._in_head(slot, 24)

    def lease(self, slot: int) -> int:
        """Return the lease of the message in a slot."""
        return self._in_head(slot, 40)

    def bits(self) -> dict[str, int]:
        """Return the bits that are on, by kind."""
        data = self.path.read_bytes()
        found = {kind: data[BITS_AT + 16 * i : BITS_AT + 16 * i + 16] for i, kind in enumerate(BITS)}
        return {kind: int.from_bytes(bits, "little") for kind, bits in found.items() if any(bits)}

    def generation(self, row: int) -> int:
        at = ROWS_AT + ROW_BYTES * row + 64
        return int.from_bytes(self.path.read_bytes()[at : at + 8], "little")

    def write(self, at: int, value: int) -> None:
        """Overwrite a word of the file."""
        with self.path.open("r+b") as file:
            file.seek(at)
            file.write(value.to_bytes(8, "little"))

    def kill_free_rows(self) -> None:
        """Give each row that nobody has an owner who is dead, so that the next to come takes the lowest of those."""
        data = self.path.read_bytes()
        for at in range(ROWS_AT, ROWS_AT + ROWS * ROW_BYTES, ROW_BYTES):
            if not any(data[at : at + 8]):
                self.write(at, 1)

    def is_as_new(self) -> bool:
        """Whether every slot is free, and nobody is said to sleep."""
        return not any(self.slot_states()) and not self.bits()


class Got(NamedTuple):
    """A message that a survivor received."""

    number: int
    deliveries: int


class Place(File):
    """A queue, and everything that a test opens on it, closed at its end. Two handles survive whatever happens."""

    def __init__(self, program: Path, endpoint: str, slots: int = SLOTS) -> None:
        super().__init__(endpoint, slots)
        self.program, self.endpoint = program, endpoint
        self._stack = contextlib.ExitStack()
        self.queue = self.handle(max_messages=slots, max_message_size=64)
        self._stack.callback(self.queue.unlink)
        self.other = self.handle()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def another(self, name: object, slots: int = SLOTS) -> Place:
        """Return a queue of its own for another round of the same test."""
        return Place(self.program, f"{self.endpoint}-{name}", slots)

    def handle(self, **options: Any) -> Any:
        return self._stack.enter_context(MessageQueue(self.endpoint, **options))

    def driver(self, operations: str, point: str = WRITES, at: int = 1, number: int = signal.SIGKILL) -> Driver:
        """Start the driver; it ends at the `at`-th point of this pattern that it passes after the operation "arm"."""
        plan = [str(int(number)), point, str(at)]
        command = [str(self.program), str(self.path), str(clock.offset_ns()), *plan, *operations.split()]
        return self._stack.enter_context(Driver(command))

    def waiting(self, operations: str) -> Driver:
        """Have a driver do this, and wait."""
        driver = self.driver(f"{operations} ready", "*never*")
        until_ready(driver)
        return driver

    def killed(self, operations: str) -> None:
        """Have a driver do this, and kill it."""
        victim = self.waiting(operations)
        victim.process.kill()
        victim.process.wait()

    def look(self) -> None:
        """Have somebody come, who looks for the dead, and go."""
        MessageQueue(self.endpoint, 0).close()

    # ---- messages ----

    def send(self, *numbers: int) -> None:
        """Send at once."""
        for number in numbers:
            self.queue.send(message(number), number % PRIORITIES, timeout=0)

    def drain(self) -> list[Got]:
        """Receive what is there, at once, by both handles in turn: whole, and in order."""
        got: list[Got] = []
        while (one := (self.queue if len(got) % 2 else self.other).receive(0)) is not None:
            number = int.from_bytes(one.data[:8], "little")
            assert one.data == message(number), f"torn: {one.data.hex()}"
            assert one.priority == number % PRIORITIES
            got.append(Got(number, one.deliveries))
        assert (self.queue if len(got) % 2 == 0 else self.other).receive(0) is None, "the other handle finds more"
        numbers = [one.number for one in got]
        assert numbers == in_order(numbers), numbers
        return got

    def look_and_drain(self) -> list[Got]:
        self.look()
        return self.drain()

    def fill(self, start: int) -> list[int]:
        """Send until there is no more room; return the numbers."""
        sent = []
        with contextlib.suppress(QueueFullError):
            for number in range(start, start + self.slots + 1):
                self.send(number)
                sent.append(number)
        return sent


def until_ready(driver: Driver) -> None:
    """Wait for its operation "ready", whatever it says before."""
    assert driver.process.stdout is not None
    for line in iter(driver.process.stdout.readline, "ready\n"):
        assert line, f"it ended with {driver.process.wait()}"


def read_driver_numbers(lines: Iterable[str], what: str) -> list[int]:
    """Return the numbers that the driver said of one kind."""
    return [int(line.split()[1]) for line in lines if re.fullmatch(rf"{what} \d+", line)]


def read_driver_points(lines: Iterable[str]) -> list[str]:
    """Return the names of the points that the driver passed."""
    return [line for line in lines if ": " in line]


def wait_for_driver_kill(victim: Driver, at: int) -> list[str]:
    """Wait for the victim to be killed at its `at`-th point; 0: it ends well. Returns what it said."""
    return victim.ended(-signal.SIGKILL if at else 0)


def life_goes_on(slot: Place) -> None:
    """Every slot is to be had, and each message comes, in order; afterwards all is as new."""
    for start in range(OTHER, OTHER + 100 * LAPS, 100):
        sent = slot.fill(start)
        assert len(sent) == slot.slots, f"{slot.slots - len(sent)} slots are lost"
        assert slot.drain() == [Got(number, 1) for number in in_order(sent)]
    assert not any(slot.slot_states()), [hex(word) for word in slot.slot_states()]
    assert not slot.bits(), "bits of the dead"


@pytest.fixture(scope="session")
def program() -> Path:
    """The driver, compiled."""
    return cached_program(Path(__file__).with_name("queue.c"), "-O1")


@pytest.fixture
def slot(program: Path, endpoint: str) -> Iterator[Place]:
    with Place(program, endpoint) as slot:
        yield slot
