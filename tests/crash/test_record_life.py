"""Writers that fork, whose vector is unlinked, or whose row has had tens of thousands of owners."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Any

import numpy as np
import pytest

from msgq import Board, SeqlockVector
from msgq.errors import KeyTakenError, MultipleWritersError, WaitTimeoutError
from tests.crash.records import LENGTH, RecordPlace, key_name, numbers_of, values
from tests.crash.test_life import Vector
from tests.support import DEADLINE, Child, Task, in_fork, say, wait_until

LARGE = 1 << 24  # bytes; a copy takes milliseconds, without Python's lock


class TestForks:
    def test_forked_child_gets_new_row_and_parent_keeps_its_row(self, place: RecordPlace) -> None:
        """And its parent's row stays, whatever the child does with the handle."""
        place.reader[0] = (1, 1, 1)
        row = place.word(place.rows[0])

        def use() -> None:
            assert numbers_of(place.reader.read())[0] == 1
            place.reader[0] = (2, 2, 2)
            assert place.taken_rows() == [0, 1]
            place.reader.close()
            assert place.taken_rows() == [0]

        assert in_fork(use) == 0
        assert in_fork(place.reader.close) == 0
        assert place.word(place.rows[0]) == row
        place.reader[0] = (3, 3, 3)
        assert place.taken_rows() == [0]
        assert place.reader.counts().tolist() == [3, 0, 0, 0]

    def test_forked_child_of_exclusive_writer_is_separate_handle(self, exclusive: RecordPlace) -> None:
        exclusive.reader[0] = (1, 1, 1)

        def use() -> None:
            with pytest.raises(MultipleWritersError, match=str(os.getppid())):
                exclusive.reader[0] = (2, 2, 2)
            assert numbers_of(exclusive.reader.read())[0] == 1
            os.kill(os.getpid(), signal.SIGKILL)

        assert in_fork(use) == -signal.SIGKILL
        exclusive.reader[0] = (3, 3, 3)
        assert not Vector.is_free(exclusive)

    def test_forked_child_of_key_owner_is_separate_handle(self, board: RecordPlace) -> None:
        entry = board.reader.declare(key_name(0))
        entry.write(b"parent")

        def use() -> None:
            with pytest.raises(KeyTakenError, match=str(os.getppid())):
                board.reader.declare(key_name(0))
            board.reader.declare(key_name(1)).write(b"child")
            os.kill(os.getpid(), signal.SIGKILL)

        assert in_fork(use) == -signal.SIGKILL
        entry.write(b"parent again")
        with board.reader.declare(key_name(1)) as other:
            other.write(b"parent, too")
        assert dict(board.reader.items()) == {key_name(0): b"parent again", key_name(1): b"parent, too"}

    @pytest.mark.needs_shm(36 << 20)
    @pytest.mark.parametrize("kind", ["exclusive", "shared"])
    def test_child_forked_during_write_reads_and_writes_whole_values(self, endpoint: str, kind: str) -> None:
        """What: a thread writes large values, one after the other; a child is forked meanwhile, reads, and writes as
        soon as it may.

        Why: the child has the fields of a handle that is being used, and none of the threads that use it.

        Failure would mean: the child is told for ever that somebody writes, or finds a torn value.
        """
        exclusive = kind == "exclusive"
        with SeqlockVector(endpoint, np.dtype((np.void, LARGE)), 1, exclusive=exclusive) as vector:
            try:
                with Child(write_large_and_fork, endpoint, exclusive) as child:
                    assert child.hear() == "read"
                    if exclusive:
                        assert child.hear() == "MultipleWritersError"
                        child.kill()
                    assert child.hear() == "wrote"
            finally:
                vector.unlink()


def write_large_and_fork(name: str, exclusive: bool) -> None:
    """Fork in the middle of a write; the child reads, is told that its parent writes, and writes when that is dead."""
    vector = SeqlockVector(name)
    data = [np.full(LARGE, number, "u1").view(vector.dtype) for number in (1, 2)]

    def write_for_ever() -> None:
        while True:
            for each in data:
                vector.write([0], each, timeout=None)

    Task(write_for_ever)
    wait_until(lambda: vector.counts()[0] > 1)
    if os.fork() == 0:
        signal.alarm(50)
        write_as_a_child(vector, exclusive, data[0])
        os._exit(0)
    while True:
        time.sleep(1)


