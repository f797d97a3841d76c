"""Reading elements, one or all, and sleeping until one changes."""

from functools import partial
from operator import eq

from . import eventcount
from .addresses import EVENTCOUNT
from .cell_shared import PARTS, SharedRecords, Version, key_name, key_state, part, version
from .ops import fence, futex_wait, load
from .oracle import Violation
from .task import Steps, Task

SNAPSHOT_TRIES = 4  # a second of them, in C


class Reader:
    """A handle, or a thread of it. Readers leave no trace but their announcement."""

    task: Task

    def __init__(self, shared: SharedRecords, name: str) -> None:
        self.shared, self.rules, self.kernel, self.name = shared, shared.rules, shared.kernel, name
        self.seen = dict.fromkeys(shared.elements, 0)  # last result of changes()
        self.newest = dict.fromkeys(shared.elements, 0)  # newest count that was ever read

    # ---- one element ----

    def read(self, element: int) -> Steps[int]:
        """Its count, after a look at the value."""
        tries = 0
        while True:
            before: Version = yield load(version(element), self.rules.version_load)  # EDGE value: acquire
            parts = []
            for i in PARTS:
                parts.append((yield load(part(element, before.writes % self.shared.copies, i))))
            yield fence(self.rules.read_fence)  # EDGE cell: bytes, then the version
            after: Version = yield load(version(element))
            if self.is_valid(before, after):
                break
            tries += 1
            if tries > self.shared.count(element):
                raise Violation("stuck", f"{self.name} reads element {element} again, and nobody completed a write")
        self.deliver(element, before.writes, parts)
        return after.writes if self.rules.seen_by_second_look else before.writes

    def read_step(self) -> Steps[None]:
        """All elements with one fence, unless one was written meanwhile."""
        before: list[Version] = []
        parts_read: dict[int, list[int]] = {}
        for element in self.shared.elements:
            before.append((yield load(version(element), self.rules.version_load)))
        for element, seen in enumerate(before):
            parts_read[element] = []
            for i in PARTS:
                parts_read[element].append((yield load(part(element, seen.writes % self.shared.copies, i))))
        yield fence(self.rules.read_fence)
        for element, seen in enumerate(before):
            if not self.is_valid(seen, (yield load(version(element)))):
                return
        for element, seen in enumerate(before):
            self.deliver(element, seen.writes, parts_read[element])

    def deliver(self, element: int, count: int, parts: list[int]) -> None:
        """A value is taken for one that was written so many times."""
        self.shared.check_read(self.name, element, count, parts)
        if count < self.newest[element]:
            text = f"{self.name} reads element {element} as of {count} after {self.newest[element]}"
            raise Violation("monotonic", text)
        self.newest[element] = count

    def is_valid(self, before: Version, after: Version) -> bool:
        """Has nobody begun to write where we read?"""
        if self.rules.waits_for_writer:
            return before == after and before.owner is None
        return after.writes - before.writes <= self.shared.spared

    # ---- all of them ----

    def changes(self) -> Steps[bool]:
        """Read what was written since the last time; was there anything?"""
        changed = False
        for element in self.shared.elements:
            if (yield from self.is_new(element)):
                self.seen[element] = yield from self.read(element)
                changed = True
        return changed

    def is_new(self, element: int) -> Steps[bool]:
        """Other than when changes() read it? On a board it may have no name so far. Relaxed, though C loads with
        acquire: whoever is told reads the element anew."""
        if self.shared.kind == "board" and not (yield load(key_state(element), self.rules.key_load)):
            return False
        now: Version = yield load(version(element))
        return now.writes != self.seen[element]

    def snapshot(self) -> Steps[None]:
        """All elements as of one instant, or not at all. Their versions were loaded with acquire, so the second look
        needs no fence."""
        counts: dict[int, int] = {}
        again = list(self.shared.elements)
        for tries in range(SNAPSHOT_TRIES):
            for element in again:
                counts[element] = yield from self.read(element)
            compared = self.shared.elements if self.rules.snapshot_compares_all else again
            again = []
            for element in compared if tries < self.rules.snapshot_looks else ():
                now: Version = yield load(version(element))
                if now.writes != counts[element]:
                    again.append(element)
            if not again:
                self.shared.check_snapshot(self.name, counts)
                return

    def read_key_names(self) -> Steps[None]:
        """All keys that have names."""
        for key in self.shared.elements:
            if (yield load(key_state(key), self.rules.key_load)):  # EDGE key: acquire
                parts = []
                for i in PARTS:
                    parts.append((yield load(key_name(key, i))))
                if len(set(parts)) != 1 or parts[0] is None:
                    raise Violation("torn", f"{self.name} takes {parts} for the name of key {key}")

    # ---- sleeping ----

    def sleep(self) -> Steps[None]:
        """Until something changes, unless it has."""
        expected = eventcount.prepare_wait((yield (self.shared.rmw, EVENTCOUNT, eventcount.prepare_wait)))
        yield fence(self.rules.sleeper_fence)  # EDGE sleep: the announcement, then versions are loaded
        if self.rules.rechecks:
            for element in self.shared.elements:
                if (yield from self.is_new(element)):
                    return
        yield futex_wait(EVENTCOUNT, partial(eq, expected))
