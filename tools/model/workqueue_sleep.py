"""Who sleeps in which row of a work queue, and how it is woken.

Each row has an eventcount (eventcount.py) for each kind of sleep, and a bit in a word for all rows. workqueue_turn.py
has the order in which calls are served.
"""

from collections.abc import Callable
from functools import partial
from operator import eq
from typing import Literal

from . import eventcount
from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, futex_wait, load, store, until
from .oracle import Violation
from .task import Op, Steps, Task
from .workqueue_shared import KINDS, READY, SENDERS, WAITING, WATCHING, Rows, SharedQueue, row_eventcount, since, word

ALL = 1000  # rows to wake
WAIT_FOREVER = 1000  # time-outs

Look = Callable[[], Steps[bool]]
End = Literal["there", "late", "interrupted"]  # of a sleep


class HandleState:
    """What the threads of one handle share, besides the row itself."""

    row = -1
    generation = -1
    takes = 0
    notify_debts = 0

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

    def __init__(self, shared: SharedQueue, owner: HandleState | None) -> None:
        self.shared, self.rules = shared, shared.rules
        self.state = owner or HandleState()

    # ---- sleeping ----

    def lock(self) -> Steps[None]:
        """Python's, which is all that threads of a handle need."""
        if self.state.is_shared:
            yield until(lambda: self.state.inside is None)
            self.state.inside = self

    def unlock(self) -> Steps[None]:
        """Let the other thread go on."""
        if self.state.inside is self:
            yield fence(SEQ_CST)
            self.state.inside = None

    def bit(self) -> int:
        """Ours, in each word of bits."""
        return self.state.row if self.rules.bit_each else -1

    def set_bit(self, bits: str) -> Steps[None]:
        """EDGE sleeper-bit: the bit is set, then words are loaded."""
        bit = self.bit()
        yield self.shared.change(bits, lambda rows: rows | {bit})
        yield fence(self.rules.sleeper_fence)

    def clear_bit(self, bits: str) -> Steps[None]:
        """Who saw it has left it to us."""
        bit = self.bit()
        yield self.shared.change(bits, lambda rows: rows - {bit})
        yield fence(self.rules.leaver_fence)

    def show_ticket(self, kind: str) -> Steps[None]:
        """EDGE ticket: the smallest one of the row's calls."""
        yield store(since(self.state.row, kind), min(self.state.waits[kind], default=0), RELEASE)

    def prepare_wait(self, kind: str) -> Steps[eventcount.Word]:
        """What the word shall be when the sleep begins."""
        if self.rules.ticket_first:
            yield from self.show_ticket(kind)
        before: eventcount.Word = yield self.shared.change(
            row_eventcount(self.state.row, kind), eventcount.prepare_wait
        )
        if not self.rules.ticket_first:
            yield from self.show_ticket(kind)
        yield fence(self.rules.sleeper_fence)
        if self.rules.sets_bit:
            yield from self.set_bit(kind)
        return eventcount.prepare_wait(before)

    def prepare_sleep(self, kind: str) -> Steps[eventcount.Word]:
        """The same, of one thread more."""
        yield from self.lock()
        self.state.asleep[kind] += 1
        expected = yield from self.prepare_wait(kind)
        yield from self.unlock()
        return expected

    def finish_sleep(self, kind: str) -> Steps[None]:
        """The bit goes off with the last."""
        yield from self.lock()
        self.state.asleep[kind] -= 1
        if not self.state.asleep[kind] or not self.rules.threads_counted:
            yield from self.clear_bit(kind)
        yield from self.unlock()

    def sleep_on(self, kind: str, expected: eventcount.Word) -> Steps[bool]:
        """True: time has run out."""
        yield futex_wait(row_eventcount(self.state.row, kind), partial(eq, expected))
        late: bool = yield ("is_late",)
        return late

    def is_interrupted(self, patience: int) -> bool:
        """Does a signal's handler raise, or close the queue? Of those that wait for ever, it does not."""
        return patience < WAIT_FOREVER and self.shared.rng.random() < 0.15

    def sleep(self, kind: str, is_there: Look, patience: int) -> Steps[End]:
        """Until it is there, or time has run out so often."""
        late = False
        while not self.is_interrupted(patience):
            yield from self.renew_ticket(kind)
            if self.rules.announces_first:
                expected = yield from self.prepare_sleep(kind)
                yield from self.take_turn(kind)
                is_available = yield from is_there()
            else:
                is_available = yield from is_there()
                expected = yield from self.prepare_sleep(kind)
                yield from self.take_turn(kind)
            if not is_available:
                if late:
                    yield from self.recover_dead()
                late = yield from self.sleep_on(kind, expected)
            yield from self.finish_sleep(kind)
            if is_available or (yield from is_there()):
                return "there"
            if not late:
                self.count_overtaken()
            patience -= late
            if patience < 0:
                return "late"
        return "interrupted"

    def recover_dead(self) -> Steps[None]:
        """Each second."""
        raise NotImplementedError

    def renew_ticket(self, kind: str) -> Steps[None]:
        """A mutation."""
        raise NotImplementedError

    def take_turn(self, kind: str) -> Steps[None]:
        """Take a turn, if it was woken without result."""
        raise NotImplementedError

    def count_overtaken(self) -> None:
        """It was woken without result, or others took what it had seen."""
        raise NotImplementedError

    # ---- waking ----

    def wake_row(self, row: int, kind: str) -> Steps[bool]:
        """False: it was not asleep, or somebody else wakes it, and is perhaps stopped before that."""
        where = row_eventcount(row, kind)
        waiters: eventcount.Word = yield self.load_sleepers(where)
        if not waiters[1]:
            return False
        if not self.rules.flag_stands:
            yield self.shared.change(where, lambda word: (word[0] + 1, False, False))
            yield ("futex_wake_at", where)
            return True
        first = yield from eventcount.notify(where, call=("futex_wake_at", where))
        return first or not self.rules.announcement_counts_once

    def load_sleepers(self, location: str) -> Op:
        """EDGE sleeper-bit: something was published, then bits and announcements are loaded. Either is enough: a bit
        is set after each announcement."""
        return self.shared.load_seq_cst(location) if self.rules.sleepers_loaded_seq_cst else load(location)

    def wake(self, kind: str, most: int) -> Steps[int]:
        """So many rows; how many it were."""
        woken = 0
        passed: set[int] = set()
        while woken < most:
            known = self.shared.kernel.fenced_at.get(self.task, 0)
            row, ticket = yield from self.longest_sleeper(kind, passed)
            if row < 0:
                break
            passed.add(row)
            overtaken = self.shared.find_overtaken_sleeper(kind, row, ticket, known)
            if (yield from self.wake_row(row, kind)):
                if overtaken:
                    raise Violation("fair", f"row {row} is woken, and {overtaken.name} has slept for longer")
                woken += 1
        return woken

    def longest_sleeper(self, kind: str, passed: set[int]) -> Steps[tuple[int, int]]:
        """The row to wake next, and the ticket that it had, whatever it showed; -1: there is none."""
        seen: Rows = yield self.load_sleepers(kind)
        best = (-1, 0, 0)
        for row in sorted(seen - passed) if self.rules.bit_each else set(range(len(self.shared.rows))) - passed:
            waiters: eventcount.Word = yield self.load_sleepers(row_eventcount(row, kind))
            if waiters[1]:
                ticket: int = yield load(since(row, kind))
                if best[0] < 0 or (self.rules.wakes_longest and ticket < best[1]):
                    best = (row, ticket, self.shared.ticket_of(row, kind))
        return best[0], best[2]

    def wake_receivers(self, most: int = 1) -> Steps[None]:
        """Watchers only look, so that they must not have the only wake."""
        if (yield self.load_sleepers(WATCHING)):
            watchers = yield from self.wake(WATCHING, ALL)
            if not self.rules.watchers_extra:
                most -= watchers
        if (yield self.load_sleepers(WAITING)):
            yield from self.wake(WAITING, most)

    def wake_sender(self) -> Steps[None]:
        """A slot is free."""
        if (yield self.load_sleepers(SENDERS)):
            yield from self.wake(SENDERS, 1)

    # ---- looks ----

    def sees(self, kind: str) -> Steps[bool]:
        """Is there a word of that kind? It takes nothing. Some words are only released, and counted behind that."""
        if kind == "ready" and self.rules.sleep_check_loads_count:
            yield load(READY, ACQUIRE)
        for slot in self.shared.slots:
            if (yield load(word(slot), ACQUIRE))[0] == kind:
                return True
        return False

    def sees_message(self) -> Steps[bool]:
        """Is there anything to take?"""
        return self.sees("ready")

    def sees_room(self) -> Steps[bool]:
        """Is there anything to fill?"""
        return self.sees("free")

    def available(self, kind: str) -> Steps[int]:
        """How many messages, or free slots?"""
        count = 0
        for slot in self.shared.slots:
            count += (yield load(word(slot), ACQUIRE))[0] == ("free" if kind == SENDERS else "ready")
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
