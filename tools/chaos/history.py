"""What the incarnations of a run write down, in memory that outlives them, and the messages that they exchange."""

from __future__ import annotations

import mmap
import struct
from typing import Any

from tests.stress.traffic import STAMP, Stream

INCARNATIONS_MAX = 1 << 17  # more than a day of a run
SECTION_WORDS = 24
TOPICS, CHANNELS, FRAMES, RECORDS, QUEUES = range(5)  # the sections of an incarnation's account
_INCARNATION_WORDS = 5 * SECTION_WORDS
_ORIGIN = struct.Struct("<IQ")  # after the stamp: the incarnation that sent it, and which of its messages it is
SMALLEST = STAMP + _ORIGIN.size


class Field:
    """A word of an account, as an attribute: a whole number that stays when the process that sets it is killed."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __get__(self, record: Any, _: object = None) -> Any:
        return self if record is None else record.words[self._index]

    def __set__(self, record: Any, value: int) -> None:
        record.words[self._index] = value


class Record:
    """What one incarnation has written of one kind. `words` is shared memory that no other incarnation changes."""

    __slots__ = ("words",)

    def __init__(self, words: memoryview) -> None:
        self.words = words


class TopicRecord(Record):
    """What an incarnation has written of a topic or a stream of frames: as its publisher, and as a subscriber.

    Attributes
    ----------
    base : messages that the topic had when this publisher connected; None before it knew.
    made, sent : messages that it began to send, and those whose sending had returned. A kill comes between the two.
    joined : this subscriber is in place.
    received, lost : as the subscriber counted them last.
    dropped : frames that it did not publish, because clients held all buffers.
    quiet : an incarnation of all kinds makes nothing any more.
    """

    __slots__ = ()

    @property
    def base(self) -> int | None:
        """See the class."""
        return self.words[0] - 1 if self.words[0] else None

    @base.setter
    def base(self, value: int) -> None:
        self.words[0] = value + 1

    made = Field(1)
    sent = Field(2)
    joined = Field(3)
    received = Field(4)
    lost = Field(5)
    dropped = Field(6)
    quiet = Field(7)


class History:
    """The records of all incarnations, shared with every process that is forked later. Incarnation 0 is the run itself.

    Attributes
    ----------
    begun : incarnations of all kinds may make something: those that stay are all in place.
    ending : 0; 1: publishers shall close; 2: subscribers shall leave once nothing comes any more.
    """

    def __init__(self) -> None:
        self._words = memoryview(mmap.mmap(-1, INCARNATIONS_MAX * _INCARNATION_WORDS * 8)).cast("Q")
        self._control = self[0]

    def __getitem__(self, incarnation: int) -> TopicRecord:
        return TopicRecord(self.words(incarnation, TOPICS))

    def words(self, incarnation: int, section: int) -> memoryview:
        """Return the words of an incarnation for one kind."""
        first = incarnation * _INCARNATION_WORDS + section * SECTION_WORDS
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
    """The messages of a topic: every byte follows from a number, an incarnation, and the index in that incarnation.

    Parameters
    ----------
    incarnation : of the publisher that makes messages; a subscriber needs none.
    """

    def __init__(self, history: History, seed: int, largest: int, incarnation: int = 0) -> None:
        super().__init__(seed, largest, SMALLEST)
        self._history, self._incarnation, self._record = history, incarnation, history[incarnation]

    def message(self, number: int) -> bytes:
        """Make a message of this publisher, and write down that it is about to be sent."""
        index = number - (self._record.base or 0)
        self._record.made = index + 1
        return self._of(number, self._incarnation, index)

    def agrees(self, message: bytes, number: int) -> bool:
        """Whether this is the message of that number, whole, and of a publisher that made it."""
        if len(message) < SMALLEST:
            return False
        incarnation, index = _ORIGIN.unpack_from(message, STAMP)
        if not 0 < incarnation < INCARNATIONS_MAX:
            return False
        record = self._history[incarnation]
        return record.base == number - index and index < record.made and message == self._of(number, incarnation, index)

    def _of(self, number: int, incarnation: int, index: int) -> bytes:
        plain = super().message(number)
        return plain[:STAMP] + _ORIGIN.pack(incarnation, index) + plain[SMALLEST:]
