"""Writers of vectors and boards that are killed or stopped: who waits for them, and who gets their rows."""

from __future__ import annotations

import signal
import time

import pytest

from msgq.errors import KeyTakenError, TooManyWritersError, WaitTimeoutError
from tests.crash.harness import ACCESSES, Step, at_each_step
from tests.crash.records import (
    ALL,
    AT_ONCE,
    LENGTH,
    ROWS,
    WORDS,
    RecordPlace,
    key_name,
    key_number,
    key_value,
    numbers_of,
    values,
)
from tests.support import Task, wait_until

PATIENCE = 0.005  # seconds with an element that is held


def test_writer_killed_while_waiting_has_notified_earlier_writes(place: RecordPlace) -> None:
    """What: the victim waits for an element whose writer is stopped, and has told of those before it.

    Failure would mean: a wait leaves something behind.
    """
    place.reader.write(None, values(*ALL), timeout=AT_ONCE)
    holder = place.waiting("join hold:2")
    holder.stop()

    def die(step: Step) -> list[str]:
        victim = place.driver("join patience:3 arm many:4:100", ACCESSES, step.at)
        lines = victim.end(0, -signal.SIGKILL)  # its number of looks depends on the time
        assert any("has item 2" in line for line in lines) == (victim.process.returncode == 0)
        numbers = numbers_of(place.reader.read())
        assert all(number in (i, 100 + i) for i, number in enumerate(numbers))
        assert numbers[2:] == [2, 3]
        place.reader.write([0, 1, 3], values(0, 1, 3), timeout=AT_ONCE)
        return lines

    at_each_step(die, ["mq_record_steal_element: looked at liveness"], often=2)
    holder.kill()
    place.reader.write(None, values(*ALL), timeout=AT_ONCE)


def test_new_owner_of_row_releases_elements_of_dead_writer(place: RecordPlace) -> None:
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
def test_new_owner_of_row_releases_exclusive_claims_of_dead_writer(endpoint: str, kind: str) -> None:
    with RecordPlace(endpoint, kind) as where:
        where.killed("join" if kind == "exclusive" else "join declare:0 declare:1")
        assert any(where.owners())
        where.kill_free_rows()
        where.driver("arm join", "mq_row_table_occupy: *").end(-signal.SIGKILL)
        assert not any(where.owners())


def test_new_writers_reuse_all_128_rows_of_dead_writers(place: RecordPlace) -> None:
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


# ---- boards ----


def test_board_key_after_killed_declaration_has_no_bytes_of_longer_name(board: RecordPlace) -> None:
    """What: one was killed while it wrote a name, which was longer than the next one.

    Failure would mean: a key that begins as it was called, and ends as another one.
    """
    long = 12_345_678_901_234_567_890
    victim = board.driver(f"join arm declare:{long}", "mq_board_add_key: copied to *")
    victim.end(-signal.SIGKILL)
    assert board.reader.keys() == []
    assert key_name(long) not in board.reader
    board.waiting("join declare:3")
    assert board.reader.keys() == [key_name(3)]


def test_board_key_of_stopped_owner_is_available_after_its_death(board: RecordPlace) -> None:
    """Nor is it until its owner is dead; then at once, and the value stays."""
    owner = board.waiting("join declare:0 put:0:7 begin:0")
    owner.stop()
    with pytest.raises(KeyTakenError, match=str(owner.pid)):
        board.reader.declare(key_name(0))
    value = board.reader.observe(key_name(0)).read()
    assert value.alive
    assert value.owner.pid == owner.pid
    owner.kill()
    with board.reader.declare(key_name(0)) as entry:
        assert key_number(board.reader[key_name(0)]) == 7
        entry.write(key_value(8))
    assert board.reader.observe(key_name(0)).read().count == 2


# ---- rows that change hands ----


def test_writer_resumed_after_liveness_check_keeps_element_of_new_row_owner(place: RecordPlace) -> None:
    """What: a writer has learned that the one who holds an element is dead, and stops; somebody takes the dead one's
    row, and the same element; then the first goes on.

    Why: what is known of an owner is not known of the next one in its row.

    Failure would mean: two living ones write the same element at a time.
    """
    place.reader.claim()
    former = place.waiting("join hold:0")
    victim = place.driver("join ready patience:20 arm write:0:7", "mq_record_steal_element: looked*", 1, signal.SIGSTOP)
    victim.wait_until_ready()
    former.kill()
    victim.proceed()
    victim.stops()
    place.kill_free_rows()
    heir = place.waiting("join hold:0")
    holders = place.holders()
    victim.go_on()
    assert any("has item 0" in line for line in victim.end())
    assert place.holders() == holders, "it lives"
    heir.kill()
    place.reader.write([0], values(8), timeout=PATIENCE)
    assert place.reader.counts().tolist()[0] == 1


def test_row_takeover_stopped_during_release_leaves_elements_to_other_writers(place: RecordPlace) -> None:
    """What: a newcomer stops between two elements that it gives back; another writer takes both from the dead one.

    Failure would mean: the newcomer goes on, and gives back what a living one has.
    """
    place.reader.claim()
    place.killed("join hold:1 hold:2")
    place.kill_free_rows()
    newcomer = place.driver("arm join", "mq_record_reclaim_row: loaded version", 3, signal.SIGSTOP)
    newcomer.stops()
    writer = place.waiting("ready")
    assert place.holders()[1] == 0
    assert place.holders()[2] != 0
    place.reader.write([1, 2], values(1, 2), timeout=PATIENCE)
    newcomer.go_on()
    newcomer.end()
    assert writer.process.poll() is None
    assert numbers_of(place.reader.read([1, 2])) == [1, 2]
    assert place.holders() == [0] * LENGTH


# ---- waiting processes ----


def test_write_waits_for_stopped_writer_until_timeout(place: RecordPlace) -> None:
    """What: three elements are to be written, the second one's writer is stopped. It goes on in time, or does not.

    Failure would mean: a write gives up too early, or never; or what was written before it waited is told to nobody.
    """
    place.reader.changes()
    holder = place.driver("join arm write:1:5", "mq_vector_fill_one: half*", 1, signal.SIGSTOP)
    holder.stops()
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
    holder.end()
    task.result()
    assert numbers_of(place.reader.read()) == [1, 2, 3, 0]
    assert place.reader.counts().tolist() == [2, 2, 1, 0]


def test_write_continues_after_death_of_element_holder(place: RecordPlace) -> None:
    """Nobody wakes it for that: it asks."""
    holder = place.waiting("join hold:1")
    task = Task(lambda: place.reader.write([0, 1], values(1, 2), timeout=None))
    wait_until(lambda: place.reader.counts()[0], "the writer has come to the element")
    holder.kill()
    task.result()
    assert place.reader.counts().tolist() == [1, 1, 0, 0]


def test_write_with_zero_timeout_takes_element_of_dead_writer(place: RecordPlace) -> None:
    """Not waiting is no reason not to ask."""
    place.killed("join hold:1")
    place.reader.write([1], values(2), timeout=0)
    holder = place.waiting("join hold:1")
    with pytest.raises(WaitTimeoutError, match=str(holder.pid)):
        place.reader.write([1], values(2), timeout=0)
