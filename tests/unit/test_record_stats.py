"""What others see of vectors and boards: `msgq.stats.record`, `msgq.stats.records`."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from msgq import Board, SeqlockVector, stats
from msgq.common.schema import Schema
from msgq.common.stats import Participant
from msgq.common.stats.records import RecordStats, RecordWriterInfo
from msgq.errors import CorruptSegmentError, LayoutVersionError, MsgqError, SegmentError
from msgq.impl.base import clock
from msgq.impl.records.core import remove_record
from tests.support import SHM, Child, Task, hear, say, wait_until

ROWS, ROW, GENERATION, ELEMENTS = 4096, 128, 64, 32768


def write_one(name: str) -> None:
    """Child: write an element, and stay."""
    vector = SeqlockVector(name)
    vector[1] = 7
    say()
    hear()


def declare(name: str, *keys: str) -> None:
    """Child: own keys of a board, and stay."""
    board = Board(name)
    entries = [board.declare(key) for key in keys]
    entries[0].write(b"its own")
    say()
    hear()


def run_and_kill(function: Callable[..., None], *words: str) -> int:
    with Child(function, *words) as child:
        child.hear()
        child.kill()
        return child.pid


def change_word(path: str, place: int, new: Callable[[int], int]) -> None:
    """Change a word of a file."""
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        word = int.from_bytes(memory[place : place + 8], "little")
        memory[place : place + 8] = new(word).to_bytes(8, "little")


def held_by(path: str, row: int, index: int, generation: int = 1, stride: int = 64) -> None:
    """Have an element written by a row's owner, as one leaves it that dies there."""
    change_word(path, ELEMENTS + index * stride, lambda word: word >> 24 << 24 | (row + 1) << 16 | generation)


def dead_writer(found: RecordStats) -> RecordWriterInfo:
    (one,) = (one for one in found.writers if one.participant.alive is False)
    return one


# ---- figures ----


def test_record_stats_of_unwritten_vector_are_zero(endpoint: str) -> None:
    with SeqlockVector(endpoint, [("a", "<f8"), ("b", "<i4")], 10, copies=4, exclusive=True):
        found = stats.record(endpoint)
    assert (found.name, found.prefix, found.path) == (endpoint, "", str(SHM / f"msgqrec_{endpoint}"))
    assert (found.kind, found.length, found.item_bytes, found.copies, found.exclusive) == ("vector", 10, 12, 4, True)
    assert (found.bytes, found.mode) == (os.stat(found.path).st_size, 0o600)
    assert found.creator[1] == os.getpid()
    assert 0 <= clock.time_ns() - found.created_ns < 60e9
    assert (found.written, found.elements_written, found.locked, found.locked_by_dead) == (0, 0, 0, 0)
    assert (found.last_ns, found.last_age_ns, found.last_index, found.has_waiters) == (None, None, None, False)
    assert (found.key_count, found.keys, found.writers) == (0, (), ())
    assert json.loads(found.dtype or "") == [["a", "<f8"], ["b", "<i4"]]


def test_record_stats_count_writes(endpoint: str) -> None:
    with SeqlockVector(endpoint, "<f8", 10) as vector:
        vector[[2, 3]] = 1.0
        vector[7] = 2.0
        vector[2] = 3.0
        found = stats.record(endpoint)
        assert (found.written, found.elements_written, found.last_index, found.exclusive) == (4, 3, 2, False)
        assert found.last_ns == vector.times()[2]
        assert found.last_age_ns is not None
        assert 0 < found.last_age_ns <= clock.time_ns() - int(vector.times()[2])
        (writer,) = found.writers
        assert (writer.participant.pid, writer.participant.alive, writer.row) == (os.getpid(), True, 0)
        assert (writer.written, writer.locked, writer.keys) == (4, 0, 0)
    found = stats.record(endpoint)
    assert (found.writers, found.written, found.elements_written) == ((), 4, 3), "who left is not listed"


def test_record_stats_list_writers_without_readers(endpoint: str) -> None:
    with SeqlockVector(endpoint, "<f8", 3) as vector, SeqlockVector(endpoint) as other, SeqlockVector(endpoint) as one:
        vector[0] = 1
        other[[0, 1]] = 2
        assert one[0] == 2
        found = stats.record(endpoint)
        assert [(one.row, one.written) for one in found.writers] == [(0, 1), (1, 2)]
        assert found.written == 3


