"""Subscribers of a channel: those that copy, those that view, and those that sleep."""

from functools import partial
from operator import eq
from typing import NamedTuple

from .addresses import EVENTCOUNT
from .channel_shared import (
    EVICTED,
    TAIL,
    Entry,
    Pin,
    Pins,
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
from .memory import ACQUIRE, RELAXED, SEQ_CST
from .ops import fence, futex_wait, load, rmw, store
from .oracle import Violation
from .task import Steps, Task


class Subscriber:
    """A cursor. How a message is taken is the business of those below."""

    task: Task

    def __init__(self, shared: SharedChannel, name: str, *, margin: int = 0, newest: bool = False) -> None:
        self.shared, self.rules = shared, shared.rules
        self.name = name
        self.margin, self.newest = margin, newest  # where it goes on when it was lapped
        self.start = self.joined = self.cursor = 0  # before all positions
        self.received = self.lost = self.spared = 0  # spared: from before it joined, so not lost
        self.mapped: dict[int, int] = {}  # row -> uid of the pool that we have mapped for it
        self.last: dict[str, int] = {}  # publisher -> number of the message that we had from it

    def join(self, history: int) -> Steps[None]:
        """Begin at the present, or some messages before it."""
        self.joined = yield load(TAIL, ACQUIRE)
        self.start = self.cursor = max(self.shared.capacity, self.joined - min(history, self.shared.capacity))

    def receive(self) -> Steps[bool]:
        """Get past a position or more; False: nothing is there yet."""
        if self.cursor == 0 and not (yield from self.is_configured()):
            return False
        while True:
            entry: Entry = yield load(self.shared.entry(self.cursor), self.rules.entry_load)  # EDGE order: acquire
            if entry.position < self.cursor:
                return False
            if entry.position > self.cursor:
                yield from self.skip_lapped(entry)
                return True
            if entry.row == EVICTED:
                self.skip(self.cursor + 1)
                return True
            if (yield from self.open_pool(entry)) and (yield from self.take(entry)):
                return True

    def is_configured(self) -> Steps[bool]:
        """Is it known by now how many entries there are?"""
        if (yield load(TAIL, ACQUIRE)) == 0:
            return False
        self.start = self.joined = self.cursor = self.shared.capacity
        return True

    def take(self, entry: Entry) -> Steps[bool]:
        """Get the message; False: it was gone before we had it."""
        raise NotImplementedError

    def skip_lapped(self, entry: Entry) -> Steps[None]:
        """Go to the oldest that will still be there a moment later, or to the present."""
        tail: int = yield load(TAIL, ACQUIRE)
        newest = max(tail, entry.position + 1)
        self.skip(newest if self.newest else newest - self.shared.capacity + self.margin)

    def skip(self, position: int) -> None:
        """Give up what is before it."""
        if position <= self.cursor:
            raise Violation("order", f"{self.name} goes from {self.cursor} back to {position}")
        lost = max(0, position - max(self.cursor, self.joined))
        self.lost += lost
        self.spared += position - self.cursor - lost
        self.cursor = position

    def open_pool(self, entry: Entry) -> Steps[bool]:
        """Have the pool mapped that the entry means; False: the entry is gone.

        The row of an entry that is gone may name another pool already, which has no name yet, or fewer slots.
        """
        if self.rules.uid_compared or entry.row not in self.mapped:
            uid: int = yield load(pool_uid(entry.row), ACQUIRE)
            if self.mapped.get(entry.row) == uid or (yield ("open_file", uid)):
                self.mapped[entry.row] = uid
            else:
                self.mapped.pop(entry.row, None)
        pool = self.shared.pools.get(self.mapped.get(entry.row, 0))
        if pool and entry.slot < pool.slots:
            return True
        if (yield load(self.shared.entry(entry.position), ACQUIRE)) == entry:
            raise Violation("account", f"{self.name} has no slot for {entry}, which is in the ring")
        return False

    def read(self, uid: int, slot: int) -> Steps[list[Word]]:
        """The bytes that the length in the slot asks for."""
        words: list[Word] = [(yield load(word(uid, slot, 0)))]
        for part in range(1, 1 + words[0].message.length):
            words.append((yield load(word(uid, slot, part))))
        return words

    def check(self, position: int, words: list[Word]) -> None:
        """Is it the message that was published there, and whole?"""
        message = self.shared.messages[position - self.shared.capacity]
        if words != [Word(message, part) for part in range(1 + message.length)]:
            raise Violation("torn", f"{self.name} takes {words} at {position} for {message}")

    def accept(self, position: int) -> None:
        """The message at the cursor is ours."""
        message = self.shared.messages[position - self.shared.capacity]
        if message.number <= self.last.get(message.publisher, 0):
            raise Violation("order", f"{self.name} gets {message} after {self.last}")
        self.last[message.publisher] = message.number
        self.received += 1
        self.cursor += 1

    def check_end(self) -> None:
        """All is quiet, and there is nothing more to read."""
        if self.cursor != self.shared.end:
            raise Violation("account", f"{self.name} stops at {self.cursor}; the channel is at {self.shared.end}")
        if self.received + self.lost + self.spared != self.cursor - self.start:
            raise Violation("account", f"{self.name}: {self.received} received, {self.lost} lost, from {self.start}")

    # ---- sleeping ----

    def sleep(self) -> Steps[bool]:
        """Until somebody wakes us; True: a last look got us past a message."""
        expected = prepare_wait((yield rmw(EVENTCOUNT, prepare_wait)))
        yield fence(SEQ_CST)  # EDGE sleep: the flag is set, then the entry is loaded
        if self.rules.rechecks and (yield from self.receive()):
            return True
        yield futex_wait(EVENTCOUNT, partial(eq, expected))
        return False


class Copier(Subscriber):
    """Leaves no trace in shared memory."""

    def take(self, entry: Entry) -> Steps[bool]:
        """Copy, then look at the entry once more."""
        words = yield from self.read(self.mapped[entry.row], entry.slot)
        yield fence(self.rules.copy_fence)  # EDGE slot: acquire
        if self.rules.checks_after_copy and (yield load(self.shared.entry(entry.position), RELAXED)) != entry:
            return False
        self.check(entry.position, words)
        self.accept(entry.position)
        return True


class View(NamedTuple):
    """A message that is held."""

    position: int
    uid: int
    slot: int


class Viewer(Subscriber):
    """Holds messages where they are."""

    def __init__(self, shared: SharedChannel, name: str, *, most: int, margin: int = 0, newest: bool = False) -> None:
        super().__init__(shared, name, margin=margin, newest=newest)
        self.most = most  # views at once
        self.row = -1
        self.views: list[View] = []

    def enter(self) -> Steps[bool]:
        """Take a row; False: all are taken.

        Its bit is cleared before we hold it: as soon as we do, publishers believe that the bit is ours.
        """
        shared = self.shared
        yield from shared.lock(self)
        for index, row in enumerate(shared.viewers):
            if not (yield ("is_vacant", row)):
                continue
            if not self.rules.bit_cleaned_first:
                row.holder = self.task
            if self.rules.bit_cleaned:
                yield from self.clean(index)
            self.row, row.holder = index, self.task
            break
        yield from shared.unlock()
        return self.row >= 0

    def clean(self, row: int) -> Steps[None]:
        """Clear the bits that a dead one left in pools whose publisher may still want them."""
        for publisher in range(len(self.shared.rows)):
            uid: int = yield load(pool_uid(publisher), ACQUIRE)
            for slot in range(self.shared.pools[uid].slots) if uid else ():
                yield self.shared.change(pins(uid, slot), without({row}))

    def take(self, entry: Entry) -> Steps[bool]:
        """Pin, then look at the entry once more."""
        shared, uid = self.shared, self.mapped[entry.row]
        if len(self.views) == self.most:
            yield from self.let_go()
        yield shared.change(pins(uid, entry.slot), self.with_pin)
        # EDGE pin: the bit is set, then the entry is loaded.
        location = shared.entry(entry.position)
        again = yield shared.load_seq_cst(location) if self.rules.pin_seq_cst else load(location, ACQUIRE)
        if self.rules.checks_after_pin and again != entry:
            yield from self.unpin(uid, entry.slot)
            if self.rules.failed_pin_wakes:
                yield from shared.wake(room(uid))
            return False
        shared.view(self.task, uid, entry.slot)
        self.views.append(View(entry.position, uid, entry.slot))
        self.accept(entry.position)
        return True

    def with_pin(self, bits: Pins) -> Pins:
        """With our bit."""
        return bits | {Pin(self.row, self.name)}

    def unpin(self, uid: int, slot: int) -> Steps[None]:
        """Clear our bit."""
        location = pins(uid, slot)
        if self.rules.unpin == "seq_cst":
            yield self.shared.change(location, without({self.row}))  # EDGE unpin: release
        else:
            yield ({"release": "rmw", "relaxed": "rmw_relaxed"}[self.rules.unpin], location, without({self.row}))

    def read_view(self, view: View) -> Steps[None]:
        """Read what we hold."""
        self.check(view.position, (yield from self.read(view.uid, view.slot)))
        yield store(read_by(view.uid, view.slot, self.row), view.position)

    def let_go(self) -> Steps[None]:
        """Read one of the views for the last time."""
        view = self.views[int(self.shared.rng.random() * len(self.views))]
        yield from self.read_view(view)
        self.views.remove(view)
        self.shared.views[view.uid, view.slot].discard(self.task)
        yield from self.unpin(view.uid, view.slot)
        # EDGE room: the bit is cleared, then the publisher's eventcount is loaded.
        yield from self.shared.wake(room(view.uid))

    def leave(self) -> Steps[None]:
        """The row is free when the last view is let go."""
        while self.views:
            yield from self.let_go()
        yield fence(SEQ_CST)
        self.task.closed = True
