"""What really happened, kept beside the shared memory, and the properties that every schedule must satisfy."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

Position = tuple[int, int]  # (cycle, offset in words)


class Violation(Exception):
    """A property does not hold."""

    def __init__(self, key: str, text: str) -> None:
        super().__init__(f"{key}: {text}")
        self.broken = key


PROPERTIES = {
    "torn": "what is delivered is one whole message",
    "order": "messages are delivered in order, none twice",
    "account": "received + lost accounts for every message, exactly",
    "usage": "nobody is lapped as long as the announced limit spares the cursor",
    "overlap": "nobody publishes over what another publisher published",
    "progress": "a newcomer gets in when the living publishers before it have gone on for so long that a send is over",
    "wake": "nobody sleeps while there is something to read",
    "lost-wake": "after a publisher returned from its call, nobody sleeps before its message, whoever is stopped",
    "stolen": "what a living participant holds is not taken away",
    "leak": "of a dead owner nothing is left for the next one in its row",
    "monotonic": "reads of an element never go back, timestamps included, and end with the newest value",
    "counted": "the count of an element is the number of its completed writes",
    "inherited": "whatever a dead writer had can be had by the next one",
    "snapshot": "a snapshot shows what was there at one instant",
    "stuck": "every operation ends",
}


class Word(NamedTuple):
    """A word of the data area: message, part of the message, and the value as a size word."""

    message: int
    part: int  # 0: the size word, 1..: the payload
    size: int  # words of payload; -1: the wrap mark


class Reader(Protocol):
    """What the checks need to know of a subscriber."""

    name: str
    cursor: Position
    era: int
    last_index: int  # place of the last message that it got

    @property
    def sequence(self) -> int | None:
        """Messages of this era before the cursor, by its own count; None: it does not know."""


class Oracle:
    """The messages in the order in which they were published."""

    def __init__(self) -> None:
        self.sizes: list[int] = []  # size of message number n, published or not
        self.committed: list[int] = []
        self.index: dict[int, int] = {}  # message -> place in `committed`
        self.base = {0: 0}  # era -> messages before it
        self.position: Position = (0, 0)  # up to which messages are published
        self.last_end: Position = (0, 0)  # the same, without a wrap mark at the end

    def new_message(self, size: int) -> int:
        """Its number."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def publish(self, actor: str, begin: Position, end: Position, messages: Sequence[int]) -> None:
        """`write_pointer` moved from `begin` to `end`."""
        if begin != self.position:
            raise Violation("overlap", f"{actor} publishes from {begin} to {end}, but the ring is at {self.position}")
        self.position = end
        if messages:
            self.last_end = end
        for message in messages:
            self.index[message] = len(self.committed)
            self.committed.append(message)

    def start_era(self, era: int) -> None:
        """Start the count of messages at 0."""
        self.base[era] = len(self.committed)

    def deliver(self, reader: Reader, words: Sequence[Word]) -> None:
        """A subscriber accepted this copy; its sequence does not count it yet."""
        message = words[0].message
        whole = [(word.message, word.part) for word in words] == [(message, part) for part in range(len(words))]
        if not whole or message < 0 or len(words) != self.sizes[message] + 1:
            raise Violation("torn", f"{reader.name} takes {words} at {reader.cursor} for a message")
        index = self.index.get(message, -1)
        if index <= reader.last_index:
            raise Violation("order", f"{reader.name} gets message {message} (place {index}) after {reader.last_index}")
        counted = index if reader.sequence is None else self.base[reader.era] + reader.sequence
        if counted != index:
            raise Violation("account", f"{reader.name} says that it reads place {counted}, but it is {index}")
        reader.last_index = index

    def check_end(self, reader: Reader) -> None:
        """Check a subscriber that has read all messages after the last send."""
        if reader.cursor != self.position:
            raise Violation("account", f"{reader.name} stops at {reader.cursor}; the ring is at {self.position}")
        expected = len(self.committed) - self.base[reader.era]
        if reader.sequence is not None and reader.sequence != expected:
            raise Violation("account", f"{reader.name} counts {reader.sequence} messages; there are {expected}")

    def check_asleep(self, reader: Reader) -> None:
        """Check a sleeping subscriber after the last possible wake."""
        if reader.cursor < self.last_end:
            raise Violation("wake", f"{reader.name} sleeps at {reader.cursor}; the ring is at {self.position}")
