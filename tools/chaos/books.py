"""What the lives of a run write down, in memory that outlives them, and the messages that they exchange."""

from __future__ import annotations

import mmap
import struct
from typing import Any

from tests.stress.traffic import STAMP, Stream

LIVES = 1 << 17  # more than a day of a run
SECTION_WORDS = 24
TOPICS, CHANNELS, FRAMES, RECORDS, QUEUES = range(5)  # the sections of a life's account
_LIFE_WORDS = 5 * SECTION_WORDS
_ORIGIN = struct.Struct("<IQ")  # after the stamp: the life that sent it, and which of its messages it is
SMALLEST = STAMP + _ORIGIN.size


class Word:
    """A word of an account, as an attribute: a whole number that stays when the process that sets it is killed."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, account: Any, _: object = None) -> Any:
        return self if account is None else account.words[self._index]

    def __set__(self, account: Any, value: int) -> None:
        account.words[self._index] = value


class Account:
    """What one life has written of one kind. `words` are the shared memory; each is changed by its own life only."""

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words = words


class Row(Account):
    """What a life has written of a topic or a stream of frames: as its publisher, and as a subscriber.

    Attributes
    ----------
    base : messages that the topic had when this publisher connected; None before it knew.
    made, sent : messages that it began to send, and those whose sending had returned. A kill comes between the two.
    joined : this subscriber is in place.
    received, lost : as the subscriber counted them last.
    dropped : frames that it did not publish, because clients held all buffers.
    quiet : a life of all kinds makes nothing any more.
    """

    __slots__ = ()

    @property
    def base(self) -> int | None:
        """See the class."""
        return self.words[0] - 1 if self.words[0] else None

    @base.setter
    def base(self, value: int) -> None:
        self.words[0] = value + 1

    made = Word(1)
    sent = Word(2)
    joined = Word(3)
    received = Word(4)
    lost = Word(5)
    dropped = Word(6)
    quiet = Word(7)


class Books:
    """The accounts of all lives, shared with every process that is forked later. Life 0 is the run itself.

    Attributes
    ----------
    begun : lives of all kinds may make something: those that stay are all in place.
    ending : 0; 1: publishers shall close; 2: subscribers shall leave once nothing comes any more.
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, LIVES * _LIFE_WORDS * 8)).cast("Q")
        self._control = self[0]

    def __getitem__(self, life: int) -> Row:
        return Row(self.words(life, TOPICS))

    def words(self, life: int, section: int) -> memoryview:
        """Return the words of a life for one kind."""
        first = life * _LIFE_WORDS + section * SECTION_WORDS
        return self._words[first : first + SECTION_WORDS]

    @property
    def begun(self) -> bool:
        """See the class."""
        return bool(self._control.joined)

    @begun.setter
    def begun(self, value: bool) -> None:
        self._control.joined = value

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
