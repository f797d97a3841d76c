"""Our subscriber: it keeps its cursor to itself, and validates by position after it copied."""

from . import addresses as at
from .memory import ACQUIRE, RELEASE
from .ops import cas, fence, futex_wait, load, pause, rmw, store
from .oracle import Position, Violation, Word
from .task import Steps
from .topic import Topic, intact
from .walk import walk


class Subscriber:
    """A subscriber of msgq. `slot`: the held slot; None: no slot."""

    def __init__(self, topic: Topic, name: str, slot: int | None = None) -> None:
        self.topic = topic
        self.name = name
        self.slot = slot
        self.publisher_uid = topic.publisher
        self.announced = topic.trusts(topic.publisher)  # True: a msgq publisher, which announces its limit
        self.cursor: Position = (0, 0)
        self.era = 0
        self.joined = 0 if self.announced else None  # messages of this era before us; None: the count is unknown
        self.received = 0
        self.lost = 0
        self.last_index = -1

    @property
    def sequence(self) -> int | None:
        """Messages of this era before the cursor."""
        return None if self.joined is None else self.joined + self.received + self.lost

    # ---- the publisher ----

    def classify_publisher(self) -> Steps[None]:
        """How positions are validated from now on, and whether the count goes on."""
        if self.slot is not None and (yield load(at.read_uid(self.slot), ACQUIRE)) != self.name:
            self.slot = None  # a stock publisher wiped it; this model does not join again
        self.publisher_uid = yield load(at.WRITE_UID, ACQUIRE)
        self.announced = self.topic.trusts(self.publisher_uid)
        if not self.announced:
            self.joined = None
            return
        _, _, era = yield from self.read_checkpoint()
        if era != self.era:
            self.joined, self.era = None, era

    def sentinel_unchanged(self) -> Steps[bool]:
        """No stock publisher has started since the survey."""
        if self.announced and not self.topic.rules.sentinel:
            return True
        if self.announced and self.slot is not None:
            return bool((yield load(at.read_uid(self.slot), ACQUIRE)) == self.name)
        return bool((yield load(at.WRITE_UID, ACQUIRE)) == self.publisher_uid)

    def intact(self, position: Position) -> Steps[bool]:
        """Is everything from `position` on as it was published? To be asked after the bytes were copied."""
        geometry, rules = self.topic.geometry, self.topic.rules
        while True:
            # EDGE grant: acquire. If a copied byte belongs to a newer lap, its warning is seen below.
            yield fence(rules.grant_fence_reader)
            if rules.sentinel_first and not (yield from self.sentinel_unchanged()):
                yield from self.classify_publisher()
                continue
            if self.announced and rules.announced_limit:
                good = intact((yield load(at.LIMIT)), position)
            else:
                margin = rules.margin_message * (geometry.size // 3) + rules.margin_mark
                good = geometry.intact_stock((yield load(at.WRITE_POINTER)), position, margin, rules.late_cycle)
            if rules.sentinel_first or (yield from self.sentinel_unchanged()):
                return good
            yield from self.classify_publisher()

    # ---- counting ----

    def read_checkpoint(self) -> Steps[tuple[Position, int, int]]:
        """Position, sequence and era, all of one announcement."""
        rules = self.topic.rules
        while True:
            checkpoint_seq = yield load(at.CHECKPOINT_SEQ, rules.checkpoint_load)  # EDGE checkpoint: acquire
            cell = checkpoint_seq % 2 if rules.two_checkpoints else 0
            position = yield load(at.checkpoint(cell, "position"))
            sequence = yield load(at.checkpoint(cell, "sequence"))
            era = yield load(at.checkpoint(cell, "era"))
            yield fence(rules.checkpoint_fence_reader)  # EDGE checkpoint: acquire. Was the cell overwritten meanwhile?
            if (yield load(at.CHECKPOINT_SEQ if rules.two_checkpoints else at.CHECKPOINT_SEQ_BEGIN)) == checkpoint_seq:
                return position, sequence, era
            yield pause()

    def latest(self) -> Steps[tuple[Position, int | None]]:
        """write_pointer and the number of messages before it: the checkpoint's, plus a walk."""
        while self.announced:
            begin, sequence, era = yield from self.read_checkpoint()
            now = yield load(at.WRITE_POINTER, ACQUIRE)
            if not self.topic.rules.lost_by_checkpoint and self.publisher_uid:
                return now, (yield load(at.sent_sequence(str(self.publisher_uid))))
            walked = yield from walk(self.topic, begin, now)
            if (yield from self.intact(begin)) and walked is not None and era == self.era and self.announced:
                return now, sequence + walked
            if era != self.era:
                yield from self.classify_publisher()
            yield pause()
        return (yield load(at.WRITE_POINTER, ACQUIRE)), None

    def skip_to_latest(self) -> Steps[None]:
        """Move to the newest position, and count the skipped messages as lost."""
        if self.topic.lossless:
            raise Violation("usage", f"{self.name} is lapped at {self.cursor}, though the limit spares it")
        position, sequence = yield from self.latest()
        if sequence is not None and self.sequence is not None:
            self.lost += sequence - self.sequence
        self.go_to(position, sequence)

    def go_to(self, position: Position, sequence: int | None) -> None:
        """Continue there; after a loss that is counted, `joined` stays as it is."""
        self.cursor = position
        self.joined = None if sequence is None else sequence - self.received - self.lost

    # ---- reading ----

    def attach(self) -> Steps[None]:
        """Join at the newest position. Slot first: a stock publisher that starts after it changes the sentinel."""
        slot, self.slot = self.slot, None
        if slot is not None and self.topic.rules.slot_before_classification:
            yield from self.take_slot(slot)
        yield from self.classify_publisher()
        if slot is not None and not self.topic.rules.slot_before_classification:
            yield from self.take_slot(slot)
        self.go_to(*(yield from self.latest()))

    def take_slot(self, slot: int) -> Steps[None]:
        """If it is free."""
        if (yield cas(at.read_uid(slot), 0, self.name)) == 0:
            self.slot = slot
            yield store(at.read_pointer(slot), self.cursor, RELEASE)
            yield store(at.read_valid(slot), 1, RELEASE)

    def receive(self) -> Steps[list[Word] | None]:
        """Take the next message; None when there is none."""
        late = self.topic.rules.check_after_copy
        while True:
            if not self.announced and not (yield from self.sentinel_unchanged()):
                yield from self.classify_publisher()
            if (yield from self.nothing_new()):
                return None
            header: Word = yield load(self.topic.data[self.cursor[1]])
            behind = self.topic.geometry.after(self.cursor, header.size)
            good = late or (yield from self.intact(self.cursor))
            words = yield from self.copy(header, behind)
            if late:
                good = yield from self.intact(self.cursor)
            if not good:
                yield from self.skip_to_latest()
            elif behind is None:
                raise Violation("torn", f"{self.name} reads the size {header} at {self.cursor}, and it is intact")
            elif header.size < 0:
                self.cursor = behind
            else:
                self.topic.oracle.deliver(self, words)
                self.cursor = behind
                self.received += 1
                return words

    def nothing_new(self) -> Steps[bool]:
        """Has everything been read?"""
        # EDGE commit: acquire. Payload after the position that announced it.
        write_pointer: Position = yield load(at.WRITE_POINTER, self.topic.rules.commit_load)
        if self.topic.rules.empty_by_all_bits:
            return write_pointer == self.cursor
        return write_pointer[1] == self.cursor[1]

    def copy(self, header: Word, behind: Position | None) -> Steps[list[Word]]:
        """The words of the message at the cursor, as far as its size makes sense."""
        words = [header]
        if behind is not None:
            for part in range(1, header.size + 1):
                words.append((yield load(self.topic.data[self.cursor[1] + part])))
        return words

    # ---- sleeping ----

    def sleep(self) -> Steps[None]:
        """Until something may have been published; nothing new was there a moment ago."""
        rules = self.topic.rules
        # EDGE sleep: the bit is set, then write_pointer is loaded.
        expected = set_waiters((yield rmw(at.EVENTCOUNT, set_waiters)))
        yield fence(rules.sleep_fence_sleeper)
        if rules.rechecks and (yield load(at.WRITE_POINTER, ACQUIRE)) != self.cursor:
            return
        if rules.futex_on_eventcount:
            yield futex_wait(at.EVENTCOUNT, lambda word: word == expected)
        else:
            low_half = self.cursor[1]
            yield futex_wait(at.WRITE_POINTER, lambda word: word[1] == low_half)


def set_waiters(eventcount: tuple[int, bool]) -> tuple[int, bool]:
    """Set the bit."""
    return (eventcount[0], True)
