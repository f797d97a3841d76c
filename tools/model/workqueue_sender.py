"""Sending to a work queue. The numbers are those of the steps in docs/workqueue-protocol.md."""

from functools import partial
from operator import eq

from .memory import ACQUIRE
from .ops import fence, futex_wait, load, store
from .task import Steps
from .truth import Violation
from .workqueue_handle import Handle, Survey
from .workqueue_store import (
    FREE,
    FREED,
    NOTIFIED,
    READY,
    SENDERS,
    WAITING,
    Message,
    Word,
    data,
    entered,
    key,
    read_by,
    word,
)


class Sender(Handle):
    """A handle that sends."""

    hint = 0
    number = 0  # of its last message

    def send(self, priority: int, *, waits: bool = False, patience: int = 0) -> Steps[bool]:
        """False: there is no room. `waits`: until there is, or until time has run out so often."""
        place = yield from self.find_place()
        if place is None:
            yield from self.sweep()
            place = yield from self.find_place()
        if place is None and waits:
            place = yield from self.wait(patience)
        if place is None:
            return False
        message = yield from self.fill(place, priority)
        before = yield from self.look_around()
        yield from self.owe()
        yield from self.post(place, message)
        yield from self.wake_receivers()
        yield from self.announce_arrival(place, before)
        yield from self.pay()
        return True

    def send_many(self, priorities: list[int]) -> Steps[None]:
        """As many as there is room for, and one round of wakes."""
        sent: list[tuple[int, Message]] = []
        before = yield from self.look_around()
        yield from self.owe()
        for priority in priorities:
            place = yield from self.find_place()
            if place is None:
                break
            message = yield from self.fill(place, priority)
            yield from self.post(place, message, counted=self.rules.count_each)
            sent.append((place, message))
        if sent and not self.rules.count_each:
            for _, message in sent:
                yield from self.count(message, 1)
        if sent:
            yield from self.wake_receivers(len(sent))
            yield from self.announce_arrival(sent[0][0], before)
        yield from self.pay()

    # ---- a place ----

    def find_place(self) -> Steps[int | None]:
        """1.: one that is HELD by us, after at most one round."""
        held: Word = ("held", self.row, self.named_generation)
        for step in self.store.places:
            place = (self.hint + step) % len(self.store.places)
            found: Word = yield load(word(place))
            if found == FREE and (yield self.store.exchange(word(place), FREE, held)) == FREE:
                self.hint = place + 1
                self.store.owners[place] = self.task
                return place
        return None

    def wait(self, patience: int) -> Steps[int | None]:
        """Sleep until there is a place; None: time has run out."""
        yield from self.set_bit(SENDERS)
        place = yield from self.sleep(patience)
        yield from self.clear_bit(SENDERS)
        if place is None and self.rules.leaver_passes_on and (yield from self.sees_room()):
            yield ("futex_wake_some", FREED, 1)
        return place

    def sleep(self, patience: int) -> Steps[int | None]:
        """`freed` is loaded before the scan: then it has moved, or the kernel lets us sleep."""
        while True:
            freed: int = (yield load(FREED, ACQUIRE)) if self.rules.freed_first else 0
            place = yield from self.find_place()
            if place is not None:
                return place
            if not self.rules.freed_first:
                freed = yield load(FREED, ACQUIRE)
            yield futex_wait(FREED, partial(eq, freed))
            late: bool = yield ("is_late",)
            if self.is_interrupted(patience):
                return None
            if late:
                yield from self.sweep()
                patience -= 1
                if patience < 0:
                    return None

    def sees_room(self) -> Steps[bool]:
        """It takes nothing."""
        for place in self.store.places:
            if (yield load(word(place))) == FREE:
                return True
        return False

    def wait_space(self) -> Steps[None]:
        """Until there is room, or time has run out. It only looks, so it hands its wake on."""
        yield from self.set_bit(SENDERS)
        room = False
        while not room:
            freed: int = yield load(FREED, ACQUIRE)
            room = yield from self.sees_room()
            if not room:
                yield futex_wait(FREED, partial(eq, freed))
                if (yield ("is_late",)):
                    break
        yield from self.clear_bit(SENDERS)
        if self.rules.space_passes_on and (yield from self.sees_room()):
            yield ("futex_wake_some", FREED, 1)

    # ---- a message ----

    def fill(self, place: int, priority: int) -> Steps[Message]:
        """2. and 3. EDGE entered: HELD, the count of the block, READY, in this order."""
        if self.rules.entered == "before":
            yield from self.enter(place)
        self.number += 1
        message = Message(self.name, self.number, priority)
        yield from self.check_readers(place)
        yield store(data(place), message)
        order: int = yield load(READY)
        message.key = ("ready", priority, -order)
        yield store(key(place), message.key)
        return message

    def enter(self, place: int) -> Steps[None]:
        """2."""
        how = self.store.rmw if self.rules.entered_seq_cst else "rmw_relaxed"
        yield (how, entered(self.store.block_of(place)), lambda count: count + 1)

    def post(self, place: int, message: Message, *, counted: bool = True) -> Steps[None]:
        """4. and 5. EDGE message."""
        if counted and not self.rules.count_last:
            yield from self.count(message, 1)
        yield store(word(place), message.key, self.rules.word_store)
        self.store.become_ready(place, message)
        if self.rules.entered == "after":
            yield from self.enter(place)
        if counted and self.rules.count_last:
            yield from self.count(message, 1)

    def check_readers(self, place: int) -> Steps[None]:
        """Everything that was copied from here happens before what we store."""
        for name in self.store.names:
            location = read_by(place, name)
            if (yield load(location)) is not (newest := self.host.newest(location)):
                raise Violation("torn", f"{self.name} writes into place {place}; the copy of {newest} may come after")

    # ---- notification ----

    def look_around(self) -> Steps[Survey | None]:
        """What is READY before our message is; None: nobody wants to be told."""
        if not (yield self.store.look(NOTIFIED)):
            return None
        return (yield from self.survey())

    def announce_arrival(self, place: int, before: Survey | None) -> Steps[None]:
        """Did it come to an empty queue, with nobody waiting?"""
        rules = self.rules
        if before is None and not rules.notified_looked_at_last:
            return
        if not (yield self.store.look(NOTIFIED)):
            return
        yield fence(rules.survey_fence)
        if before is None or rules.surveys == "before":
            company = bool(before)
        elif rules.surveys == "after":
            after = yield from self.survey()
            company = bool(after.keys() - {place})
        else:
            company = yield from self.survey_again(before)
        if not company and not (yield self.store.look(WAITING)):
            yield from self.tell()
