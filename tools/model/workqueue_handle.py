"""A handle of a work queue: its row, and what it puts right of the dead."""

from .memory import ACQUIRE, RELEASE, SEQ_CST
from .ops import fence, load, store, until
from .task import Steps
from .workqueue_sleep import Owner
from .workqueue_store import (
    ARRIVED,
    BITS,
    FREE,
    KINDS,
    NOTIFIED,
    READY,
    WAITING,
    Message,
    Rows,
    Store,
    Word,
    entered,
    generation,
    key,
    lease,
    owes,
    since,
    turn,
    uid,
    word,
)
from .workqueue_turn import Waiter

Survey = dict[int, tuple[Word, int]]  # place -> key of what is READY there, and what its block's `entered` was


class Handle(Waiter):
    """One that sends or receives; or a thread of it, whose memory is its own."""

    is_told = False
    closing = False

    def __init__(self, store_: Store, name: str, owner: Owner | None = None) -> None:
        super().__init__(store_, owner)
        self.host, self.name = store_.host, name
        store_.enroll(name)

    @property
    def named_generation(self) -> int:
        """In our words."""
        return self.us.generation if self.rules.words_name_generation else 0

    # ---- a message that is there ----

    def free(self, place: int, found: Word) -> Steps[bool]:
        """False: the word was no longer what it was."""
        location = word(place)
        if self.rules.free == "seq_cst":
            if (yield self.store.exchange(location, found, FREE)) != found:
                return False
        else:
            if self.host.newest(location) != found:
                return False
            how = {"release": "rmw", "relaxed": "rmw_relaxed"}[self.rules.free]
            yield (how, location, lambda _: FREE)
        self.store.freed(place)
        return True

    def count(self, message: Message, life: int) -> Steps[None]:
        """EDGE sent."""
        how = self.store.rmw if self.rules.count_seq_cst else "rmw_relaxed"
        before: int = yield (how, READY, lambda count: count + 1)
        self.store.counted(message, life, before + 1)

    def give_back(self, place: int, found: Word) -> Steps[bool]:
        """TAKEN to READY, by its owner or for it."""
        message_key: Word = yield load(key(place))
        yield from self.owe()
        if (yield self.store.exchange(word(place), found, message_key)) != found:
            yield from self.pay()
            return False
        self.store.check_owner(self.task, place, found)
        message = self.store.inside[place]
        self.store.become_ready(place, message)
        yield from self.count(message, message.life)
        yield from self.wake_receivers()
        if self.rules.returned_tells and (yield self.store.look(NOTIFIED)):
            yield from self.tell()
        yield from self.pay()
        return True

    # ---- notification ----

    def survey(self) -> Steps[Survey]:
        """What is READY."""
        seen: Survey = {}
        for place in self.store.places:
            grown: int = yield load(entered(self.store.block_of(place)), ACQUIRE)
            found: Word = yield load(word(place))
            if found[0] == "ready":
                seen[place] = (found, grown if self.rules.survey_compares_entered else 0)
        yield fence(ACQUIRE)
        return seen

    def survey_again(self, before: Survey) -> Steps[bool]:
        """Was something there all the while? `entered` is loaded last."""
        for place, (former, grown) in before.items():
            found: Word = yield load(word(place))
            yield fence(ACQUIRE)
            now: int = yield load(entered(self.store.block_of(place)), ACQUIRE)
            if found == former and (now == grown or not self.rules.survey_compares_entered):
                return True
        return False

    def tell(self) -> Steps[None]:
        """Those who want to know that an empty queue has a message."""
        yield self.store.change(ARRIVED, lambda count: count + 1)
        yield ("futex_wake_at", ARRIVED)

    def tell_if_ready(self) -> Steps[None]:
        """A sender may have left it to a receiver that waited, or seen the message that this one has just taken."""
        if not (yield self.store.look(NOTIFIED)):
            return
        yield fence(self.rules.teller_fence)
        if (yield from self.survey()):
            yield from self.tell()

    def owe(self, row: int = -1) -> Steps[None]:
        """From now on others may rely on us to tell, or on a dead one whose row is settled. One without a row has the
        debts of the dead one before it."""
        if (row := row if row >= 0 else self.us.row) >= 0 and self.rules.debts:
            yield ("rmw_relaxed", owes(row), lambda count: count + 1)

    def pay(self, row: int = -1) -> Steps[None]:
        """We have told, or need not."""
        if (row := row if row >= 0 else self.us.row) >= 0 and self.rules.debts:
            yield ("rmw_relaxed", owes(row), lambda count: count - 1)

    # ---- the dead, and leases ----

    def look_for_dead(self) -> Steps[None]:
        """And for leases that are over."""
        yield from self.sweep()

    def sweep(self) -> Steps[bool]:
        """Put right what others left; was there anything?"""
        found = False
        for place in self.store.places:
            seen: Word = yield load(word(place), self.rules.sweep_load)
            if seen[0] not in ("held", "taken") or seen[1:3] == (self.us.row, self.named_generation):
                continue
            if (yield from self.is_gone(seen)) or (yield from self.is_over(place, seen)):
                found |= yield from self.repair(place, seen)
        yield from self.settle_dead_rows()
        return found

    def repair(self, place: int, seen: Word) -> Steps[bool]:
        """HELD to FREE, TAKEN to READY; one exchange, so that any number of handles may try it at once."""
        if seen[0] == "taken":
            return (yield from self.give_back(place, seen))
        if (yield self.store.exchange(word(place), seen, FREE)) != seen:
            return False
        self.store.check_owner(self.task, place, seen)
        self.store.freed(place)
        yield from self.wake_sender()
        return True

    def is_gone(self, seen: Word) -> Steps[bool]:
        """The owner that a word names."""
        row, number = seen[1:3]
        if not self.rules.life_asked:
            return True
        if self.rules.generation_compared and (yield load(generation(row), ACQUIRE)) != number:
            return True
        return (yield from self.is_dead(row))

    def is_dead(self, row: int) -> Steps[bool]:
        """The owner of a row, or there is none."""
        if (yield load(uid(row), ACQUIRE)) == 0:
            return True
        dead: bool = yield ("is_vacant", self.store.rows[row])
        return dead

    def is_over(self, place: int, seen: Word) -> Steps[bool]:
        """The lease of the one that took it, which is stored behind its copy. EDGE deadline."""
        if seen[0] != "taken":
            return False
        row, take, due = yield load(lease(place), ACQUIRE)
        if self.rules.lease_take_compared and (row, take) != (seen[1], seen[3]):
            return False
        return bool(row >= 0 and due <= self.host.clock)

    def settle_dead_rows(self) -> Steps[None]:
        """Nobody gets a row meanwhile, or it might be asleep already."""
        rows = yield from self.rows_with_bits()
        if not rows or (self.rules.dead_bits_locked and not (yield ("try_lock",))):
            return
        for row in sorted(rows):
            if (yield from self.is_dead(row)):
                yield from self.settle_row(row)
        if self.rules.dead_bits_locked:
            yield ("unlock",)

    def rows_with_bits(self) -> Steps[Rows]:
        """Or with debts, if we are one that wants to be told."""
        rows = Rows()
        for bits in BITS:
            rows |= yield load(bits)
        for row in range(len(self.store.rows)) if self.is_told and self.rules.debts else ():
            if (yield load(owes(row))):
                rows |= {row}
        return rows - {self.us.row, -1}

    def end_turns_of(self, row: int) -> Steps[None]:
        """Of a dead one, whose ticket the row shows."""
        for kind in KINDS:
            owner: int = yield load(turn(kind), ACQUIRE)
            if owner and owner == (yield load(since(row, kind))):
                yield from self.end_turn(kind, owner, row)

    def settle_row(self, row: int) -> Steps[None]:
        """A dead one. Senders may have left it to this one, or to whoever was clearing its bits, to tell."""
        rules = self.rules
        waited: bool = row in (yield load(WAITING)) or (yield load(owes(row)))
        if waited and rules.debts:
            yield store(owes(row), 1)
        for bits in BITS:
            yield self.store.change(bits, lambda rows: rows - {row})
        yield from self.end_turns_of(row)
        if waited and (rules.leaver_tells if row == self.us.row else rules.sweeper_tells):
            yield fence(SEQ_CST)
            yield from self.tell_if_ready()
        if waited and rules.debts:
            yield fence(RELEASE)
            yield store(owes(row), 0)

    # ---- rows ----

    def join(self) -> Steps[bool]:
        """Take a row; False: none is to be had. Words of former owners are put right by their generations."""
        host = self.host
        yield until(lambda: host.lock_owner is None)
        host.lock_owner = self.task
        row = yield from self.find_row()
        if row is not None:
            self.store.rows[row].holder = self.task
            if self.rules.row_settled:
                yield from self.settle_row(row)
            yield from self.take_row(row)
        yield ("unlock",)
        if row is not None:
            yield from self.sweep()
        return row is not None

    def find_row(self) -> Steps[int | None]:
        """A free one first."""
        for free in (True, False):
            for row, seat in enumerate(self.store.rows):
                if (not free or (yield load(uid(row))) == 0) and (yield ("is_vacant", seat)):
                    return row
        return None

    def take_row(self, row: int) -> Steps[None]:
        """The generation, then who it is."""
        number: int = 1 + (yield load(generation(row)))
        yield store(uid(row), 0, RELEASE)
        yield store(generation(row), number, RELEASE)
        self.store.check_row(row)
        self.us.row, self.us.generation = row, number
        self.store.uids += 1
        yield store(uid(row), self.store.uids, RELEASE)

    def pass_on(self) -> Steps[None]:
        """A wake may have been used up by one that is not coming back for it."""
        if self.rules.leaver_passes_on:
            yield from self.pass_on_message()
            yield from self.pass_on_room()

    def leave(self) -> Steps[None]:
        """In order; at any time, without the lock. Not before the last thread is gone."""
        self.us.threads.remove(self.task)
        if self.us.threads:
            self.store.rows[self.us.row].holder = self.us.threads[0]
        else:
            yield from self.pass_on()
            yield from self.settle_row(self.us.row)
            yield store(uid(self.us.row), 0, RELEASE)
            yield fence(SEQ_CST)
        self.task.closed = True
