"""Becoming a writer, writing, and leaving."""

from . import attention as words
from .addresses import ATTENTION
from .cell_reader import Reader
from .cell_store import (
    OWNER,
    PARTS,
    Cells,
    Name,
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
from .task import Steps, Task
from .truth import Violation

LOCK_TRIES = 6  # of the file's lock; some seconds, in C


class Shared:
    """What the threads of a handle share, besides its row."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}  # of exclusive elements that were written
        self.threads = 0
        self.inside: Task | None = None  # who has the handle's lock


class Writer(Reader):
    """A handle that writes, or a thread of one."""

    def __init__(self, store_: Cells, name: str, handle: Shared | None = None) -> None:
        super().__init__(store_, name)
        self.us = Name(-1, -1)
        self.handle = handle or Shared()
        self.handle.threads += 1
        self.written: dict[int, int] = {}  # element -> count: not told of
        self.inherited: dict[int, int] = {}
        self.now = 0  # when a call began

    @property
    def named(self) -> Name:
        """In our words."""
        return self.us if self.rules.generation_named else Name(self.us.row, 0)

    # ---- writing ----

    def write(self, elements: list[int], patience: int = 0) -> Steps[bool]:
        """One call. False: others have held an element for so long; those before it are written."""
        self.inherited, self.now = self.store.inherited(), self.host.clock
        self.written.clear()
        for element in elements:
            if self.store.exclusive:
                yield from self.enter()
                yield from self.write_own(element)
                yield from self.exit()
            elif not (yield from self.write_shared(element, patience)):
                if self.rules.tells_when_late:
                    yield from self.tell()
                self.store.tell(self.written.items())
                return False
        if self.rules.attention_last:
            yield from self.tell()
        return True

    def write_shared(self, element: int, patience: int) -> Steps[bool]:
        """Lock, fill, publish."""
        count = yield from self.lock(element, patience)
        if count is None:
            return False
        number = self.store.begin(self.task, element)
        yield from self.fill(element, count + 1, number)
        due = None if self.rules.attention_last else (yield self.store.look(ATTENTION))
        location, new = version(element), Version(count + 1)
        if self.rules.publish == "release":
            yield store(location, new, RELEASE)
        elif self.rules.publish == "relaxed":
            yield ("rmw_relaxed", location, lambda _: new)
        elif (yield self.store.exchange(location, Version(count, self.named), new)) != (count, self.named):
            raise Violation("robbed", f"{self.name} has lost element {element}")
        yield from self.published(element, number, count + 1, due)
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
            count = (yield load(version(element))).times
        number = self.store.begin(self.task, element)
        yield from self.fill(element, count + 1, number)
        due = None if self.rules.attention_last else (yield self.store.look(ATTENTION))
        yield store(version(element), Version(count + 1), self.rules.exclusive_publish)  # EDGE value: release
        self.handle.counts[element] = count + 1
        yield from self.published(element, number, count + 1, due)

    def fill(self, element: int, count: int, number: int) -> Steps[None]:
        """The copy that no reader of the version before it uses. The clock was read before the element was taken, but
        its times do not go back for that."""
        before: int = yield load(part(element, (count - 1) % self.store.copies, 0))
        self.store.times[number] = max(self.now, self.store.times[before]) if self.rules.times_kept else self.now
        yield fence(self.rules.write_fence)  # EDGE cell: the lock or the last version, then bytes
        for i in PARTS:
            yield store(part(element, count % self.store.copies, i), number)

    def published(self, element: int, number: int, count: int, due: words.Word | None) -> Steps[None]:
        """The version is there."""
        self.store.complete(self.task, element, number, count)
        self.written[element] = count
        if due:
            yield from self.tell(due)

    # ---- telling ----

    def tell(self, due: words.Word | None = None) -> Steps[None]:
        """Those who sleep of what was written. `due`: attention as it was before (a mutation)."""
        if not self.written:
            return
        yield fence(self.rules.exclusive_fence if self.store.exclusive else self.rules.publish_fence)
        if due is None:
            due = yield self.store.look(ATTENTION)  # EDGE sleep: versions, then attention
        if due[1] and self.rules.flag_stands:
            yield from words.wake(ATTENTION)
        elif due[1]:
            yield rmw(ATTENTION, lambda word: (word[0] + 1, False, False))
            yield futex_wake()
        self.told()

    def told(self) -> None:
        """Nobody may sleep before this, or before what the dead had written when we began."""
        self.store.tell(self.written.items())
        self.store.tell(self.inherited.items())
        self.written.clear()

    # ---- the lock of an element ----

    def lock(self, element: int, patience: int) -> Steps[int | None]:
        """Its count; None: a living one holds it, also when looked at again so often."""
        location = version(element)
        found: Version = yield load(location, self.rules.lock_load)
        while True:
            holder = self.store.holders.get(element)
            dead = holder is not None and holder.dead
            if found.owner is None or (yield from self.may_steal(found.owner)):
                mine = Version(found.times, self.named)
                if (yield from self.change(location, found, mine)):
                    return found.times
            elif patience == 0:
                if dead and found == self.host.newest(location):
                    self.check_refusal(element, found)
                return None
            else:
                patience -= 1
                yield from self.wait()
            if self.rules.loads_again:
                found = yield load(location, self.rules.lock_load)

    def change(self, location: str, found: Version, new: Version) -> Steps[bool]:
        """False: it is no longer what was found."""
        if self.rules.locks_by_exchange:
            return bool((yield self.store.exchange(location, found, new)) == found)
        yield store(location, new, RELEASE)
        return True

    def wait(self) -> Steps[None]:
        """Perhaps for long: nobody shall sleep before what was written so far."""
        if self.rules.tells_before_wait:
            yield from self.tell()
        self.store.tell(self.written.items())
        yield pause()

    def may_steal(self, name: Name) -> Steps[bool]:
        """Is its holder dead?"""
        if not self.rules.asks:
            return True
        gone: bool = yield from self.is_gone(name)
        return gone and self.rules.steals

    def check_refusal(self, element: int, found: Version) -> None:
        """One that just takes the dead one's row looks like it, until it has it."""
        assert found.owner is not None
        if self.store.rows[found.owner.row].vacant:
            raise Violation("inherited", f"{self.name} gives up element {element}, whose writer is dead")

    def is_gone(self, name: Name) -> Steps[bool]:
        """The handle that a word names, which was loaded with acquire."""
        number = yield load(generation(name.row), ACQUIRE)
        if self.rules.generation_named and number != name.generation:
            return True
        if name.row == self.us.row:
            return False
        owner: int = yield load(uid(name.row), ACQUIRE)
        if owner == 0:
            return True
        gone: bool = yield ("is_gone", self.store.rows[name.row], self.store.identities[owner])
        return gone

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
        if self.store.kind != "exclusive" or (yield from self.may_own(OWNER)):
            row = yield from self.find_row()
        if row is not None:
            self.store.rows[row].holder = self.task
            if self.rules.given_back:
                yield from self.give_back(row)
            yield from self.take_row(row)
            if self.store.kind == "exclusive":
                yield from self.own(OWNER)
        yield ("unlock",)
        return row is not None

    def find_row(self) -> Steps[int | None]:
        """A free one first."""
        for free in (True, False):
            for row, seat in enumerate(self.store.rows):
                if (not free or (yield load(uid(row))) == 0) and (yield ("is_vacant", seat)):
                    return row
        return None

    def give_back(self, row: int) -> Steps[None]:
        """All that names it. Others may steal it meanwhile."""
        if (yield load(uid(row))) == 0:
            return  # who left had nothing, and whose row was never complete has given it all back
        for element in self.store.elements:
            found: Version = yield load(version(element))
            if found.owner and found.owner.row == row:
                yield from self.change(version(element), found, Version(found.times))
            owner: Name | None = yield load(key_owner(element))
            if owner and owner.row == row:
                yield store(key_owner(element), None)

    def take_row(self, row: int) -> Steps[None]:
        """The generation, then who it is."""
        number: int = 1 + (yield load(generation(row)))
        yield store(uid(row), 0, RELEASE)
        self.store.check_row(row)
        yield store(generation(row), number, RELEASE)
        self.us = Name(row, number)
        yield store(uid(row), self.store.new_uid(self.task), RELEASE)

    # ---- owners of vectors and keys ----

    def may_own(self, what: str) -> Steps[bool]:
        """Under the file's lock: does nobody living have it?"""
        # EDGE owner: acquire. No mutation of it: each call of its owner ended with a fence, and locks are system calls.
        owner: Name | None = yield load(what, ACQUIRE)
        if owner is None or not self.rules.life_asked:
            return True
        gone: bool = yield from self.is_gone(owner)
        return gone

    def own(self, what: str) -> Steps[None]:
        """Under the file's lock."""
        yield store(what, self.named, RELEASE)
        self.store.own(self.task, what)
        if self.rules.count_forgotten:
            self.handle.counts.clear()

    def disown(self, what: str) -> Steps[None]:
        """At any time."""
        if self.rules.owner_by_exchange:
            found = yield self.store.exchange(what, self.named, None)  # EDGE owner: release
        elif (found := (yield load(what))) == self.named:
            yield store(what, None, RELEASE)
        if found == self.named:
            self.store.disown(self.task, what)

    def give_up(self, key: int) -> Steps[None]:
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
        for key in self.store.elements:
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
        owned = [OWNER, *map(key_owner, self.store.elements)] if self.store.exclusive else []
        if not self.rules.owner_first:
            yield store(uid(self.us.row), 0, RELEASE)
            for what in owned:
                self.store.disown(self.task, what)
        for what in owned:
            yield from self.disown(what)
        if self.rules.owner_first:
            yield store(uid(self.us.row), 0, RELEASE)
        yield fence(SEQ_CST)
        self.task.closed = True
