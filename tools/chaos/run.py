"""Starts, kills, stops and continues the lives of a run, and brings it to its end."""

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
from tools.chaos.books import LIVES, Books
from tools.chaos.kinds import worker
from tools.chaos.kinds.part import Place
from tools.chaos.kinds.topics import SHARED, Topic
from tools.chaos.process import fork
from tools.chaos.roles import KINDS

PUBLISHER, LAST_PUBLISHER, ALL_KINDS, AUDITOR = "publisher", "last publisher", "all kinds", "auditor"
VISITORS = 4  # subscribers a topic that come and go, besides one of each kind that stays
WORKERS = 3  # lives of all kinds that come and go, besides as many as stay
STAYING_WORKERS = 2
PAUSE = 0.04  # seconds between two interventions, on average
STOP = 0.15  # seconds that a stopped process stays so, on average
PATIENCE = 60.0  # seconds that the end may take, before what is left counts as hanging
ORDERLY = {0: "closed", roles.SUPERSEDED: "superseded", roles.REFUSED: "refused"}


@dataclass(eq=False)
class Life:
    """One process of the run.

    Attributes
    ----------
    topic : of a publisher or subscriber; the shared one of a life of all kinds.
    kind : PUBLISHER, LAST_PUBLISHER (which only counts), one of KINDS, ALL_KINDS, or AUDITOR (who comes last).
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
        elif kind in (ALL_KINDS, AUDITOR):
            place = Place(self.books, self.folder, number, rng, first is not None)
            pid = fork(complaint, worker.work if kind == ALL_KINDS else worker.audit, place)
        else:
            role = roles.publish if kind == PUBLISHER else roles.count
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
                who = life.kind if life.topic is SHARED else f"{life.kind} of {life.topic.endpoint}"
                self.failures.append(f"{who}, life {life.number}: {life.end}\n{text}")

    def _some(self, *kinds: str, residents: bool = False) -> Life | None:
        """Return one that runs and may be disturbed."""
        found = [life for life in self._running.values() if life.kind in kinds and not life.end]
        found = [life for life in found if residents or life.first is None]
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
            self._start(life.topic, life.kind)

    def _continue(self, now: float) -> None:
        for life in self._running.values():
            if life.continues is not None and life.continues <= now:
                life.continues = None
                os.kill(life.pid, signal.SIGCONT)

    def _intervene(self) -> None:
        chance = self._chance.random()
        if chance < 0.25:
            self._kill(self._some(PUBLISHER))
        elif chance < 0.35:
            self._kill(self._some(*KINDS))
        elif chance < 0.5:
            self._kill(self._some(ALL_KINDS))
        elif chance < 0.6:
            self._stop(self._some(PUBLISHER))
        elif chance < 0.7:
            self._usurp(self._some(PUBLISHER, ALL_KINDS))
        elif chance < 0.8:
            self._stop(self._some(*KINDS, residents=True))
        elif chance < 0.9:
            self._stop(self._some(ALL_KINDS, residents=True))
        else:
            self._start(self._chance.choice(self.topics), PUBLISHER)  # beside one that runs

    def _fill(self) -> None:
        """Let each topic have a publisher and its visitors, and let there be lives of all kinds."""
        for topic in self.topics:
            here = [life for life in self._running.values() if life.topic is topic and not life.end]
            if not any(life.kind == PUBLISHER for life in here):
                self._start(topic, PUBLISHER)
            for _ in range(VISITORS - sum(life.kind in KINDS and life.first is None for life in here)):
                self._start(topic, self._chance.choice(list(KINDS)))
        all_kinds = [life for life in self._running.values() if life.kind == ALL_KINDS and not life.end]
        for _ in range(WORKERS + STAYING_WORKERS - len(all_kinds)):
            self._start(SHARED, ALL_KINDS)

    # ---- the whole ----

    def soak(self, seconds: float) -> None:
        """Let it run for so long, and end it; a failure ends it early."""
        begun = time.monotonic()
        residents = [self._start(topic, kind, 0) for topic in self.topics for kind in KINDS]
        residents += [self._start(SHARED, ALL_KINDS, 0) for _ in range(STAYING_WORKERS)]

        def all_joined() -> bool:
            self._reap()
            return bool(self.failures) or all(self.books[r.number].joined for r in residents)

        try:
            wait_until(all_joined)
            self.books.begun = True
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
        """Bring those who make something to an end, then those who take, and count what is there."""
        self._continue(float("inf"))
        self.books.ending = 1
        if not self._gone(self._makes):
            return
        for topic in self.topics:
            last = self._start(topic, LAST_PUBLISHER)
            if not self._gone(self._makes):
                return
            self.totals[topic.endpoint] = self.books[last.number].base or 0
        self.books.ending = 2
        if self._gone(lambda _: True):
            self._start(SHARED, AUDITOR)
            self._gone(lambda _: True)

    def _makes(self, life: Life) -> bool:
        """Whether a life that runs may publish, send or write."""
        return life.kind not in KINDS and not (life.kind == ALL_KINDS and self.books[life.number].quiet)

    def _gone(self, those: Callable[[Life], bool]) -> bool:
        """Wait until none of those is there; who does not end in time says where it is, and is killed."""

        def left() -> list[Life]:
            self._reap()
            return [life for life in self._running.values() if those(life)]

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
