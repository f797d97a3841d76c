"""Processes that are stopped (SIGSTOP) at each access to a vector or board: readers go on, and so do other writers."""

from __future__ import annotations

import re
import signal
import time
from typing import Any, NamedTuple

import pytest

from msgq.errors import KeyTakenError, MultipleWritersError, SegmentError, WaitTimeoutError
from tests.crash.records import (
    LENGTH,
    OFTEN,
    Place,
    Step,
    at_each_step,
    board,
    exclusive,
    key_name,
    key_number,
    key_value,
    kill,
    numbers_of,
    place,
    read_driver_numbers,
    read_driver_points,
    until_ready,
    values,
)
from tests.crash.victims import Driver
from tests.support import Task

__all__ = ["board", "exclusive", "place"]

PATIENCE = 0.005  # seconds with an element that is held
ALL = [*range(LENGTH)]


class ProcessGroup(NamedTuple):
    """What the victim does, after "arm" step by step. The values that it writes are 500 and more."""

    operations: str
    former: str = ""  # what another one did, who was killed then
    heir: bool = False  # the victim gets the row of that one, else one that was never used

    def writes(self) -> list[int]:
        """Return how often the victim writes each element."""
        one = [[int(where)] for where in re.findall(r"write:(\d+)", self.operations)]
        many = [range(int(count)) for count in re.findall(r"many:(\d+)", self.operations)]
        return [sum(i in which for which in [*one, *many]) for i in ALL]


SHARED = {
    "write": ProcessGroup("join ready arm write:0:500 write:2:510"),
    "write many": ProcessGroup("join ready arm many:3:500"),
    "write with sleeper": ProcessGroup("join ready lie arm write:1:500"),
    "write after death of other process": ProcessGroup("join ready arm write:1:500", former="join hold:1 hold:2"),
    "join": ProcessGroup("ready arm join write:2:500"),
    "join after death of other process": ProcessGroup(
        "ready arm join write:1:500", former="join hold:1 hold:2", heir=True
    ),
    "leave": ProcessGroup("join write:0:500 ready arm leave"),
}
EXCLUSIVE = {
    "write": ProcessGroup("join ready arm write:0:500 write:2:510"),
    "write many with sleeper": ProcessGroup("join ready lie arm many:3:500"),
    "leave": ProcessGroup("join write:0:500 ready arm leave"),
}


def begin(where: Place, scene: ProcessGroup, step: Step) -> Driver:
    """Have a victim run, until it stops or ends."""
    if scene.former:
        where.killed(scene.former)
    if scene.heir:
        where.kill_free_rows()
    victim = where.driver(scene.operations, "*", step.at, signal.SIGSTOP)
    until_ready(victim)
    victim.proceed()
    return victim


def others_write(writer: Any, victim: Driver, number: int) -> list[int]:
    """Write all elements; return those that the victim holds, of which it is told by its pid."""
    held = []
    for i in ALL:
        try:
            writer.write([i], values(number + i), timeout=PATIENCE)
        except WaitTimeoutError as error:
            told = str(error)
            assert f"element {i} " in told
            assert re.search(rf"\b{victim.pid}\b", told), told
            held.append(i)
    return held


def stop_victim_at_step(where: Place, scene: ProcessGroup, step: Step, writer: Any) -> list[str]:
    """Stop a victim at a step, let others go on, and then it. Returns the steps."""
    writer.write(None, values(*ALL), timeout=PATIENCE)
    where.forget_rows(but=0)  # so that the steps are the same each time
    before, written = where.reader.counts().tolist(), [0] * LENGTH
    with begin(where, scene, step) as victim:
        if step.at and victim.wait_stopped_or_ended():
            known = numbers_of(where.reader.read())
            held = others_write(writer, victim, 100)
            numbers = numbers_of(where.reader.snapshot(atomic=True))
            assert len(held) <= 1
            assert numbers == [known[i] if i in held else 100 + i for i in ALL], (held, numbers)
            written = [int(i not in held) for i in ALL]
            if not step.locked:
                with where.another_handle() as newcomer:
                    assert others_write(newcomer, victim, 200) == held
                written = [2 * count for count in written]
            victim.go_on()
        lines = victim.ended(0)
    assert not read_driver_numbers(lines, "held")
    counts = [now - then for now, then in zip(where.reader.counts().tolist(), before, strict=True)]
    assert counts == [ours + its for ours, its in zip(written, scene.writes(), strict=True)]
    for i, number in enumerate(numbers_of(where.reader.read())):
        assert number in ((i, 100 + i, 200 + i) if not scene.writes()[i] else (100 + i, 200 + i, *range(500, 520)))
    writer.write(None, values(*ALL), timeout=PATIENCE)
    assert where.holders() == [0] * LENGTH
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", SHARED)
def test_stopped_writer_blocks_at_most_one_element(place: Place, scene: str) -> None:
    """What: the victim stops at each access; others read, and write all elements, and come and go; then it goes on.

    Why: the scheduler may take the CPU from anybody, anywhere, for as long as it likes.

    Failure would mean: a reader waits for one that does not run, a writer does so at another element, or is not told of
    whom; or what the victim does with what it saw before loses a write of others.
    """
    with place.watched():
        writer = place.handle()
        at_each_step(lambda step: stop_victim_at_step(place, SHARED[scene], step, writer), often=OFTEN)


