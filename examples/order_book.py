"""An order book whose writers are killed in the middle of their writes, again and again; no reader sees a torn level.

python -m examples.order_book
"""

from __future__ import annotations

import random
import signal
import time
from contextlib import suppress
from multiprocessing.process import BaseProcess
from typing import Any

import numpy as np
import numpy.typing as npt

import msgq
from examples.processes import finish, say, start
from msgq.errors import MultipleWritersError, SegmentError

LEVELS = 16
UNFINISHED = 3  # so many writers at least are killed in the middle of a write
MOST = 100  # writers, for that
LIVES = 0.002, 0.02  # seconds that a writer goes on after its first write
STALLED = 0.5  # seconds that a reader's longest look may take; a look that waits for the dead would take for ever
PATIENCE = 20.0  # seconds, for what comes at once when all is well
DEPTH = 30000  # orders of a level, which is large, so that many a kill hits the middle of a write
LEVEL = np.dtype([("number", "<i8"), ("price", "<f8"), ("orders", "<i8", (DEPTH,)), ("check", "<i8")])

Levels = npt.NDArray[Any]


def fill(level: Levels, number: int) -> None:
    """Make what a writer writes for the n-th time: all of it follows from the number."""
    level["number"], level["price"], level["check"] = number, number / 100, -number
    level["orders"] = number


def torn(levels: Levels) -> int:
    """Return how many levels are not those of one number."""
    numbers = levels["number"]
    whole = (levels["orders"] == numbers[:, None]).all(axis=1)
    whole &= (levels["price"] == numbers / 100) & (levels["check"] == -numbers)
    return int((~whole).sum())


def newest(book: msgq.SeqlockVector) -> int:
    """Return how many writes were finished."""
    return int(book.snapshot()["number"].max())


def writer() -> None:
    """Go on where the writers before came to, until this one is killed, or the market closes."""
    book, begun, end = msgq.SeqlockVector("book"), msgq.Seqlock("begun"), msgq.Seqlock("closing_bell")
    book.claim()
    level = np.empty(1, LEVEL)
    number = newest(book)
    while not end.value:
        number += 1
        fill(level, number)
        begun.value = number
        book[number % LEVELS] = level[0]


def reader(name: str) -> None:
    """Look at the book until the market closes; say what was wrong with it, and fail."""
    book, end = msgq.SeqlockVector("book", passive=True), msgq.Seqlock("closing_bell", passive=True)
    msgq.MessageQueue("news").send(name.encode())
    looks = broken = back = 0
    longest = 0.0
    seen = np.zeros(LEVELS, "i8")
    levels = np.empty(LEVELS, LEVEL)
    while not end.value:
        began = time.monotonic()
        book.read(out=levels)
        longest = max(longest, time.monotonic() - began)
        looks += 1
        broken += torn(levels)
        back += int((levels["number"] < seen).sum())
        seen = levels["number"].copy()
    if broken or back or longest > STALLED:
        raise RuntimeError(f"{name}: {broken} torn, {back} older than before, the longest look took {longest:.3f} s")
    say(f"{name}: {looks} looks, 0 torn, 0 older than before")


def next_writer(book: msgq.SeqlockVector) -> BaseProcess:
    """Start a writer, and return when it has gone on where its predecessor was killed."""
    before = int(book.counts().sum())
    process = start(writer)
    deadline = time.monotonic() + PATIENCE
    while int(book.counts().sum()) == before:
        if not process.is_alive() or time.monotonic() > deadline:
            raise RuntimeError("a writer does not go on where its predecessor was killed")
        book.wait(1.0)
        book.changes()
    return process


def trade(book: msgq.SeqlockVector, chance: random.Random) -> tuple[int, int]:
    """Kill one writer after the other at a random moment; return how many, and how many of them in mid-write."""
    begun = msgq.Seqlock("begun")
    killed = unfinished = 0
    while unfinished < UNFINISHED:
        if killed == MOST:
            raise RuntimeError(f"{killed} writers were killed, and {unfinished} of them in the middle of a write")
        process = next_writer(book)
        time.sleep(chance.uniform(*LIVES))
        process.kill()
        process.join()
        if process.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"a writer ended by itself, with {process.exitcode}")
        killed += 1
        unfinished += int(begun.value) > newest(book)
    return killed, unfinished


def market(seed: int) -> None:
    """Have a book that outlives its writers."""
    book = msgq.SeqlockVector("book", LEVEL, LEVELS, exclusive=True, create=True)
    end, news = msgq.Seqlock("closing_bell", "?"), msgq.MessageQueue("news")
    msgq.Seqlock("begun", "i8").value = 0
    readers = [start(reader, name) for name in ("Ann", "Ben")]
    for _ in readers:
        assert news.receive(timeout=PATIENCE) is not None
    killed, unfinished = trade(book, random.Random(seed))
    last = next_writer(book)
    try:
        book.claim()
        raise RuntimeError("the last writer lives, and another one may write as well")
    except MultipleWritersError:
        pass
    end.value = True
    finish(last, *readers)
    writes = int(book.counts().sum())
    if torn(book.snapshot(atomic=True)) or writes != newest(book):
        raise RuntimeError(f"{torn(book.snapshot())} levels are torn; {writes} writes, the newest is {newest(book)}")
    say(f"market: {killed} writers killed, {unfinished} in the middle of a write; {writes} writes, none torn or lost")


def main() -> None:
    """Open the market, and close it."""
    try:
        market(seed=random.randrange(1 << 32))
    finally:
        for name in ("book", "begun", "closing_bell"):
            with suppress(SegmentError):  # it may not have come to that
                msgq.SeqlockVector.unlink_name(name)
        with msgq.MessageQueue("news") as each:
            each.unlink()


if __name__ == "__main__":
    main()
