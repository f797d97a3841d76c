"""A publisher of a channel: taking a slot, publishing, waking, and coming, growing and leaving.

The numbers are the steps of "Publishing" in docs/internals/channel-protocol.md.
"""

from functools import partial
from operator import eq

from .addresses import EVENTCOUNT
from .channel_shared import (
    EVICTED,
    TAIL,
    Entry,
    Message,
    Pins,
    Pool,
    SharedChannel,
    Word,
    pins,
    pool_uid,
    read_by,
    room,
    without,
    word,
)
from .eventcount import prepare_wait
from .memory import ACQUIRE, RELEASE, SEQ_CST, Write
from .ops import fence, futex_wait, load, rmw, store
from .oracle import Violation
from .task import Op, Steps, Task


class Publisher:
    """One that may have several pools in its life, one after the other."""

    task: Task
    pool: Pool

    def __init__(self, shared: SharedChannel, name: str) -> None:
        self.shared, self.rules = shared, shared.rules
        self.name = name
        self.begun = 0  # messages
        self.idle: dict[
            int, Write
        ] = {}  # for the checks: slots in limbo that could be had when we began to look for one
        self.dead_once: set[int] = set()  # rows of subscribers (a mutation trusts this)

    # ---- a message ----

    def send(self, length: int, *, waits: bool = False) -> Steps[bool]:
        """Publish one; False: no slot. `waits`: until there is one."""
        slot = yield from self.take_slot()  # 1.
        while slot is None and waits:
            slot = yield from self.wait()
        if slot is None:
            return False
        message = yield from self.fill(slot, length)
        yield from self.publish(self.pool, slot, message)
        return True

    def give_up(self, length: int) -> Steps[None]:
        """Take a loan, write into it, and drop it."""
        slot = yield from self.take_slot()
        if slot is not None:
            yield from self.fill(slot, length)
            self.pool.free.append(slot)

    def fill(self, slot: int, length: int) -> Steps[Message]:
        """2. and 3.: a copier that reads any of these bytes finds the slot's former entry gone."""
        self.begun += 1
        message = Message(self.name, self.begun, length)
        yield fence(self.rules.slot_fence)  # EDGE slot: release
        for part in range(1 + length):
            yield store(word(self.pool.uid, slot, part), Word(message, part))
        return message

    def publish(self, pool: Pool, slot: int, message: Message) -> Steps[None]:
        """4. to 6."""
        entry = yield from self.exchange(pool, slot, message)
        yield from self.move_tail(entry.position)
        # EDGE sleep: the entry is exchanged, then eventcount is loaded.
        yield from self.shared.wake(EVENTCOUNT)
        self.shared.notified = max(self.shared.notified, entry.position + 1)

    def exchange(self, pool: Pool, slot: int, message: Message) -> Steps[Entry]:
        """4.: the message gets its position."""
        shared = self.shared
        while True:
            tail: int = yield load(TAIL, ACQUIRE)
            former: Entry = yield load(shared.entry(tail), ACQUIRE)
            if former.position == tail and self.rules.helps:
                yield shared.exchange(TAIL, tail, tail + 1)
            if former.position != tail - shared.capacity:
                continue
            entry = Entry(tail, pool.row, slot)
            # EDGE order: the bytes are stored, then the entry is.
            if (yield shared.exchange(shared.entry(tail), former, entry)) == former:
                shared.publish(entry, message)
                pool.in_hand.discard(slot)
                pool.published.append(entry)
                return entry

    def move_tail(self, position: int) -> Steps[None]:
        """5.: whoever fails was helped."""
        if self.rules.tail_by_exchange:
            yield self.shared.exchange(TAIL, position, position + 1)
        else:
            yield store(TAIL, position + 1, RELEASE)

    # ---- a slot ----

    def take_slot(self) -> Steps[int | None]:
        """One that is neither in the ring nor viewed."""
        gone_viewers, self.idle = self.shared.find_gone_viewers(), self.shared.idle(self.pool, self)
        dead = set() if self.rules.asks_after_pins else (yield from self.dead_among(range(len(self.shared.viewers))))
        slot = self.pool.free.popleft() if self.pool.free else None
        behind = (self.from_limbo, self.from_ring) if self.rules.limbo_first else (self.from_ring, self.from_limbo)
        for find in (self.from_evicted, *behind):
            if slot is None:
                slot = yield from find()
        if slot is None and self.rules.dead_bits_cleared:
            slot = yield from self.from_the_dead(dead)
        if slot is None:
            self.shared.refuse(self.pool, gone_viewers)
            return None
        yield from self.check_readers(slot)
        self.shared.take(self.pool, slot)
        return slot

    def wait(self) -> Steps[int | None]:
        """Sleep until a view of this pool may have been let go; returns a slot that a last look found."""
        location = room(self.pool.uid)
        expected = prepare_wait((yield rmw(location, prepare_wait)))
        yield fence(SEQ_CST)  # EDGE room: the flag is set, then pins are loaded
        slot = yield from self.take_slot()
        if slot is None:
            yield futex_wait(location, partial(eq, expected))
        return slot

    def from_evicted(self) -> Steps[int | None]:
        """The oldest that we published, if it is out of the ring and not viewed."""
        pool = self.pool
        while pool.published:
            oldest = pool.published[0]
            current: Entry = yield load(self.shared.entry(oldest.position), ACQUIRE)
            if current == oldest:
                return None
            pool.published.popleft()
            if not (yield from self.is_pinned(oldest.slot)):
                return oldest.slot
            pool.limbo.append(oldest.slot)
        return None

    def from_ring(self) -> Steps[int | None]:
        """The oldest that we published, withdrawn, unless it is viewed."""
        shared, pool = self.shared, self.pool
        while pool.published and (yield from self.may_withdraw()):
            shared.withdraw(pool, self.idle)
            oldest = pool.published.popleft()
            yield shared.exchange(shared.entry(oldest.position), oldest, Entry(oldest.position, EVICTED, 0))
            if not (yield from self.is_pinned(oldest.slot)):
                return oldest.slot
            pool.limbo.append(oldest.slot)
        return None

    def may_withdraw(self) -> Steps[bool]:
        """Would that give a slot? One that we published is viewed by nobody who lives; a hint, which may be late."""
        held = []
        for sent in self.pool.published:
            if not (yield from self.is_pinned(sent.slot)):
                return True
            pinned: Pins = yield self.load_pins(sent.slot)
            held.append({pin.row for pin in pinned})
        rows = set().union(*held)
        dead = (yield from self.dead_among(sorted(rows))) if self.rules.dead_bits_cleared else set()
        return any(rows <= dead for rows in held)

    def from_limbo(self) -> Steps[int | None]:
        """One whose views were let go."""
        for slot in self.pool.limbo:
            if not (yield from self.is_pinned(slot)):
                self.pool.limbo.remove(slot)
                return slot
        return None

    def from_the_dead(self, dead: set[int]) -> Steps[int | None]:
        """One whose viewers have all died. `dead`: rows that were found so before."""
        shared, pool = self.shared, self.pool
        rows = set()
        for slot in pool.limbo:
            pinned: Pins = yield self.load_pins(slot)
            rows |= {pin.row for pin in pinned}
        if self.rules.asks_after_pins:
            dead = yield from self.dead_among(sorted(rows))
        unpinned = None
        for slot in pool.limbo if dead & rows else ():
            before: Pins = yield shared.change(pins(pool.uid, slot), without(dead))
            if not without(dead)(before):
                unpinned = slot
        if unpinned is not None:
            pool.limbo.remove(unpinned)
        return unpinned

    def is_pinned(self, slot: int) -> Steps[bool]:
        """Does anybody view it?"""
        if not self.rules.pins_checked:
            return False
        pinned: Pins = yield self.load_pins(slot)
        return bool(pinned)

    def load_pins(self, slot: int) -> Op:
        """EDGE pin: behind every way of seeing that the slot's entry is gone."""
        location = pins(self.pool.uid, slot)
        return self.shared.load_seq_cst(location) if self.rules.pins_load_seq_cst else load(location, ACQUIRE)

    def dead_among(self, rows: range | list[int]) -> Steps[set[int]]:
        """Ask the kernel for each."""
        dead = set(self.dead_once) if not self.rules.answers_end else set()
        for row in rows:
            if row not in dead and (yield ("is_vacant", self.shared.viewers[row])):
                dead.add(row)
        self.dead_once |= dead
        return dead

    def check_readers(self, slot: int) -> Steps[None]:
        """Everything that subscribers loaded from this slot happens before what we do with it."""
        for row in range(len(self.shared.viewers)):
            location = read_by(self.pool.uid, slot, row)
            if (yield load(location)) != (newest := self.shared.kernel.newest(location)):
                raise Violation("held", f"{self.name} writes into slot {slot}; the reading of {newest} may come after")

    # ---- rows ----

    def join(self, slots: int) -> Steps[bool]:
        """Come, or grow: take a row and give it a new pool. False: no row is to be had."""
        yield from self.shared.lock(self)
        row = yield from self.find_row()
        if row is not None:
            yield from self.take_row(row, slots)
        yield from self.shared.unlock()
        return row is not None

    def find_row(self) -> Steps[int | None]:
        """A free one, a dead one to which no entry refers, a dead one that is withdrawn; in this order."""
        referred: list[Entry] = []
        if not self.rules.liveness_before_entries:
            referred = yield from self.entries()
        dead = []
        for index, row in enumerate(self.shared.rows):
            if (yield ("is_vacant", row)):
                dead.append(index)
        if self.rules.liveness_before_entries:
            referred = yield from self.entries()
        for index in dead:
            if all(entry.row != index for entry in referred):
                return index
        if not dead:
            return None
        newest = {index: max(entry.position for entry in referred if entry.row == index) for index in dead}
        oldest = min(dead, key=lambda index: newest[index])
        for entry in referred if self.rules.row_unreferenced else ():
            if entry.row == oldest:
                location = self.shared.entry(entry.position)
                yield self.shared.exchange(location, entry, Entry(entry.position, EVICTED, 0))
        return oldest

    def entries(self) -> Steps[list[Entry]]:
        """One pass over the ring."""
        seen = []
        for i in range(self.shared.capacity):
            entry: Entry = yield load(self.shared.entry(i), ACQUIRE)
            seen.append(entry)
        return seen

    def take_row(self, row: int, slots: int) -> Steps[None]:
        """The pool's identity, then its name; a kill between leaves no file without a row."""
        shared = self.shared
        former: int = yield load(pool_uid(row), ACQUIRE)
        yield ("unlink_file", former)
        shared.rows[row].holder = self.task
        pool = shared.new_pool(row, slots)
        yield store(pool_uid(row), pool.uid, RELEASE)
        yield ("name_file", pool.uid)
        yield from shared.wake(EVENTCOUNT)
        self.pool = pool

    def grow(self, slots: int, length: int) -> Steps[None]:
        """Another pool on another row; the messages in the old one stay until a joiner needs its row.

        A slot of the old pool is lent all the while, and published last.
        """
        shared, former = self.shared, self.pool
        slot = yield from self.take_slot()
        message = Message(self.name, 0, 0) if slot is None else (yield from self.fill(slot, length))
        grown = yield from self.join(slots)
        if grown and not self.rules.row_kept:
            shared.rows[former.row].holder = None
        if slot is not None:
            yield from self.publish(former, slot, message)
        if grown:
            yield fence(SEQ_CST)
            shared.rows[former.row].holder = None

    def configure(self) -> Steps[None]:
        """The first one says how many entries there are."""
        shared = self.shared
        yield from shared.lock(self)
        if (yield load(TAIL, ACQUIRE)) == 0:
            for i in range(shared.capacity):
                yield store(shared.entry(i), Entry(i, EVICTED, 0))
            yield store(TAIL, shared.capacity, RELEASE)
        yield from shared.unlock()

    def leave(self) -> Steps[None]:
        """What we published can still be read."""
        yield fence(SEQ_CST)
        self.task.closed = True
