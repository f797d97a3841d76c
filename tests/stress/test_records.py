"""Vectors and boards with many processes: no value is torn or lost, snapshots are of one instant, changes wake."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from msgq.records import Board, SeqlockVector
from tests.stress import records
from tests.stress.process_group import ProcessGroup, finish
from tests.support import DEADLINE, LONGER, wait_until

PAUSES = 2  # so often a busy machine may let a process wait; forgotten sleepers are more
NIGHT = pytest.mark.nightly


def run(scene: ProcessGroup, name: str, writers: int, readers: int, seconds: float, seed: int) -> None:
    """Let writers and readers work, and check that each write was counted once."""
    writing = scene.start_all([(records.write, name, seed % 1000 + i, seconds * LONGER) for i in range(writers)])
    reading = scene.start_all([(records.read, name, seed + i, i % 2 == 1) for i in range(readers)])
    for writer in writing:
        writer.say("go")
    written = [writer.result() for writer in writing]
    counts = finish(reading)
    print("written", written, "read", counts)
    assert all(counts)
    with SeqlockVector(name, passive=True) as vector:
        assert int(vector.counts().sum()) == sum(written)
        records.read_stamps(vector.snapshot())


@pytest.mark.parametrize(
    ("item", "length", "copies", "seconds"),
    [
        (8, 1, 2, 0.5),
        pytest.param(8, 1000, 2, 1.5, marks=NIGHT),
        pytest.param(56, 1, 2, 1.5, marks=NIGHT),
        pytest.param(56, 20, 4, 1.5, marks=NIGHT),
        pytest.param(4096, 1, 2, 1.5, marks=NIGHT),
        pytest.param(4096, 50, 4, 1.5, marks=NIGHT),
        pytest.param(1 << 20, 2, 2, 2, marks=NIGHT),
        pytest.param(1 << 20, 2, 4, 2, marks=NIGHT),
    ],
)
def test_fast_record_writes_produce_no_torn_value(
    scene: ProcessGroup, endpoint: str, seed: int, item: int, length: int, copies: int, seconds: float
) -> None:
    """What: processes write the same elements without a pause, and others read them in every way.

    Failure would mean: a value is of two writers, or a write counts twice, or not at all.
    """
    with SeqlockVector(endpoint, records.dtype(item), length, copies=copies):
        run(scene, endpoint, 2 if seconds < 1 else 3, 1 if seconds < 1 else 2, seconds, seed)


@NIGHT
def test_exclusive_vector_with_three_processes_has_one_writer(scene: ProcessGroup, endpoint: str, seed: int) -> None:
    """What: three processes want to be its one writer, all the time."""
    with SeqlockVector(endpoint, records.dtype(56), 1, exclusive=True) as vector:
        writing = scene.start_all([(records.take_turns, endpoint, seed + i, 3 * LONGER) for i in range(3)])
        (reader,) = scene.start_all([(records.read, endpoint, seed, False)])
        for writer in writing:
            writer.say("go")
        reports = [writer.result() for writer in writing]
        assert finish([reader])[0]
        print(reports)
        assert all(report["written"] for report in reports)
        assert any(report["refused"] for report in reports)
        assert vector.counts()[0] == sum(report["written"] for report in reports)


@pytest.mark.parametrize(
    ("item", "length", "seconds"),
    [(8, 100, 0.5), pytest.param(56, 1000, 2, marks=NIGHT), pytest.param(4096, 30, 2, marks=NIGHT)],
)
def test_atomic_snapshot_shows_values_of_one_instant(
    scene: ProcessGroup, endpoint: str, seed: int, item: int, length: int, seconds: float
) -> None:
    """What: one process writes all elements in turn; others take atomic snapshots.

    Why: elements that are each whole may still be of different instants.
    """
    with SeqlockVector(endpoint, records.dtype(item), length) as vector:
        children = scene.start_all(
            [(records.take_snapshots, endpoint, passive) for passive in (False, True)]
            + [(records.write_chain, endpoint, seed)]
        )
        until = time.monotonic() + seconds * LONGER
        wait_until(lambda: time.monotonic() > until and vector.counts()[-1] > 20)
        *taken, rounds = finish(children)
        print("snapshots", taken, "rounds", rounds)
        assert all(taken)
        assert (vector.counts() == rounds).all()


# ---- waiting ----


@pytest.fixture
def made(endpoint: str) -> Iterator[Callable[[str, int], SeqlockVector]]:
    """Make a vector of three values, of a name that begins with the endpoint; it is gone after the test."""
    with contextlib.ExitStack() as stack:

        def make(what: str, item: int = 8) -> SeqlockVector:
            vector = stack.enter_context(SeqlockVector(f"{endpoint}-{what}", records.dtype(item), 3))
            stack.callback(vector.unlink)
            return vector

        yield make


def check_answers(
    scene: ProcessGroup, made: Callable[..., SeqlockVector], how: str, vectors: int, count: int, seed: int
) -> None:
    """Write one value of one vector, and await the answer to it; again and again."""
    rng, handles, pong = random.Random(seed), [made(f"{number}") for number in range(vectors)], made("pong")
    names = [vector.name for vector in handles]
    role = (records.answer_asyncio,) if how == "asyncio" else (records.answer,)
    (child,) = scene.start_all([(*role, names, pong.name, *([] if how == "asyncio" else [how]), count)])
    late = 0
    for number in range(1, count + 1):
        start = time.monotonic()
        rng.choice(handles)[rng.randrange(3)] = records.make_stamped_values(records.dtype(8), [number])[0]
        while pong[0]["words"][0] != number:
            assert pong.wait(DEADLINE), f"nobody saw value {number}"
            pong.changes()
        late += time.monotonic() - start > records.LATE_S
        if rng.random() < 0.1:
            time.sleep(rng.random() * 0.003)  # so that it sleeps
    assert child.result() == count
    assert late <= PAUSES, "somebody slept beside a change"


@pytest.mark.parametrize("how", records.WATCHES)
def test_each_change_wakes_waiting_reader(scene: ProcessGroup, made: Any, seed: int, how: str) -> None:
    """Failure would mean: a wake is lost."""
    check_answers(scene, made, how, 1, int(200 * LONGER), seed)


@pytest.mark.parametrize(
    ("how", "vectors"),
    [("poller", 20), pytest.param("fileno", 60, marks=NIGHT), pytest.param("asyncio", 60, marks=NIGHT)],
)
def test_watch_of_many_vectors_reports_each_change(
    scene: ProcessGroup, made: Any, seed: int, how: str, vectors: int
) -> None:
    """What: one Poller, one epoll, or one event loop watches all; any of them may change."""
    check_answers(scene, made, how, vectors, int((200 if vectors == 20 else 2000) * LONGER), seed)


@NIGHT
def test_five_sleeping_readers_of_vector_see_last_write(scene: ProcessGroup, made: Any) -> None:
    """What: five processes sleep in each way; each of them sees the last of a burst of writes."""
    rng, number, late, many = random.Random(1), 0, 0, 1 << 40
    vector, pongs = made("ping"), [made(how) for how in records.WATCHES]
    for how, pong in zip(records.WATCHES, pongs, strict=True):
        if how == "asyncio":
            scene.start(records.answer_asyncio, [vector.name], pong.name, many)
        else:
            scene.start(records.answer, [vector.name], pong.name, how, many)
    for _ in range(int(300 * LONGER)):
        start = time.monotonic()
        for _ in range(rng.randrange(1, 4)):
            number += 1
            vector[0] = records.make_stamped_values(vector.dtype, [number])[0]
        wait_until(lambda: all(pong[0]["words"][0] == number for pong in pongs))  # noqa: B023
        late += time.monotonic() - start > records.LATE_S
    assert late <= PAUSES, "somebody slept beside a change"


# ---- boards ----


@pytest.mark.parametrize(("writers", "seconds"), [(2, 0.5), pytest.param(4, 2, marks=NIGHT)])
def test_board_keys_with_changing_owners_have_correct_values(
    scene: ProcessGroup, endpoint: str, seed: int, writers: int, seconds: float
) -> None:
    """What: processes declare the same few keys, write some values, and give them back; others read all of them.

    Failure would mean: a key has two owners, or an owner begins with an old count.
    """
    with Board(endpoint, keys=8, value_bytes=400) as board:
        writing = scene.start_all([(records.declare, endpoint, seed + i, seconds * LONGER, 5) for i in range(writers)])
        (reader,) = scene.start_all([(records.observe, endpoint, seed)])
        for writer in writing:
            writer.say("go")
        reports = [writer.result() for writer in writing]
        assert finish([reader])[0]
        print(reports)
        values = [board.observe(key).read() for key in board]
        counts = np.array([found.count for found in values if found])
        assert counts.sum() == sum(report["written"] for report in reports)
        assert not [found for found in values if found and found.owner]


@NIGHT
def test_board_changes_during_continuous_writes_report_each_key_once(
    scene: ProcessGroup, endpoint: str, seed: int
) -> None:
    """What: 200 keys are written without a pause; each look for changes tells each of them once at most."""
    with Board(endpoint, keys=200, value_bytes=400) as board:
        writing = scene.start_all([(records.declare, endpoint, seed + i, 2 * LONGER, 200) for i in range(2)])
        for writer in writing:
            writer.say("go")
        looks = 0
        until = time.monotonic() + LONGER
        while time.monotonic() < until:
            start = time.monotonic()
            board.changes()
            assert time.monotonic() - start < DEADLINE / 2
            looks += 1
        assert looks > 3
        for writer in writing:
            writer.result()
