"""Processes that are killed at each step of what they do to a vector: readers go on, and so does the next writer."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from msgq.errors import TooManyWritersError
from tests.crash.records import (
    LENGTH,
    OWNER_AT,
    ROWS,
    WORDS,
    Place,
    Step,
    at_each_step,
    exclusive,
    kill,
    numbers_of,
    place,
    read_driver_numbers,
    read_driver_points,
    until_ready,
    values,
)

__all__ = ["exclusive", "place"]

ATTENTION_AT, FLAGS = 192, 3
AT_ONCE = 0.05  # seconds; nobody needs to be waited for: the dead are dead when their parent knows


class ProcessGroup(NamedTuple):
    """What the victim does, after "arm" step by step. Numbers of values count from the round's own."""

    operations: str
    former: str = ""  # what another one did, who was killed then
    heir: bool = False  # the victim gets the row of that one, else one that was never used

    def of_round(self, base: int) -> ProcessGroup:
        def shifted(operations: str) -> str:
            return re.sub(r"((?:write|many):\d+):(\d+)", lambda found: f"{found[1]}:{base + int(found[2])}", operations)

        return self._replace(operations=shifted(self.operations), former=shifted(self.former))

    def written(self, before: list[int]) -> list[list[int]]:
        """Return the numbers that each element has one after the other, if nobody dies."""
        found = [[number] for number in before]
        for word, where, number in re.findall(r"(write|many):(\d+):(\d+)", self.operations):
            for i in [int(where)] if word == "write" else range(int(where)):
                found[i].append(int(number) + (i if word == "many" else 0))
        return found


SHARED = {
    "write": ProcessGroup("join ready arm write:0:500 write:0:510 write:3:520"),
    "write many": ProcessGroup("join ready arm many:3:500"),
    "write with sleeper": ProcessGroup("join ready lie arm write:1:500 lie many:2:510"),
    "write after death of other process": ProcessGroup(
        "join ready arm write:1:500 many:3:510", former="join hold:1 hold:2"
    ),
    "join": ProcessGroup("ready arm join write:2:500"),
    "join after death of other process": ProcessGroup(
        "ready arm join write:1:500", former="join hold:1 hold:2", heir=True
    ),
    "leave": ProcessGroup("join write:0:500 ready arm leave"),
}
EXCLUSIVE = {
    "write": ProcessGroup("join ready arm write:0:500 write:0:510 write:3:520"),
    "write many": ProcessGroup("join ready arm many:3:500"),
    "write with sleeper": ProcessGroup("join ready lie arm write:1:500"),
    "join": ProcessGroup("ready arm join write:2:500"),
    "join after dead process": ProcessGroup("ready arm join write:1:500", former="join hold:1"),
    "join after death of other process": ProcessGroup("ready arm join write:1:500", former="join hold:1", heir=True),
    "leave": ProcessGroup("join write:0:500 ready arm leave"),
}

#: The steps that must be among the points, or this test has lost its subject.
SHARED_STEPS = {
    "write": [
        "mq_cell_try_acquire: exchanged version",
        "mq_cell_begin_write: stored copy",
        "mq_vector_write_one: half copied to value",
        "mq_cell_commit_write: exchanged version",
        "mq_record_notify_written: stored written",
    ],
    "write with sleeper": [
        "mq_eventcount_notify_mp: exchanged word",
        "mq_eventcount_notify_mp: woke mq_futex_word(word)",
    ],
    "write after death of other process": ["mq_cell_steal_ownership: exchanged version"],
    "join after death of other process": [
        "mq_file_lock_try: holds lock",
        "mq_record_reclaim_row: exchanged version",
        "mq_row_table_occupy: stored &row->generation",
        "mq_participant_write: stored &participant->uid",
        "mq_file_lock_close: gave back lock",
    ],
    "leave": ["mq_participant_leave: exchanged &participant->uid"],
}
EXCLUSIVE_STEPS = {
    "write": ["mq_cell_commit_exclusive_write: stored version"],
    "join after dead process": ["mq_record_acquire_owner_word: stored owner"],
    "join after death of other process": [
        "mq_record_reclaim_row: stored &parts->header->owner",
        "mq_record_acquire_owner_word: stored owner",
    ],
    "leave": ["mq_record_release_owner_word: exchanged owner", "mq_participant_leave: exchanged &participant->uid"],
}


class Readers:
    """Handles of all kinds that were there before, and what they have seen."""

    def __init__(self, where: Place) -> None:
        self.plain, self.passive = where.reader, where.handle(passive=True)
        self.counts = self.plain.counts().tolist()
        self.times = self.plain.times().tolist()

    def begin(self) -> None:
        self.plain.changes()
        self.counts = self.plain.counts().tolist()

    def check(self, expected: Iterable[list[int]]) -> None:
        """Each element has one of the values that it was given, which its count tells, and both readers agree."""
        numbers, counts = numbers_of(self.plain.read()), self.plain.counts().tolist()
        steps = [now - before for now, before in zip(counts, self.counts, strict=True)]
        assert numbers == [those[step] for those, step in zip(expected, steps, strict=True)], (numbers, steps)
        assert numbers_of(self.passive.snapshot(atomic=True)) == numbers
        changes = self.plain.changes()
        assert changes.indices.tolist() == [i for i, step in enumerate(steps) if step]
        assert numbers_of(changes.rows) == [numbers[i] for i in changes.indices]
        times = self.plain.times().tolist()
        assert all(now > before for now, before, step in zip(times, self.times, steps, strict=True) if step)
        self.times = times


def write_all(writer: Any, base: int) -> list[int]:
    numbers = [*range(base, base + LENGTH)]
    writer.write(None, values(*numbers), timeout=AT_ONCE)
    return numbers


