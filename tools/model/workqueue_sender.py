"""Sending to a work queue. The numbers are those of the steps in docs/workqueue-protocol.md."""

from .ops import fence, load, store
from .task import Steps
from .truth import Violation
from .workqueue_handle import Handle, Survey
from .workqueue_store import (
    FREE,
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
        early = None if self.rules.bits_last else (yield self.store.look(WAITING))
        yield from self.post(place, message)
        yield from self.announce_arrival(place, before)
        yield from self.pay()
        if early is None or early:
            yield from self.wake_receivers()
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
            yield from self.announce_arrival(sent[0][0], before)
        yield from self.pay()
        if sent:
            yield from self.wake_receivers(len(sent))

    # ---- a place ----

    def find_place(self) -> Steps[int | None]:
        """1.: one that is HELD by us, after at most one round."""
        if (yield from self.must_yield(SENDERS)):
            return None
        held: Word = ("held", self.us.row, self.named_generation)
        for step in self.store.places:
            place = (self.hint + step) % len(self.store.places)
            found: Word = yield load(word(place))
            if found == FREE and (yield self.store.exchange(word(place), FREE, held)) == FREE:
                self.hint = place + 1
                self.store.owners[place] = self.task
                return place
        return None

    def sees_room_for_us(self) -> Steps[bool]:
        """And nobody who waited for longer wants it."""
        return (yield from self.sees_room()) and not (yield from self.must_yield(SENDERS))

    def wait(self, patience: int) -> Steps[int | None]:
        """Sleep until there is a place; None: time has run out, or the handle is closed."""
        yield from self.begin_wait(SENDERS)
        place = yield from self.sleep_for_place(patience)
        yield from self.end_wait(SENDERS)
        return place

    def sleep_for_place(self, patience: int) -> Steps[int | None]:
        """All sleeps of one call."""
        while True:
            end = yield from self.sleep(SENDERS, self.sees_room_for_us, patience)
            if end == "interrupted":
                yield from self.pass_on()
                return None
            if end == "there" and self.is_interrupted(patience) and not self.us.is_shared:
                self.closing = True  # another thread does that
                return None
            place = yield from self.find_place()
            if place is not None or end == "late":
                return place
            self.lose()

    def wait_space(self, patience: int) -> Steps[None]:
        """Until there is room, or time has run out. It only looks, so it hands its wake on."""
        room = yield from self.sees_room()
        if not room:
            yield from self.begin_wait(SENDERS)
        began = not room
        while not room:
            end = yield from self.sleep(SENDERS, self.sees_room, patience)
            if end == "interrupted":
                break
            room = yield from self.sees_room()
            if end == "late":
                break
        if began:
            self.overtaken = 0
            yield from self.end_wait(SENDERS)
        if (room or end == "interrupted") and self.rules.space_passes_on:
            yield from self.pass_on_room()

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
