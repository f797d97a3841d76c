"""The stranger: writes structured nonsense over a topic's two files. As a process, it is told where by its input."""

from __future__ import annotations

import mmap
import random
import select
import struct
import sys
import time
from pathlib import Path

HEADER = 384
READ_UIDS = range(264, HEADER, 8)
WRITE_POINTER = 8
GRANT = range(128, 176, 8)
SIDE_WORDS = 2368  # those before the schema's text, which is fuzzed less
SCHEMA_TEXT = 18688
TWO_32 = 2**32
# Thread ids that no thread has: publishers signal what they find in a slot, and it shall not be somebody.
NO_THREADS = (0, 5_000_000, 2**31 - 1, TWO_32 - 1)


class Scribbler:
    """Writes hostile words; which ones follows from the generator alone, as far as they do not copy what is there."""

    def __init__(self, ring: Path, side: Path, chance: random.Random) -> None:
        self._chance = chance
        self._ring, self._side = _map(ring), _map(side)
        self._data_bytes = len(self._ring) - HEADER

    def close(self) -> None:
        """Unmap the files."""
        self._ring.close()
        self._side.close()

    def write(self, count: int) -> None:
        """Write `count` words."""
        for _ in range(count):
            target, offset = self._target()
            value = self._value() % 2**64
            if target is self._ring and offset in READ_UIDS:
                value = value // TWO_32 * TWO_32 | self._chance.choice(NO_THREADS)
            struct.pack_into("<Q", target, offset, value)

    def _target(self) -> tuple[mmap.mmap, int]:
        """Return which word to write: those that steer are chosen most."""
        chance = self._chance
        match chance.randrange(9):
            case 0:
                return self._ring, WRITE_POINTER
            case 1:
                return self._ring, chance.randrange(0, HEADER, 8)
            case 2:
                return self._ring, HEADER
            case 3:
                return self._ring, HEADER + (self._word(WRITE_POINTER) % TWO_32) % (self._data_bytes - 7) // 8 * 8
            case 4 | 5:
                return self._ring, HEADER + chance.randrange(0, self._data_bytes - 7, 8)
            case 6:
                return self._side, chance.choice(GRANT)
            case 7:
                return self._side, chance.randrange(SIDE_WORDS) * 8
        return self._side, SCHEMA_TEXT + chance.randrange(64) * 8

    def _word(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self._ring, offset)[0])

    def _value(self) -> int:
        chance = self._chance
        match chance.randrange(10):
            case 0:
                return chance.getrandbits(64)
            case 1:
                return chance.randrange(24)
            case 2:
                return -chance.randrange(9)
            case 3:
                return chance.choice((2**31, 2**32, 2**62, 2**63)) + chance.randrange(-1, 2)
            case 4:
                return self._edge()
            case 5:  # a uid, perhaps of an entry
                return (chance.getrandbits(24) << 8 | chance.randrange(140)) << 32 | chance.choice(NO_THREADS)
            case 6:
                return self._word(WRITE_POINTER) + chance.randrange(-33, 34) * 8
            case 7:
                return self._word(WRITE_POINTER) + chance.choice((-1, 1)) * chance.choice((1, 2, 2**29, 2**31)) * TWO_32
        cycle = chance.choice((0, 1, 2**31, TWO_32 - 1, self._word(WRITE_POINTER) // TWO_32)) + chance.randrange(-1, 2)
        return cycle * TWO_32 + self._edge() % TWO_32

    def _edge(self) -> int:
        """Return an offset at a boundary, a little beside it, or not aligned."""
        size = self._data_bytes
        base = self._chance.choice((0, 8, size, (size - 9) & ~7, size // 3, size // 2, size + HEADER, TWO_32 - 1))
        return base + self._chance.randrange(-3, 4) * self._chance.choice((1, 8, 8, 8))


def _map(path: Path) -> mmap.mmap:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def main() -> None:
    """Obey lines "RING SIDE SEED" (scribble there from now on) and "rest"; answer each; end with the input."""
    scribbler = None
    chance = random.Random(0)
    while True:
        if select.select([sys.stdin], [], [], 0.0 if scribbler else None)[0]:
            words = sys.stdin.readline().split()
            if scribbler:
                scribbler.close()
                scribbler = None
            if not words:
                return
            if words != ["rest"]:
                chance = random.Random(int(words[2]))
                scribbler = Scribbler(Path(words[0]), Path(words[1]), chance)
            sys.stdout.write("done\n")
            sys.stdout.flush()
        if scribbler:
            scribbler.write(chance.choice((1, 10, 100)))
            time.sleep(chance.choice((0, 0, 1e-5, 1e-3)))


if __name__ == "__main__":
    main()
