"""Running the driver of vectors and boards, and checking what it left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pytest

from msgq import Board, SeqlockVector
from msgq.errors import IpcError
from msgq.impl.base import clock
from tests.crash.victims import WRITES, Driver
from tests.support import SHM

LENGTH, WORDS = 4, 3
OFTEN = 3  # times that the victim stops at points of the same name: it looks at a hundred rows, for example
KEY_WORDS = 5
ROWS, ROWS_AT, ROW_BYTES, HEADER, KEY_BYTES = 128, 4096, 128, 32768, 128
UID, GENERATION = 0, 64  # where in a row
OWNER_AT = 256


def dtype(item_bytes: int = 8 * WORDS) -> np.dtype[Any]:
    """Return a dtype of so many bytes, which are words."""
    return (
        np.dtype([(f"w{i}", "u8") for i in range(item_bytes // 8)])
        if item_bytes < 100
        else np.dtype((np.void, item_bytes))
    )


def numbers_of(rows: Any) -> list[int]:
    """Return the numbers of values of a vector, which must be whole."""
    words = np.frombuffer(rows.tobytes(), "u8").reshape(len(rows), rows.dtype.itemsize // 8)
    assert (words == words[:, :1]).all(), f"torn: {words.tolist()}"
    return [int(number) for number in words[:, 0]]


def values(*numbers: int, item_bytes: int = 8 * WORDS) -> Any:
    """Return values as the driver makes them."""
    words = np.repeat(np.array(numbers, "u8"), item_bytes // 8)
    return np.frombuffer(words.tobytes(), dtype(item_bytes))


def key_name(key: int) -> str:
    return f"a key that is called {key}"


def key_value(number: int) -> bytes:
    return number.to_bytes(8, "little") * (number % KEY_WORDS + 1)


def key_number(data: bytes) -> int:
    """Return the number of a board's value, which must be whole."""
    number = int.from_bytes(data[:8], "little")
    assert data == key_value(number), f"torn: {data.hex()}"
    return number


