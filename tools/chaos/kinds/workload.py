"""What each kind is to a run: one interface for what an incarnation does with it, and for its history at the end."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tools.chaos.history import History


@dataclass(frozen=True)
class WorkerContext:
    """Where an incarnation acts.

    Attributes
    ----------
    folder : folder of the run. Data that is too large for the history is appended to files there.
    incarnation : its number.
    stays : True: the incarnation exists before the first and after the last message, so its counts must be complete.
    """

    history: History
    folder: Path
    incarnation: int
    rng: random.Random
    is_permanent: bool = False


class WorkerResult(NamedTuple):
    """An incarnation of all kinds that is over.

    Attributes
    ----------
    incarnation : its number.
    stayed : it was there all the time.
    killed : its last operation may or may not have happened. Of others every operation is known.
    """

    incarnation: int
    is_permanent: bool
    killed: bool


@dataclass(frozen=True)
class RunResult:
    """The history of a run that is over, of incarnations of all kinds; the final checker's is the last one."""

    history: History
    folder: Path
    results: Sequence[WorkerResult]


class Counts(NamedTuple):
    """A line of the table: sent, received and lost messages of all incarnations, and further counts."""

    name: str
    made: int
    taken: int
    lost: int
    details: str = ""


class Workload(ABC):
    """One kind in one incarnation: sends and receives messages, checks each message, and records it in the history.

    An error that shows at once is an AssertionError, which ends the incarnation. `check` finds those that only the
    whole history shows.
    """

    section: ClassVar[int]

    def __init__(self, context: WorkerContext) -> None:
        """Join, as a reader and as a writer."""
        self.context, self.rng = context, context.rng
        self.words = context.history.words(context.incarnation, self.section)

    # ---- one incarnation ----

    @abstractmethod
    def readers(self) -> list[Any]:
        """Return what a `Poller` shall wait for. They stay the same."""

    @abstractmethod
    def produce(self) -> None:
        """Make something: a message or several, a frame, a value."""

    @abstractmethod
    def take(self, reader: Any) -> None:
        """Receive and check some of the messages that the poller has reported for this reader."""

    @abstractmethod
    def stop_producing(self) -> None:
        """Make nothing any more, and leave as a writer. Reading goes on."""

    @abstractmethod
    def close(self) -> None:
        """Leave as a reader. Comes after `quiet`."""

    # ---- the whole run ----

    @staticmethod
    @abstractmethod
    def create_files() -> None:
        """Create the files before the first incarnation, and leave."""

    @staticmethod
    @abstractmethod
    def check_at_end(context: WorkerContext) -> None:
        """Join after all incarnations have ended, use the kind once more, and record the totals.

        The method reads `msgq.stats` as `msgq doctor` does, and raises AssertionError for invalid statistics.
        """

    @staticmethod
    @abstractmethod
    def check(run_result: RunResult) -> list[str]:
        """Return the errors in the history."""

    @staticmethod
    @abstractmethod
    def counts(run_result: RunResult) -> list[Counts]:
        """Return the lines of the table."""


def check_within(subject: str, minimum: int, value: int, maximum: int) -> list[str]:
    """Return a complaint unless the number is one that the history allow."""
    if minimum <= value <= maximum:
        return []
    return [f"{subject}: {value}, but the history of the incarnations say {minimum} to {maximum}"]
