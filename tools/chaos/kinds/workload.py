"""What each kind is to a run: one interface for what an incarnation does with it, and for its history at the end."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tools.chaos.history import FORKED, History, Record, TopicRecord

WAIT = 0.02  # maximum seconds that an incarnation waits before it checks for the end of the run


@dataclass(frozen=True)
class Lane:
    """An endpoint of a run.

    Attributes:
        size: bytes of a topic's ring, a frame or an element of a vector; messages of a channel or a queue.
        copies: of each element of a vector.
    """

    kind: type[Workload]
    name: str
    size: int
    copies: int = 2


@dataclass(frozen=True)
class WorkerContext:
    """Where and how an incarnation acts.

    Attributes:
        folder: folder of the run. Data that is too large for the history is appended to files there.
        incarnation: its number.
        way: how it waits and receives, one of WAYS of `worker`.
        reads: True if it reads.
        writes: True if it writes.
        is_permanent: it exists before the first and after the last message, so its counts must be complete.
    """

    history: History
    folder: Path
    incarnation: int
    rng: random.Random
    way: str = "poller"
    reads: bool = True
    writes: bool = True
    is_permanent: bool = False

    def fork(self) -> WorkerContext:
        """Return the context of the child that this incarnation forks."""
        return replace(self, incarnation=self.incarnation + FORKED, rng=random.Random(self.rng.random()))


class WorkerResult(NamedTuple):
    """An incarnation that is over.

    Attributes:
        incarnation: its number.
        is_permanent: it was there all the time, as a reader.
        killed: its last operation may or may not have happened. Of others every operation is known.
    """

    incarnation: int
    is_permanent: bool
    killed: bool
    way: str = "poller"


@dataclass(frozen=True)
class RunResult:
    """The history of a lane in a run that is over. `results` ends with the final checker, which knows the total."""

    history: History
    folder: Path
    lane: Lane
    results: list[WorkerResult]

    def records(self, kind: type[Record] | None = None) -> Iterator[tuple[WorkerResult, Any]]:
        """Yield each incarnation with its record."""
        for result in self.results:
            words = self.history.words(result.incarnation, self.lane.kind.section)
            yield result, (kind or self.lane.kind.record_type)(words)

    @property
    def total(self) -> int:
        """Messages that the endpoint had at the end."""
        return int(self.history.words(self.results[-1].incarnation, self.lane.kind.section)[TopicRecord.TOTAL])


class Counts(NamedTuple):
    """A line of the table: sent, received and lost messages of all incarnations, and further counts."""

    name: str
    begun: int
    taken: int
    lost: int
    details: str = ""


class Workload(ABC):
    """One kind in one incarnation: sends and receives messages, checks each message, and records it in the history.

    An error that shows at once is an AssertionError, which ends the incarnation. `check` finds those that only the
    whole history shows.
    """

    section: ClassVar[int]
    record_type: ClassVar[type[Record]]
    is_over = False  # a writer that another one superseded

    def __init__(self, context: WorkerContext, lane: Lane) -> None:
        """Join, as a reader, as a writer, or as both."""
        self.context, self.lane, self.rng = context, lane, context.rng
        self.words = context.history.words(context.incarnation, self.section)
        self.record: Any = self.record_type(self.words)

    # ---- one incarnation ----

    @abstractmethod
    def readers(self) -> list[Any]:
        """Return what a `Poller` shall wait for. They stay the same."""

    @abstractmethod
    def produce(self) -> None:
        """Make something: a message or several, a frame, a value."""

    @abstractmethod
    def take(self, reader: Any, timeout: float = 0.0) -> bool:
        """Receive and check some messages of this reader, and wait for the first one. False: nothing came."""

    @abstractmethod
    async def atake(self, reader: Any) -> None:
        """Receive and check one message of this reader; a wait is cancelled when it takes too long."""

    def let_go(self) -> None:  # noqa: B027  # not each kind holds something
        """Give back what is held: views, frames, jobs."""

    def continue_in_fork(self, context: WorkerContext, words: list[int]) -> None:
        """In a forked child: go on as another incarnation, with the record that its parent had at the fork."""
        self.context, self.rng = context, context.rng
        self.words = self.record.words = context.history.words(context.incarnation, self.section)
        for i, word in enumerate(words):
            self.words[i] = word

    @abstractmethod
    def stop_producing(self) -> None:
        """Make nothing any more, and leave as a writer. Reading goes on."""

    @abstractmethod
    def close(self) -> None:
        """Leave as a reader. Comes after `stop_producing`."""

    # ---- the whole run ----

    @staticmethod
    @abstractmethod
    def create_files(lane: Lane) -> None:
        """Create the files before the first incarnation, and leave."""

    @staticmethod
    @abstractmethod
    def check_at_end(context: WorkerContext, lane: Lane) -> None:
        """Join after all incarnations have ended, use the kind once more, and record the total.

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
    """Return a complaint unless the number is one that the history allows."""
    if minimum <= value <= maximum:
        return []
    return [f"{subject}: {value}, but the history of the incarnations says {minimum} to {maximum}"]


def check_complete(run_result: RunResult) -> list[str]:
    """Who was there from the start has received every message, or counts it as lost."""
    total = run_result.total
    return [
        f"{result.way} {result.incarnation} of {run_result.lane.name}: {record.received} received, "
        f"{record.lost} lost, of {total} that were published"
        for result, record in run_result.records()
        if result.is_permanent and record.received + record.lost != total
    ]


def check_none_left(participants: Iterable[Any]) -> None:
    """Nobody is registered after all have left or died."""
    living = [one for one in participants if one.alive is not False]
    assert not living, living


def count_received(run_result: RunResult, name: str, details: str = "") -> list[Counts]:
    """Return the line of an endpoint whose subscribers count what they receive and lose."""
    records = [record for _, record in run_result.records()]
    received, lost = sum(record.received for record in records), sum(record.lost for record in records)
    return [Counts(name, run_result.total, received, lost, details)]
