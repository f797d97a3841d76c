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
from tools.chaos import roles
from tools.chaos.history import INCARNATIONS_MAX, History
from tools.chaos.kinds import worker
from tools.chaos.kinds.topics import SHARED, Topic
from tools.chaos.kinds.workload import WorkerContext
from tools.chaos.process import fork
from tools.chaos.roles import KINDS

PUBLISHER, LAST_PUBLISHER, ALL_KINDS, FINAL_CHECKER = "publisher", "last publisher", "all kinds", "final checker"
TEMPORARY_SUBSCRIBERS = 4  # subscribers a topic that come and go, besides one of each kind that stays
TEMPORARY_WORKERS = 3  # incarnations of all kinds that come and go, besides as many as stay
PERMANENT_WORKERS = 2
PAUSE = 0.04  # seconds between two interventions, on average
STOP = 0.15  # seconds that a stopped process stays so, on average
PATIENCE = 60.0  # maximum seconds of the end. Incarnations that still run then count as hanging
NORMAL_ENDS = {0: "closed", roles.SUPERSEDED: "superseded", roles.REFUSED: "refused"}


@dataclass(eq=False)
class Incarnation:
    """One process of the run.

    Attributes
    ----------
    topic : of a publisher or subscriber; the shared one of an incarnation of all kinds.
    kind : PUBLISHER, LAST_PUBLISHER (which only counts), one of KINDS, ALL_KINDS, or AUDITOR (who comes last).
    first : of a subscriber that stays: the number of the first message after it joined.
    continues : when it is to go on, if it is stopped (time.monotonic).
    end : "killed", a normal end (NORMAL_ENDS), or an error; "" while it runs.
    """

    number: int
    pid: int
    topic: Topic
    kind: str
    first: int | None = None
    continues: float | None = None
    end: str = ""