def kill_victim_at_step(where: Place, readers: Readers, scene: ProcessGroup, step: Step, writer: Any) -> list[str]:
    """Have a victim killed at a step, and somebody else write everything. Returns the steps."""
    base = 1000 * (step.at + 1)
    scene = scene.of_round(base)
    if where.kind == "exclusive":
        writer = where.handle()
    before = write_all(writer, base)
    if where.kind == "exclusive":
        writer.close()
    readers.begin()
    if scene.former:
        where.killed(scene.former)
    if scene.heir:
        where.kill_free_rows()
    victim = where.driver(scene.operations, at=step.at)
    until_ready(victim)
    victim.proceed()
    lines = victim.ended(-signal.SIGKILL if step.at else 0)
    readers.check(scene.written(before))
    if where.kind == "exclusive":
        writer = where.handle()
    write_all(writer, base + 100)
    readers.check([[base + 100 + i] * 9 for i in range(LENGTH)])
    assert where.holders() == [0] * LENGTH
    assert not where.word(ATTENTION_AT) & FLAGS, "the next writer wakes whom the dead one did not"
    if where.kind == "exclusive":
        writer.close()
        assert where.word(OWNER_AT) == 0
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", SHARED)
def test_shared_writer_killed_at_each_step_leaves_usable_record(place: Place, scene: str) -> None:
    """What: the victim dies at each of its steps in turn; others read all the time, and then somebody writes.

    Why: a writer may die anywhere, and nobody has a say in when.

    Failure would mean: a reader waits, or finds what nobody wrote; an element stays with the dead; or a writer that
    comes later finds no row.
    """
    with place.watched():
        readers, writer = Readers(place), place.handle()
        at_each_step(
            lambda step: kill_victim_at_step(place, readers, SHARED[scene], step, writer), SHARED_STEPS.get(scene, ())
        )


@pytest.mark.parametrize("scene", EXCLUSIVE)
def test_exclusive_writer_killed_at_each_step_leaves_usable_record(exclusive: Place, scene: str) -> None:
    """What: the same where one handle writes, without a lock; afterwards another one becomes the writer.

    Failure would mean: a vector that nobody can write any more, or whose value is half the dead one's.
    """
    with exclusive.watched():
        readers = Readers(exclusive)
        steps = EXCLUSIVE_STEPS.get(scene, ())
        at_each_step(lambda step: kill_victim_at_step(exclusive, readers, EXCLUSIVE[scene], step, None), steps)


def test_writer_killed_while_waiting_has_notified_earlier_writes(place: Place) -> None:
    """What: the victim waits for an element whose writer is stopped, and has told of those before it.

    Failure would mean: a wait leaves something behind.
    """
    write_all(place.reader, 0)
    holder = place.waiting("join hold:2")
    holder.process.send_signal(signal.SIGSTOP)
    holder.wait_stopped()

    def die(step: Step) -> list[str]:
        victim = place.driver("join patience:3 arm many:4:100", "*", step.at)
        lines = victim.ended(-signal.SIGKILL if step.at else 0)
        assert read_driver_numbers(lines, "held") == [] if step.at else [2]
        numbers = numbers_of(place.reader.read())
        assert all(number in (i, 100 + i) for i, number in enumerate(numbers))
        assert numbers[2:] == [2, 3]
        write_all_but_third(place.reader)
        return read_driver_points(lines)

    at_each_step(die, ["mq_record_steal_element: asked whether it lives"], often=2)
    kill(holder)
    write_all(place.reader, 0)


def write_all_but_third(writer: Any) -> None:
    writer.write([0, 1, 3], values(0, 1, 3), timeout=AT_ONCE)


def test_new_owner_of_row_releases_elements_of_dead_writer(place: Place) -> None:
    """Else a word could name a living one, 65,536 owners later."""
    place.reader.claim()
    place.killed("join hold:1 hold:3")
    assert [bool(holder) for holder in place.holders()] == [False, True, False, True]
    place.waiting("join")
    assert any(place.holders()), "a row that was never used is taken first"
    place.kill_free_rows()
    heir = place.waiting("join")
    assert place.holders() == [0] * LENGTH
    assert heir.process.poll() is None
    assert place.reader.counts().tolist() == [0] * LENGTH


@pytest.mark.parametrize("kind", ["exclusive", "board"])
def test_new_owner_of_row_releases_exclusive_claims_of_dead_writer(
    record_driver: Path, endpoint: str, kind: str
) -> None:
    with Place(record_driver, endpoint, kind) as where:
        where.killed("join" if kind == "exclusive" else "join declare:0 declare:1")
        assert any(where.owners())
        where.kill_free_rows()
        where.driver("arm join", "mq_row_table_occupy: *").ended(-signal.SIGKILL)
        assert not any(where.owners())


def test_new_writers_reuse_all_128_rows_of_dead_writers(place: Place) -> None:
    """What: all rows are those of dead writers; 128 writers come, who live, and one more.

    Failure would mean: a vector that was written by many comes to an end; or two share a row.
    """
    place.killed("join hold:1")
    place.kill_free_rows()
    generations = [place.generation(row) for row in range(ROWS)]
    writers = [place.handle() for _ in range(ROWS)]
    for number, writer in enumerate(writers):
        writer[number % LENGTH] = (number,) * WORDS
    assert [place.generation(row) for row in range(ROWS)] == [generation + 1 for generation in generations]
    with pytest.raises(TooManyWritersError):
        place.reader.claim()
    writers[17].close()
    place.reader.claim()
    assert place.generation(17) == generations[17] + 2
    assert numbers_of(place.reader.read()) == [*range(ROWS - LENGTH, ROWS)]
