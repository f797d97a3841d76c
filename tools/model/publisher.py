"""Our publisher while it owns the ring. Comments have the numbers of docs/internals/topic-protocol.md, "Sending"."""

from collections.abc import Sequence
from random import Random

from . import addresses as at
from .memory import SEQ_CST
from .ops import fence, futex_wake, load, rmw, store, tkill
from .oracle import Position, Violation, Word
from .task import Steps
from .topic import WRAP_MARK, Topic, intact


class Publisher:
    """A publisher of msgq. `fences`: the publisher could not register for membarrier."""

    def __init__(self, topic: Topic, uid: str, rng: Random, fences: bool = False) -> None:
        self.topic = topic
        self.uid = uid
        self.rng = rng
        self.fences = fences
        self.position: Position = (0, 0)  # write_pointer as we last published it
        self.head: Position = (0, 0)  # end of the staged messages
        self.staged: list[int] = []
        self.granted: Position = (0, 0)  # up to here no extend is needed
        self.limit: Position = (0, 0)  # announced limit; never goes back
        self.sequence = 0
        self.era = 0
        self.checkpoint_seq = 0
        self.seen: dict[int, Position] = {}  # last known positions of stock subscribers
        self.signalled: Position = (0, 0)  # position when they were signalled
        self.broke_count = False  # True: the count of a previous msgq publisher was lost

    def send(self, sizes: Sequence[int]) -> Steps[bool]:
        """Publish messages of these sizes. False: another publisher took over."""
        for size in sizes:
            full = self.staged and self.topic.rules.commit_before_extend and not self.has_room(1 + size)
            if full and not (yield from self.commit()):
                return False
            if not (yield from self.begin()) or not (yield from self.make_room(1 + size)):
                return False
            yield from self.write(size)
        return (yield from self.commit())

    def abandon(self, size: int) -> Steps[bool]:
        """Make room for a message, and publish none. Returns False."""
        if (yield from self.begin()) and (yield from self.make_room(1 + size)):
            yield from self.discard()
        return False

    def begin(self) -> Steps[bool]:
        """(1) and (2), of one more message. False: another publisher took over."""
        rules = self.topic.rules
        if rules.uid_before_begin and (yield load(at.WRITE_UID)) != self.uid:
            return (yield from self.discard()) if self.staged and rules.dropped_is_done else self.drop()
        # EDGE takeover: begun is stored, then write_uid is loaded; the newcomer's membarrier stands between.
        yield store(at.begun_sequence(self.uid), self.sequence + len(self.staged) + 1)
        if self.fences and rules.publisher_fence:
            yield fence(SEQ_CST)
        if (yield load(at.WRITE_UID)) != self.uid:
            return (yield from self.discard())
        return True

    def discard(self) -> Steps[bool]:
        """Discard the staged messages, after a takeover or on request. Return False."""
        self.drop()
        # EDGE send-done: release. Our bytes come before those of the newcomer, which may start now.
        yield store(at.begun_sequence(self.uid), self.sequence, self.topic.rules.done_store)
        return False

    def drop(self) -> bool:
        """Drop the staged messages without a store. Return False."""
        self.head = self.position
        self.staged.clear()
        return False

    def commit(self) -> Steps[bool]:
        """(5) to (8), for all that is staged."""
        rules = self.topic.rules
        if rules.uid_before_commit and (yield load(at.WRITE_UID)) != self.uid:
            return (yield from self.discard())
        yield from self.publish(self.head)
        # EDGE send-done: release. A thread that finds the send done sees all its writes.
        yield store(at.sent_sequence(self.uid), self.sequence, rules.done_store)
        yield fence(rules.sleep_fence)  # EDGE sleep: write_pointer is stored, then eventcount is loaded.
        if (yield load(at.EVENTCOUNT))[1]:
            yield from notify_sleepers(self.topic)
        for slot in self.topic.stock_sleepers:
            yield from self.signal(slot)
        self.signalled = self.position
        return True

    def signal(self, slot: int) -> Steps[None]:
        """A stock subscriber, if it may sleep although there is a message."""
        rules, must_signal = self.topic.rules, self.topic.stock_sleepers[slot]
        before, cursor = self.seen.get(slot), (yield load(at.read_pointer(slot)))
        self.seen[slot] = cursor
        stands = cursor == before and rules.signal_if_it_stands
        if cursor != self.position and (stands or (cursor >= self.signalled and rules.signal_if_caught_up)):
            yield tkill()
        elif must_signal():
            raise Violation("wake", f"{self.uid} does not signal slot {slot} at {cursor}, which sleeps or is about to")

    def publish(self, end: Position) -> Steps[None]:
        """Move write_pointer."""
        # EDGE commit: release. Payload before the position that announces it.
        yield store(at.WRITE_POINTER, end, self.topic.rules.commit_store)
        if self.broke_count:
            raise Violation("account", f"{self.uid} publishes, but could not continue the count of messages")
        self.topic.oracle.publish(self.uid, self.position, end, self.staged)
        self.sequence += len(self.staged)
        self.position = self.head = end
        self.staged.clear()

    def make_room(self, need: int) -> Steps[bool]:
        """(3): extend the grant if this message goes beyond it, and go to the next cycle if it does not fit."""
        if self.has_room(need):
            return True
        wraps = self.topic.geometry.wraps(self.head, need)
        self.granted = self.grant(need)
        yield from self.clear_flags()
        yield from self.announce()
        if wraps:
            yield store(self.topic.data[self.head[1]], WRAP_MARK)
            if (yield load(at.WRITE_UID)) != self.uid:
                return (yield from self.discard())
            yield from self.publish((self.head[0] + 1, 0))
        return True

    def has_room(self, need: int) -> bool:
        """Is so much granted already?"""
        wraps = self.topic.geometry.wraps(self.head, need)
        end = (self.head[0] + 1, need) if wraps else (self.head[0], self.head[1] + need)
        return end <= self.granted

    def grant(self, need: int) -> Position:
        """How far the next extend goes, for a message of `need` words."""
        geometry = self.topic.geometry
        cycle, offset = self.head
        if geometry.wraps(self.head, need):
            cycle, offset = cycle + 1, 0
        return (cycle, min(offset + max(need, geometry.chunk), geometry.lap_end))

    def announce(self) -> Steps[None]:
        """A checkpoint, and how far we are going to write."""
        rules = self.topic.rules
        self.checkpoint_seq += 1
        if not rules.two_checkpoints:
            yield store(at.CHECKPOINT_SEQ_BEGIN, self.checkpoint_seq)
        # Two cells: readers of the other cell are not disturbed, also if this publisher dies now.
        cell = self.checkpoint_seq % 2 if rules.two_checkpoints else 0
        yield store(at.checkpoint(cell, "position"), self.head)
        yield store(at.checkpoint(cell, "sequence"), self.sequence + len(self.staged))
        yield store(at.checkpoint(cell, "era"), self.era)
        # EDGE checkpoint: release. The cell is complete before its number is seen.
        yield store(at.CHECKPOINT_SEQ, self.checkpoint_seq, rules.checkpoint_store)
        self.limit = max(self.limit, self.granted) if rules.limit_kept else self.granted
        if rules.limit_before_payload:
            yield store(at.LIMIT, self.limit)
        # EDGE grant: release. Limit and flags before the bytes that they warn of; this turn before the next cell.
        yield fence(rules.grant_fence)

    def clear_flags(self) -> Steps[None]:
        """Stock subscribers trust a flag: clear it for those whose message may be overwritten."""
        for slot in self.topic.stock_slots:
            cursor = yield load(at.read_pointer(slot))
            if not self.spares(cursor):
                yield store(at.read_valid(slot), 0)

    def spares(self, cursor: Position) -> bool:
        """Return True if the granted bytes do not overlap the message at `cursor`."""
        if self.topic.rules.flags_by_limit:
            # One lap behind exactly is not spared: stock takes equal offsets for an empty ring.
            return intact(self.granted, cursor) and (self.granted[1] != cursor[1] or self.granted[0] == cursor[0])
        begin, end = self.head, self.granted
        if end[0] != begin[0]:  # stock: those behind the wrap mark, but not the one on it, and then the new range
            if cursor[1] > begin[1] and cursor[0] != begin[0]:
                return False
            begin = (end[0], 0)
        return not (begin[1] <= cursor[1] < end[1] and cursor[0] != begin[0])

    def write(self, size: int) -> Steps[None]:
        """(4): size word and payload, relaxed; they race with readers that are too slow, which find out."""
        data, offset = self.topic.data, self.head[1]
        message = self.topic.oracle.new_message(size)
        yield store(data[offset], Word(message, 0, size))
        for part in range(1, size + 1):
            yield store(data[offset + part], Word(message, part, any_size(self.topic, self.rng)))
        if not self.topic.rules.limit_before_payload:
            yield store(at.LIMIT, self.limit)
        self.staged.append(message)
        self.head = (self.head[0], offset + 1 + size)


def any_size(topic: Topic, rng: Random) -> int:
    """Return a payload word that may equal a size word."""
    return int(rng.random() * (topic.geometry.need_max + 1)) - 1


def notify_sleepers(topic: Topic, counted: bool = True) -> Steps[None]:
    """Wake all sleepers. The bit is cleared before the wake: a later bit is of a sleeper that finds this message."""
    if counted and topic.rules.clear_before_wake:
        yield rmw(at.EVENTCOUNT, count_wake)
    yield futex_wake()
    if counted and not topic.rules.clear_before_wake:
        yield rmw(at.EVENTCOUNT, count_wake)


def count_wake(eventcount: tuple[int, bool]) -> tuple[int, bool]:
    """Count, and clear the bit, at once."""
    return (eventcount[0] + 1, False)
