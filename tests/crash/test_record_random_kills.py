"""Writers of vectors and boards that are killed at random moments, by the hundred, while others read."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import time
from typing import Any

import numpy as np
import pytest

from msgq import Board, SeqlockVector
from msgq.errors import KeyTakenError, MultipleWritersError
from tests.crash.harness import Driver, numbers_said
from tests.crash.killing import kill_at_random, run_in_killed_child
from tests.crash.records import ROWS, RecordPlace, key_name, key_number, key_value, numbers_of, values
from tests.support import LONGER, SHM, Task, run_child

WRITERS, LENGTH = 4, 8
KILLS = 3 * ROWS * LONGER  # enough kills for several owners of each row
WRITES = 1000  # completed writes at the end, at least


# ---- tearing ----


def kill_for(seconds: float, rng: random.Random, start: Any) -> int:
    """Keep two writers running, and kill one of them at a random moment, again and again; return how many."""
    writers: list[Driver] = [start(), start()]
    until, killed = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        time.sleep(rng.expovariate(50))  # the moment of the crime; nothing waits for it
        each = rng.randrange(2)
        writers[each].kill()
        writers[each] = start()
        killed += 1
    for writer in writers:
        writer.kill()
    return killed


def read_until(vector: Any, stop: list[bool]) -> int:
    """Read everything, in Python, and see that no element is older than before."""
    counts, rounds = vector.counts(), 0
    while not stop[0]:
        numbers_of(vector.read())
        now = vector.counts()
        assert (now >= counts).all()
        counts, rounds = now, rounds + 1
    return rounds


def tear(endpoint: str, rng: random.Random, item_bytes: int, copies: int, seconds: float, pause_us: int) -> None:
    length = 2 if item_bytes > 4096 else LENGTH
    with RecordPlace(endpoint, "shared", length, item_bytes, copies) as where:
        watchers = [where.driver("ready watch", "*never*") for _ in range(2)]
        for watcher in watchers:
            watcher.wait_until_ready()
            watcher.proceed()
        stop = [False]
        task = Task(read_until, where.reader, stop)
        try:
            killed = kill_for(seconds, rng, lambda: where.driver(f"join flood:{length}:{pause_us}", "*never*"))
        finally:
            stop[0] = True
        print(killed, "killed,", task.result(), "reads in Python")
        for watcher in watchers:
            watcher.proceed()
            lines = watcher.end()
            print(lines)
            assert numbers_said(lines, "read")[0] > 0
        assert where.reader.counts().sum() > 0
        where.reader.write(None, values(*range(length), item_bytes=item_bytes), timeout=0.05)
        assert numbers_of(where.reader.read()) == [*range(length)]
        assert where.holders() == [0] * length


@pytest.mark.parametrize("item_bytes", [8, 56, 4096, 1 << 20])
def test_record_with_killed_writers_has_no_torn_value(endpoint: str, seed: int, item_bytes: int) -> None:
    """What: two write the same elements as fast as they can and are killed again and again; three others read.

    Failure would mean: a reader finds half of one value and half of another, or an older one than before.
    """
    tear(endpoint, random.Random(seed), item_bytes, 2, 0.3, 5000 if item_bytes > 4096 else 0)


@pytest.mark.nightly
@pytest.mark.watchdog(120.0 * max(LONGER, 1))
@pytest.mark.parametrize("copies", [2, 4])
@pytest.mark.parametrize("item_bytes", [8, 56, 4096, 1 << 20])
def test_record_with_killed_writers_has_no_torn_value_in_long_run(
    endpoint: str, seed: int, item_bytes: int, copies: int
) -> None:
    """The same for longer, and with four copies."""
    seconds, rng = 3.0 * LONGER, random.Random(seed)
    pause = (5000 if copies == 2 else 500) if item_bytes > 4096 else 0
    for _ in range(max(1, round(seconds / 8))):  # a driver lives for 50 s
        tear(endpoint, rng, item_bytes, copies, min(seconds, 8.0), pause)


# ---- counts ----


class Ledger:
    """Who has begun and who has ended how many writes of each element: memory that children share, a row for each."""

    def __init__(self, writers: int) -> None:
        import mmap

        self._memory = mmap.mmap(-1, 16 * writers * LENGTH)
        self.begun, self.ended = np.frombuffer(self._memory, "u8").reshape(2, writers, LENGTH)


def write_for_ever(name: str, ledger: Ledger, who: int) -> None:
    """Write one element, or several, as one of many writers, as the only one, or under keys; come and go at times."""
    rng = random.Random(who)
    for lap in itertools.count():
        with SeqlockVector(name) as vector:
            for number in range(lap << 10 | who << 32, (lap << 10 | who << 32) + rng.randrange(1, 400)):
                some = rng.sample(range(LENGTH), rng.choice((1, 1, 1, LENGTH // 2)))
                for i in some:
                    ledger.begun[who, i] += 1
                if len(some) == 1:
                    vector[some[0]] = (number, number, number)
                else:
                    vector.write(some, values(*[number] * len(some)), timeout=None)
                for i in some:
                    ledger.ended[who, i] += 1


def own_for_ever(name: str, ledger: Ledger, who: int) -> None:
    """The same for the one writer of an exclusive vector, as soon as it is that."""
    with SeqlockVector(name) as vector:
        while True:
            with contextlib.suppress(MultipleWritersError):
                vector.claim()
                break
            time.sleep(0.0005)
        for number in itertools.count(who << 32):
            i = number % LENGTH
            ledger.begun[who, i] += 1
            vector[i] = (number, number, number)
            ledger.ended[who, i] += 1


def declare_for_ever(name: str, ledger: Ledger, who: int) -> None:
    """The same under the keys of a board."""
    rng = random.Random(who)
    with Board(name) as board:
        while True:
            i = rng.randrange(LENGTH)
            with contextlib.suppress(KeyTakenError), board.declare(key_name(i)) as entry:
                for number in range(rng.randrange(1, 50)):
                    ledger.begun[who, i] += 1
                    entry.write(key_value(number))
                    ledger.ended[who, i] += 1


KINDS = {"shared": write_for_ever, "exclusive": own_for_ever, "board": declare_for_ever}


def run_random_kills(name: str, kind: str, seed: int, kills: int) -> dict[str, Any]:
    """Child: kill four writers. Returns of each element how often it was written at least, and at most, too."""
    rng, numbers = random.Random(seed), itertools.count()
    ledger = Ledger(kills + WRITERS)

    def start(_role: int) -> int:
        return run_in_killed_child(KINDS[kind], name, ledger, next(numbers))

    def enough() -> bool:
        return bool(ledger.ended.sum() > WRITES)

    result = kill_at_random(start, WRITERS, rng, kills, lambda _: rng.randrange(WRITERS), enough)
    return result | {"ended": ledger.ended.sum(axis=0).tolist(), "begun": ledger.begun.sum(axis=0).tolist()}


def look(handle: Any, counts: list[int]) -> list[int]:
    """Read everything, which is whole, and return how often it was written, which is no less than before."""
    if isinstance(handle, Board):
        found = [handle.observe(key_name(i)).read() for i in range(LENGTH)]
        for value in filter(None, found):
            key_number(value.data)
        now = [value.count if value else 0 for value in found]
    else:
        numbers_of(handle.snapshot())
        now = [int(count) for count in handle.counts()]
    assert all(count >= before for count, before in zip(now, counts, strict=True))
    return now


@pytest.mark.watchdog(120.0 * max(LONGER, 1))
@pytest.mark.parametrize("kills", [30, pytest.param(int(KILLS), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("kind", KINDS)
def test_record_with_random_kills_has_correct_values(endpoint: str, seed: int, kind: str, kills: int) -> None:
    """What: writers are killed at random moments, by night more of them than there are rows, while the test reads.

    Why: the named steps are those that we thought of.

    Failure would mean: a write that was completed is gone, or one counts twice; a torn value; a vector that comes to an
    end for lack of rows; a file that grows, or one more.
    """
    files, used = {*os.listdir(SHM)}, shutil.disk_usage(SHM).used
    with RecordPlace(endpoint, kind, LENGTH) as place:
        handle = place.reader
        size = os.stat(SHM / f"msgqrec_{endpoint}").st_size
        task = Task(run_child, run_random_kills, endpoint, kind, seed, kills)
        counts, looks = [0] * LENGTH, 0
        while task.is_alive():
            counts = look(handle, counts)
            looks += 1
        result = task.result()
        counts = look(handle, counts)
        print(looks, "looks,", result["killed"], "killed,", sum(counts), "writes")
        assert result["failed"] == 0
        for least, count, most in zip(result["ended"], counts, result["begun"], strict=True):
            assert least <= count <= most
        assert sum(counts) > WRITES
        assert len(place.taken_rows()) <= ROWS
        assert os.stat(SHM / f"msgqrec_{endpoint}").st_size == size
        ours = {name for name in {*os.listdir(SHM)} - files if endpoint in name}
        assert ours == {f"msgqrec_{endpoint}"}
        goes_on(place, counts)
    print("bytes of /dev/shm:", used, shutil.disk_usage(SHM).used)


def goes_on(place: RecordPlace, counts: list[int]) -> None:
    """Everything can be written, at once."""
    handle = place.reader
    if isinstance(handle, Board):
        for i in range(LENGTH):
            with handle.declare(key_name(i)) as entry:
                entry.write(key_value(i))
        assert {key: key_number(data) for key, data in handle.items()} == {key_name(i): i for i in range(LENGTH)}
    else:
        handle.write(None, values(*range(LENGTH)), timeout=0)
        assert numbers_of(handle.read()) == [*range(LENGTH)]
        assert place.holders() == [0] * LENGTH
    assert look(handle, counts) == [count + 1 for count in counts]