class File:
    """A vector's or board's file as its bytes are."""

    def __init__(self, name: str, item_bytes: int = 8 * WORDS, keys: int = 0, copies: int = 2) -> None:
        self.path, self.keys = SHM / f"msgqrec_{name}", keys
        room = 8 + item_bytes
        each = 64 if 8 + copies * room > 64 >= 8 + room else room
        self.stride = -(-(8 + (copies - 1) * each + room) // 64) * 64

    def word(self, at: int) -> int:
        with self.path.open("rb") as file:
            return int.from_bytes(os.pread(file.fileno(), 8, at), "little")

    def write(self, at: int, value: int) -> None:
        """Overwrite a word of the file."""
        with self.path.open("r+b") as file:
            os.pwrite(file.fileno(), value.to_bytes(8, "little"), at)

    def versions(self, length: int = LENGTH) -> list[int]:
        at = HEADER + KEY_BYTES * self.keys
        return [self.word(at + self.stride * i) for i in range(length)]

    def holders(self, length: int = LENGTH) -> list[int]:
        """Return who is named in each version."""
        return [version & 0xFFFFFF for version in self.versions(length)]

    def owners(self) -> list[int]:
        """Return who is named by the owner's word, and by those of the keys."""
        return [self.word(at) for at in (OWNER_AT, *(HEADER + KEY_BYTES * i for i in range(self.keys)))]

    def generation(self, row: int) -> int:
        return self.word(ROWS_AT + ROW_BYTES * row + GENERATION)

    def taken_rows(self) -> list[int]:
        """Return the rows that are not free; their owners may be dead."""
        return [row for row in range(ROWS) if self.word(ROWS_AT + ROW_BYTES * row + UID)]

    def kill_free_rows(self) -> None:
        """Give each row that nobody has an owner who is dead, so that the next to come takes the lowest of those."""
        for row in {*range(ROWS)} - {*self.taken_rows()}:
            self.write(ROWS_AT + ROW_BYTES * row + UID, 1)

    def forget_rows(self, but: int) -> None:
        """Make all rows but one free; nobody has them who lives."""
        for row in {*self.taken_rows()} - {but}:
            self.write(ROWS_AT + ROW_BYTES * row + UID, 0)


class Place(File):
    """A vector or board, and everything that a test opens on it, closed at its end."""

    def __init__(
        self,
        program: Path,
        endpoint: str,
        kind: str = "shared",
        length: int = LENGTH,
        item_bytes: int = 8 * WORDS,
        copies: int = 2,
    ) -> None:
        is_board = kind == "board"
        super().__init__(endpoint, 8 * (1 + KEY_WORDS) if is_board else item_bytes, length if is_board else 0, copies)
        self.program, self.endpoint, self.kind, self.length = program, endpoint, kind, length
        self._stack = contextlib.ExitStack()
        if is_board:
            self.reader = self.enter(Board(endpoint, length, 8 * KEY_WORDS))
        else:
            vector = SeqlockVector(endpoint, dtype(item_bytes), length, exclusive=kind == "exclusive", copies=copies)
            self.reader = self.enter(vector)
        self._stack.callback(self.reader.unlink)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def enter(self, context: Any) -> Any:
        return self._stack.enter_context(context)

    def another(self, name: object) -> Place:
        """Return one of its own for another round of the same test."""
        return Place(self.program, f"{self.endpoint}-{name}", self.kind, self.length)

    def handle(self, **options: Any) -> Any:
        """Open it once more, until the end."""
        return self.enter((Board if self.kind == "board" else SeqlockVector)(self.endpoint, **options))

    def another_handle(self) -> Any:
        """Open it once more, for as long as the caller wants it."""
        return (Board if self.kind == "board" else SeqlockVector)(self.endpoint)

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
        kill(self.waiting(operations))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Have a process read all the time, which must not find anything torn, old, or held up."""
        watcher = self.driver("ready watch", "*never*")
        watcher.wait_until_ready()
        watcher.proceed()
        yield
        watcher.proceed()
        lines = watcher.ended(0)
        assert read_driver_numbers(lines, "read")[0] > 0, lines
        assert read_driver_numbers(lines, "restless") == [0], lines


def until_ready(driver: Driver) -> None:
    """Wait for its operation "ready", whatever it says before."""
    assert driver.process.stdout is not None
    for line in iter(driver.process.stdout.readline, "ready\n"):
        assert line, f"it ended with {driver.process.wait()}"


def kill(victim: Driver) -> None:
    victim.process.kill()
    victim.process.wait()


def read_driver_numbers(lines: Iterable[str], what: str) -> list[int]:
    """Return the numbers that the driver said of one kind."""
    return [int(line.split()[1]) for line in lines if re.fullmatch(rf"{what} \d+", line)]


def read_driver_points(lines: Iterable[str]) -> list[str]:
    """Return the names of the points that the driver passed."""
    return [line for line in lines if ": " in line]


def iterate_lock_states(names: list[str]) -> Iterator[bool]:
    """Yield for each step whether the lock is held behind it."""
    held = False
    for name in names:
        held = name.endswith("holds lock") or (held and not name.endswith("gave back lock"))
        yield held


class Step(NamedTuple):
    """Where a victim dies or stops; `at` 0: nowhere."""

    at: int
    name: str
    locked: bool  # it holds the file's lock there


def at_each_step(play: Callable[[Step], list[str]], named: Iterable[str] = (), often: int | None = None) -> None:
    """Play a scene without an end, which tells the steps, and then with an end at each; report all that fail.

    named : steps that must be there, or the test has lost its subject. often : so many of the same name at most.
    """
    names = play(Step(0, "", False))
    assert names
    for name in named:
        assert name in names, f"no such step any more; the steps are {names}"
    problems, seen = [], Counter[str]()
    for at, (name, locked) in enumerate(zip(names, iterate_lock_states(names), strict=True), 1):
        seen[name] += 1
        if often and seen[name] > often:
            continue
        try:
            play(Step(at, name, locked))
        except (AssertionError, IpcError) as problem:  # all of them: the report shows which steps fail
            problems.append(f"at step {at} ({name}): {str(problem).splitlines()[0]}")
    assert not problems, "\n".join([f"{len(problems)} of {len(names)} steps:", *problems])


@pytest.fixture
def place(record_driver: Path, endpoint: str) -> Iterator[Place]:
    with Place(record_driver, endpoint) as place:
        yield place


@pytest.fixture
def exclusive(record_driver: Path, endpoint: str) -> Iterator[Place]:
    with Place(record_driver, endpoint, "exclusive") as place:
        yield place


@pytest.fixture
def board(record_driver: Path, endpoint: str) -> Iterator[Place]:
    with Place(record_driver, endpoint, "board") as place:
        yield place