def test_record_stats_of_board_list_its_keys(endpoint: str) -> None:
    schema = Schema("words", "text")
    with Board(endpoint, 5, 100, schema=schema) as board, Board(endpoint) as other:
        first, second = board.declare("pose"), board.declare("späť")
        third = other.declare("speed")
        third.write(b"123")
        first.write(b"a")
        first.write(b"bcd")
        second.close()
        found = stats.record(endpoint)
        assert (found.kind, found.length, found.item_bytes, found.key_count) == ("board", 5, 100, 3)
        assert (found.schema, found.dtype, found.written, found.elements_written) == (schema, None, 3, 2)
        pose, nobodys, speed = found.keys
        assert (pose.key, pose.count, pose.bytes, pose.time_ns) == ("pose", 2, 3, found.last_ns)
        assert found.last_index == 0
        assert pose.age_ns is not None
        assert 0 < pose.age_ns < 60e9
        assert (nobodys.key, nobodys.owner, nobodys.count) == ("späť", None, 0)
        assert (nobodys.bytes, nobodys.time_ns, nobodys.age_ns) == (None, None, None)
        assert [(one.row, one.keys) for one in found.writers] == [(0, 1), (1, 1)]
        assert (pose.owner, speed.owner) == tuple(one.participant for one in found.writers)
        assert isinstance(pose.owner, Participant)


def test_record_stats_list_at_most_256_board_keys(endpoint: str) -> None:
    with Board(endpoint, 300, 8) as board:
        entries = [board.declare(f"key {number}") for number in range(300)]
        found = stats.record(endpoint)
        assert (found.key_count, len(found.keys), found.keys[255].key) == (300, 256, "key 255")
        assert found.writers[0].keys == len(entries)


def test_record_stats_show_waiting_readers(endpoint: str) -> None:
    with SeqlockVector(endpoint, "<f8", 3) as vector, SeqlockVector(endpoint) as other:
        waiting = Task(vector.wait, 30)
        wait_until(lambda: stats.record(endpoint).has_waiters)
        other[0] = 1
        assert waiting.result()
        wait_until(lambda: not stats.record(endpoint).has_waiters)


# ---- the dead ----


def test_record_stats_show_dead_writers_until_row_is_reused(endpoint: str) -> None:
    with SeqlockVector(endpoint, "<f8", 3):
        pid = run_and_kill(write_one, endpoint)
        one = dead_writer(stats.record(endpoint))
        assert (one.participant.pid, one.row, one.written, one.locked) == (pid, 0, 1, 0)


def test_record_stats_count_elements_locked_by_dead_writers(endpoint: str) -> None:
    with SeqlockVector(endpoint, "<f8", 3) as vector:
        vector[0] = 1
        run_and_kill(write_one, endpoint)
        held_by(vector.path, 1, 1)
        held_by(vector.path, 0, 2)
        found = stats.record(endpoint)
        assert (found.locked, found.locked_by_dead) == (2, 1)
        assert [(one.row, one.locked) for one in found.writers] == [(0, 1), (1, 1)]
        assert dead_writer(found).row == 1
        held_by(vector.path, 0, 2, generation=0)
        vector[1] = 3
        assert (stats.record(endpoint).locked, stats.record(endpoint).locked_by_dead) == (1, 1), "a former owner's"


@pytest.mark.parametrize(("row", "generation"), [(0, 2), (0, 0xFFFF), (127, 1), (200, 1)])
def test_record_stats_count_elements_locked_by_previous_row_owners(endpoint: str, row: int, generation: int) -> None:
    """Whoever takes a row gives them back; between the two somebody may look."""
    with SeqlockVector(endpoint, "<f8", 3) as vector:
        vector[0] = 1
        held_by(vector.path, row, 0, generation)
        found = stats.record(endpoint)
        assert (found.locked, found.locked_by_dead, found.writers[0].locked) == (1, 1, 0)


def test_record_stats_count_board_keys_of_dead_writers(endpoint: str) -> None:
    with Board(endpoint, 5, 100) as board:
        pid = run_and_kill(declare, endpoint, "a", "b")
        found = stats.record(endpoint)
        assert (dead_writer(found).participant.pid, dead_writer(found).keys) == (pid, 2)
        assert found.keys[0].owner == dead_writer(found).participant
        with board.declare("a"):
            found = stats.record(endpoint)
            assert [one.keys for one in found.writers if one.participant.alive] == [1]


# ---- looking ----


def test_record_stats_do_not_change_file(endpoint: str) -> None:
    with Board(endpoint, 5, 100) as board, board.declare("a") as entry:
        entry.write(b"x")
        before, status = Path(board.path).read_bytes(), Path(board.path).stat()
        stats.record(endpoint)
        assert Path(board.path).read_bytes() == before
        assert Path(board.path).stat().st_mtime_ns == status.st_mtime_ns
        Path(board.path).chmod(0o400)
        assert stats.record(endpoint).mode == 0o400


def test_record_stats_list_records_of_prefix(prefix: str) -> None:
    with SeqlockVector("b", "<f8", 1) as vector, Board("a", 1, 1):
        vector[0] = 1
        assert [(one.name, one.elements_written, one.prefix) for one in stats.records()] == [
            ("a", 0, prefix),
            ("b", 1, prefix),
        ]
        assert "b" not in [one.name for one in stats.records("")]
        inodes = {name: os.stat(SHM / f"msgqrec_{prefix}" / name).st_ino for name in ("a", "b")}
        assert stats.record_inodes() == inodes
        assert stats.record("b", prefix).elements_written == 1


