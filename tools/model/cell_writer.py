"""Becoming a writer, writing, and leaving."""

from . import eventcount
from .addresses import EVENTCOUNT
from .cell_reader import Reader
from .cell_shared import (
    OWNER,
    PARTS,
    Name,
    SharedRecords,
    Version,
    generation,
    key_name,
    key_owner,
    key_state,
    part,
    uid,
    version,
)
from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, futex_wake, load, pause, rmw, store, until
from .oracle import Violation
from .task import Steps, Task

LOCK_TRIES = 6  # tries of the file's lock; some seconds, in C


class WriterState:
    """What the threads of a handle share, besides its row."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}  # counts of exclusive elements that were written
        self.threads = 0
        self.inside: Task | None = None  # task that holds the handle's lock


class Writer(Reader):
    """A handle that writes, or a thread of one."""

    def __init__(self, shared: SharedRecords, name: str, handle: WriterState | None = None) -> None:
        super().__init__(shared, name)
        self.identity = Name(-1, -1)
        self.handle = handle or WriterState()
        self.handle.threads += 1
        self.written: dict[int, int] = {}  # element -> count: not told of
        self.counts_by_dead: dict[int, int] = {}
        self.now = 0  # start of a call

    @property
    def word_identity(self) -> Name:
        """In our words."""
        return self.identity if self.rules.generation_named else Name(self.identity.row, 0)

    # ---- writing ----

    def write(self, elements: list[int], patience: int = 0) -> Steps[bool]:
        """One call. False: others have held an element for so long; those before it are written."""
        self.counts_by_dead, self.now = self.shared.counts_by_dead(), self.kernel.clock
        self.written.clear()
        for element in elements:
            if self.shared.exclusive:
                yield from self.enter()
                yield from self.write_own(element)
                yield from self.exit()
            elif not (yield from self.write_shared(element, patience)):
                if self.rules.notifies_when_late:
                    yield from self.notify()
                self.shared.mark_notified(self.written.items())
                return False
        if self.rules.eventcount_last:
            yield from self.notify()
        return True

    def write_shared(self, element: int, patience: int) -> Steps[bool]:
        """Lock, fill, publish."""
        count = yield from self.lock(element, patience)
        if count is None:
            return False
        number = self.shared.begin(self.task, element)
        yield from self.fill(element, count + 1, number)
        waiters = None if self.rules.eventcount_last else (yield self.shared.load_seq_cst(EVENTCOUNT))
        location, new = version(element), Version(count + 1)
        if self.rules.publish == "release":
            yield store(location, new, RELEASE)
        elif self.rules.publish == "relaxed":
            yield ("rmw_relaxed", location, lambda _: new)
        elif (yield self.shared.exchange(location, Version(count, self.word_identity), new)) != (
            count,
            self.word_identity,
        ):
            raise Violation("stolen", f"{self.name} has lost element {element}")
        yield from self.complete_write(element, number, count + 1, waiters)
        return True

    def enter(self) -> Steps[None]:
        """The handle's lock, which is nothing to other processes."""
        if self.rules.threads_locked and self.handle.threads > 1:
            yield until(lambda: self.handle.inside is None)
            self.handle.inside = self.task

    def exit(self) -> Steps[None]:
        """Let another thread go on."""
        if self.handle.inside is self.task:
            yield fence(SEQ_CST)
            self.handle.inside = None

    def write_own(self, element: int) -> Steps[None]:
        """Nobody else writes it."""
        count = self.handle.counts.get(element)
        if count is None:
            count = (yield load(version(element))).writes
        number = self.shared.begin(self.task, element)
        yield from self.fill(element, count + 1, number)
        waiters = None if self.rules.eventcount_last else (yield self.shared.load_seq_cst(EVENTCOUNT))
        yield store(version(element), Version(count + 1), self.rules.exclusive_publish)  # EDGE value: release
        self.handle.counts[element] = count + 1
        yield from self.complete_write(element, number, count + 1, waiters)

    def fill(self, element: int, count: int, number: int) -> Steps[None]:
        """The copy that no reader of the version before it uses. The clock was read before the element was taken, but
        its times do not go back for that."""
        before: int = yield load(part(element, (count - 1) % self.shared.copies, 0))
        self.shared.times[number] = max(self.now, self.shared.times[before]) if self.rules.times_kept else self.now
        yield fence(self.rules.write_fence)  # EDGE cell: the lock or the last version, then bytes
        for i in PARTS:
            yield store(part(element, count % self.shared.copies, i), number)

    def complete_write(self, element: int, number: int, count: int, waiters: eventcount.Word | None) -> Steps[None]:
        """The version is there."""
        self.shared.complete(self.task, element, number, count)
        self.written[element] = count
        if waiters:
            yield from self.notify(waiters)

    # ---- telling ----

    def notify(self, waiters: eventcount.Word | None = None) -> Steps[None]:
        """Those who sleep of what was written. `due`: eventcount as it was before (a mutation)."""
        if not self.written:
            return
        yield fence(self.rules.exclusive_fence if self.shared.exclusive else self.rules.publish_fence)
        if waiters is None:
            waiters = yield self.shared.load_seq_cst(EVENTCOUNT)  # EDGE sleep: versions, then eventcount
        if waiters[1] and self.rules.flag_stands:
            yield from eventcount.notify(EVENTCOUNT)
        elif waiters[1]:
            yield rmw(EVENTCOUNT, lambda word: (word[0] + 1, False, False))
            yield futex_wake()
        self.mark_notified()

    def mark_notified(self) -> None:
        """Nobody may sleep before this, or before what the dead had written when we began."""
        self.shared.mark_notified(self.written.items())
        self.shared.mark_notified(self.counts_by_dead.items())
        self.written.clear()

    # ---- the lock of an element ----

    def lock(self, element: int, patience: int) -> Steps[int | None]:
        """Its count; None: a living one holds it, also when looked at again so often."""
        location = version(element)
        current: Version = yield load(location, self.rules.lock_load)
        while True:
            holder = self.shared.holders.get(element)
            dead = holder is not None and holder.dead
            if current.owner is None or (yield from self.may_steal(current.owner)):
                locked = Version(current.writes, self.word_identity)
                if (yield from self.change(location, current, locked)):
                    return current.writes
            elif patience == 0:
                if dead and current == self.kernel.newest(location):
                    self.check_refusal(element, current)
                return None
            else:
                patience -= 1
                yield from self.wait()
            if self.rules.loads_again:
                current = yield load(location, self.rules.lock_load)

    def change(self, location: str, current: Version, new: Version) -> Steps[bool]:
        """False: it is no longer what was found."""
        if self.rules.locks_by_exchange:
            return bool((yield self.shared.exchange(location, current, new)) == current)
        yield store(location, new, RELEASE)
        return True

    def wait(self) -> Steps[None]:
        """Perhaps for long: nobody shall sleep before what was written so far."""
        if self.rules.notifies_before_wait:
            yield from self.notify()
        self.shared.mark_notified(self.written.items())
        yield pause()

    def may_steal(self, name: Name) -> Steps[bool]:
        """Is its holder dead?"""
        if not self.rules.holder_checked:
            return True
        dead: bool = yield from self.is_gone(name)
        return dead and self.rules.steals

    def check_refusal(self, element: int, current: Version) -> None:
        """One that just takes the dead one's row looks like it, until it has it."""
        assert current.owner is not None
        if self.shared.rows[current.owner.row].vacant:
            raise Violation("inherited", f"{self.name} gives up element {element}, whose writer is dead")

    def is_gone(self, name: Name) -> Steps[bool]:
        """The handle that a word names, which was loaded with acquire."""
        number = yield load(generation(name.row), ACQUIRE)
        if self.rules.generation_named and number != name.generation:
            return True
        if name.row == self.identity.row:
            return False
        owner: int = yield load(uid(name.row), ACQUIRE)
        if owner == 0:
            return True
        dead: bool = yield ("is_gone", self.shared.rows[name.row], self.shared.identities[owner])
        return dead

    # ---- becoming a writer ----

    def lock_file(self) -> Steps[bool]:
        """The flock of the file; False: somebody has it for long."""
        for _ in range(LOCK_TRIES):
            if (yield ("try_lock",)):
                return True
            yield pause()
        return False

    def join(self) -> Steps[bool]:
        """Take a row, and an exclusive vector; False: none is to be had, or the vector is another's."""
        if not (yield from self.lock_file()):
            return False
        row = None
        if self.shared.kind != "exclusive" or (yield from self.may_own(OWNER)):
            row = yield from self.find_row()
        if row is not None:
            self.shared.rows[row].holder = self.task
            if self.rules.references_cleared:
                yield from self.clear_references(row)
            yield from self.take_row(row)
            if self.shared.kind == "exclusive":
                yield from self.own(OWNER)
        yield ("unlock",)
        return row is not None

    def find_row(self) -> Steps[int | None]:
        """A free one first."""
        for free in (True, False):
            for index, row in enumerate(self.shared.rows):
                if (not free or (yield load(uid(index))) == 0) and (yield ("is_vacant", row)):
                    return index
        return None

    def clear_references(self, row: int) -> Steps[None]:
        """All that names it. Others may steal it meanwhile."""
        if (yield load(uid(row))) == 0:
            return  # a task that left had nothing, and a task whose row was never complete has given it all back
        for element in self.shared.elements:
            current: Version = yield load(version(element))
            if current.owner and current.owner.row == row:
                yield from self.change(version(element), current, Version(current.writes))
            owner: Name | None = yield load(key_owner(element))
            if owner and owner.row == row:
                yield store(key_owner(element), None)

    def take_row(self, row: int) -> Steps[None]:
        """The generation, then who it is."""
        number: int = 1 + (yield load(generation(row)))
        yield store(uid(row), 0, RELEASE)
        self.shared.check_row(row)
        yield store(generation(row), number, RELEASE)
        self.identity = Name(row, number)
        yield store(uid(row), self.shared.new_uid(self.task), RELEASE)

    # ---- owners of vectors and keys ----

    def may_own(self, location: str) -> Steps[bool]:
        """Under the file's lock: does nobody living have it?"""
        # EDGE owner: acquire. No mutation of it: each call of its owner ended with a fence, and locks are system calls.
        owner: Name | None = yield load(location, ACQUIRE)
        if owner is None or not self.rules.liveness_checked:
            return True
        dead: bool = yield from self.is_gone(owner)
        return dead

    def own(self, location: str) -> Steps[None]:
        """Under the file's lock."""
        yield store(location, self.word_identity, RELEASE)
        self.shared.own(self.task, location)
        if self.rules.count_forgotten:
            self.handle.counts.clear()

    def disown(self, location: str) -> Steps[None]:
        """At any time."""
        if self.rules.owner_by_exchange:
            current = yield self.shared.exchange(location, self.word_identity, None)  # EDGE owner: release
        elif (current := (yield load(location))) == self.word_identity:
            yield store(location, None, RELEASE)
        if current == self.word_identity:
            self.shared.disown(self.task, location)

    def release_key(self, key: int) -> Steps[None]:
        """One that it has declared."""
        yield from self.disown(key_owner(key))

    def declare(self, name: int) -> Steps[int | None]:
        """Have a key; None: another one has it, or there are too many."""
        if not (yield from self.lock_file()):
            return None
        key = yield from self.find_key(name)
        if key is not None and not (yield from self.may_own(key_owner(key))):
            key = None
        if key is not None:
            yield from self.own(key_owner(key))
        yield ("unlock",)
        return key

    def find_key(self, name: int) -> Steps[int | None]:
        """The one of that name, which it may get now."""
        for key in self.shared.elements:
            if not (yield load(key_state(key))):
                yield from self.give_name(key, name)
                return key
            if (yield load(key_name(key, 0))) == name:
                return key
        return None

    def give_name(self, key: int, name: int) -> Steps[None]:
        """For ever."""
        if not self.rules.name_first:
            yield store(key_state(key), 1, RELEASE)
        for i in PARTS:
            yield store(key_name(key, i), name)
        yield store(key_state(key), 1, self.rules.key_store)  # EDGE key: release

    # ---- leaving ----

    def leave(self) -> Steps[None]:
        """In order; at any time, without the file's lock."""
        owned = [OWNER, *map(key_owner, self.shared.elements)] if self.shared.exclusive else []
        if not self.rules.owner_first:
            yield store(uid(self.identity.row), 0, RELEASE)
            for location in owned:
                self.shared.disown(self.task, location)
        for location in owned:
            yield from self.disown(location)
        if self.rules.owner_first:
            yield store(uid(self.identity.row), 0, RELEASE)
        yield fence(SEQ_CST)
        self.task.closed = True
