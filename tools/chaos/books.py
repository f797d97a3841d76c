"""What the lives of a run write down, in memory that outlives them, and the messages that they exchange."""

from __future__ import annotations

import mmap
import struct

from tests.stress.traffic import STAMP, Stream

LIVES = 1 << 17  # more than a day of a run
_ROW_WORDS = 8
_ORIGIN = struct.Struct("<IQ")  # after the stamp: the life that sent it, and which of its messages it is
SMALLEST = STAMP + _ORIGIN.size


class Row:
    """What one life has written. A publisher uses the first three words, a subscriber the others.

    Attributes
    ----------
    base : messages that the topic had when this publisher connected; None before it knew.
    made, sent : messages that it began to send, and those whose sending had returned. A kill comes between the two.
    joined : this subscriber is in place.
    received, lost : as the subscriber counted them last.
    """

    __slots__ = ("_first", "_words")

    def __init__(self, words: memoryview, life: int) -> None:
        self._words, self._first = words, life * _ROW_WORDS

    @property
    def base(self) -> int | None:
        """See the class."""
        return self._words[self._first] - 1 if self._words[self._first] else None

    @base.setter
    def base(self, value: int) -> None:
        self._words[self._first] = value + 1

    @staticmethod
    def _word(index: int) -> property:
        def read(row: Row) -> int:
            return row._words[row._first + index]

        def write(row: Row, value: int) -> None:
            row._words[row._first + index] = value

        return property(read, write, doc="See the class.")

    made = _word(1)
    sent = _word(2)
    joined = _word(3)
    received = _word(4)
    lost = _word(5)


class Books:
    """The rows of all lives, shared with every process that is forked later.

    Attributes
    ----------
    ending : 0; 1: publishers shall close; 2: subscribers shall leave once nothing comes any more.
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, LIVES * _ROW_WORDS * 8)).cast("Q")
        self._control = Row(self._words, 0)

    def __getitem__(self, life: int) -> Row:
        return Row(self._words, life)

    @property
    def ending(self) -> int:
        """See the class."""
        ending: int = self._control.made
        return ending

    @ending.setter
    def ending(self, value: int) -> None:
        self._control.made = value


class Messages(Stream):
    """The messages of a topic: every byte follows from a number, a life, and the place among the messages of that life.

    Parameters
    ----------
    life : of the publisher that makes messages; a subscriber needs none.
    """

    def __init__(self, books: Books, seed: int, largest: int, life: int = 0) -> None:
        super().__init__(seed, largest, SMALLEST)
        self._books, self._life, self._row = books, life, books[life]

    def message(self, number: int) -> bytes:
        """Make a message of this publisher, and write down that it is about to be sent."""
        index = number - (self._row.base or 0)
        self._row.made = index + 1
        return self._of(number, self._life, index)

    def agrees(self, message: bytes, number: int) -> bool:
        """Whether this is the message of that number, whole, and of a publisher that made it."""
        if len(message) < SMALLEST:
            return False
        life, index = _ORIGIN.unpack_from(message, STAMP)
        if not 0 < life < LIVES:
            return False
        row = self._books[life]
        return row.base == number - index and index < row.made and message == self._of(number, life, index)

    def _of(self, number: int, life: int, index: int) -> bytes:
        plain = super().message(number)
        return plain[:STAMP] + _ORIGIN.pack(life, index) + plain[SMALLEST:]
