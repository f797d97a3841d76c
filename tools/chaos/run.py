"""Starts, kills, stops and continues the lives of a run, and brings it to its end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import wait_until
from tools.chaos import roles
from tools.chaos.books import LIVES, Books
from tools.chaos.process import fork
from tools.chaos.roles import KINDS, Topic

VISITORS = 4  # subscribers a topic that come and go, besides one of each kind that stays
PAUSE = 0.04  # seconds between two interventions, on average
STOP = 0.15  # seconds that a stopped process stays so, on average
PATIENCE = 60.0  # seconds that the end may take, before what is left counts as hanging
ORDERLY = {0: "closed", roles.SUPERSEDED: "superseded", roles.REFUSED: "refused"}


@dataclass(eq=False)
class Life:
    """One process of the run.

    Attributes
    ----------
    kind : "publisher", "last publisher" (which only counts), or one of KINDS.
    first : of a subscriber that stays: the number of the first message after it joined.
    continues : when it is to go on, if it is stopped (time.monotonic).
    end : how it ended: "killed", one of ORDERLY, or what was wrong; "" while it runs.
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
    """A whole run: what was done, and what became of it. `failures` is empty if all is well."""

    seed: int
    folder: Path
    topics: list[Topic]
    books: Books = field(default_factory=Books)
    lives: list[Life] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    totals: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._running: dict[int, Life] = {}

    # ---- lives ----

    def _start(self, topic: Topic, kind: str, first: int | None = None) -> Life:
        number = len(self.lives) + 1
        if number >= LIVES:
            raise RuntimeError(f"more than {LIVES} lives: shorten the run")
        rng, complaint = random.Random(self._chance.random()), self.folder / str(number)
        if kind in KINDS:
            pid = fork(complaint, roles.subscribe, topic, self.books, number, kind, first, rng)
        else:
            role = roles.publish if kind == "publisher" else roles.count
            pid = fork(complaint, role, topic, self.books, number, rng)
        life = Life(number, pid, topic, kind, first)
        self.lives.append(life)
        self._running[pid] = life
        return life

    def _reap(self) -> None:
        """Note how those ended that did."""
        while self._running:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            life = self._running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL and life.end == "killed":
                continue
            life.end = ORDERLY.get(code, f"ended with {code}")
            if code not in ORDERLY:
                complaint = self.folder / str(life.number)
                text = complaint.read_text() if complaint.exists() else ""
                self.failures.append(f"{life.kind} {life.number} of {life.topic.endpoint}: {life.end}\n{text}")

    def _some(self, *, publishers: bool, visitors: bool, residents: bool = False) -> Life | None:
        def wanted(life: Life) -> bool:
            if life.end:
                return False
            if life.kind == "publisher":
                return publishers
            return residents if life.first is not None else visitors

        found = [life for life in self._running.values() if wanted(life)]
        return self._chance.choice(found) if found else None

    # ---- interventions ----

    def _kill(self, life: Life | None) -> None:
        if life:
            life.end = "killed"
            os.kill(life.pid, signal.SIGKILL)
            self.done["kills"] += 1

    def _stop(self, life: Life | None) -> None:
        if life and life.continues is None:
            os.kill(life.pid, signal.SIGSTOP)
            life.continues = time.monotonic() + self._chance.expovariate(1 / STOP)
            self.done["stops"] += 1

    def _usurp(self, life: Life | None) -> None:
        """Stop a publisher, perhaps in the middle of a send, and let another one take over meanwhile."""
        if life:
            self._stop(life)
            self._start(life.topic, "publisher")

    def _continue(self, now: float) -> None:
        for life in self._running.values():
            if life.continues is not None and life.continues <= now:
                life.continues = None
                os.kill(life.pid, signal.SIGCONT)

    def _intervene(self) -> None:
        chance = self._chance.random()
        if chance < 0.3:
            self._kill(self._some(publishers=True, visitors=False))
        elif chance < 0.45:
            self._kill(self._some(publishers=False, visitors=True))
        elif chance < 0.6:
            self._stop(self._some(publishers=True, visitors=False))
        elif chance < 0.7:
            self._usurp(self._some(publishers=True, visitors=False))
        elif chance < 0.85:
            self._stop(self._some(publishers=False, visitors=True, residents=True))
        else:
            self._start(self._chance.choice(self.topics), "publisher")  # beside one that runs

    def _fill(self) -> None:
        """Let each topic have a publisher and its visitors."""
        for topic in self.topics:
            here = [life for life in self._running.values() if life.topic is topic and not life.end]
            if not any(life.kind == "publisher" for life in here):
                self._start(topic, "publisher")
            for _ in range(VISITORS - sum(life.kind != "publisher" and life.first is None for life in here)):
                self._start(topic, self._chance.choice(list(KINDS)))

    # ---- the whole ----

    def soak(self, seconds: float) -> None:
        """Let it run for so long, and end it; a failure ends it early."""
        begun = time.monotonic()
        residents = [self._start(topic, kind, 0) for topic in self.topics for kind in KINDS]

        def all_joined() -> bool:
            self._reap()
            return bool(self.failures) or all(self.books[r.number].joined for r in residents)

        try:
            wait_until(all_joined)
            while time.monotonic() < begun + seconds and not self.failures:
                self._fill()
                self._intervene()
                time.sleep(self._chance.expovariate(1 / PAUSE))
                self._continue(time.monotonic())
                self._reap()
            self.seconds = time.monotonic() - begun
            self._finish()
        finally:
            self._end_all()

    def _finish(self) -> None:
        """Bring publishers to an end, then subscribers; what does not end in time says where it is, and is killed."""
        self._continue(float("inf"))
        self.books.ending = 1
        if not self._gone(True):
            return
        for topic in self.topics:
            last = self._start(topic, "last publisher")
            if not self._gone(True):
                return
            self.totals[topic.endpoint] = self.books[last.number].base or 0
        self.books.ending = 2
        self._gone(False)

    def _gone(self, publishers: bool) -> bool:
        """Wait for the end of all publishers, or of everybody."""

        def left() -> list[Life]:
            self._reap()
            return [life for life in self._running.values() if life.kind not in KINDS or not publishers]

        with contextlib.suppress(AssertionError):
            wait_until(lambda: not left(), deadline=PATIENCE, interval=0.005)
            return True
        for life in left():
            os.kill(life.pid, signal.SIGABRT)
        self.failures.append(f"{len(left())} processes did not end within {PATIENCE} s")
        with contextlib.suppress(AssertionError):
            wait_until(lambda: not left(), deadline=5.0)
        return False

    def _end_all(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._running.clear()
