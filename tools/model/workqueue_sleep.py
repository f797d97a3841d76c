"""Who sleeps in which row of a work queue, and how it is woken.

Each row has an attention word (attention.py) for each kind of sleep, and a bit in a word for all rows. For the order in
which calls are served, see workqueue_turn.py.
"""

from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Literal

from . import attention as words
from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, futex_wait, load, store, until
from .task import Op, Steps, Task
from .truth import Violation
from .workqueue_store import KINDS, READY, SENDERS, WAITING, WATCHING, Rows, Store, attention, since, word

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
        self.waits: dict[str, list[int]] = {kind: [] for kind in KINDS}  # tickets of calls that wait
        self.threads: list[Task] = []
        self.inside: Sleeper | None = None  # the thread that has Python's lock

    @property
    def is_shared(self) -> bool:
        """By several threads."""
        return len(self.threads) > 1


class Sleeper:
    """A thread of a handle."""

    task: Task

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

    def show_ticket(self, kind: str) -> Steps[None]:
        """EDGE ticket: the smallest one of the row's calls."""
        yield store(since(self.us.row, kind), min(self.us.waits[kind], default=0), RELEASE)

    def announce(self, kind: str) -> Steps[words.Word]:
        """What the word shall be when the sleep begins."""
        if self.rules.ticket_first:
            yield from self.show_ticket(kind)
        before: words.Word = yield self.store.change(attention(self.us.row, kind), words.announce)
        if not self.rules.ticket_first:
            yield from self.show_ticket(kind)
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
            yield from self.renew_ticket(kind)
            if self.rules.announces_first:
                expected = yield from self.lie_down(kind)
                yield from self.insist(kind)
                there = yield from is_there()
            else:
                there = yield from is_there()
                expected = yield from self.lie_down(kind)
                yield from self.insist(kind)
            if not there:
                if late:
                    yield from self.look_for_dead()
                late = yield from self.sleep_on(kind, expected)
            yield from self.get_up(kind)
            if there or (yield from is_there()):
                return "there"
            if not late:
                self.lose()
            patience -= late
            if patience < 0:
                return "late"
        return "interrupted"

    def look_for_dead(self) -> Steps[None]:
        """Each second."""
        raise NotImplementedError

    def renew_ticket(self, kind: str) -> Steps[None]:
        """A mutation."""
        raise NotImplementedError

    def insist(self, kind: str) -> Steps[None]:
        """Take a turn, if it was woken without result."""
        raise NotImplementedError

    def lose(self) -> None:
        """It was woken without result, or others took what it had seen."""
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
        passed: set[int] = set()
        while woken < most:
            known = self.store.host.fenced_at.get(self.task, 0)
            row, ticket = yield from self.longest(kind, passed)
            if row < 0:
                break
            passed.add(row)
            passed_over = self.store.passed_over(kind, row, ticket, known)
            if (yield from self.wake_row(row, kind)):
                if passed_over:
                    raise Violation("fair", f"row {row} is woken, and {passed_over.name} has slept for longer")
                woken += 1
        return woken

    def longest(self, kind: str, passed: set[int]) -> Steps[tuple[int, int]]:
        """The row to wake next, and the ticket that it had, whatever it showed; -1: there is none."""
        seen: Rows = yield self.look_at(kind)
        best = (-1, 0, 0)
        for row in sorted(seen - passed) if self.rules.bit_each else set(range(len(self.store.rows))) - passed:
            due: words.Word = yield self.look_at(attention(row, kind))
            if due[1]:
                ticket: int = yield load(since(row, kind))
                if best[0] < 0 or (self.rules.wakes_longest and ticket < best[1]):
                    best = (row, ticket, self.store.ticket_of(row, kind))
        return best[0], best[2]

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

    def available(self, kind: str) -> Steps[int]:
        """How many messages, or free places?"""
        count = 0
        for place in self.store.places:
            count += (yield load(word(place), ACQUIRE))[0] == ("free" if kind == SENDERS else "ready")
        return count

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
