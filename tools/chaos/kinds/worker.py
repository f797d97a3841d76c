"""A life that uses all five kinds at once in one process, with one poller for whatever comes."""

from __future__ import annotations

from typing import Any

import msgq
from tools.chaos.kinds.channels import Channels
from tools.chaos.kinds.frames import Frames
from tools.chaos.kinds.part import Figures, Outcome, Part, Place
from tools.chaos.kinds.queues import Queues
from tools.chaos.kinds.records import Records
from tools.chaos.kinds.topics import Topics

KINDS: tuple[type[Part], ...] = (Topics, Channels, Frames, Records, Queues)
WAIT_MS = 20  # that a life waits at most before it looks whether the run ends


class Worker:
    """All kinds at once. One thread uses it. It is closed by `quiet`, then `close`; a kill needs neither."""

    def __init__(self, place: Place) -> None:
        self._rng, self._poller = place.rng, msgq.Poller()
        self.parts = [kind(place) for kind in KINDS]
        self._part_of: dict[int, Part] = {}
        for part in self.parts:
            for reader in part.readers():
                self._poller.registerSocket(reader)
                self._part_of[id(reader)] = part

    def act(self) -> None:
        """Make something of one of the kinds."""
        self._rng.choice(self.parts).act()

    def listen(self, timeout_ms: float) -> bool:
        """Wait for something of any kind, and take what the poller says; whether there was something.

        Nothing is looked at by itself: what the poller does not tell of is missing in the books.
        """
        ready: list[Any] = self._poller.poll(timeout_ms)
        for reader in ready:
            self._part_of[id(reader)].take(reader)
        return bool(ready)

    def quiet(self) -> None:
        """Make nothing any more."""
        for part in self.parts:
            part.quiet()

    def close(self) -> None:
        """Leave."""
        for part in self.parts:
            part.close()


def work(place: Place) -> int:
    """Live: make and take at a pace of this life's own, until the life or the run is over."""
    row, books, rng = place.books[place.life], place.books, place.rng
    steps = -1 if place.stays else rng.choice((30, 1000, 10**9))
    worker = Worker(place)
    row.joined = 1
    while steps and books.ending == 0:
        steps -= 1
        if books.begun:
            worker.act()
        worker.listen(rng.choice((0, 0, 1, WAIT_MS)))
    worker.quiet()
    row.quiet = 1
    while place.stays and books.ending < 2:
        worker.listen(WAIT_MS)
    while place.stays and worker.listen(WAIT_MS):
        pass
    worker.close()
    return 0


def audit(place: Place) -> int:
    """Join every kind when all have gone; see `Part.audit`."""
    for kind in KINDS:
        kind.audit(place)
    return 0


def make() -> None:
    """Make the files of all kinds."""
    for kind in KINDS:
        kind.make()


def balance(outcome: Outcome) -> list[str]:
    """Return what is wrong in the books of all kinds."""
    return [complaint for kind in KINDS for complaint in kind.balance(outcome)]


def figures(outcome: Outcome) -> list[Figures]:
    """Return the lines of the table."""
    return [line for kind in KINDS for line in kind.figures(outcome)]
