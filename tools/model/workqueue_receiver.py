"""Receiving from a work queue: the scan with its memory, taking, acknowledging, sleeping.

The numbers are those of the steps in docs/internals/queue-protocol.md.
"""

from functools import partial
from operator import eq
from typing import NamedTuple

from .memory import ACQUIRE, RELAXED
from .ops import fence, futex_wait, load, pause, store
from .oracle import Violation
from .task import Steps
from .workqueue_handle import Handle
from .workqueue_shared import (
    FREE,
    NEVER,
    NOTIFY_REQUESTED,
    NOTIFY_SEQ,
    READY,
    WAITING,
    WATCHING,
    Message,
    SharedQueue,
    Word,
    data,
    fill_count,
    lease,
    read_by,
    word,
)
from .workqueue_sleep import HandleState

Best = tuple[Word, int]  # the key and its slot; the larger, the better


class Job(NamedTuple):
    """A message that was taken."""

    slot: int
    word: Word
    message: Message
    lent: bool  # with a lease


class Receiver(Handle):
    """A handle that receives."""

    def __init__(self, shared: SharedQueue, name: str, owner: HandleState | None = None) -> None:
        super().__init__(shared, name, owner)
        self.block_cache: dict[int, tuple[int, Best | None]] = {}  # block -> `fill_count` when it was scanned, its best
        self.seen = 0  # `ready` when the last scan began

    # ---- the scan ----

    def best(self) -> Steps[Best | None]:
        """1. to 3."""
        last: Best | None = None
        while True:
            self.seen = yield load(READY, self.rules.count_load)  # EDGE sent: acquire
            missing = self.shared.ready_before(self.seen)
            current: Best | None = None
            for block in range(self.shared.blocks):
                candidate = yield from self.best_of(block)
                if candidate and (current is None or candidate > current):
                    current = candidate
            yield fence(self.rules.scan_fence if current else self.rules.empty_fence)
            if not self.rules.rechecks or (yield load(READY, RELAXED)) == self.seen:
                break
            if current and current == last:
                break
            last = current
        if current is None:
            self.shared.check_none_ready(self.name, missing)
        return current

    def best_of(self, block: int) -> Steps[Best | None]:
        """From memory, if nothing can have become READY since. EDGE fill-count: acquire."""
        rules, location = self.rules, fill_count(block)
        grown: int = yield load(location, rules.fill_count_load)
        if block in self.block_cache and self.block_cache[block][0] == grown:
            return self.block_cache[block][1]
        best: Best | None = None
        may_grow = False
        for slot in range(block * self.shared.width, (block + 1) * self.shared.width):
            current: Word = yield load(word(slot))
            if current[0] == "ready":
                best = max(best or (current, slot), (current, slot))
            elif current != FREE:
                may_grow |= not (rules.caches_filling if current[0] == "filling" else rules.caches_taken)
        if not rules.fill_count_first:
            grown = yield load(location, rules.fill_count_load)
        if may_grow:
            self.block_cache.pop(block, None)
        else:
            self.block_cache[block] = (grown, best)
        return best

    # ---- a message ----

    def take(self, lent: int = 0) -> Steps[Job | None]:
        """Have the best message; None: there is none. `lent`: the steps until its lease is over; 0: no lease."""
        if (yield from self.must_yield(WAITING)):
            return None
        while True:
            best = yield from self.best()
            if best is None:
                return None
            message_key, slot = best
            self.state.takes += 1
            claimed: Word = ("taken", self.state.row, self.word_generation, self.state.takes)
            won = (yield self.shared.exchange(word(slot), message_key, claimed)) == message_key  # 4.
            if won:
                message = self.shared.mark_taken(self.task, slot, self.seen)
            if won or self.rules.invalidates_failed:
                self.block_cache.pop(self.shared.block_of(slot), None)
            if won:
                break
        return (yield from self.copy(Job(slot, claimed, message, lent > 0), lent))

    def copy(self, job: Job, lent: int) -> Steps[Job]:
        """5."""
        if lent and not self.rules.lease_last:
            yield from self.lend(job, lent)
        current = yield load(data(job.slot))
        if current is not job.message:
            raise Violation("torn", f"{self.name} takes {job.message} and copies {current}")
        yield store(read_by(job.slot, self.name), job.message)
        if lent and self.rules.lease_last:
            yield from self.lend(job, lent)
        return job

    def lend(self, job: Job, steps: int) -> Steps[None]:
        """From now on anybody may take it back, when its time is over. EDGE lease-end: the copy, then the lease."""
        deadline = self.kernel.clock + steps
        job.message.deadline = deadline
        yield store(lease(job.slot), (self.state.row, self.state.takes, deadline), self.rules.lease_store)

    def acknowledge(self, job: Job) -> Steps[bool]:
        """6. False: the lease was over, and somebody else has it."""
        if not (yield from self.free(job.slot, job.word)):
            if not job.lent:
                raise Violation("stolen", f"{job.message} was taken away from {self.name}")
            return False
        yield from self.wake_sender()
        return True

    def refuse(self, job: Job) -> Steps[bool]:
        """It goes back to its slot in the order."""
        return (yield from self.requeue(job.slot, job.word))

    def refuse_later(self, job: Job, delay: int) -> Steps[None]:
        """It goes back after so many steps. If its lease is over, nothing happens."""
        current = job.word
        if self.rules.delay_renews_take:
            self.state.takes += 1
            current = (*job.word[:3], self.state.takes)
            if (yield self.shared.exchange(word(job.slot), job.word, current)) != job.word:
                return
            job.message.deadline = NEVER  # the lease is of the former word
        yield from self.store_delayed(job.slot, current, ("delayed", *current[1:]), job.message, delay)

    # ---- waiting ----

    def take_or_recover(self, lent: int = 0) -> Steps[Job | None]:
        """Before somebody says that there is nothing, it looks for what the dead left."""
        job = yield from self.take(lent)
        if job is None and (yield from self.recover()):
            job = yield from self.take(lent)
        return job

    def take_waiting(self, patience: int, lent: int = 0) -> Steps[Job | None]:
        """Sleep until there is a message; None: time has run out, or the handle is closed."""
        job = yield from self.take_or_recover(lent)
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
            yield from self.add_notify_debt()  # what comes while we wait is left to us
            end = yield from self.sleep(WAITING, self.sees_message_for_us, patience)
            if end == "interrupted":
                yield from self.pass_on()
                if self.rules.leaver_notifies:
                    yield from self.notify_if_ready()
            if end == "there" and self.is_interrupted(patience) and not self.state.is_shared:
                self.closing = True  # another thread does that
                return None
            if end != "interrupted":
                job = yield from self.take(lent)
            if job is not None and self.rules.taker_notifies:
                yield from self.notify_if_ready()
            yield from self.clear_notify_debt()
            if end != "there":
                break
            self.count_overtaken()
        return job

    def watch(self, times: int, restarts: bool) -> Steps[None]:
        """So often until something is there. A watcher takes nothing. `gets_up`: also when it was woken for nothing, as
        a Poller does."""
        for _ in range(times):
            yield from self.begin_wait(WATCHING)
            expected = yield from self.prepare_sleep(WATCHING)
            while not (yield from self.sees_message()):
                late = yield from self.sleep_on(WATCHING, expected)
                if late:
                    yield from self.recover()
                if restarts:
                    yield from self.finish_sleep(WATCHING)
                    expected = yield from self.prepare_sleep(WATCHING)
                else:
                    expected = yield from self.prepare_wait(WATCHING)
            yield from self.finish_sleep(WATCHING)
            yield from self.end_wait(WATCHING)
            yield pause()

    def drain_when_notified(self) -> Steps[None]:
        """Take all that is there, and then nothing until we are told that there is something."""
        self.wants_notification = True
        yield from self.set_bit(NOTIFY_REQUESTED)
        while True:
            notify_seq: int = yield load(NOTIFY_SEQ, ACQUIRE)
            while (job := (yield from self.take())) is not None:
                yield from self.acknowledge(job)
            while (yield load(NOTIFY_SEQ, ACQUIRE)) == notify_seq:
                yield futex_wait(NOTIFY_SEQ, partial(eq, notify_seq))
                if (yield ("is_late",)):
                    yield from self.recover()
