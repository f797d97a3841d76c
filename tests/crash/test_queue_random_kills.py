"""Senders and receivers of a work queue that are killed at random moments, by the hundred."""

from __future__ import annotations

import itertools
import os
import random
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from msgq.workqueue import MessageQueue
from tests.crash.harness import number_of
from tests.crash.killing import kill_at_random, run_in_killed_child
from tests.crash.queues import File
from tests.support import LONGER, run_child

SENDERS = RECEIVERS = 4
SURVIVOR = 0  # number of the process that checks after all are dead

#: Notes of a process: "sent" after send has returned, "calls" before receive, "got" after it has returned, "took"
#: before the acknowledgement and "acked" after that has returned.
KINDS = ("sent", "calls", "got", "took", "acked")


class Record(NamedTuple):
    kind: str
    participant: int
    message: int
    deliveries: int


class Diary:
    """A file to which all append; a record is there or not, whenever somebody is killed."""

    FORMAT = struct.Struct("<QQQQ")

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, kind: str, participant: int, message: int = 0, deliveries: int = 0) -> None:
        os.write(self._fd, self.FORMAT.pack(KINDS.index(kind), participant, message, deliveries))

    @classmethod
    def read(cls, path: Path) -> list[Record]:
        return [Record(KINDS[kind], *rest) for kind, *rest in cls.FORMAT.iter_unpack(path.read_bytes())]


def send_for_ever(name: str, diary: str, participant: int) -> None:
    """Send messages of all priorities; each number has the sender's above its own."""
    notes, rng = Diary(diary), random.Random(participant)
    with MessageQueue(name, 0) as queue:
        for number in itertools.count():
            message = participant << 32 | number
            queue.send(message.to_bytes(8, "little") * rng.randrange(1, 100), rng.randrange(3))
            notes.write("sent", participant, message)
            if number % 8 == 7:
                time.sleep(0.001)  # so that the queue is empty at times; nothing waits for it


def take_one(queue: MessageQueue, notes: Diary, participant: int, timeout: float | None = None) -> bool:
    job = queue.take(timeout)
    if job is None:
        return False
    message = number_of(job.data)
    notes.write("took", participant, message, job.deliveries)
    job.ack()
    notes.write("acked", participant, message)
    return True


def receive_one(queue: MessageQueue, notes: Diary, participant: int, timeout: float | None = None) -> bool:
    notes.write("calls", participant)
    message = queue.receive(timeout)
    if message is None:
        return False
    notes.write("got", participant, number_of(message.data), message.deliveries)
    return True


WAYS: dict[str, Callable[..., bool]] = {"take": take_one, "receive": receive_one}


def consume_for_ever(name: str, diary: str, participant: int, way: str) -> None:
    notes = Diary(diary)
    with MessageQueue(name, 0) as queue:
        while True:
            WAYS[way](queue, notes, participant)


def run_random_kills(name: str, diary: str, way: str, seed: int, kills: int, messages: int) -> dict[str, Any]:
    """Child: kill four senders and four receivers."""
    rng, victims = random.Random(seed), itertools.count(SURVIVOR + 1)

    def start(role: int) -> int:
        if role < SENDERS:
            return run_in_killed_child(send_for_ever, name, diary, next(victims))
        return run_in_killed_child(consume_for_ever, name, diary, next(victims), way)

    def enough() -> bool:  # each message has three records: of two calls that begin, or end, and of what was sent
        return os.path.getsize(diary) > 3 * messages * Diary.FORMAT.size

    roles = SENDERS + RECEIVERS
    return kill_at_random(start, roles, rng, kills, lambda _: rng.randrange(roles), enough)


def check_sent(records: list[Record], arrived: set[int]) -> set[int]:
    """Return what was sent: what its sender has written down, and perhaps one message more of each."""
    sent, last = set(), defaultdict(lambda: -1)
    for record in records:
        if record.kind == "sent":
            sent.add(record.message)
            last[record.participant] = record.message & 0xFFFFFFFF
    for message in arrived - sent:
        assert message & 0xFFFFFFFF == last[message >> 32] + 1, f"nobody has sent {message:#x}"
    return sent | arrived


