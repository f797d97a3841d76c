"""An order book: writers are killed in the middle of a write, and no reader sees a torn level.

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
from examples.processes import finish, say, start, wait_until
from msgq.errors import MultipleWritersError, SegmentError

LEVELS = 16
UNFINISHED = 3  # minimum number of writers that are killed in the middle of a write
MOST = 100  # maximum number of killed writers
LIVES = 0.002, 0.02  # range of the time in seconds between the first write and the kill
READERS = ("Ann", "Ben")
DEPTH = 30000  # orders of a level. Levels are large, so that kills hit the middle of a write
LEVEL = np.dtype([("number", "<i8"), ("price", "<f8"), ("orders", "<i8", (DEPTH,)), ("check", "<i8")])

Levels = npt.NDArray[Any]


def fill(level: Levels, number: int) -> None:
    """Compute the content of a level from the number of the write."""
    level["number"], level["price"], level["check"] = number, number / 100, -number
    level["orders"] = number


def torn(levels: Levels) -> int:
    """Return the number of levels with content of several writes."""
    numbers = levels["number"]
    whole = (levels["orders"] == numbers[:, None]).all(axis=1)
    whole &= (levels["price"] == numbers / 100) & (levels["check"] == -numbers)
    return int((~whole).sum())


def newest(book: msgq.SeqlockVector) -> int:
    """Return the number of finished writes."""
    return int(book.snapshot()["number"].max())


def writer() -> None:
    """Continue after the last finished write, until the process is killed or the market closes."""
    book, begun, end = msgq.SeqlockVector("book"), msgq.Seqlock("begun"), msgq.Seqlock("closing_bell")
    book.claim()
    level = np.empty(1, LEVEL)
    number = newest(book)
    while not end.value:
        number += 1
        fill(level, number)
        begun.value = number
        book[number % LEVELS] = level[0]


def reader(number: int) -> None:
    """Read the book until the market closes, and count the reads. If a level was torn or old, raise an error."""
    book, end = msgq.SeqlockVector("book", passive=True), msgq.Seqlock("closing_bell", passive=True)
    reads = msgq.SeqlockVector("reads")
    broken = back = 0
    seen = np.zeros(LEVELS, "i8")
    levels = np.empty(LEVELS, LEVEL)
    while not end.value:
        book.read(out=levels)
        reads[number] = reads[number] + 1
        broken += torn(levels)
        back += int((levels["number"] < seen).sum())
        seen = levels["number"].copy()
    if broken or back:
        raise RuntimeError(f"{READERS[number]}: {broken} torn, {back} older than before")
    say(f"{READERS[number]}: {reads[number]} reads, 0 torn, 0 older than before")


def wait_for_reads(readers: list[BaseProcess]) -> None:
    """Return when each reader has finished another read. A read that waits for a dead writer would never end."""
    reads = msgq.SeqlockVector("reads", passive=True)
    before = reads.snapshot()
    wait_until(lambda: bool((reads.snapshot() > before + 1).all()), *readers)  # the first may have begun before


def next_writer(book: msgq.SeqlockVector) -> BaseProcess:
    """Start a writer, and return after its first write."""
    before = int(book.counts().sum())
    process = start(writer)
    wait_until(lambda: int(book.counts().sum()) > before, process)
    return process


def trade(book: msgq.SeqlockVector, readers: list[BaseProcess], chance: random.Random) -> tuple[int, int]:
    """Kill one writer after the other at a random time. Return their number, and the number of unfinished writes.

    After each kill, each reader must be able to finish a read.
    """
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
        wait_for_reads(readers)
        killed += 1
        unfinished += int(begun.value) > newest(book)
    return killed, unfinished


def market(seed: int) -> None:
    """Create the book, kill its writers, and check the last state."""
    book = msgq.SeqlockVector("book", LEVEL, LEVELS, exclusive=True, create=True)
    end = msgq.Seqlock("closing_bell", "?")
    msgq.Seqlock("begun", "i8").value = 0
    msgq.SeqlockVector("reads", "i8", len(READERS))[:] = 0
    readers = [start(reader, number) for number in range(len(READERS))]
    wait_for_reads(readers)
    killed, unfinished = trade(book, readers, random.Random(seed))
    last = next_writer(book)
    try:
        book.claim()
        raise RuntimeError("a second writer may write while the last writer lives")
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
        for name in ("book", "begun", "closing_bell", "reads"):
            with suppress(SegmentError):  # the example failed before
                msgq.SeqlockVector.unlink_name(name)


if __name__ == "__main__":
    main()
