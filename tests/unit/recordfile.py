"""A vector's or board's file as a stranger writes it: any word, at any time."""

from __future__ import annotations

import mmap
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgq.errors import IpcError
from msgq.records import Board, SeqlockVector
from tests.support import DEADLINE, SHM

HEADER = 32768
LENGTH_AT, ITEM_AT, COPIES_AT, STRIDE_AT, COPY_STRIDE_AT, FLAGS_AT = 48, 56, 64, 72, 80, 88
ATTENTION, OWNER, ROWS, ROW_BYTES, SCHEMA, KEY_BYTES = 192, 256, 4096, 128, 20480, 128
#: Values at which arithmetic goes wrong.
EDGES = (0, 1, 64, 2**16, 2**24, 2**31, 2**32 - 1, 2**48, 2**63 - 1, 2**63, 2**64 - 1)
LENGTH = 9  # length of the vectors and boards that are written to
CALL_SECONDS = DEADLINE  # a call waits 10 ms at most, but a busy machine may keep it from its core; a bug hangs


class RecordFile:
    """The parts of a file, by name; each is a place in the file.

    Args:
        endpoint: the name of the vector or board.
    """

    def __init__(self, endpoint: str) -> None:
        self.path: Path = SHM / f"msgqrec_{endpoint}"
        with self.path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.board = bool(self.read(FLAGS_AT) & 2)
        self.length, self._stride, self._copy_stride = (self.read(at) for at in (LENGTH_AT, STRIDE_AT, COPY_STRIDE_AT))
        self._elements = HEADER + (KEY_BYTES * self.length if self.board else 0)

    def version(self, element: int) -> int:
        return self._elements + self._stride * element

    def copy(self, element: int, copy: int) -> int:
        """Return where a copy is: its time, and behind that its value, or its length."""
        return self.version(element) + 8 + self._copy_stride * copy

    def key(self, element: int, field: int) -> int:
        """Return where a word of a key is: 0 owner, 1 whether it is named, then its name."""
        return HEADER + KEY_BYTES * element + 8 * field

    def row(self, row: int, field: int) -> int:
        """Return where a word of a row is: 0 to 7 who it is, 8 the generation, 9 what was written."""
        return ROWS + ROW_BYTES * row + 8 * field

    def write(self, at: int, value: int) -> None:
        self.map[at : at + 8] = (value % 2**64).to_bytes(8, "little")

    def read(self, at: int) -> int:
        return int.from_bytes(self.map[at : at + 8], "little")

    def reset(self) -> None:
        """Make all elements such as were never written, and nobody's, as nobody but a stranger can."""
        self.map[self._elements :] = bytes(len(self.map) - self._elements)
        self.write(OWNER, 0)


def owner_words(row: int, generation: int) -> Iterator[int]:
    """Words of owners: one who lives, others, and those whom there cannot be."""
    for owner in (row, (row + 1) % 128, 127, 128, 254):
        for since in (generation, generation + 1):
            yield (owner + 1) << 16 | since & 0xFFFF
    yield 0xFFFF  # nobody, of a generation


def version_words(row: int, generation: int) -> Iterator[int]:
    """Each kind of version: of few times and many, of nobody, of all kinds of owners."""
    for times in (0, 1, 2**31, 2**40 - 1):
        for name in (0, *owner_words(row, generation)):
            yield times << 24 | name
    yield from EDGES


def random_word(rng: random.Random) -> int:
    """Return a word that steers, more often than not."""
    name = rng.randrange(4) << 16 | rng.randrange(3)
    return rng.choice((rng.randrange(9) << 24 | name, name, rng.getrandbits(64), -rng.randrange(70), rng.choice(EDGES)))


# ---- calls that must end ----


def call_with_time_limit(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call it; an error of ours is a result, too."""
    begun = time.monotonic()
    try:
        result = call(*args, **options)
    except IpcError as error:
        result = error
    assert time.monotonic() - begun < CALL_SECONDS, call
    return result


def write_declared_key(board: Board, key: str) -> None:
    with board.declare(key) as entry:
        entry.write(b"1234")


VECTOR_CALLS: tuple[Callable[[SeqlockVector], Any], ...] = (
    lambda vector: vector[0],
    lambda vector: vector[1:],
    lambda vector: vector.read([8, 0, 8]),
    lambda vector: vector.snapshot(),
    lambda vector: vector.snapshot(atomic=True, timeout=0.01),
    lambda vector: vector.times(),
    lambda vector: vector.counts([0, 1]),
    lambda vector: vector.changes(),
    lambda vector: vector.wait(0),
    lambda vector: vector.wait(0.002),
    lambda vector: vector.receive(timeout=0),
    lambda vector: vector.write([0, 1], 5.0, timeout=0),
    lambda vector: vector.write(None, 6.0, timeout=0.002),
    lambda vector: (vector.schema, vector.creator, repr(vector), vector.owner if hasattr(vector, "owner") else None),
)
BOARD_CALLS: tuple[Callable[[Board], Any], ...] = (
    lambda board: board.keys(),
    lambda board: board.items(),
    lambda board: board.changes(),
    lambda board: board.wait(0.002),
    lambda board: board.receive(timeout=0),
    lambda board: board["k1"],
    lambda board: "k1" in board,
    lambda board: board.observe("k1").read(),
    lambda board: board.observe("k2").data(),
    lambda board: board.observe("k1").read_into(bytearray(100)),
    lambda board: board.observe("nobody's").wait(0),
    lambda board: write_declared_key(board, "k1"),
    lambda board: write_declared_key(board, "k7"),
    lambda board: (board.schema, board.creator, len(board), repr(board)),
)


def all_calls(handle: SeqlockVector | Board) -> None:
    for call in BOARD_CALLS if isinstance(handle, Board) else VECTOR_CALLS:
        call_with_time_limit(call, handle)


def check_works(vector: SeqlockVector, element: int = 4) -> None:
    """What is sound is written, counted and read."""
    before = int(vector.counts([element])[0])
    vector.write([element], 7.5, timeout=CALL_SECONDS)
    assert vector[element] == 7.5
    assert vector.counts([element])[0] == (vector.copies if before == 2**40 - 1 else before + 1)