def write_as_a_child(vector: Any, exclusive: bool, data: Any) -> None:
    words = None
    while words is None:
        with contextlib.suppress(WaitTimeoutError):
            words = np.frombuffer(vector.read().tobytes(), "u1")
    assert (words == words[0]).all()
    say("read")
    told = False
    until = time.monotonic() + DEADLINE
    while True:
        try:
            vector.write([0], data, timeout=DEADLINE)
        except MultipleWritersError as error:
            assert exclusive
            if not told:
                say(type(error).__name__)
                told = True
            assert time.monotonic() < until
            time.sleep(0.01)
        else:
            say("wrote")
            return


def test_unlinked_vector_releases_element_of_dead_writer(place: RecordPlace) -> None:
    """What: the name is gone, and another vector has it, when one dies who has an element.

    Why: whether somebody lives is asked of the file, which then is to be had by a descriptor only.

    Failure would mean: an element stays with a dead one for ever, or the living are taken for dead.
    """
    holder = place.waiting("join hold:0")
    SeqlockVector.unlink_name(place.endpoint)
    with SeqlockVector(place.endpoint, "u8", 1) as successor:
        with pytest.raises(WaitTimeoutError, match=str(holder.pid)):
            place.reader.write([0], values(1), timeout=0.01)
        holder.kill()
        place.reader.write([0], values(1), timeout=0)
        successor[0] = 5
        assert numbers_of(place.reader.read())[0] == 1


class TestRows:
    """The words name a row and 16 bits of its generation."""

    def test_record_row_with_70000_owners_keeps_elements_of_living_writer(self, place: RecordPlace) -> None:
        """What: a row has 70,000 owners; before, and meanwhile, elements are held by one who is dead and one who lives.

        Failure would mean: what the dead one had is not to be had, or what the living one has is.
        """
        place.reader.claim()
        place.killed("join hold:1")
        place.kill_free_rows()
        living = place.waiting("join hold:2")  # it has the dead one's row
        dying = place.waiting("join hold:3")
        dying.kill()
        place.driver("pass:70000", "*never*").end()
        assert place.generation(2) >= 70_000
        assert [bool(holder) for holder in place.holders()] == [False, False, True, False]
        with pytest.raises(WaitTimeoutError, match=str(living.pid)):
            place.reader.write([2], values(2), timeout=0)
        place.reader.write([0, 1, 3], values(0, 1, 3), timeout=0)

    def test_record_row_with_wrapped_generation_releases_elements_of_dead_writer(self, place: RecordPlace) -> None:
        """What: 65,536 owners later somebody takes the row of a dead one; it would be called as that one."""
        place.reader.claim()
        place.killed("join hold:1 hold:2")
        place.write(place.rows[1] + 64, place.generation(1) - 1 + 65_536)
        place.kill_free_rows()
        heir = place.waiting("join hold:2")
        place.reader.write([0, 1, 3], values(0, 1, 3), timeout=0)
        with pytest.raises(WaitTimeoutError, match=str(heir.pid)):
            place.reader.write([2], values(2), timeout=0)
        heir.kill()
        place.reader.write([2], values(2), timeout=0)
        assert numbers_of(place.reader.read()) == [*range(LENGTH)]


def test_board_with_only_dead_owners_gives_all_keys_with_values(board: RecordPlace) -> None:
    """All keys belong to dead ones, of several rows: all of them can be had, in any order, with their values."""
    for key in range(LENGTH):
        board.killed(f"join declare:{key} put:{key}:{key + 5}")
    newcomer = board.handle()
    assert isinstance(newcomer, Board)
    found = [newcomer.observe(key_name(key)).read() for key in range(LENGTH)]
    assert [one and one.alive for one in found] == [False] * LENGTH
    before = dict(newcomer.items())
    for key in reversed(range(LENGTH)):
        newcomer.declare(key_name(key))
    assert dict(board.reader.items()) == before
    assert len(before) == LENGTH