def play_alone(where: Place, scene: ProcessGroup, step: Step) -> list[str]:
    with where.another_handle() as writer:
        writer.write(None, values(*ALL))
    before = where.reader.counts().tolist()
    with begin(where, scene, step) as victim:
        if step.at and victim.wait_stopped_or_ended():
            for i, number in enumerate(numbers_of(where.reader.snapshot(atomic=True))):
                assert number == i or 500 <= number < 520
            with where.another_handle() as other:
                if where.owners()[0]:
                    with pytest.raises(MultipleWritersError, match=rf"\b{victim.pid}\b"):
                        other[3] = (3, 3, 3)
                else:
                    assert "leave" in scene.operations, "the victim owns it"
                    other[3] = (3, 3, 3)
                    before[3] += 1
            victim.go_on()
        lines = victim.ended(0)
    counts = [now - then for now, then in zip(where.reader.counts().tolist(), before, strict=True)]
    assert counts == scene.writes()
    return read_driver_points(lines)


@pytest.mark.parametrize("scene", EXCLUSIVE)
def test_stopped_exclusive_writer_blocks_no_reader(exclusive: Place, scene: str) -> None:
    """What: the same where one handle writes: until it has left, nobody else does.

    Failure would mean: two write at a time, and what is read is torn.
    """
    with exclusive.watched():
        at_each_step(lambda step: play_alone(exclusive, EXCLUSIVE[scene], step), often=OFTEN)


BOARD = {
    "declare new key": "join ready arm declare:0 put:0:11",
    "write": "join declare:0 ready arm put:0:11 put:0:12",
    "return key": "join declare:0 put:0:10 ready arm return:0",
    "leave": "join declare:0 put:0:10 ready arm leave",
}


def play_on_board(board: Place, operations: str, step: Step) -> list[str]:
    with board.another(step.at) as where:
        other = where.handle().declare(key_name(1))
        with begin(where, ProcessGroup(operations), step) as victim:
            if step.at and victim.wait_stopped_or_ended():
                for key, data in where.reader.items():
                    assert key == key_name(0)
                    assert key_number(data) in range(10, 13)
                other.write(key_value(20))
                assert key_number(where.reader[key_name(1)]) == 20
                if not step.locked:
                    has_key_0(where, victim)
                victim.go_on()
            lines = victim.ended(0)
        assert {*where.reader.keys()} == {key_name(0), key_name(1)}
        return read_driver_points(lines)


def has_key_0(where: Place, victim: Driver) -> None:
    """Either the victim has key 0, and nobody else may; or one may, and gives it back before the victim goes on."""
    index = where.reader.keys().index(key_name(0)) if key_name(0) in where.reader else None
    if index is not None and where.owners()[1 + index]:
        with pytest.raises(KeyTakenError, match=rf"\b{victim.pid}\b"):
            where.reader.declare(key_name(0))
    else:
        where.reader.declare(key_name(0)).close()


@pytest.mark.parametrize("scene", BOARD)
def test_stopped_board_writer_blocks_no_other_key(board: Place, scene: str) -> None:
    """What: the victim stops at each access; others read all values and write theirs, and declare where it
    has no lock.

    Failure would mean: a reader, or a key's owner, waits for another one's owner.
    """
    at_each_step(lambda step: play_on_board(board, BOARD[scene], step), often=OFTEN)


# ---- rows that change hands ----