@dataclass
class Run:
    """A run with its interventions and results. `failures` is empty if the run had no error."""

    seed: int
    folder: Path
    topics: list[Topic]
    history: History = field(default_factory=History)
    incarnations: list[Incarnation] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._running: dict[int, Incarnation] = {}

    # ---- incarnations ----

    def _start(self, topic: Topic, kind: str, first: int | None = None) -> Incarnation:
        number = len(self.incarnations) + 1
        if number >= INCARNATIONS_MAX:
            raise RuntimeError(f"more than {INCARNATIONS_MAX} incarnations: shorten the run")
        rng, error_file = random.Random(self._chance.random()), self.folder / str(number)
        if kind in KINDS:
            pid = fork(error_file, roles.subscribe, topic, self.history, number, kind, first, rng)
        elif kind in (ALL_KINDS, FINAL_CHECKER):
            context = WorkerContext(self.history, self.folder, number, rng, first is not None)
            pid = fork(error_file, worker.work if kind == ALL_KINDS else worker.check_at_end, context)
        else:
            role = roles.publish if kind == PUBLISHER else roles.count
            pid = fork(error_file, role, topic, self.history, number, rng)
        incarnation = Incarnation(number, pid, topic, kind, first)
        self.incarnations.append(incarnation)
        self._running[pid] = incarnation
        return incarnation

    def _reap(self) -> None:
        """Note how those ended that did."""
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            incarnation = self._running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL and incarnation.end == "killed":
                continue
            incarnation.end = NORMAL_ENDS.get(code, f"ended with {code}")
            if code not in NORMAL_ENDS:
                error_file = self.folder / str(incarnation.number)
                text = error_file.read_text() if error_file.exists() else ""
                name = (
                    incarnation.kind
                    if incarnation.topic is SHARED
                    else f"{incarnation.kind} of {incarnation.topic.endpoint}"
                )
                self.failures.append(f"{name}, incarnation {incarnation.number}: {incarnation.end}\n{text}")

    def _choose(self, *kinds: str, permanent: bool = False) -> Incarnation | None:
        """Return one that runs and may be disturbed."""
        candidates = [
            incarnation for incarnation in self._running.values() if incarnation.kind in kinds and not incarnation.end
        ]
        candidates = [incarnation for incarnation in candidates if permanent or incarnation.first is None]
        return self._chance.choice(candidates) if candidates else None

    # ---- interventions ----

    def _nemesis_kill(self, incarnation: Incarnation | None) -> None:
        if incarnation:
            incarnation.end = "killed"
            os.kill(incarnation.pid, signal.SIGKILL)
            self.done["kills"] += 1

    def _nemesis_stop(self, incarnation: Incarnation | None) -> None:
        if incarnation and incarnation.continues is None:
            os.kill(incarnation.pid, signal.SIGSTOP)
            incarnation.continues = time.monotonic() + self._chance.expovariate(1 / STOP)
            self.done["stops"] += 1

    def _nemesis_supersede(self, incarnation: Incarnation | None) -> None:
        """Stop a publisher, perhaps in the middle of a send, and start another publisher during the stop."""
        if incarnation:
            self._nemesis_stop(incarnation)
            self._start(incarnation.topic, incarnation.kind)

    def _nemesis_continue(self, now: float) -> None:
        for incarnation in self._running.values():
            if incarnation.continues is not None and incarnation.continues <= now:
                incarnation.continues = None
                os.kill(incarnation.pid, signal.SIGCONT)

    def _run_nemesis(self) -> None:
        chance = self._chance.random()
        if chance < 0.25:
            self._nemesis_kill(self._choose(PUBLISHER))
        elif chance < 0.35:
            self._nemesis_kill(self._choose(*KINDS))
        elif chance < 0.5:
            self._nemesis_kill(self._choose(ALL_KINDS))
        elif chance < 0.6:
            self._nemesis_stop(self._choose(PUBLISHER))
        elif chance < 0.7:
            self._nemesis_supersede(self._choose(PUBLISHER, ALL_KINDS))
        elif chance < 0.8:
            self._nemesis_stop(self._choose(*KINDS, permanent=True))
        elif chance < 0.9:
            self._nemesis_stop(self._choose(ALL_KINDS, permanent=True))
        else:
            self._start(self._chance.choice(self.topics), PUBLISHER)  # beside one that runs

    def _start_missing(self) -> None:
        """Let each topic have a publisher and its visitors, and let there be incarnations of all kinds."""
        for topic in self.topics:
            running = [
                incarnation
                for incarnation in self._running.values()
                if incarnation.topic is topic and not incarnation.end
            ]
            if not any(incarnation.kind == PUBLISHER for incarnation in running):
                self._start(topic, PUBLISHER)
            for _ in range(
                TEMPORARY_SUBSCRIBERS
                - sum(incarnation.kind in KINDS and incarnation.first is None for incarnation in running)
            ):
                self._start(topic, self._chance.choice(list(KINDS)))
        all_kinds = [
            incarnation
            for incarnation in self._running.values()
            if incarnation.kind == ALL_KINDS and not incarnation.end
        ]
        for _ in range(TEMPORARY_WORKERS + PERMANENT_WORKERS - len(all_kinds)):
            self._start(SHARED, ALL_KINDS)

    # ---- the whole ----

    def soak(self, seconds: float) -> None:
        """Let it run for so long, and end it; a failure ends it early."""
        begun = time.monotonic()
        permanent = [self._start(topic, kind, 0) for topic in self.topics for kind in KINDS]
        permanent += [self._start(SHARED, ALL_KINDS, 0) for _ in range(PERMANENT_WORKERS)]

        def all_joined() -> bool:
            self._reap()
            return bool(self.failures) or all(self.history[r.number].joined for r in permanent)

        try:
            wait_until(all_joined)
            self.history.begun = True
            while time.monotonic() < begun + seconds and not self.failures:
                self._start_missing()
                self._run_nemesis()
                time.sleep(self._chance.expovariate(1 / PAUSE))
                self._nemesis_continue(time.monotonic())
                self._reap()
            self.seconds = time.monotonic() - begun
            self._finish()
        finally:
            self._end_all()

    def _finish(self) -> None:
        """End the senders, then the receivers, and count the remaining messages."""
        self._nemesis_continue(float("inf"))
        self.history.ending = 1
        if not self._wait_until_ended(self._may_produce):
            return
        for topic in self.topics:
            last = self._start(topic, LAST_PUBLISHER)
            if not self._wait_until_ended(self._may_produce):
                return
            self.totals[topic.endpoint] = self.history[last.number].base or 0
        self.history.ending = 2
        if self._wait_until_ended(lambda _: True):
            self._start(SHARED, FINAL_CHECKER)
            self._wait_until_ended(lambda _: True)

    def _may_produce(self, incarnation: Incarnation) -> bool:
        """Whether an incarnation that runs may publish, send or write."""
        return incarnation.kind not in KINDS and not (
            incarnation.kind == ALL_KINDS and self.history[incarnation.number].quiet
        )

    def _wait_until_ended(self, is_awaited: Callable[[Incarnation], bool]) -> bool:
        """Wait until these incarnations have ended. After the time limit, they print their stacks and die."""

        def unfinished() -> list[Incarnation]:
            self._reap()
            return [incarnation for incarnation in self._running.values() if is_awaited(incarnation)]

        with contextlib.suppress(AssertionError):
            wait_until(lambda: not unfinished(), deadline=PATIENCE, interval=0.005)
            return True
        for incarnation in unfinished():
            os.kill(incarnation.pid, signal.SIGABRT)
        self.failures.append(f"{len(unfinished())} processes did not end within {PATIENCE} s")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not unfinished(), deadline=5.0)
        return False

    def _end_all(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()
