"""Who sleeps in which row of a work queue, and how it is woken.

Each row has an attention word (attention.py) for each kind of sleep, and a bit in a word for all rows.
"""

from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Literal

from . import attention as words
from .memory import ACQUIRE, RELAXED, SEQ_CST
from .ops import fence, futex_wait, load, until
from .task import Op, Steps, Task
from .workqueue_store import KINDS, READY, SENDERS, WAITING, WATCHING, Rows, Store, attention, word

ALL = 1000  # rows to wake
FOR_EVER = 1000  # time-outs

Look = Callable[[], Steps[bool]]
End = Literal["there", "late", "interrupted"]  # of a sleep


class Owner:
    """What the threads of one handle share, besides the row itself."""

    row = -1
    generation = -1
    takes = 0
    debts = 0

    def __init__(self) -> None:
        self.asleep = dict.fromkeys(KINDS, 0)  # threads
        self.threads: list[Task] = []
        self.inside: Sleeper | None = None  # the thread that has Python's lock

    @property
    def is_shared(self) -> bool:
        """By several threads."""
        return len(self.threads) > 1


class Sleeper:
    """A thread of a handle."""

    def __init__(self, store_: Store, owner: Owner | None) -> None:
        self.store, self.rules = store_, store_.rules
        self.us = owner or Owner()

    # ---- sleeping ----

    def lock(self) -> Steps[None]:
        """Python's, which is all that threads of a handle need."""
        if self.us.is_shared:
            yield until(lambda: self.us.inside is None)
            self.us.inside = self

    def unlock(self) -> Steps[None]:
        """Let the other thread go on."""
        if self.us.inside is self:
            yield fence(SEQ_CST)
            self.us.inside = None

    def bit(self) -> int:
        """Ours, in each word of bits."""
        return self.us.row if self.rules.bit_each else -1

    def set_bit(self, bits: str) -> Steps[None]:
        """EDGE asleep: the bit is set, then words are loaded."""
        bit = self.bit()
        yield self.store.change(bits, lambda rows: rows | {bit})
        yield fence(self.rules.sleeper_fence)

    def clear_bit(self, bits: str) -> Steps[None]:
        """Who saw it has left it to us."""
        bit = self.bit()
        yield self.store.change(bits, lambda rows: rows - {bit})
        yield fence(self.rules.leaver_fence)

    def announce(self, kind: str) -> Steps[words.Word]:
        """What the word shall be when the sleep begins."""
        before: words.Word = yield self.store.change(attention(self.us.row, kind), words.announce)
        yield fence(self.rules.sleeper_fence)
        if self.rules.sets_bit:
            yield from self.set_bit(kind)
        return words.announce(before)

    def lie_down(self, kind: str) -> Steps[words.Word]:
        """The same, of one thread more."""
        yield from self.lock()
        self.us.asleep[kind] += 1
        expected = yield from self.announce(kind)
        yield from self.unlock()
        return expected

    def get_up(self, kind: str) -> Steps[None]:
        """The bit goes off with the last."""
        yield from self.lock()
        self.us.asleep[kind] -= 1
        if not self.us.asleep[kind] or not self.rules.threads_counted:
            yield from self.clear_bit(kind)
        yield from self.unlock()

    def sleep_on(self, kind: str, expected: words.Word) -> Steps[bool]:
        """True: time has run out."""
        yield futex_wait(attention(self.us.row, kind), partial(eq, expected))
        late: bool = yield ("is_late",)
        return late

    def is_interrupted(self, patience: int) -> bool:
        """Does a signal's handler raise, or close the queue? Of those that wait for ever, it does not."""
        return patience < FOR_EVER and self.store.rng.random() < 0.15

    def sleep(self, kind: str, is_there: Look, patience: int) -> Steps[End]:
        """Until it is there, or time has run out so often."""
        late = False
        while not self.is_interrupted(patience):
            if self.rules.announces_first:
                expected = yield from self.lie_down(kind)
                there = yield from is_there()
            else:
                there = yield from is_there()
                expected = yield from self.lie_down(kind)
            if not there:
                if late:
                    yield from self.look_for_dead()
                late = yield from self.sleep_on(kind, expected)
            yield from self.get_up(kind)
            if there or (yield from is_there()):
                return "there"
            patience -= late
            if patience < 0:
                return "late"
        return "interrupted"

    def look_for_dead(self) -> Steps[None]:
        """Each second."""
        raise NotImplementedError

    # ---- waking ----

    def wake_row(self, row: int, kind: str) -> Steps[bool]:
        """False: it was not asleep, or somebody else wakes it, and is perhaps stopped before that."""
        where = attention(row, kind)
        due: words.Word = yield self.look_at(where)
        if not due[1]:
            return False
        if not self.rules.flag_stands:
            yield self.store.change(where, lambda word: (word[0] + 1, False, False))
            yield ("futex_wake_at", where)
            return True
        first = yield from words.wake(where, call=("futex_wake_at", where))
        return first or not self.rules.announcement_counts_once

    def look_at(self, location: str) -> Op:
        """EDGE asleep: something was published, then bits and announcements are loaded. Either is enough: a bit is set
        behind each announcement."""
        return self.store.look(location) if self.rules.looks_seq_cst else load(location)

    def wake(self, kind: str, most: int) -> Steps[int]:
        """So many rows; how many it were."""
        woken = 0
        seen: Rows = yield load(kind, ACQUIRE if self.rules.looks_seq_cst else RELAXED)
        for row in sorted(seen) if self.rules.bit_each else range(len(self.store.rows)):
            if woken < most:
                woken += yield from self.wake_row(row, kind)
        return woken

    def wake_receivers(self, most: int = 1) -> Steps[None]:
        """Watchers only look, so that they must not have the only wake."""
        if (yield self.look_at(WATCHING)):
            watchers = yield from self.wake(WATCHING, ALL)
            if not self.rules.watchers_extra:
                most -= watchers
        if (yield self.look_at(WAITING)):
            yield from self.wake(WAITING, most)

    def wake_sender(self) -> Steps[None]:
        """A place is free."""
        if (yield self.look_at(SENDERS)):
            yield from self.wake(SENDERS, 1)

    # ---- looks ----

    def sees(self, kind: str) -> Steps[bool]:
        """Is there a word of that kind? It takes nothing. Some words are only released, and counted behind that."""
        if kind == "ready" and self.rules.look_loads_count:
            yield load(READY, ACQUIRE)
        for place in self.store.places:
            if (yield load(word(place), ACQUIRE))[0] == kind:
                return True
        return False

    def sees_message(self) -> Steps[bool]:
        """Is there anything to take?"""
        return self.sees("ready")

    def sees_room(self) -> Steps[bool]:
        """Is there anything to fill?"""
        return self.sees("free")

    def pass_on_message(self) -> Steps[None]:
        """The wake that we had was perhaps another's."""
        yield fence(SEQ_CST)
        if (yield from self.sees_message()):
            yield from self.wake_receivers()

    def pass_on_room(self) -> Steps[None]:
        """The same."""
        yield fence(SEQ_CST)
        if (yield from self.sees_room()):
            yield from self.wake_sender()
