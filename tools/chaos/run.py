"""Starts, kills, stops and continues the incarnations of a run, and brings it to its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import wait_until
from tools.chaos.history import FORKED, INCARNATIONS_MAX, History
from tools.chaos.kinds import worker
from tools.chaos.kinds.worker import WAYS
from tools.chaos.kinds.workload import Lane, RunResult, WorkerContext, WorkerResult
from tools.chaos.plan import Crew, Plan
from tools.chaos.process import fork

STOP = 0.15  # seconds that a stopped process stays so, on average
PATIENCE = 60.0  # maximum seconds of the end. Incarnations that still run then count as hanging
NORMAL_ENDS = {0: "closed", worker.SUPERSEDED: "superseded"}


@dataclass(eq=False)
class Incarnation:
    """One process of the run: one incarnation, or one in each of its threads.

    Attributes:
        number: number of its first thread. Further threads have the next numbers.
        ways: how each thread waits.
        continues: when it is to go on, if it is stopped (time.monotonic).
        end: "killed", a normal end (NORMAL_ENDS), or an error; "" while it runs.
    """

    number: int
    crew: Crew
    ways: list[str]
    pid: int = 0
    continues: float | None = None
    end: str = ""

    def results(self, history: History) -> list[WorkerResult]:
        """Return its threads, and the children that they forked."""
        members = [(self.number + i, way) for i, way in enumerate(self.ways)]
        for number, way in members:
            if number + FORKED < INCARNATIONS_MAX and history[number + FORKED].quiet:
                members.append((number + FORKED, way))
        permanent, killed = self.crew.is_permanent and self.crew.reads, self.end == "killed"
        return [WorkerResult(number, permanent, killed, way) for number, way in members]


@dataclass
class Run:
    """A run with its interventions and results. `failures` is empty if the run had no error."""

    seed: int
    folder: Path
    plan: Plan
    history: History = field(default_factory=History)
    incarnations: list[Incarnation] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._running: dict[int, Incarnation] = {}
        self._next = 1
        self._final: dict[Lane, int] = {}

    def results(self, lane: Lane) -> RunResult:
        """Return the history of a lane."""
        results = [
            result
            for incarnation in self.incarnations
            if lane in incarnation.crew.lanes
            for result in incarnation.results(self.history)
        ]
        return RunResult(self.history, self.folder, lane, [*results, WorkerResult(self._final[lane], False, False)])

    # ---- incarnations ----

    def _take_number(self, count: int = 1) -> int:
        number, self._next = self._next, self._next + count
        if self._next >= FORKED:
            raise RuntimeError(f"more than {FORKED} incarnations: shorten the run")
        return number

    def _start(self, crew: Crew) -> Incarnation:
        position = sum(each.crew is crew for each in self.incarnations)
        ways = [self._choose_way(crew, position * crew.threads + i) for i in range(crew.threads)]
        incarnation = Incarnation(self._take_number(crew.threads), crew, ways)
        contexts = [self._context(crew, incarnation.number + i, way) for i, way in enumerate(ways)]
        if crew.threads > 1:
            self._fork(incarnation, worker.work_in_threads, contexts, crew.lanes)
        else:
            self._fork(incarnation, worker.work, contexts[0], crew.lanes, crew.forks)
        self.incarnations.append(incarnation)
        return incarnation

    def _choose_way(self, crew: Crew, position: int) -> str:
        if len(crew.lanes) > 1:
            return "poller"
        return WAYS[position % len(WAYS)] if crew.is_permanent else self._chance.choice(WAYS)

    def _context(self, crew: Crew, number: int, way: str) -> WorkerContext:
        rng, permanent = random.Random(self._chance.random()), crew.is_permanent
        return WorkerContext(self.history, self.folder, number, rng, way, crew.reads, crew.writes, permanent)

    def _fork(self, incarnation: Incarnation, function: Callable[..., int], *args: object) -> None:
        incarnation.pid = fork(self.folder / str(incarnation.number), function, *args)
        self._running[incarnation.pid] = incarnation

    def _reap(self) -> bool:
        """Note how those ended that did. Return True if nobody runs any more."""
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return False
            incarnation = self._running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL and incarnation.end == "killed":
                continue
            incarnation.end = NORMAL_ENDS.get(code, f"ended with {code}")
            if code not in NORMAL_ENDS:
                self.failures.append(self._describe(incarnation))
        return True

    def _describe(self, incarnation: Incarnation) -> str:
        """Return how an incarnation failed, with what it and its forked child wrote down."""
        files = [self.folder / str(number) for number in range(incarnation.number, INCARNATIONS_MAX, FORKED)]
        texts = "\n".join(file.read_text() for file in files if file.exists())
        lanes = ", ".join(lane.name for lane in incarnation.crew.lanes)
        who = f"{incarnation.crew.name} of {lanes}, {'/'.join(incarnation.ways)}, incarnation {incarnation.number}"
        return f"{who}: {incarnation.end}\n{texts}"

    def _choose(self, can: Callable[[Crew], bool]) -> Incarnation | None:
        """Return one that runs and is not disturbed yet, of one of these crews."""
        crews = [crew for crew in self.plan.crews if can(crew)]
        crew = self._chance.choice(crews) if crews else None
        candidates = [one for one in self._running.values() if one.crew is crew and not one.end]
        return self._chance.choice(candidates) if candidates else None

    # ---- interventions ----

    def _nemesis_kill(self, incarnation: Incarnation | None) -> None:
        """Kill one; most of those that have just begun are spared, for on a busy machine nobody would get anywhere."""
        if incarnation and (self.history[incarnation.number].steps > 2 or self._chance.random() < 0.1):
            incarnation.end = "killed"
            os.kill(incarnation.pid, signal.SIGKILL)
            self.done["kills"] += 1

    def _nemesis_stop(self, incarnation: Incarnation | None) -> None:
        if incarnation and incarnation.continues is None:
            os.kill(incarnation.pid, signal.SIGSTOP)
            incarnation.continues = time.monotonic() + self._chance.expovariate(1 / STOP)
            self.done["stops"] += 1

    def _nemesis_supersede(self, incarnation: Incarnation | None) -> None:
        """Stop a writer, perhaps in the middle of a send, and start another writer during the stop."""
        if incarnation:
            self._nemesis_stop(incarnation)
            self._start(incarnation.crew)

    def _nemesis_continue(self, now: float) -> None:
        for incarnation in self._running.values():
            if incarnation.continues is not None and incarnation.continues <= now:
                incarnation.continues = None
                os.kill(incarnation.pid, signal.SIGCONT)

    def _run_nemesis(self) -> None:
        shares = self.plan.interventions
        if not shares:
            return
        (intervention,) = self._chance.choices(list(shares), list(shares.values()))
        writers = [crew for crew in self.plan.crews if crew.writes and not crew.is_permanent]
        if intervention == "kill":
            self._nemesis_kill(self._choose(lambda crew: not crew.is_permanent))
        elif intervention == "stop":
            self._nemesis_stop(self._choose(lambda _: True))
        elif intervention == "supersede":
            self._nemesis_supersede(self._choose(lambda crew: crew in writers))
        else:
            self._start(self._chance.choice(writers))  # beside those that run
            self.done["starts"] += 1

    def _start_missing(self) -> None:
        """Let each crew have as many processes as it should."""
        running = Counter(one.crew for one in self._running.values() if not one.end)
        for crew in self.plan.crews:
            for _ in range(0 if crew.is_permanent else crew.count - running[crew]):
                self._start(crew)

    # ---- the whole ----

    def soak(self, seconds: float = 0.0, takes: float = 0, interventions: float = 0) -> None:
        """Run for so long, and until readers took so often and so much has been done; a failure ends it early."""
        for lane in self.plan.lanes:
            lane.kind.create_files(lane)
        permanent = [self._start(crew) for crew in self.plan.crews if crew.is_permanent for _ in range(crew.count)]

        def all_joined() -> bool:
            self._reap()
            members = [one.number + i for one in permanent for i in range(one.crew.threads)]
            return bool(self.failures) or all(self.history[number].joined for number in members)

        try:
            wait_until(all_joined)
            self.history.begun = True
            begun = time.monotonic()
            while not self._is_enough(begun + seconds, takes, interventions):
                if time.monotonic() > begun + seconds + PATIENCE:
                    self._abort(f"readers took less than {takes} times, or less than {interventions} interventions")
                    break
                self._start_missing()
                self._run_nemesis()
                time.sleep(self._chance.expovariate(1 / self.plan.pause))
                self._nemesis_continue(time.monotonic())
                self._reap()
            self.seconds = time.monotonic() - begun
            if not self.failures:
                self._finish()
        finally:
            self._end_all()

    def _is_enough(self, until: float, takes: float, interventions: float) -> bool:
        permanent = [one for one in self.incarnations if one.crew.is_permanent]
        numbers = [one.number + i for one in permanent for i in range(one.crew.threads)]
        has_taken = sum(self.history[number].taken for number in numbers) >= takes
        has_done = has_taken and self.done.total() >= interventions
        return bool(self.failures) or (has_done and time.monotonic() >= until)

    def _finish(self) -> None:
        """End the writers, then the readers; then let a final checker join each lane."""
        self._nemesis_continue(float("inf"))
        self.history.ending = 1
        if not self._wait_until_ended(self._may_produce):
            return
        self.history.ending = 2
        for lane in self.plan.lanes:
            if not self._wait_until_ended(lambda _: True):
                return
            crew = Crew("final checker", [lane], 1)
            one = Incarnation(self._take_number(), crew, ["poller"])
            self._final[lane] = one.number
            self._fork(one, worker.check_at_end, self._context(crew, one.number, "poller"), lane)
        self._wait_until_ended(lambda _: True)

    def _may_produce(self, incarnation: Incarnation) -> bool:
        """Whether an incarnation that runs may publish, send or write, or leave before the end."""
        numbers = range(incarnation.number, incarnation.number + incarnation.crew.threads)
        return not all(self.history[number].quiet for number in numbers)

    def _wait_until_ended(self, is_awaited: Callable[[Incarnation], bool]) -> bool:
        """Wait until these incarnations have ended. False after a failure, or after the time limit."""

        def unfinished() -> list[Incarnation]:
            self._reap()
            return [incarnation for incarnation in self._running.values() if is_awaited(incarnation)]

        with contextlib.suppress(AssertionError):
            wait_until(lambda: self.failures or not unfinished(), deadline=PATIENCE, interval=0.005)
            return not self.failures
        self._abort(f"{len(unfinished())} processes did not end within {PATIENCE} s")
        return False

    def _abort(self, reason: str) -> None:
        """Let all processes that run print their stacks and die."""
        self.failures.append(reason)
        for incarnation in self._running.values():
            os.kill(incarnation.pid, signal.SIGABRT)
        with contextlib.suppress(AssertionError):
            wait_until(self._reap, deadline=5.0)

    def _end_all(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()