def check_taken(records: list[Record]) -> None:
    """Each message was taken at least once, and acknowledged once; or its last taker died with the word in hand."""
    takes: dict[int, list[Record]] = defaultdict(list)
    acked: dict[int, int] = {}
    for record in records:
        if record.kind == "took":
            assert record.message not in acked, f"{record} comes again"
            takes[record.message].append(record)
        elif record.kind == "acked":
            assert takes[record.message][-1].participant == record.participant
            acked[record.message] = record.participant
    sent = check_sent(records, {*takes})
    assert not sent - {*takes}, f"{len(sent - {*takes})} messages are lost"
    for message, deliveries in ((message, [one.deliveries for one in them]) for message, them in takes.items()):
        assert deliveries == sorted({*deliveries}), f"deliveries of {message:#x}: {deliveries}"
    unnoted = sum(them[-1].deliveries - len(them) for them in takes.values())
    takers = {record.participant for record in records if record.kind == "took"}
    assert unnoted <= len(takers), f"{unnoted} deliveries that nobody saw, of {len(takers)}"
    last_words = Counter(takes[message][-1].participant for message in sent - {*acked})
    assert all(count == 1 for count in last_words.values()), "acknowledged without having been"
    assert SURVIVOR not in last_words


def check_received(records: list[Record]) -> None:
    """Nothing comes twice; what is lost was in the hands of a receiver that was killed in the middle of receive."""
    got = Counter(record.message for record in records if record.kind == "got")
    assert set(got.values()) == {1}, "a message came twice"
    last = {record.participant: record.kind for record in records if record.kind in ("calls", "got")}
    inside = sum(kind == "calls" for participant, kind in last.items() if participant != SURVIVOR)
    vanished = len(check_sent(records, {*got}) - {*got})
    print(len(got), "received,", vanished, "vanished,", inside, "killed in receive,", len(last), "receivers")
    assert vanished <= inside, f"{vanished} messages are lost, and {inside} were killed in receive"


@pytest.mark.watchdog(120.0 * max(LONGER, 1))
@pytest.mark.parametrize(
    ("kills", "messages"), [(30, 1000), pytest.param(int(300 * LONGER), 10_000, marks=pytest.mark.nightly)]
)
@pytest.mark.parametrize("slots", [64, 1])
@pytest.mark.parametrize("way", WAYS)
def test_queue_with_random_kills_loses_no_message(
    endpoint: str, tmp_path: Path, seed: int, way: str, slots: int, kills: int, messages: int
) -> None:
    """What: senders and receivers are killed at random moments, while messages pass; with one slot the queue is
    full and empty all the time.

    Why: the named steps are those that we thought of.

    Failure would mean: a crash somewhere loses a message or a slot, or an acknowledged message comes again.
    """
    diary = tmp_path / "diary"
    with MessageQueue(endpoint, max_messages=slots, max_message_size=1024) as queue:
        try:
            result = run_child(run_random_kills, endpoint, str(diary), way, seed, kills, messages)
            assert result["failed"] == 0, result
            notes = Diary(str(diary))
            with MessageQueue(endpoint, 0) as survivor:  # it looks for the dead when it comes
                while WAYS[way](survivor, notes, SURVIVOR, 0):
                    pass
                assert File(endpoint, slots).is_as_new()
                for number in range(slots):
                    survivor.send(bytes([number]), timeout=0)
                assert sorted(message.data[0] for message in queue.receive_many()) == [*range(slots)]
        finally:
            queue.unlink()
    records = Diary.read(diary)
    assert sum(record.kind == "sent" for record in records) > messages // 2, result
    (check_taken if way == "take" else check_received)(records)
