"""What the incarnations of a run write down, in memory that outlives them."""

from __future__ import annotations

import mmap
from typing import Any

INCARNATIONS_MAX = 1 << 18  # limit with the forked ones; hours of a run
SECTION_WORDS = 24
TOPICS, CHANNELS, FRAMES, RECORDS, QUEUES = range(5)  # the sections of an incarnation's account
_INCARNATION_WORDS = 5 * SECTION_WORDS
FORKED = INCARNATIONS_MAX >> 2  # added to an incarnation's number, it is the number of the child that it forks


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
    """What an incarnation has written of a topic, a channel or a stream of frames: as a publisher and as a subscriber.

    Attributes:
        base: messages that the topic had when this publisher connected; None before it knew.
        begun: messages that it began to send.
        sent: messages whose sending had returned. A kill comes between the two.
        joined: this incarnation is in place.
        received: received messages, as the subscriber counted them last.
        lost: lost messages, as the subscriber counted them last.
        dropped: frames that it did not publish, because clients held all buffers.
        quiet: it makes nothing any more.
        total: of the final checker: messages that the endpoint has had.
        taken: times that the incarnation took something, of any kind.
        steps: times that the incarnation tried to act.
    """

    __slots__ = ()
    TOTAL = 8

    @property
    def base(self) -> int | None:
        """See the class."""
        return self.words[0] - 1 if self.words[0] else None

    @base.setter
    def base(self, value: int) -> None:
        self.words[0] = value + 1

    begun = Field(1)
    sent = Field(2)
    joined = Field(3)
    received = Field(4)
    lost = Field(5)
    dropped = Field(6)
    quiet = Field(7)
    total = Field(TOTAL)
    taken = Field(9)
    steps = Field(10)


class History:
    """The records of all incarnations, shared with every process that is forked later. Incarnation 0 is the run itself.

    Attributes:
        begun: incarnations of all kinds may make something: those that stay are all in place.
        ending: 0; 1: publishers shall close; 2: subscribers shall leave once nothing comes any more.
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
        ending: int = self._control.begun
        return ending

    @ending.setter
    def ending(self, value: int) -> None:
        self._control.begun = value