def test_writer_resumed_after_liveness_check_keeps_element_of_new_row_owner(place: Place) -> None:
    """What: a writer has learned that the one who holds an element is dead, and stops; somebody takes the dead one's
    row, and the same element; then the first goes on.

    Why: what is known of an owner is not known of the next one in its row.

    Failure would mean: two living ones write the same element at a time.
    """
    place.reader.claim()
    former = place.waiting("join hold:0")
    victim = place.driver("join ready patience:20 arm write:0:7", "mq_record_steal_element: asked*", 1, signal.SIGSTOP)
    victim.wait_until_ready()
    kill(former)
    victim.proceed()
    victim.wait_stopped()
    place.kill_free_rows()
    heir = place.waiting("join hold:0")
    holders = place.holders()
    victim.go_on()
    assert read_driver_numbers(victim.ended(0), "held") == [0]
    assert place.holders() == holders, "it lives"
    kill(heir)
    place.reader.write([0], values(8), timeout=PATIENCE)
    assert place.reader.counts().tolist()[0] == 1


def test_row_takeover_stopped_during_release_leaves_elements_to_other_writers(place: Place) -> None:
    """What: a newcomer stops between two elements that it gives back; another writer takes both from the dead one.

    Failure would mean: the newcomer goes on, and gives back what a living one has.
    """
    place.reader.claim()
    place.killed("join hold:1 hold:2")
    place.kill_free_rows()
    newcomer = place.driver("arm join", "mq_record_reclaim_row: loaded version", 3, signal.SIGSTOP)
    newcomer.wait_stopped()
    writer = place.waiting("ready")
    assert place.holders()[1] == 0
    assert place.holders()[2] != 0
    place.reader.write([1, 2], values(1, 2), timeout=PATIENCE)
    newcomer.go_on()
    newcomer.ended(0)
    assert writer.process.poll() is None
    assert numbers_of(place.reader.read([1, 2])) == [1, 2]
    assert place.holders() == [0] * LENGTH


@pytest.mark.ci
def test_record_lock_of_stopped_process_makes_open_fail_after_5_seconds(place: Place) -> None:
    """Nobody knows how long it will be stopped, so they are told. Those who are there read and write."""
    writer = place.handle()
    writer.claim()
    victim = place.driver("arm join", "mq_participant_write: stored &participant->uid", 2, signal.SIGSTOP)
    victim.wait_stopped()
    with pytest.raises(SegmentError, match="locked by another process"):
        place.reader.claim()
    writer.write(None, values(*ALL))
    assert numbers_of(place.reader.read()) == ALL
    victim.go_on()
    victim.ended(0)
    place.reader.claim()


# ---- who waits ----


def test_write_waits_for_stopped_writer_until_timeout(place: Place) -> None:
    """What: three elements are to be written, the second one's writer is stopped. It goes on in time, or does not.

    Failure would mean: a write gives up too early, or never; or what was written before it waited is told to nobody.
    """
    place.reader.changes()
    holder = place.driver("join arm write:1:5", "mq_vector_write_one: half*", 1, signal.SIGSTOP)
    holder.wait_stopped()
    writer = place.handle()
    since = time.monotonic()
    with pytest.raises(WaitTimeoutError, match=rf"element 1 .*\b{holder.pid}\b"):
        writer.write([0, 1, 2], values(1, 2, 3), timeout=0.2)
    assert time.monotonic() - since >= 0.2
    assert place.reader.changes().indices.tolist() == [0]
    task = Task(lambda: writer.write([0, 1, 2], values(1, 2, 3), timeout=None))
    assert place.reader.wait(30), "it is told of the first before it waits"
    assert task.is_alive()
    holder.go_on()
    holder.ended(0)
    task.result()
    assert numbers_of(place.reader.read()) == [1, 2, 3, 0]
    assert place.reader.counts().tolist() == [2, 2, 1, 0]


def test_write_continues_after_death_of_element_holder(place: Place) -> None:
    """Nobody wakes it for that: it asks."""
    holder = place.waiting("join hold:1")
    task = Task(lambda: place.reader.write([1], values(2), timeout=None))
    task.wait_asleep()
    kill(holder)
    task.result()
    assert place.reader.counts().tolist() == [0, 1, 0, 0]


def test_write_with_zero_timeout_takes_element_of_dead_writer(place: Place) -> None:
    """Not waiting is no reason not to ask."""
    place.killed("join hold:1")
    place.reader.write([1], values(2), timeout=0)
    holder = place.waiting("join hold:1")
    with pytest.raises(WaitTimeoutError, match=str(holder.pid)):
        place.reader.write([1], values(2), timeout=0)
