"""Receiving from a work queue: the scan with its memory, taking, acknowledging, sleeping.

The numbers are those of the steps in docs/workqueue-protocol.md.
"""

from functools import partial
from operator import eq
from typing import NamedTuple

from .memory import ACQUIRE, RELAXED
from .ops import fence, futex_wait, load, pause, store
from .task import Steps
from .truth import Violation
from .workqueue_handle import Handle
from .workqueue_sleep import Owner
from .workqueue_store import (
    ARRIVED,
    FREE,
    NOTIFIED,
    READY,
    WAITING,
    WATCHING,
    Message,
    Store,
    Word,
    data,
    entered,
    lease,
    read_by,
    word,
)

Best = tuple[Word, int]  # the key and its place; the larger, the better


class Job(NamedTuple):
    """A message that was taken."""

    place: int
    word: Word
    message: Message
    lent: bool  # with a lease


class Receiver(Handle):
    """A handle that receives."""

    def __init__(self, store_: Store, name: str, owner: Owner | None = None) -> None:
        super().__init__(store_, name, owner)
        self.memory: dict[int, tuple[int, Best | None]] = {}  # block -> `entered` when it was scanned, its best
        self.seen = 0  # `ready` when the last scan began

    # ---- the scan ----

    def best(self) -> Steps[Best | None]:
        """1. to 3."""
        last: Best | None = None
        while True:
            self.seen = yield load(READY, self.rules.count_load)  # EDGE sent: acquire
            missing = self.store.sent_before(self.seen)
            found: Best | None = None
            for block in range(self.store.blocks):
                candidate = yield from self.best_of(block)
                if candidate and (found is None or candidate > found):
                    found = candidate
            yield fence(self.rules.scan_fence if found else self.rules.vain_fence)
            if not self.rules.look_again or (yield load(READY, RELAXED)) == self.seen:
                break
            if found and found == last:
                break
            last = found
        if found is None:
            self.store.check_vain(self.name, missing)
        return found

    def best_of(self, block: int) -> Steps[Best | None]:
        """From memory, if nothing can have become READY since. EDGE entered: acquire."""
        rules, location = self.rules, entered(block)
        grown: int = yield load(location, rules.entered_load)
        if block in self.memory and self.memory[block][0] == grown:
            return self.memory[block][1]
        best: Best | None = None
        may_grow = False
        for place in range(block * self.store.width, (block + 1) * self.store.width):
            found: Word = yield load(word(place))
            if found[0] == "ready":
                best = max(best or (found, place), (found, place))
            elif found != FREE:
                may_grow |= not (rules.remembers_held if found[0] == "held" else rules.remembers_taken)
        if not rules.entered_first:
            grown = yield load(location, rules.entered_load)
        if may_grow:
            self.memory.pop(block, None)
        else:
            self.memory[block] = (grown, best)
        return best

    # ---- a message ----

    def take(self, lent: int = 0) -> Steps[Job | None]:
        """Have the best message; None: there is none. `lent`: the steps until its lease is over; 0: no lease."""
        if (yield from self.must_yield(WAITING)):
            return None
        while True:
            found = yield from self.best()
            if found is None:
                return None
            message_key, place = found
            self.us.takes += 1
            taken: Word = ("taken", self.us.row, self.named_generation, self.us.takes)
            won = (yield self.store.exchange(word(place), message_key, taken)) == message_key  # 4.
            if won:
                message = self.store.taken(self.task, place, self.seen)
            if won or self.rules.forgets_failed:
                self.memory.pop(self.store.block_of(place), None)
            if won:
                break
        return (yield from self.copy(Job(place, taken, message, lent > 0), lent))

    def copy(self, job: Job, lent: int) -> Steps[Job]:
        """5."""
        if lent and not self.rules.lease_last:
            yield from self.lend(job, lent)
        found = yield load(data(job.place))
        if found is not job.message:
            raise Violation("torn", f"{self.name} takes {job.message} and copies {found}")
        yield store(read_by(job.place, self.name), job.message)
        if lent and self.rules.lease_last:
            yield from self.lend(job, lent)
        return job

    def lend(self, job: Job, steps: int) -> Steps[None]:
        """From now on anybody may take it back, when its time is over. EDGE deadline: the copy, then the lease."""
        due = self.host.clock + steps
        job.message.due = due
        yield store(lease(job.place), (self.us.row, self.us.takes, due), self.rules.lease_store)

    def acknowledge(self, job: Job) -> Steps[bool]:
        """6. False: the lease was over, and somebody else has it."""
        if not (yield from self.free(job.place, job.word)):
            if not job.lent:
                raise Violation("robbed", f"{job.message} was taken away from {self.name}")
            return False
        yield from self.wake_sender()
        return True

    def refuse(self, job: Job) -> Steps[bool]:
        """It goes back to its place in the order."""
        return (yield from self.give_back(job.place, job.word))

    # ---- waiting ----

    def take_or_sweep(self, lent: int = 0) -> Steps[Job | None]:
        """Before somebody says that there is nothing, it looks for what the dead left."""
        job = yield from self.take(lent)
        if job is None and (yield from self.sweep()):
            job = yield from self.take(lent)
        return job

    def take_waiting(self, patience: int, lent: int = 0) -> Steps[Job | None]:
        """Sleep until there is a message; None: time has run out, or the handle is closed."""
        job = yield from self.take_or_sweep(lent)
        if job is None:
            yield from self.begin_wait(WAITING)
            job = yield from self.sleep_for_message(patience, lent)
            yield from self.end_wait(WAITING)
        return job

    def sees_message_for_us(self) -> Steps[bool]:
        """And nobody who waited for longer wants it."""
        return (yield from self.sees_message()) and not (yield from self.must_yield(WAITING))

    def sleep_for_message(self, patience: int, lent: int) -> Steps[Job | None]:
        """All sleeps of one call."""
        job: Job | None = None
        while job is None:
            yield from self.owe()  # what comes while we wait is left to us
            end = yield from self.sleep(WAITING, self.sees_message_for_us, patience)
            if end == "interrupted":
                yield from self.pass_on()
                if self.rules.leaver_tells:
                    yield from self.tell_if_ready()
            if end == "there" and self.is_interrupted(patience) and not self.us.is_shared:
                self.closing = True  # another thread does that
                return None
            if end != "interrupted":
                job = yield from self.take(lent)
            if job is not None and self.rules.taker_tells:
                yield from self.tell_if_ready()
            yield from self.pay()
            if end != "there":
                break
            self.lose()
        return job

    def watch(self, times: int, gets_up: bool) -> Steps[None]:
        """So often until something is there. A watcher takes nothing. `gets_up`: also when it was woken for nothing, as
        a Poller does."""
        for _ in range(times):
            yield from self.begin_wait(WATCHING)
            expected = yield from self.lie_down(WATCHING)
            while not (yield from self.sees_message()):
                late = yield from self.sleep_on(WATCHING, expected)
                if late:
                    yield from self.sweep()
                if gets_up:
                    yield from self.get_up(WATCHING)
                    expected = yield from self.lie_down(WATCHING)
                else:
                    expected = yield from self.announce(WATCHING)
            yield from self.get_up(WATCHING)
            yield from self.end_wait(WATCHING)
            yield pause()

    def drain_when_told(self) -> Steps[None]:
        """Take all that is there, and then nothing until we are told that there is something."""
        self.is_told = True
        yield from self.set_bit(NOTIFIED)
        while True:
            arrived: int = yield load(ARRIVED, ACQUIRE)
            while (job := (yield from self.take())) is not None:
                yield from self.acknowledge(job)
            while (yield load(ARRIVED, ACQUIRE)) == arrived:
                yield futex_wait(ARRIVED, partial(eq, arrived))
                if (yield ("is_late",)):
                    yield from self.sweep()
