"""Work queues on which the driver is killed or stopped, and what the others make of it."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from msgq.errors import QueueFullError
from msgq.workqueue import MessageQueue
from tests.crash.harness import Place, Play, Scene, Step, message, number_of, numbers_said
from tests.support import SHM

SLOTS = 6  # few, so that every slot has had many messages soon
PRIORITIES = 3
LAPS = 4
BYTES = 24
BEFORE, OTHER = 100, 1000  # first numbers of the messages sent before the victim's, and afterwards
ROWS, ROWS_AT, ROW_BYTES, HEADER = 128, 4096, 256, 57344
BITS = ("receiving", "watching", "sending", "notified")
BITS_AT = 320


def in_order(numbers: Iterable[int]) -> list[int]:
    """Return numbers in the order in which the messages are to come, when they were sent in the order of numbers."""
    return sorted(numbers, key=lambda number: (-(number % PRIORITIES), number))


class File:
    """A queue's file as its bytes are."""

    def __init__(self, name: str, slots: int) -> None:
        self.path, self.slots = SHM / f"msgqjobs_{name}", slots
        self._heads = HEADER + 64 * -(-slots // 512) + 64 * -(-slots // 8)

    def slot_states(self) -> list[int]:
        """Return the word of each slot."""
        at = HEADER + 64 * -(-self.slots // 512)
        data = self.path.read_bytes()[at : at + 8 * self.slots]
        return [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]

    def _in_head(self, slot: int, offset: int) -> int:
        at = self._heads + 64 * slot + offset
        return int.from_bytes(self.path.read_bytes()[at : at + 8], "little")

    def sent_time(self, slot: int) -> int:
        """Return when the message in a slot was sent, in ns of the host's clock."""
        return self._in_head(slot, 24)

    def lease(self, slot: int) -> int:
        """Return the lease of the message in a slot."""
        return self._in_head(slot, 40)

    def bits(self) -> dict[str, int]:
        """Return the bits that are on, by kind."""
        data = self.path.read_bytes()
        found = {kind: data[BITS_AT + 16 * i : BITS_AT + 16 * i + 16] for i, kind in enumerate(BITS)}
        return {kind: int.from_bytes(bits, "little") for kind, bits in found.items() if any(bits)}

    def is_as_new(self) -> bool:
        """Whether every slot is free, and nobody is said to sleep."""
        return not any(self.slot_states()) and not self.bits()


class Got(NamedTuple):
    number: int
    deliveries: int


class QueuePlace(Place):
    """A queue with a few slots, and two handles."""

    kind, start = "queue", "msgqjobs_"
    rows = range(ROWS_AT, ROWS_AT + ROWS * ROW_BYTES, ROW_BYTES)

    def __init__(self, endpoint: str, slots: int = SLOTS, events: bool | None = None) -> None:
        super().__init__(endpoint)
        self.file, self.slots = File(endpoint, slots), slots
        self.queue = self.handle(max_messages=slots, max_message_size=64, events=events)
        self._stack.callback(self.queue.unlink)
        self.other = self.handle()

    def handle(self, **options: Any) -> Any:
        return self.enter(MessageQueue(self.endpoint, **options))

    def look(self) -> None:
        """Have somebody come, who looks for the dead, and go."""
        MessageQueue(self.endpoint, 0).close()

    join = look

    def send(self, *numbers: int) -> None:
        """Send at once."""
        for number in numbers:
            self.queue.send(message(number, BYTES), number % PRIORITIES, timeout=0)

    def drain(self) -> list[Got]:
        """Receive what is there, at once, by both handles in turn: whole, and in order."""
        got: list[Got] = []
        while (one := (self.queue if len(got) % 2 else self.other).receive(0)) is not None:
            number = number_of(one.data)
            assert one.priority == number % PRIORITIES
            got.append(Got(number, one.deliveries))
        assert (self.queue if len(got) % 2 == 0 else self.other).receive(0) is None, "the other handle finds more"
        numbers = [one.number for one in got]
        assert numbers == in_order(numbers), numbers
        return got

    def look_and_drain(self) -> list[Got]:
        self.look()
        return self.drain()

    def fill(self, start: int) -> list[int]:
        """Send until there is no more room; return the numbers."""
        sent = []
        with contextlib.suppress(QueueFullError):
            for number in range(start, start + self.slots + 1):
                self.send(number)
                sent.append(number)
        return sent

    def pass_laps(self, missing: int = 0) -> None:
        """Let messages pass at once, in order, through all slots; `missing`: so many slots may be somebody's."""
        for start in range(OTHER, OTHER + 100 * LAPS, 100):
            sent = self.fill(start)
            assert len(sent) >= self.slots - missing, f"{self.slots - len(sent)} slots are lost"
            assert self.drain() == [Got(number, 1) for number in in_order(sent)]

    def life_goes_on(self) -> None:
        """Every slot is to be had, and each message comes, in order; afterwards all is as new."""
        self.pass_laps()
        assert not any(self.file.slot_states()), [hex(word) for word in self.file.slot_states()]
        assert not self.file.bits(), "bits of the dead"


@dataclass(frozen=True)
class QueueScene(Scene):
    """`sure`: messages that the victim sends before "arm"; their numbers go up from 200. `own`: all that it sends."""

    sure: int = 0
    own: int = 0
    slots: int = SLOTS


SENDERS = {
    "send": QueueScene(
        "join ready send:200 arm send:201 send:202",
        "mq_queue_commit_message: counted &h->parts.queue->ready_count",
        before=2,
        sure=1,
        own=3,
    ),
    "send to another block": QueueScene(
        "join ready arm send:200 send:201",
        "mq_queue_claim_free_slot: counted &h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS]",
        before=66,
        own=2,
        slots=70,
    ),
    "send with sleeper": QueueScene("join ready lie arm send:200 send:201 leave", "call: after wake", before=1, own=2),
    "send with watcher": QueueScene("join ready watch arm send:200 leave", before=1, own=1),
    "send with notification request": QueueScene(
        "join notify ready arm send:200 send:201 leave", "mq_queue_notify_not_empty: counted &queue->notify_seq", own=2
    ),
    "send to filled queue with notification request": QueueScene(
        "join notify ready arm send:200 leave", before=2, own=1
    ),
    "send without room": QueueScene("join ready arm send:200", before=SLOTS),
    "send with delay": QueueScene(
        "join ready arm senddelayed:200 senddelayed:201",
        "mq_queue_announce_delay: counted &h->parts.queue->delay_count",
        before=2,
        own=2,
    ),
    "send with delay and sleeper": QueueScene(
        "join ready lie watch arm senddelayed:200 leave", "call: after wake", before=1, own=1
    ),
    "send to slot of dead process": QueueScene("join ready arm send:200", before=SLOTS - 1, own=1, former="join hold"),
    "wait for room": QueueScene("join ready arm waitsend:5:200", "call: after sleep", before=SLOTS),
    "wait for room, with handoff": QueueScene("join ready yield:2 arm waitsend:5:200", before=SLOTS),
    "join": QueueScene("ready arm join send:200", before=1, own=1),
    "join after death of other process": QueueScene(
        "ready arm join send:200",
        "mq_queue_clear_row_bit: cleared &bits->word[row / 64]",
        before=1,
        own=1,
        former="join notify lie crave watch hold",
        heir=True,
    ),
    "leave": QueueScene("join ready lie send:200 hold arm leave", before=1, sure=1, own=1),
}
RECEIVERS = {
    "receive": QueueScene(
        "join ready arm receive:3",
        "mq_queue_free_taken_slot: exchanged &h->parts.slot_states[delivery->slot]",
        before=4,
    ),
    "receive from two blocks": QueueScene("join ready arm receive:2", before=68, slots=70),
    "receive with waiting sender": QueueScene("join crave ready arm receive:2 leave", "call: after wake", before=3),
    "take, acknowledge": QueueScene("join ready arm take:3 ack", before=4),
    "take, nack": QueueScene(
        "join ready arm take:3 nack", "mq_queue_requeue_message: exchanged &h->parts.slot_states[slot]", before=4
    ),
    "take, nack with delay": QueueScene(
        "join ready arm take:3 nackdelayed", "mq_queue_delay_taken_message: stored &header->lease", before=4
    ),
    "take with lease, nack with delay": QueueScene("join ready arm take:2:100000 nackdelayed", before=3),
    "recover due messages": QueueScene(
        "join ready arm sweep",
        "mq_queue_requeue_message: exchanged &h->parts.slot_states[slot]",
        before=2,
        former="join send:10 send:11 take:2 nackdelayed",
    ),
    "nack with notification request": QueueScene("join notify lie ready take:1 arm nack leave", before=2),
    "take with lease": QueueScene(
        "join ready arm take:2:100000 ack",
        "mq_queue_set_job_lease: stored &h->parts.slot_headers[delivery->slot].lease",
        before=3,
    ),
    "wait until timeout": QueueScene("join ready arm wait:5"),
    "wait": QueueScene("join ready arm wait:5", before=2),
    "wait with notification request of others": QueueScene("join notify ready arm wait:5 leave", before=3),
    "wait until timeout, with handoff": QueueScene("join ready yield:2 arm wait:5"),
    "give up": QueueScene("join ready arm giveup:1", before=1),
    "leave with jobs": QueueScene("join ready take:2 hold lie arm leave", before=4),
    "recover dead processes": QueueScene(
        "join ready arm sweep",
        "mq_queue_clear_row_bit: cleared &bits->word[row / 64]",
        before=2,
        former="join send:10 send:11 send:12 take:2 hold lie:2 notify crave watch",
    ),
    "join after death of worker": QueueScene(
        "ready arm join", before=2, former="join send:10 send:11 take:2 hold lie notify", heir=True
    ),
}
#: Scenes for a stopped victim: nothing before "arm" may wake or serve anybody while it is stopped.
STOPPED = {
    name: scene
    for name, scene in (SENDERS | RECEIVERS).items()
    if scene.slots == SLOTS and scene.before < SLOTS - 1 and not scene.heir and not re.search("delay|handoff", name)
} | {
    "receive from empty queue": QueueScene("join ready arm receive:1"),
    "recover dead processes": replace(
        RECEIVERS["recover dead processes"], former="join send:10 send:11 send:12 take:2 hold lie notify crave watch"
    ),
}

#: Points behind which a message is not in the queue any more, though the victim has not said so.
GONE = ("mq_queue_free_taken_slot: ", "call: after wake", "mq_eventcount_notify_mp: ", "mq_queue_add_to_counter: ")


class QueuePlay(Play):
    """Others, who had just looked in vain, look once and receive; then messages pass through all slots."""

    place: QueuePlace
    scene: QueueScene

    @classmethod
    def make(cls, endpoint: str, scene: Any) -> Place:
        return QueuePlace(endpoint, scene.slots)

    def prepare(self) -> None:
        assert not self.place.drain(), "both remember now that nothing is there"
        self.formers = [*range(10, 10 + self.scene.former.count("send"))]
        self.before = [*range(BEFORE, BEFORE + self.scene.before)]
        self.got: list[Got] = []

    def begin(self) -> None:
        self.place.send(*self.before)

    def go_on(self, step: Step) -> None:
        """Let messages pass at once, in order, through all slots but those that the victim has."""
        if not step.locked:
            self.place.look()  # nobody is dead, but a former one
        self.got = self.place.drain()
        self.place.pass_laps(missing=3)
        if not step.locked:
            self.place.look()

    def check(self, step: Step, lines: list[str]) -> None:
        self.place.look()
        assert not self.place.file.bits(), "bits of the dead"
        rest = self.got + self.place.drain()
        numbers = [number for number, _ in rest]
        self.check_sent(numbers, lines, complete=self.stood or not step.at)
        acknowledged = numbers_said(lines, "got")
        assert not {*numbers} & {*acknowledged}, f"{acknowledged} come again: {numbers}"
        missing = {*self.formers, *self.before} - {*numbers} - {*acknowledged}
        assert len(missing) <= (step.at and not self.stood and step.name.startswith(GONE)), f"lost {missing}"
        assert not numbers_said(lines, "lost")
        assert self.stood or numbers == in_order(numbers)
        taken = numbers_said(lines, "took") + in_order(self.formers)[: 2 * ("take" in self.scene.former)]
        for number, deliveries in rest:
            least = 2 if number in taken and not self.stood else 1
            most = 1 + bool(self.formers or (self.before and {"take", "receive", "wait"} & {*self.words()}))
            assert least <= deliveries <= most, f"{number} came for the {deliveries}th time"
        self.place.life_goes_on()

    def words(self) -> list[str]:
        """Return the names of the victim's operations."""
        return [operation.split(":")[0] for operation in self.scene.operations.split()]

    def check_sent(self, numbers: list[int], lines: list[str], complete: bool) -> None:
        """Check that the victim's messages are there, from the first to the last that it said."""
        own = sorted(number for number in numbers if 200 <= number < OTHER)
        assert own == [*range(200, 200 + len(own))], own
        least = self.scene.own if complete else max(self.scene.sure, len(numbers_said(lines, "sent")))
        assert len(own) >= least, f"{own}, and it had sent more: {lines}"
