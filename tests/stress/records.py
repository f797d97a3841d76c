"""What processes in the stress tests of vectors and boards do. Values check themselves: each follows from a stamp."""

from __future__ import annotations

import asyncio
import contextlib
import random
import select
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np

import msgq
from msgq.errors import KeyTakenError, MultipleWritersError
from msgq.records import Board, SeqlockVector
from tests.stress.roles import has_input
from tests.support import DEADLINE, hear, say

LATE_S = 0.7  # who is woken looks sooner; who was forgotten looks after 1 s
WATCHES = ("wait", "poller", "fileno", "asyncio", "passive")


def dtype(item_bytes: int) -> np.dtype[Any]:
    return np.dtype([("words", "<u8", (item_bytes // 8,))])


def make_stamped_values(kind: np.dtype[Any], stamps: list[int]) -> Any:
    """Return values, one for each stamp."""
    values = np.zeros(len(stamps), kind)
    factors = np.arange(1, kind.itemsize // 8 + 1, dtype=np.uint64)
    values["words"] = np.array(stamps, np.uint64)[:, None] * factors
    return values


def read_stamps(values: Any) -> Any:
    """Return the stamps of whole values."""
    words = np.atleast_2d(values["words"])
    factors = np.arange(1, words.shape[1] + 1, dtype=np.uint64)
    assert (words == words[:, :1] * factors).all(), "torn"
    return words[:, 0]


# ---- floods ----


def write(name: str, seed: int, seconds: float) -> int:
    """Write without a pause, one element and many; return how many elements."""
    rng, number, written = random.Random(seed), seed << 20, 0
    with SeqlockVector(name) as vector:
        kind, length = vector.dtype, len(vector)
        say("ready")
        hear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            number += 1
            some = [rng.randrange(length) for _ in range(rng.choice((1, 1, 1, 7)))]
            if len(some) == 1 and rng.random() < 0.5:
                vector[some[0]] = make_stamped_values(kind, [number])[0]
            else:
                vector.write(some, make_stamped_values(kind, [number] * len(some)), timeout=DEADLINE)
            written += len(some)
    return written


def read(name: str, seed: int, passive: bool) -> int:
    """Read in every way, until the parent says that it is over; return how many values."""
    rng, count = random.Random(seed), 0
    with SeqlockVector(name, passive=passive) as vector:
        length = len(vector)
        last, out = np.zeros(length, np.uint64), np.zeros(length, vector.dtype)
        say("ready")
        while not has_input():
            for _ in range(20):
                way = rng.randrange(4)
                if way == 0:
                    read_stamps(vector[rng.randrange(length)])
                elif way == 1:
                    read_stamps(vector.read([rng.randrange(length) for _ in range(5)]))
                elif way == 2:
                    read_stamps(vector.snapshot(out=out))
                else:
                    changes = vector.changes()
                    read_stamps(changes.rows) if len(changes.rows) else None
                    assert (changes.counts > last[changes.indices]).all(), "a change was told twice"
                    last[changes.indices] = changes.counts
                count += 1
    return count


def take_turns(name: str, seed: int, seconds: float) -> dict[str, int]:
    """Be the one writer of an exclusive vector for a while, again and again."""
    rng, counts = random.Random(seed), {"written": 0, "refused": 0}
    say("ready")
    hear()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with SeqlockVector(name) as vector:
            try:
                vector.claim()
            except MultipleWritersError:
                counts["refused"] += 1
                continue
            for _ in range(rng.randrange(100)):
                before = int(vector.counts([0])[0])
                vector[0] = make_stamped_values(vector.dtype, [before + 1])[0]
                assert vector.counts([0])[0] == before + 1, "somebody else wrote"
                counts["written"] += 1
    return counts


# ---- snapshots ----


def write_chain(name: str, seed: int) -> int:
    """Write all elements in turn, with the number of the round, until told to stop; return the rounds."""
    rng, number = random.Random(seed), 0
    with SeqlockVector(name) as vector:
        length = len(vector)
        say("ready")
        while not has_input():
            for _ in range(rng.randrange(1, 20)):
                number += 1
                values = make_stamped_values(vector.dtype, [number] * length)
                if rng.random() < 0.5:
                    vector[:] = values
                else:
                    for i in range(length):
                        vector[i] = values[i]
            time.sleep(rng.random() * 0.001)  # so that there are instants to be had
    return number


def take_snapshots(name: str, passive: bool) -> int:
    """Take snapshots of one instant: no element is ahead of the one before it, or more than one behind the first."""
    count, last = 0, 0
    with SeqlockVector(name, passive=passive) as vector:
        say("ready")
        while not has_input():
            stamps = read_stamps(vector.snapshot(atomic=True, timeout=DEADLINE)).astype(np.int64)
            assert (np.diff(stamps) <= 0).all(), stamps
            assert stamps[0] - stamps[-1] <= 1, stamps
            assert stamps[-1] >= last, "it goes back"
            last, count = int(stamps[-1]), count + 1
    return count


# ---- waiting ----


def answer(ping: list[str], pong: str, how: str, count: int) -> int:
    """Wait for changes of vectors, and answer each with its value; a time-out means that a wake was lost."""
    vectors = [SeqlockVector(name, passive=how == "passive") for name in ping]
    with SeqlockVector(pong) as answers:
        say("ready")
        wait, done = _waiter(vectors, how), 0
        while done < count:
            for vector in wait():
                for stamp in read_stamps(vector.changes().rows).tolist():
                    answers[0] = make_stamped_values(answers.dtype, [stamp])[0]
                    done += 1
        for vector in vectors:
            vector.close()
    return done


def _waiter(vectors: list[SeqlockVector], how: str) -> Callable[[], list[SeqlockVector]]:
    """Return a function that waits until some have changes, and returns them."""
    poller, epoll = msgq.Poller(), select.epoll()
    if how in ("wait", "passive"):
        assert len(vectors) == 1
        return lambda: vectors if vectors[0].wait(DEADLINE) else []
    if how == "poller":
        for vector in vectors:
            poller.registerSocket(vector)
        return lambda: cast("list[SeqlockVector]", poller.poll(DEADLINE * 1000))
    numbers = {vector.fileno(): vector for vector in vectors}
    for number in numbers:
        epoll.register(number, select.EPOLLIN)
    return lambda: [numbers[number] for number, _ in epoll.poll(DEADLINE)]


def answer_asyncio(ping: list[str], pong: str, count: int) -> int:
    """The same by coroutines, one for each vector."""
    vectors = [SeqlockVector(name) for name in ping]
    answers, done = SeqlockVector(pong), 0

    async def follow(vector: SeqlockVector) -> None:
        nonlocal done
        while done < count:
            for stamp in read_stamps((await vector.areceive()).rows).tolist():
                answers[0] = make_stamped_values(answers.dtype, [stamp])[0]
                done += 1

    async def follow_all() -> None:
        tasks = [asyncio.create_task(follow(vector)) for vector in vectors]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE)
        for task in tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    say("ready")
    asyncio.run(follow_all())
    for handle in (*vectors, answers):
        handle.close()
    return done


# ---- boards ----


def value(count: int) -> bytes:
    """The value that a key has when it was written so often."""
    return count.to_bytes(8, "little") * (1 + count % 50)


def declare(name: str, seed: int, seconds: float, keys: int) -> dict[str, int]:
    """Declare keys that others want, too; write each as often as one likes, and give it back."""
    rng, counts = random.Random(seed), {"written": 0, "refused": 0}
    with Board(name) as board:
        say("ready")
        hear()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            key = f"key {rng.randrange(keys)}"
            try:
                entry = board.declare(key)
            except KeyTakenError:
                counts["refused"] += 1
                continue
            with entry:
                found = board.observe(key).read()
                count = found.count if found else 0
                for _ in range(rng.randrange(40)):
                    count += 1
                    entry.write(value(count))
                    counts["written"] += 1
    return counts


def observe(name: str, seed: int) -> int:
    """Read keys in every way until told to stop; each value is the one of its count."""
    rng, count, last = random.Random(seed), 0, dict[str, int]()
    with Board(name) as board:
        say("ready")
        while not has_input():
            board.wait(0.1)
            for key, found in board.changes().items():
                assert found.data == value(found.count), "torn"
                assert found.count > last.get(key, 0), "a change was told twice"
                last[key] = found.count
            for key in board:
                known = board.observe(key).read()
                assert known is None or known.data == value(known.count), "torn"
                count += 1
            assert all(data == value(int.from_bytes(data[:8], "little")) for _, data in board.items()), "torn"
            time.sleep(rng.random() * 0.001)
    return count
