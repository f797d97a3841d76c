"""A work queue's file as a stranger writes it: any word, at any time."""

from __future__ import annotations

import mmap
import random
from collections.abc import Iterator
from pathlib import Path

from tests.support import SHM

HEADER = 49152
ROWS, ROW_BYTES, SCHEMA = 4096, 192, 28672
READY_COUNT, BITS, FREED, ARRIVED = 256, 320, 384, 448
READY_BIT, HELD_BITS, TAKEN_BITS = 1 << 63, 1 << 61, 2 << 61
#: Values at which arithmetic goes wrong.
EDGES = (0, 1, 64, 2**16, 2**31, 2**32 - 1, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def lines(count: int) -> int:
    return (count + 63) // 64 * 64


class QueueFile:
    """The parts of a queue's file, by name; each is a place in the file.

    Parameters
    ----------
    endpoint : the queue's name.
    messages : how many it holds.
    """

    def __init__(self, endpoint: str, messages: int) -> None:
        self.path: Path = SHM / f"msgqjobs_{endpoint}"
        with self.path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.messages, self.blocks = messages, (messages + 63) // 64
        self._words = HEADER + lines(8 * self.blocks)
        self._heads = self._words + lines(8 * messages)

    def entered(self, block: int) -> int:
        return HEADER + 8 * block

    def word(self, place: int) -> int:
        return self._words + 8 * place

    def head(self, place: int, field: int) -> int:
        """Return where a word of a head is: 0 key, length, deliveries, sent_time, origin_time, 5 lease."""
        return self._heads + 64 * place + 8 * field

    def row(self, row: int, field: int) -> int:
        """Return where a word of a row is: 0 to 7 who it is, 8 the generation, 9 to 13 counts, 16 take."""
        return ROWS + ROW_BYTES * row + 8 * field

    def write(self, at: int, value: int) -> None:
        self.map[at : at + 8] = (value % 2**64).to_bytes(8, "little")

    def read(self, at: int) -> int:
        return int.from_bytes(self.map[at : at + 8], "little")


def words_of_all_kinds(row: int, generation: int) -> Iterator[int]:
    """Each kind of word, of an owner who lives, of others, and what is none."""
    for kind in (HELD_BITS, TAKEN_BITS):
        for owner in (row, (row + 1) % 128, 127, 128, 255):
            for since in (generation, generation + 1):
                yield kind | owner << 48 | (since & 0xFFFF) << 32
                yield kind | owner << 48 | (since & 0xFFFF) << 32 | 2**32 - 1
        yield kind | 1 << 60
    for priority in (0, 32767):
        for order in (0, 1, 2**48 - 1):
            yield READY_BIT | priority << 48 | order
    yield from EDGES
    yield 3 << 61


def random_word(rng: random.Random) -> int:
    """Return a word that steers, more often than not."""
    row, generation = rng.randrange(4), rng.randrange(4)
    word = rng.choice((HELD_BITS, TAKEN_BITS)) | row << 48 | generation << 32 | rng.randrange(3)
    ready = READY_BIT | rng.randrange(3) << 48 | 2**48 - 1 - rng.randrange(100)
    return rng.choice((word, ready, rng.getrandbits(64), rng.randrange(70), -rng.randrange(70), rng.choice(EDGES)))
