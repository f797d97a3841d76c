"""Vectors and boards on which the driver is killed or stopped, and what the others make of it."""

from __future__ import annotations

import re
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest

from msgq import Board, SeqlockVector
from msgq.errors import BoardFullError, KeyTakenError, MultipleWritersError, WaitTimeoutError
from tests.crash.harness import Driver, Place, Play, Scene, Step, message, number_of, numbers_said

LENGTH, WORDS = 4, 3
KEY_WORDS = 5
ROWS, ROWS_AT, ROW_BYTES, HEADER, KEY_BYTES = 128, 4096, 128, 32768, 128
OWNER_AT, ATTENTION_AT, FLAGS = 256, 192, 3
AT_ONCE = 0.05  # seconds; nobody needs to be waited for: the dead are dead when their parent knows
ALL = [*range(LENGTH)]


def dtype(item_bytes: int = 8 * WORDS) -> np.dtype[Any]:
    """Return a dtype of so many bytes, which are words."""
    if item_bytes > 100:
        return np.dtype((np.void, item_bytes))
    return np.dtype([(f"w{i}", "u8") for i in range(item_bytes // 8)])


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
    return message(number, 8 * (number % KEY_WORDS + 1))


def key_number(data: bytes) -> int:
    """Return the number of a board's value, which must be whole."""
    number = number_of(data)
    assert data == key_value(number), "of another length"
    return number


class RecordPlace(Place):
    """A vector: shared, or exclusive; or a board."""

    kind, start = "record", "msgqrec_"
    rows = range(ROWS_AT, ROWS_AT + ROWS * ROW_BYTES, ROW_BYTES)

    def __init__(
        self, endpoint: str, of: str = "shared", length: int = LENGTH, item_bytes: int = 8 * WORDS, copies: int = 2
    ) -> None:
        super().__init__(endpoint)
        self.of, self.length = of, length
        self.keys = length if of == "board" else 0
        room = 8 + (8 * (1 + KEY_WORDS) if self.keys else item_bytes)
        each = 64 if 8 + copies * room > 64 >= 8 + room else room
        self.stride = -(-(8 + (copies - 1) * each + room) // 64) * 64
        vector = partial(SeqlockVector, endpoint, dtype(item_bytes), length, exclusive=of == "exclusive", copies=copies)
        self.reader: Any = self.enter(Board(endpoint, length, 8 * KEY_WORDS) if self.keys else vector())
        self._stack.callback(self.reader.unlink)

    def driver(self, operations: str, *args: Any, **options: Any) -> Driver:
        return super().driver(f"{'openboard' if self.keys else 'open'} {operations}", *args, **options)

    def join(self) -> None:
        with self.another_handle() as newcomer:
            newcomer.claim()

    def handle(self, **options: Any) -> Any:
        """Open it once more, until the end."""
        return self.enter(self.another_handle(**options))

    def another_handle(self, **options: Any) -> Any:
        """Open it once more, for as long as the caller wants it."""
        return (Board if self.keys else SeqlockVector)(self.endpoint, **options)

    def holders(self) -> list[int]:
        """Return who is named in each version."""
        at = HEADER + KEY_BYTES * self.keys
        return [self.word(at + self.stride * i) & 0xFFFFFF for i in range(self.length)]

    def owners(self) -> list[int]:
        """Return who is named by the owner's word, and by those of the keys."""
        return [self.word(at) for at in (OWNER_AT, *(HEADER + KEY_BYTES * i for i in range(self.keys)))]


class RecordPlay(Play):
    """Others read all the time, and somebody writes everything afterwards."""

    place: RecordPlace
    of: ClassVar[str]

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        return RecordPlace(endpoint, cls.of)

    def prepare(self) -> None:
        self.plain, self.passive = self.place.reader, self.place.handle(passive=True)
        self.prepare_values()
        self.watcher = self.place.driver("ready watch", "*never*")
        self.watcher.wait_until_ready()
        self.watcher.proceed()

    def prepare_values(self) -> None:
        raise NotImplementedError

    def check(self, step: Step, lines: list[str]) -> None:
        assert not any(line.startswith("held") for line in lines), lines
        self.check_values(step, lines)
        self.watcher.proceed()
        assert numbers_said(self.watcher.end(), "read")[0] > 0

    def check_values(self, step: Step, lines: list[str]) -> None:
        raise NotImplementedError


class VectorPlay(RecordPlay):
    """The values that the victim writes are 500 and more; those of others are less."""

    of = "shared"

    def prepare_values(self) -> None:
        self.written = [[i, *numbers] for i, numbers in enumerate(self.victims())]
        self.others = [0] * LENGTH
        self.writer = self.place.handle()
        self.write_all(0)
        self.plain.changes()
        self.before, self.times = self.plain.counts(), self.plain.times()

    def write_all(self, base: int) -> None:
        if self.of == "exclusive":
            self.writer = self.place.handle()
        self.writer.write(None, values(*range(base, base + LENGTH)), timeout=AT_ONCE)
        if self.of == "exclusive":
            self.writer.close()

    def victims(self) -> list[list[int]]:
        """Return the numbers that the victim gives each element, one after the other, if it does not die."""
        found: list[list[int]] = [[] for _ in ALL]
        for word, where, number in re.findall(r"(write|many):(\d+):(\d+)", self.scene.operations.split("arm")[1]):
            for i in [int(where)] if word == "write" else range(int(where)):
                found[i].append(int(number) + (i if word == "many" else 0))
        return found

    def go_on(self, step: Step) -> None:
        """Write all elements but at most one: of that one's holder the others are told."""
        known = numbers_of(self.plain.read())
        held = self.others_write(self.writer, 100)
        numbers = numbers_of(self.plain.snapshot(atomic=True))
        assert len(held) <= 1
        assert numbers == [known[i] if i in held else 100 + i for i in ALL], (held, numbers)
        if not step.locked:
            with self.place.another_handle() as newcomer:
                assert self.others_write(newcomer, 200) == held

    def others_write(self, writer: Any, number: int) -> list[int]:
        """Write all elements; return those that the victim holds."""
        held = []
        for i in ALL:
            try:
                writer.write([i], values(number + i), timeout=0.005)
                self.others[i] += 1
            except WaitTimeoutError as error:
                held += [i for told in [str(error)] if re.search(rf"element {i} .*\b{self.victim.pid}\b", told)]
        return held

    def check_values(self, step: Step, lines: list[str]) -> None:
        self.check_counts(complete=self.stood or not step.at)
        self.write_all(100)
        self.written = [[100 + i] * 9 for i in ALL]
        self.others = [0] * LENGTH
        self.check_counts()
        assert self.place.holders() == [0] * LENGTH
        assert not self.place.word(ATTENTION_AT) & FLAGS, "the next writer wakes whom the dead one did not"
        assert self.place.owners() == [0]

    def check_counts(self, complete: bool = False) -> None:
        """Each element has one of the values that it was given, which its count tells, and all readers agree."""
        numbers, counts, times = numbers_of(self.plain.read()), self.plain.counts(), self.plain.times()
        steps = (counts - self.before).tolist()
        for i, (others, its) in enumerate(zip(self.others, self.written, strict=True)):
            assert (steps[i] - others < len(its)) if not complete else steps[i] == others + len(its) - 1
            assert numbers[i] in (100 + i, 200 + i, *its[1:]) if others else numbers[i] == its[steps[i]], numbers
        assert numbers_of(self.passive.snapshot(atomic=True)) == numbers
        changes = self.plain.changes()
        assert changes.indices.tolist() == [i for i, step in enumerate(steps) if step]
        assert numbers_of(changes.rows) == [numbers[i] for i in changes.indices]
        assert all(now > before for now, before, step in zip(times, self.times, steps, strict=True) if step)
        self.before, self.times = counts, times


class ExclusivePlay(VectorPlay):
    """The same where one handle writes, without a lock; until it has left, nobody else does."""

    of = "exclusive"

    def go_on(self, step: Step) -> None:
        for i, number in enumerate(numbers_of(self.plain.snapshot(atomic=True))):
            assert number in self.written[i]
        with self.place.another_handle() as other:
            if self.place.owners()[0]:
                with pytest.raises(MultipleWritersError, match=rf"\b{self.victim.pid}\b"):
                    other[3] = (3, 3, 3)
            else:
                assert "leave" in self.scene.operations, "the victim owns it"
                other[3] = (103, 103, 103)
                self.others[3] += 1


SHARED = {
    "write": Scene("join ready arm write:0:500 write:0:510 write:3:520", "mq_vector_fill_one: half copied to value"),
    "write many": Scene("join ready arm many:3:500"),
    "write with sleeper": Scene("join ready lie arm write:1:500 many:2:510", "call: after wake"),
    "write after death of other process": Scene(
        "join ready arm write:1:500 many:3:510",
        "mq_cell_steal_ownership: exchanged version",
        former="join hold:1 hold:2",
    ),
    "join": Scene("ready arm join write:2:500"),
    "join after death of other process": Scene(
        "ready arm join write:1:500", "mq_record_reclaim_row: exchanged version", former="join hold:1 hold:2", heir=True
    ),
    "leave": Scene("join ready arm leave", "mq_participant_leave: exchanged &participant->uid"),
}
EXCLUSIVE = {
    "write": Scene(
        "join ready arm write:0:500 write:0:510 write:3:520", "mq_cell_commit_exclusive_write: stored version"
    ),
    "write many with sleeper": Scene("join ready lie arm many:3:500"),
    "leave": Scene("join ready arm leave", "mq_participant_leave: exchanged &participant->uid"),
}
EXCLUSIVE_JOINS = {
    "join": Scene("ready arm join write:2:500"),
    "join after dead process": Scene(
        "ready arm join write:1:500", "mq_record_acquire_owner_word: stored owner", former="join hold:1"
    ),
    "join after death of other process": Scene(
        "ready arm join write:1:500",
        "mq_record_reclaim_row: stored &parts->header->owner",
        former="join hold:1",
        heir=True,
    ),
}


class BoardPlay(RecordPlay):
    """Somebody declares all keys afterwards; values stay."""

    of = "board"

    def prepare_values(self) -> None:
        self.observed = self.plain.observe(key_name(0))
        self.entry = self.place.handle().declare(key_name(2)) if self.scene in BOARD_STOPPED.values() else None

    def go_on(self, step: Step) -> None:
        """Read all values and write ours, and declare where the victim has no lock."""
        assert self.entry
        for key, data in self.plain.items():
            assert key == key_name(0)
            assert key_number(data) in self.written()
        self.entry.write(key_value(20))
        assert key_number(self.plain[key_name(2)]) == 20
        if step.locked:
            return
        index = self.plain.keys().index(key_name(0)) if key_name(0) in self.plain else None
        if index is not None and self.place.owners()[1 + index]:
            with pytest.raises(KeyTakenError, match=rf"\b{self.victim.pid}\b"):
                self.plain.declare(key_name(0))
        else:
            self.plain.declare(key_name(0)).close()

    def written(self) -> list[int]:
        """Return the numbers that key 0 gets, in turn."""
        return [int(number) for number in re.findall(r"put:0:(\d+)", f"{self.scene.former} {self.scene.operations}")]

    def check_values(self, step: Step, lines: list[str]) -> None:
        if self.entry:
            self.entry.close()
        assert {*self.plain.keys()} <= {key_name(key) for key in range(3)}, "a half of a name"
        stays, least = self.observed.read(), len(self.written())
        if step.at and not self.stood:
            least -= self.scene.operations.split("arm")[1].count("put")
        assert (stays.count if stays else 0) >= max(least, len(numbers_said(lines, "wrote")))
        if stays:
            assert key_number(stays.data) == self.written()[stays.count - 1]
            assert self.passive[key_name(0)] == stays.data
            assert not stays.alive
        self.declare_all(stays and stays.data)

    def declare_all(self, stays: bytes | None) -> None:
        """A newcomer declares key 0, whose value stays, and all others there can be; it writes, and gives them back."""
        newcomer = self.place.another_handle()
        entries = [newcomer.declare(key_name(key)) for key in range(LENGTH)]
        assert self.plain.observe(key_name(0)).data() == stays
        with pytest.raises(BoardFullError):
            newcomer.declare("one more")
        for number, entry in enumerate(entries, 99):
            entry.write(key_value(number))
        assert [key_number(data) for _, data in sorted(self.plain.items())] == [*range(99, 99 + LENGTH)]
        for entry in entries:
            entry.close()
        newcomer.close()
        assert self.place.owners() == [0] * (LENGTH + 1)


BOARD_STOPPED = {
    "declare new key": Scene(
        "join ready arm declare:0 put:0:11", "mq_board_add_key: half copied to parts->key_table[i].name"
    ),
    "write": Scene(
        "join declare:0 put:0:10 ready arm put:0:11 put:0:14", "mq_board_fill_value: half copied to value + 1"
    ),
    "return key": Scene(
        "join declare:0 put:0:10 ready arm return:0 declare:0", "mq_record_release_owner_word: exchanged owner"
    ),
    "leave": Scene("join declare:0 put:0:10 ready arm leave", "mq_participant_leave: exchanged &participant->uid"),
}
BOARD = {
    "declare second key": Scene("join declare:1 ready arm declare:0 put:0:11"),
    "declare key of closed handle": Scene(
        "ready arm join declare:0 put:0:12", former="join declare:0 put:0:8 return:0"
    ),
    "declare key of dead owner": Scene(
        "join ready arm declare:0 put:0:13",
        "mq_record_acquire_owner_word: stored owner",
        former="join declare:0 put:0:8 begin:0",
    ),
    "join after death of owner": Scene(
        "ready arm join declare:0 put:0:14",
        "mq_record_acquire_owner_word: stored owner",
        former="join declare:0 put:0:8 declare:1 begin:0",
        heir=True,
    ),
    "write with sleeper": Scene("join declare:0 lie ready arm put:0:11", "call: after wake"),
}
