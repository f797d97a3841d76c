"""What each kind is to a run: one interface for what a life does with it, and for its books at the end."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tools.chaos.books import Books


@dataclass(frozen=True)
class Place:
    """Where a life acts.

    Attributes
    ----------
    folder : of the run; what is too much for the books is appended to files there.
    life : its number.
    stays : it is there from before the first message to after the last one, so its counts must be the whole.
    """

    books: Books
    folder: Path
    life: int
    rng: random.Random
    stays: bool = False


class Past(NamedTuple):
    """A life of all kinds that is over.

    Attributes
    ----------
    life : its number.
    stayed : it was there all the time.
    killed : its last operation may or may not have happened. Of others every operation is known.
    """

    life: int
    stayed: bool
    killed: bool


@dataclass(frozen=True)
class Outcome:
    """The books of a run that is over, of lives of all kinds; the auditor's life is the last one."""

    books: Books
    folder: Path
    pasts: Sequence[Past]


class Figures(NamedTuple):
    """A line of the table: what was made, taken and lost, by all lives together, and what else is known."""

    what: str
    made: int
    taken: int
    lost: int
    more: str = ""


class Part(ABC):
    """One kind in one life: what it makes and what it takes, each checked at once and written into the books.

    What is found wrong at once is an AssertionError, which ends the life; what only the whole shows `balance` tells.
    """

    section: ClassVar[int]

    def __init__(self, place: Place) -> None:
        """Join, as a reader and as a writer."""
        self.place, self.rng = place, place.rng
        self.words = place.books.words(place.life, self.section)

    # ---- one life ----

    @abstractmethod
    def readers(self) -> list[Any]:
        """Return what a `Poller` shall wait for. They stay the same."""

    @abstractmethod
    def act(self) -> None:
        """Make something: a message or several, a frame, a value."""

    @abstractmethod
    def take(self, reader: Any) -> None:
        """Take some of what is there, which the poller has said of this reader, and check it."""

    @abstractmethod
    def quiet(self) -> None:
        """Make nothing any more, and leave as a writer. Reading goes on."""

    @abstractmethod
    def close(self) -> None:
        """Leave as a reader. Comes after `quiet`."""

    # ---- the whole run ----

    @staticmethod
    @abstractmethod
    def make() -> None:
        """Make the files before anybody is there, and leave."""

    @staticmethod
    @abstractmethod
    def audit(place: Place) -> None:
        """Join when everybody has gone, use the kind once more, and write down what the whole has come to.

        It looks at `msgq.stats` as `msgq doctor` does, and raises AssertionError for what is nonsense there.
        """

    @staticmethod
    @abstractmethod
    def balance(outcome: Outcome) -> list[str]:
        """Return what is wrong in the books."""

    @staticmethod
    @abstractmethod
    def figures(outcome: Outcome) -> list[Figures]:
        """Return the lines of the table."""


def within(what: str, least: int, found: int, most: int) -> list[str]:
    """Return a complaint unless the number is one that the books allow."""
    if least <= found <= most:
        return []
    return [f"{what}: {found}, but the books of the lives say {least} to {most}"]