def test_list_of_record_stats_skips_invalid_files(prefix: str) -> None:
    SeqlockVector("good", "<f8", 1).close()
    folder = SHM / f"msgqrec_{prefix}"
    (folder / "short").write_bytes(bytes(100))
    (folder / "zeros").write_bytes(bytes(60000))
    good = (folder / "good").read_bytes()
    (folder / "newer").write_bytes(good[:12] + (9).to_bytes(4, "little") + good[16:])
    (folder / "cut").write_bytes(good[:-64])
    assert [one.name for one in stats.records()] == ["good"]
    assert list(stats.record_inodes()) == ["cut", "good", "newer", "short", "zeros"]
    for name in ("short", "zeros", "cut"):
        with pytest.raises(CorruptSegmentError):
            stats.record(name)
    with pytest.raises(LayoutVersionError):
        stats.record("newer")
    with pytest.raises(SegmentError, match="vector or board not found"):
        stats.record("absent")


def write_random_words(path: Path, seed: int, start: int) -> None:
    """Change words of a file at random, and not its size."""
    rng = random.Random(seed)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        for _ in range(4000):
            place = rng.randrange(start, len(memory) - 8, 8)
            word = rng.choice([0, 1, 2**64 - 1, rng.getrandbits(64), rng.getrandbits(24), 2**63, 1 << 24])
            memory[place : place + 8] = word.to_bytes(8, "little")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("start", [8, ROWS, ELEMENTS])
def test_record_stats_do_not_crash_with_random_bytes(endpoint: str, prefix: str, seed: int, start: int) -> None:
    things: list[Any] = [SeqlockVector("vector", "<f8", 50), Board("board", 50, 20)]
    things[0][:] = 1
    things[1].declare("a").write(b"abc")
    for thing in things:
        path = Path(f"{thing.path}copy")
        path.write_bytes(Path(thing.path).read_bytes())
        write_random_words(path, seed, start)
        with contextlib.suppress(MsgqError):
            found = stats.record(f"{thing.name}copy")
            assert repr(dataclasses.asdict(found))
            assert found.elements_written <= found.length
            assert sum(one.locked for one in found.writers) <= found.locked <= found.length
            assert found.locked_by_dead <= found.locked
            assert found.last_index is None or found.last_index < found.length
            assert all(one.bytes is None or one.bytes <= found.item_bytes for one in found.keys)
        thing.close()


def test_record_stats_during_writes_are_consistent(endpoint: str) -> None:
    """What: two threads write by handles of their own; this one looks.

    Failure would mean: a figure that was never true, as an element held by the dead.
    """
    over = threading.Event()

    def write(name: str) -> None:
        with SeqlockVector(name) as vector:
            while not over.is_set():
                vector[:] = 1

    with SeqlockVector(endpoint, "<f8", 10):
        tasks = [Task(write, endpoint), Task(write, endpoint)]
        try:
            wait_until(lambda: stats.record(endpoint).elements_written == 10)
            before = stats.record(endpoint)
            for _ in range(300):
                found = stats.record(endpoint)
                assert (found.locked_by_dead, found.elements_written) == (0, 10)
                assert {one.participant.alive for one in found.writers} == {True}
                assert found.written >= before.written
                assert found.last_ns is not None
                assert before.last_ns is not None
                assert found.last_ns >= before.last_ns
                before = found
        finally:
            over.set()
            for task in tasks:
                task.result()


# ---- removing ----


def test_records_are_removed_only_if_callback_agrees(endpoint: str) -> None:
    with SeqlockVector(endpoint, "<f8", 3) as vector:
        vector[0] = 5
        seen: list[RecordStats] = []

        def refuse(found: RecordStats) -> bool:
            seen.append(found)
            return False

        assert not remove_record(endpoint, "", refuse)
        assert seen[0].elements_written == 1
        assert Path(vector.path).exists()
        assert remove_record(endpoint, "", lambda _found: True)
        assert not Path(vector.path).exists()
        assert vector[0] == 5, "who has it mapped keeps it"
        with pytest.raises(SegmentError, match="not found"):
            remove_record(endpoint, "", lambda _found: True)


def test_new_writer_waits_for_running_removal_of_records(endpoint: str) -> None:
    """The judgement that nobody writes holds until the name is gone."""
    with SeqlockVector(endpoint, "<f8", 3) as vector:
        tasks: list[Task] = []

        def wanted(_found: RecordStats) -> bool:
            tasks.append(Task(vector.__setitem__, 0, 1.0))
            tasks[-1].wait_asleep()
            return not any(stats.record(endpoint).writers for _ in range(20))

        assert remove_record(endpoint, "", wanted)
        tasks[0].result()
        assert vector[0] == 1
