"""A handle of a work queue: its row, and what it puts right of the dead."""

from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, load, store, until
from .task import Steps
from .workqueue_shared import (
    BITS,
    FREE,
    KINDS,
    NEVER,
    NOTIFY_REQUESTED,
    NOTIFY_SEQ,
    READY,
    WAITING,
    Message,
    Rows,
    SharedQueue,
    Word,
    fill_count,
    generation,
    key,
    lease,
    notify_debt,
    since,
    turn,
    uid,
    word,
)
from .workqueue_sleep import HandleState
from .workqueue_turn import Waiter

ReadyKeys = dict[int, tuple[Word, int]]  # slot -> key of what is READY there, and what its block's `fill_count` was


class Handle(Waiter):
    """One that sends or receives; or a thread of it, whose memory is its own."""

    wants_notification = False
    closing = False

    def __init__(self, shared: SharedQueue, name: str, owner: HandleState | None = None) -> None:
        super().__init__(shared, owner)
        self.kernel, self.name = shared.kernel, name
        shared.register_reader(name)

    @property
    def word_generation(self) -> int:
        """In our words."""
        return self.state.generation if self.rules.words_name_generation else 0

    # ---- a message that is there ----

    def free(self, slot: int, current: Word) -> Steps[bool]:
        """False: the word was no longer what it was."""
        location = word(slot)
        if self.rules.free == "seq_cst":
            if (yield self.shared.exchange(location, current, FREE)) != current:
                return False
        else:
            if self.kernel.newest(location) != current:
                return False
            how = {"release": "rmw", "relaxed": "rmw_relaxed"}[self.rules.free]
            yield (how, location, lambda _: FREE)
        self.shared.mark_free(slot)
        return True

    def count(self, message: Message, incarnation: int) -> Steps[None]:
        """EDGE sent."""
        how = self.shared.rmw if self.rules.count_seq_cst else "rmw_relaxed"
        before: int = yield (how, READY, lambda count: count + 1)
        self.shared.set_count(message, incarnation, before + 1)

    def store_delayed(self, slot: int, current: Word, delayed: Word, message: Message, delay: int) -> Steps[bool]:
        """FILLING or TAKEN to DELAYED, by its owner. False: the due time is over already, and it is READY."""
        rules, due = self.rules, self.kernel.clock + delay
        if rules.due_time_first:
            self.shared.check_lease_owner(self.task, slot, current)
            message.deadline = due  # from now on others may make it READY
            yield store(lease(slot), (*delayed[1::2], due), rules.delayed_store)
        if current[0] == "filling":
            yield store(word(slot), delayed, rules.delayed_store)
        elif (yield self.shared.exchange(word(slot), current, delayed)) != current:
            return False
        self.shared.become_delayed(slot, message, due)
        if not rules.due_time_first:
            yield store(lease(slot), (*delayed[1::2], due), rules.delayed_store)
        return True

    def requeue(self, slot: int, current: Word) -> Steps[bool]:
        """TAKEN to READY, by its owner or for it."""
        message_key: Word = yield load(key(slot))
        yield from self.add_notify_debt()
        if (yield self.shared.exchange(word(slot), current, message_key)) != current:
            yield from self.clear_notify_debt()
            return False
        self.shared.check_owner(self.task, slot, current)
        message = self.shared.inside[slot]
        self.shared.become_ready(slot, message)
        message.deadline = NEVER
        yield from self.count(message, message.incarnation)
        yield from self.wake_receivers()
        if self.rules.requeue_notifies and (yield self.shared.load_seq_cst(NOTIFY_REQUESTED)):
            yield from self.notify()
        yield from self.clear_notify_debt()
        return True

    # ---- notification ----

    def scan_ready(self) -> Steps[ReadyKeys]:
        """What is READY."""
        seen: ReadyKeys = {}
        for slot in self.shared.slots:
            grown: int = yield load(fill_count(self.shared.block_of(slot)), ACQUIRE)
            current: Word = yield load(word(slot))
            if current[0] == "ready":
                seen[slot] = (current, grown if self.rules.ready_scan_compares_fill_count else 0)
        yield fence(ACQUIRE)
        return seen

    def still_ready(self, before: ReadyKeys) -> Steps[bool]:
        """Was something there all the while? `fill_count` is loaded last."""
        for slot, (former, grown) in before.items():
            current: Word = yield load(word(slot))
            yield fence(ACQUIRE)
            now: int = yield load(fill_count(self.shared.block_of(slot)), ACQUIRE)
            if current == former and (now == grown or not self.rules.ready_scan_compares_fill_count):
                return True
        return False

    def notify(self) -> Steps[None]:
        """Those who want to know that an empty queue has a message."""
        yield self.shared.change(NOTIFY_SEQ, lambda count: count + 1)
        yield ("futex_wake_at", NOTIFY_SEQ)

    def notify_if_ready(self) -> Steps[None]:
        """A sender may have left it to a receiver that waited, or seen the message that this one has just taken."""
        if not (yield self.shared.load_seq_cst(NOTIFY_REQUESTED)):
            return
        yield fence(self.rules.notifier_fence)
        if (yield from self.scan_ready()):
            yield from self.notify()

    def add_notify_debt(self, row: int = -1) -> Steps[None]:
        """From now on others may rely on us to tell, or on a dead one whose row is settled. One without a row has the
        debts of the dead one before it."""
        if (row := row if row >= 0 else self.state.row) >= 0 and self.rules.notify_debts:
            yield ("rmw_relaxed", notify_debt(row), lambda count: count + 1)

    def clear_notify_debt(self, row: int = -1) -> Steps[None]:
        """We have told, or need not."""
        if (row := row if row >= 0 else self.state.row) >= 0 and self.rules.notify_debts:
            yield ("rmw_relaxed", notify_debt(row), lambda count: count - 1)

    # ---- the dead, and leases ----

    def recover_dead(self) -> Steps[None]:
        """And for leases that are over."""
        yield from self.recover()

    def recover(self) -> Steps[bool]:
        """Put right what others left; was there anything?"""
        recovered = False
        for slot in self.shared.slots:
            seen: Word = yield load(word(slot), self.rules.recovery_load)
            if seen[0] == "delayed" and not self.rules.delayed_needs_owner:
                if (yield from self.is_due(slot, seen)):
                    recovered |= yield from self.reclaim(slot, seen)
                continue
            if seen[0] not in ("filling", "taken", "delayed") or seen[1:3] == (self.state.row, self.word_generation):
                continue
            if (yield from self.is_gone(seen)) or (yield from self.is_over(slot, seen)):
                recovered |= yield from self.reclaim(slot, seen)
        yield from self.recover_dead_rows()
        return recovered

    def reclaim(self, slot: int, seen: Word) -> Steps[bool]:
        """FILLING to FREE, TAKEN to READY; one exchange, so that any number of handles may try it at once."""
        if seen[0] in ("taken", "delayed"):
            return (yield from self.requeue(slot, seen))
        if (yield self.shared.exchange(word(slot), seen, FREE)) != seen:
            return False
        self.shared.check_owner(self.task, slot, seen)
        self.shared.mark_free(slot)
        yield from self.wake_sender()
        return True

    def is_gone(self, seen: Word) -> Steps[bool]:
        """The owner that a word names."""
        row, number = seen[1:3]
        if not self.rules.liveness_checked:
            return True
        if self.rules.generation_compared and (yield load(generation(row), ACQUIRE)) != number:
            return True
        return (yield from self.is_dead(row))

    def is_dead(self, row: int) -> Steps[bool]:
        """The owner of a row, or there is none."""
        if (yield load(uid(row), ACQUIRE)) == 0:
            return True
        dead: bool = yield ("is_vacant", self.shared.rows[row])
        return dead

    def is_over(self, slot: int, seen: Word) -> Steps[bool]:
        """The lease of the one that took it, which is stored behind its copy. EDGE lease-end."""
        if seen[0] != "taken":
            return False
        row, take, deadline = yield load(lease(slot), ACQUIRE)
        if self.rules.lease_take_compared and (row, take) != (seen[1], seen[3]):
            return False
        return bool(row >= 0 and deadline <= self.kernel.clock)

    def is_due(self, slot: int, seen: Word) -> Steps[bool]:
        """A due time of another word is corrupt, or the word has changed: the exchange finds out. EDGE lease-end."""
        row, take, deadline = yield load(lease(slot), ACQUIRE)
        return bool((row, take) != (seen[1], seen[3]) or deadline <= self.kernel.clock)

    def recover_dead_rows(self) -> Steps[None]:
        """Nobody gets a row meanwhile, or it might be asleep already."""
        rows = yield from self.rows_with_bits()
        if not rows or (self.rules.dead_bits_locked and not (yield ("try_lock",))):
            return
        for row in sorted(rows):
            if (yield from self.is_dead(row)):
                yield from self.recover_row(row)
        if self.rules.dead_bits_locked:
            yield ("unlock",)

    def rows_with_bits(self) -> Steps[Rows]:
        """Or with debts, if we are one that wants to be told."""
        rows = Rows()
        for bits in BITS:
            rows |= yield load(bits)
        for row in range(len(self.shared.rows)) if self.wants_notification and self.rules.notify_debts else ():
            if (yield load(notify_debt(row))):
                rows |= {row}
        return rows - {self.state.row, -1}

    def end_turns_of(self, row: int) -> Steps[None]:
        """Of a dead one, whose ticket the row shows."""
        for kind in KINDS:
            owner: int = yield load(turn(kind), ACQUIRE)
            if owner and owner == (yield load(since(row, kind))):
                yield from self.end_turn(kind, owner, row)

    def recover_row(self, row: int) -> Steps[None]:
        """A dead one. Senders may have left it to this one, or to whoever was clearing its bits, to tell."""
        rules = self.rules
        waited: bool = row in (yield load(WAITING)) or (yield load(notify_debt(row)))
        if waited and rules.notify_debts:
            yield store(notify_debt(row), 1)
        for bits in BITS:
            yield self.shared.change(bits, lambda rows: rows - {row})
        yield from self.end_turns_of(row)
        if waited and (rules.leaver_notifies if row == self.state.row else rules.recovery_notifies):
            yield fence(SEQ_CST)
            yield from self.notify_if_ready()
        if waited and rules.notify_debts:
            yield fence(RELEASE)
            yield store(notify_debt(row), 0)

    # ---- rows ----

    def join(self) -> Steps[bool]:
        """Take a row; False: none is to be had. Words of former owners are put right by their generations."""
        kernel = self.kernel
        yield until(lambda: kernel.lock_owner is None)
        kernel.lock_owner = self.task
        row = yield from self.find_row()
        if row is not None:
            self.shared.rows[row].holder = self.task
            if self.rules.row_recovered:
                yield from self.recover_row(row)
            yield from self.take_row(row)
        yield ("unlock",)
        if row is not None:
            yield from self.recover()
        return row is not None

    def find_row(self) -> Steps[int | None]:
        """A free one first."""
        for free in (True, False):
            for index, row in enumerate(self.shared.rows):
                if (not free or (yield load(uid(index))) == 0) and (yield ("is_vacant", row)):
                    return index
        return None

    def take_row(self, row: int) -> Steps[None]:
        """The generation, then who it is."""
        number: int = 1 + (yield load(generation(row)))
        yield store(uid(row), 0, RELEASE)
        yield store(generation(row), number, RELEASE)
        self.shared.check_row(row)
        self.state.row, self.state.generation = row, number
        self.shared.uids += 1
        yield store(uid(row), self.shared.uids, RELEASE)

    def pass_on(self) -> Steps[None]:
        """A wake may have been used up by one that is not coming back for it."""
        if self.rules.leaver_passes_on:
            yield from self.pass_on_message()
            yield from self.pass_on_room()

    def leave(self) -> Steps[None]:
        """In order; at any time, without the lock. Not before the last thread is gone."""
        self.state.threads.remove(self.task)
        if self.state.threads:
            self.shared.rows[self.state.row].holder = self.state.threads[0]
        else:
            yield from self.pass_on()
            yield from self.recover_row(self.state.row)
            yield store(uid(self.state.row), 0, RELEASE)
            yield fence(SEQ_CST)
        self.task.closed = True
