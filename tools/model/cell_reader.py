"""Reading elements, one or all, and sleeping until one changes."""

from functools import partial
from operator import eq

from . import attention as words
from .addresses import ATTENTION
from .cell_store import PARTS, Cells, Version, key_name, key_state, part, version
from .ops import fence, futex_wait, load
from .task import Steps, Task
from .truth import Violation

SNAPSHOT_TRIES = 4  # a second of them, in C


class Reader:
    """A handle, or a thread of it. Readers leave no trace but their announcement."""

    task: Task

    def __init__(self, store: Cells, name: str) -> None:
        self.store, self.rules, self.host, self.name = store, store.rules, store.host, name
        self.seen = dict.fromkeys(store.elements, 0)  # what changes() gave last
        self.newest = dict.fromkeys(store.elements, 0)  # that was ever read

    # ---- one element ----

    def read(self, element: int) -> Steps[int]:
        """Its count, after a look at the value."""
        tries = 0
        while True:
            before: Version = yield load(version(element), self.rules.version_load)  # EDGE value: acquire
            found = []
            for i in PARTS:
                found.append((yield load(part(element, before.times % self.store.copies, i))))
            yield fence(self.rules.read_fence)  # EDGE cell: bytes, then the version
            after: Version = yield load(version(element))
            if self.is_valid(before, after):
                break
            tries += 1
            if tries > self.store.count(element):
                raise Violation("stuck", f"{self.name} reads element {element} again, and nobody completed a write")
        self.deliver(element, before.times, found)
        return after.times if self.rules.seen_by_second_look else before.times

    def read_step(self) -> Steps[None]:
        """All elements with one fence, unless one was written meanwhile."""
        before: list[Version] = []
        found: dict[int, list[int]] = {}
        for element in self.store.elements:
            before.append((yield load(version(element), self.rules.version_load)))
        for element, seen in enumerate(before):
            found[element] = []
            for i in PARTS:
                found[element].append((yield load(part(element, seen.times % self.store.copies, i))))
        yield fence(self.rules.read_fence)
        for element, seen in enumerate(before):
            if not self.is_valid(seen, (yield load(version(element)))):
                return
        for element, seen in enumerate(before):
            self.deliver(element, seen.times, found[element])

    def deliver(self, element: int, times: int, found: list[int]) -> None:
        """A value is taken for one that was written so many times."""
        self.store.check_read(self.name, element, times, found)
        if times < self.newest[element]:
            text = f"{self.name} reads element {element} as of {times} after {self.newest[element]}"
            raise Violation("back", text)
        self.newest[element] = times

    def is_valid(self, before: Version, after: Version) -> bool:
        """Has nobody begun to write where we read?"""
        if self.rules.waits_for_writer:
            return before == after and before.owner is None
        return after.times - before.times <= self.store.spared

    # ---- all of them ----

    def changes(self) -> Steps[bool]:
        """Read what was written since the last time; was there anything?"""
        changed = False
        for element in self.store.elements:
            if (yield from self.is_new(element)):
                self.seen[element] = yield from self.read(element)
                changed = True
        return changed

    def is_new(self, element: int) -> Steps[bool]:
        """Other than when changes() read it? On a board it may have no name so far. Relaxed, though C loads with
        acquire: whoever is told reads the element anew."""
        if self.store.kind == "board" and not (yield load(key_state(element), self.rules.key_load)):
            return False
        now: Version = yield load(version(element))
        return now.times != self.seen[element]

    def snapshot(self) -> Steps[None]:
        """All elements as of one instant, or not at all. Their versions were loaded with acquire, so the second look
        needs no fence."""
        counts: dict[int, int] = {}
        again = list(self.store.elements)
        for tries in range(SNAPSHOT_TRIES):
            for element in again:
                counts[element] = yield from self.read(element)
            compared = self.store.elements if self.rules.snapshot_compares_all else again
            again = []
            for element in compared if tries < self.rules.snapshot_looks else ():
                now: Version = yield load(version(element))
                if now.times != counts[element]:
                    again.append(element)
            if not again:
                self.store.check_snapshot(self.name, counts)
                return

    def look_up(self) -> Steps[None]:
        """All keys that have names."""
        for key in self.store.elements:
            if (yield load(key_state(key), self.rules.key_load)):  # EDGE key: acquire
                found = []
                for i in PARTS:
                    found.append((yield load(key_name(key, i))))
                if len(set(found)) != 1 or found[0] is None:
                    raise Violation("torn", f"{self.name} takes {found} for the name of key {key}")

    # ---- sleeping ----

    def sleep(self) -> Steps[None]:
        """Until something changes, unless it has."""
        expected = words.announce((yield (self.store.rmw, ATTENTION, words.announce)))
        yield fence(self.rules.sleeper_fence)  # EDGE sleep: the announcement, then versions are loaded
        if self.rules.look_again:
            for element in self.store.elements:
                if (yield from self.is_new(element)):
                    return
        yield futex_wait(ATTENTION, partial(eq, expected))
