"""Sending to a work queue. The numbers are those of the steps in docs/internals/queue-protocol.md."""

from .ops import fence, load, store
from .oracle import Violation
from .task import Steps
from .workqueue_handle import Handle, ReadyKeys
from .workqueue_shared import (
    FREE,
    NOTIFY_REQUESTED,
    READY,
    SENDERS,
    WAITING,
    Message,
    Word,
    data,
    fill_count,
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
        slot = yield from self.find_slot()
        if slot is None:
            yield from self.recover()
            slot = yield from self.find_slot()
        if slot is None and waits:
            slot = yield from self.wait(patience)
        if slot is None:
            return False
        message = yield from self.fill(slot, priority)
        before = yield from self.scan_before_send()
        yield from self.add_notify_debt()
        early = None if self.rules.bits_last else (yield self.shared.load_seq_cst(WAITING))
        yield from self.post(slot, message)
        yield from self.notify_if_was_empty(slot, before)
        yield from self.clear_notify_debt()
        if early is None or early:
            yield from self.wake_receivers()
        return True

    def send_delayed(self, priority: int, delay: int) -> Steps[bool]:
        """The message is READY after so many steps. False: there is no room."""
        slot = yield from self.find_slot()
        if slot is None:
            yield from self.recover()
            slot = yield from self.find_slot()
        if slot is None:
            return False
        message = yield from self.fill(slot, priority)
        self.state.takes += 1
        filling: Word = ("filling", self.state.row, self.word_generation)
        delayed: Word = ("delayed", self.state.row, self.word_generation, self.state.takes)
        yield from self.store_delayed(slot, filling, delayed, message, delay)
        yield self.shared.change(READY, lambda count: count + 1)
        yield from self.wake_receivers()
        return True

    def send_many(self, priorities: list[int]) -> Steps[None]:
        """As many as there is room for, and one round of wakes."""
        sent: list[tuple[int, Message]] = []
        before = yield from self.scan_before_send()
        yield from self.add_notify_debt()
        for priority in priorities:
            slot = yield from self.find_slot()
            if slot is None:
                break
            message = yield from self.fill(slot, priority)
            yield from self.post(slot, message, counted=self.rules.count_each)
            sent.append((slot, message))
        if sent and not self.rules.count_each:
            for _, message in sent:
                yield from self.count(message, 1)
        if sent:
            yield from self.notify_if_was_empty(sent[0][0], before)
        yield from self.clear_notify_debt()
        if sent:
            yield from self.wake_receivers(len(sent))

    # ---- a slot ----

    def find_slot(self) -> Steps[int | None]:
        """1.: one that is FILLING by us, after at most one round."""
        if (yield from self.must_yield(SENDERS)):
            return None
        filling: Word = ("filling", self.state.row, self.word_generation)
        for step in self.shared.slots:
            slot = (self.hint + step) % len(self.shared.slots)
            current: Word = yield load(word(slot))
            if current == FREE and (yield self.shared.exchange(word(slot), FREE, filling)) == FREE:
                self.hint = slot + 1
                self.shared.owners[slot] = self.task
                return slot
        return None

    def sees_room_for_us(self) -> Steps[bool]:
        """And nobody who waited for longer wants it."""
        return (yield from self.sees_room()) and not (yield from self.must_yield(SENDERS))

    def wait(self, patience: int) -> Steps[int | None]:
        """Sleep until there is a slot; None: time has run out, or the handle is closed."""
        yield from self.begin_wait(SENDERS)
        slot = yield from self.sleep_for_slot(patience)
        yield from self.end_wait(SENDERS)
        return slot

    def sleep_for_slot(self, patience: int) -> Steps[int | None]:
        """All sleeps of one call."""
        while True:
            end = yield from self.sleep(SENDERS, self.sees_room_for_us, patience)
            if end == "interrupted":
                yield from self.pass_on()
                return None
            if end == "there" and self.is_interrupted(patience) and not self.state.is_shared:
                self.closing = True  # another thread does that
                return None
            slot = yield from self.find_slot()
            if slot is not None or end == "late":
                return slot
            self.count_overtaken()

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

    def fill(self, slot: int, priority: int) -> Steps[Message]:
        """2. and 3. EDGE fill-count: FILLING, the count of the block, READY, in this order."""
        if self.rules.fill_counted == "before":
            yield from self.add_fill(slot)
        self.number += 1
        message = Message(self.name, self.number, priority)
        yield from self.check_readers(slot)
        yield store(data(slot), message)
        order: int = yield load(READY)
        message.key = ("ready", priority, -order)
        yield store(key(slot), message.key)
        return message

    def add_fill(self, slot: int) -> Steps[None]:
        """2."""
        how = self.shared.rmw if self.rules.fill_count_seq_cst else "rmw_relaxed"
        yield (how, fill_count(self.shared.block_of(slot)), lambda count: count + 1)

    def post(self, slot: int, message: Message, *, counted: bool = True) -> Steps[None]:
        """4. and 5. EDGE message."""
        if counted and not self.rules.count_last:
            yield from self.count(message, 1)
        yield store(word(slot), message.key, self.rules.word_store)
        self.shared.become_ready(slot, message)
        if self.rules.fill_counted == "after":
            yield from self.add_fill(slot)
        if counted and self.rules.count_last:
            yield from self.count(message, 1)

    def check_readers(self, slot: int) -> Steps[None]:
        """Everything that was copied from here happens before what we store."""
        for name in self.shared.names:
            location = read_by(slot, name)
            if (yield load(location)) is not (newest := self.kernel.newest(location)):
                raise Violation("torn", f"{self.name} writes into slot {slot}; the copy of {newest} may come after")

    # ---- notification ----

    def scan_before_send(self) -> Steps[ReadyKeys | None]:
        """What is READY before our message is; None: nobody wants to be told."""
        if not (yield self.shared.load_seq_cst(NOTIFY_REQUESTED)):
            return None
        return (yield from self.scan_ready())

    def notify_if_was_empty(self, slot: int, before: ReadyKeys | None) -> Steps[None]:
        """Did it come to an empty queue, with nobody waiting?"""
        rules = self.rules
        if before is None and not rules.notify_request_loaded_last:
            return
        if not (yield self.shared.load_seq_cst(NOTIFY_REQUESTED)):
            return
        yield fence(rules.scan_ready_fence)
        if before is None or rules.ready_scans == "before":
            was_ready = bool(before)
        elif rules.ready_scans == "after":
            after = yield from self.scan_ready()
            was_ready = bool(after.keys() - {slot})
        else:
            was_ready = yield from self.still_ready(before)
        if not was_ready and not (yield self.shared.load_seq_cst(WAITING)):
            yield from self.notify()
