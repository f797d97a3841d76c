"""Hostile bytes in a work queue's file, under real handles: errors of ours, or nothing, and soon.

What: every part of the file gets each kind of nonsense, before a handle opens it and while handles work; the file is
cut, grown, or is none.
Why: any process that may use a queue may write any word of it, by a bug as well.
A failure would mean: a bad word ends a process, hangs it, or hides a sound message that lies beside it.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from msgq import Poller
from msgq.common.schema import Schema
from msgq.errors import (
    CorruptSegmentError,
    IpcError,
    MessageTooLargeError,
    QueueFullError,
    SegmentError,
    TooManyHandlesError,
)
from msgq.workqueue import MessageQueue
from tests.support import SHM, Task, run_child
from tests.unit.queuefile import (
    ARRIVED,
    ATTENTION,
    BITS,
    CALL_SECONDS,
    CALLS,
    EDGES,
    HEADER,
    HELD_BITS,
    MESSAGES,
    READY_BIT,
    READY_COUNT,
    SANE,
    SCHEMA,
    SIZE,
    TICKETS,
    TURNS,
    QueueFile,
    all_calls,
    call_with_time_limit,
    check_delivers,
    free_all_slots,
    random_word,
    words_of_all_kinds,
)

PLACES = (0, 63, 64, 129)


@pytest.fixture
def queue(endpoint: str) -> Iterator[MessageQueue]:
    queue = MessageQueue(endpoint, max_messages=MESSAGES, max_message_size=SIZE)
    with queue, contextlib.suppress(SegmentError):
        yield queue
        queue.unlink()


# ---- each part of it ----


def test_queue_calls_do_not_crash_with_arbitrary_slot_states(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    generation = file.read(file.row(0, 8))
    for word in words_of_all_kinds(0, generation):
        for place in PLACES:
            file.write(file.word(place), word)
        check_delivers(queue)
        all_calls(queue)
        free_all_slots(file)


def test_queue_opened_with_arbitrary_slot_states_delivers_messages(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    for word in words_of_all_kinds(1, file.read(file.row(1, 8)) + 1):
        for place in PLACES:
            file.write(file.word(place), word)
        with MessageQueue(endpoint) as other:
            check_delivers(other)
            all_calls(other)
        free_all_slots(file)


def test_queue_with_only_invalid_slots_is_full_and_empty(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    for place in range(MESSAGES):
        file.write(file.word(place), 3 << 61 | 200 << 48 | place)  # a row that does not exist
    all_calls(queue)
    assert queue.receive(0.01) is None
    assert not queue.wait_space(0.01)
    with pytest.raises(QueueFullError):
        queue.send(b"", timeout=0.01)
    assert (queue.current_messages, queue.in_flight) == (0, 0)
    file.write(file.word(77), 0)
    check_delivers(queue)


def test_queue_calls_do_not_crash_with_arbitrary_heads_of_waiting_messages(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    for field in range(8):
        for value in (*EDGES, SIZE, SIZE + 1, READY_BIT | 5, 5 << 48):
            queue.send(b"hostile", 7)
            place = next(i for i in range(MESSAGES) if file.read(file.word(i)))
            file.write(file.head(place, field), value)
            all_calls(queue)
            check_delivers(queue)
            queue.receive_many()


def test_queue_calls_do_not_crash_with_arbitrary_heads_of_taken_messages(queue: MessageQueue, endpoint: str) -> None:
    """With a foreign key they come back nevertheless; a foreign lease takes nobody's job."""
    file = QueueFile(endpoint)
    for field in range(8):
        for value in (*EDGES, READY_BIT | 5, 5 << 48):
            queue.send(b"hostile", 7)
            job = queue.take(0)
            assert job
            place = next(i for i in range(MESSAGES) if file.read(file.word(i)))
            file.write(file.head(place, field), value)
            all_calls(queue)
            job.nack()
            assert isinstance(
                call_with_time_limit(queue.receive, 0), CorruptSegmentError if field == 1 and value > SIZE else tuple
            )
            check_delivers(queue)
            queue.receive_many()


def test_message_longer_than_its_slot_raises_once(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    for length in (SIZE + 1, 2**32, 2**64 - 1):
        for call in ("receive", "take"):
            queue.send(b"hostile", 1)
            queue.send(SANE)
            place = next(i for i in range(MESSAGES) if file.read(file.head(i, 1)) == 7 and file.read(file.word(i)))
            file.write(file.head(place, 1), length)
            assert [message.data for message in queue.peek()] == [SANE]
            with pytest.raises(CorruptSegmentError, match=f"{length} bytes"):
                getattr(queue, call)(0)
            assert queue.receive(0) == (SANE, 0)
            assert queue.receive(0) is None


def test_queue_calls_do_not_crash_with_arbitrary_fill_counts(queue: MessageQueue, endpoint: str) -> None:
    """A receiver remembers a block by this count. One that goes back may come to what is remembered."""
    file = QueueFile(endpoint)
    for value in EDGES:
        for block in range(file.blocks):
            file.write(file.entered(block), value)
        check_delivers(queue)
        all_calls(queue)
    with MessageQueue(endpoint) as sender:
        queue.receive_many()
        for _ in range(5):
            assert queue.receive(0) is None  # now it remembers all blocks
            for block in range(file.blocks):
                file.write(file.entered(block), file.read(file.entered(block)) - 1)
            check_delivers(sender, queue)


def test_receiver_of_message_without_fill_count_ends_at_timeout(queue: MessageQueue, endpoint: str) -> None:
    """It is remembered as free, and a look shows that it is there: to wait for it would never end."""
    file = QueueFile(endpoint)
    assert queue.receive(0) is None
    file.write(file.word(9), READY_BIT | 5)
    assert queue.receive(5.0) is not None
    assert queue.receive(0.01) is None


@pytest.mark.parametrize("at", [READY_COUNT, ARRIVED, ATTENTION, ATTENTION + 8, *range(BITS, BITS + 64, 8)])
def test_queue_calls_do_not_crash_with_arbitrary_sleeper_counts(queue: MessageQueue, endpoint: str, at: int) -> None:
    file = QueueFile(endpoint)
    for value in EDGES:
        file.write(at, value)
        check_delivers(queue)
        all_calls(queue)


def test_poll_of_queue_without_sizes_ignores_hostile_message_count(endpoint: str) -> None:
    """A receive would find nothing, so a loop of polls and receives would never sleep."""
    poller: Any = Poller()
    with MessageQueue(endpoint) as queue:
        poller.registerSocket(queue)
        QueueFile(endpoint).write(READY_COUNT, 1)
        assert poller.poll(0) == []
        assert queue.receive(0) is None
        queue.send(SANE)
        assert poller.poll(0) == [queue]
        queue.unlink()


@pytest.mark.parametrize("at", [TICKETS, TURNS, TURNS + 8, TURNS + 16])
def test_queue_calls_do_not_crash_with_arbitrary_ticket_numbers(queue: MessageQueue, endpoint: str, at: int) -> None:
    file = QueueFile(endpoint)
    for value in EDGES:
        file.write(at, value)
        queue.send(SANE, timeout=CALL_SECONDS)
        assert queue.receive(CALL_SECONDS) is not None
        with MessageQueue(endpoint) as receiver:
            waiting = Task(receiver.receive, CALL_SECONDS)
            waiting.wait_asleep()
            file.write(at, value)
            queue.send(SANE, timeout=CALL_SECONDS)
            assert waiting.result().data == SANE


def test_receiver_without_its_sleeper_bit_wakes_after_time_limit(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    waiting = Task(queue.receive, 30.0)
    waiting.wait_asleep()
    for at in range(BITS, BITS + 64, 8):
        file.write(at, 0)
    with MessageQueue(endpoint) as sender:
        begun = time.monotonic()
        sender.send(SANE)
        assert waiting.result().data == SANE
        assert time.monotonic() - begun < CALL_SECONDS


def test_queue_calls_do_not_crash_with_arbitrary_handle_rows(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    with MessageQueue(endpoint) as other:
        for field in range(32):
            for value in EDGES:
                for row in (0, 1, 2, 127):
                    file.write(file.row(row, field), value)
                check_delivers(other)
                call_with_time_limit(queue.receive, 0)
                newcomer = call_with_time_limit(MessageQueue, endpoint)
                if not isinstance(newcomer, IpcError):
                    check_delivers(newcomer)
                    call_with_time_limit(newcomer.close)
        all_calls(other)


def test_queue_with_row_table_full_of_live_processes_refuses_handle(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    ours = [file.read(file.row(0, field)) for field in range(8)]
    for row in range(1, 128):
        for field in range(8):
            file.write(file.row(row, field), ours[field])
        file.write(file.row(row, 7), 0)  # simulates a process that could not lock
        file.write(file.row(row, 0), 1)
    opened = call_with_time_limit(MessageQueue, endpoint)
    assert isinstance(opened, TooManyHandlesError | MessageQueue)
    check_delivers(queue)
    if isinstance(opened, MessageQueue):
        opened.close()


def test_queue_calls_do_not_crash_with_arbitrary_schema_bytes(queue: MessageQueue, endpoint: str) -> None:
    file = QueueFile(endpoint)
    rng = random.Random(1)
    for value in EDGES:
        for at in range(SCHEMA, SCHEMA + 320, 8):
            file.write(at, value if rng.random() < 0.7 else rng.getrandbits(64))
        found = call_with_time_limit(lambda: queue.schema)
        assert found is None or isinstance(found, Schema | IpcError)
        newcomer = call_with_time_limit(MessageQueue, endpoint, schema=Schema("a.b", "jsonschema", b"{}"))
        assert isinstance(newcomer, MessageQueue | IpcError)
        if isinstance(newcomer, MessageQueue):
            newcomer.close()
    check_delivers(queue)


# ---- anything, at random ----


class Scribbler:
    """Writes words where they steer."""

    def __init__(self, endpoint: str, rng: random.Random) -> None:
        self._file, self._rng = QueueFile(endpoint), rng

    def write(self) -> None:
        rng, file = self._rng, self._file
        place, row = rng.choice((*PLACES, rng.randrange(MESSAGES))), rng.randrange(5)
        at = rng.choice(
            (
                file.word(place),
                file.word(place),
                file.head(place, rng.randrange(8)),
                file.row(row, rng.randrange(24)),
                file.entered(rng.randrange(file.blocks)),
                READY_COUNT,
                rng.randrange(BITS, BITS + 256, 8),
                8 * rng.randrange(HEADER // 8),
            )
        )
        file.write(at, random_word(rng))


def round_of(endpoint: str, rng: random.Random) -> None:
    with MessageQueue(endpoint, max_messages=MESSAGES, max_message_size=SIZE) as queue:
        scribbler, others, jobs = Scribbler(endpoint, rng), [queue], []
        for _ in range(60):
            for _ in range(rng.randrange(4)):
                scribbler.write()
            someone = rng.choice(others)
            match rng.randrange(20):
                case 0:
                    newcomer = call_with_time_limit(MessageQueue, endpoint)
                    others += [] if isinstance(newcomer, IpcError) else [newcomer]
                case 1:
                    if someone is not queue:
                        others.remove(someone)
                        call_with_time_limit(someone.close)
                case 2:
                    job = call_with_time_limit(someone.take, 0, lease=rng.choice((None, 0.001)))
                    jobs += [] if job is None or isinstance(job, IpcError) else [job]
                case 3:
                    if jobs:
                        call_with_time_limit(getattr(jobs.pop(), rng.choice(("ack", "nack"))))
                case _:
                    call_with_time_limit(rng.choice(CALLS), someone)
        for each in others:
            call_with_time_limit(each.close)
    (SHM / f"msgqjobs_{endpoint}").unlink()


def run_hostile_rounds(endpoint: str, seed: int, count: int) -> int:
    """Child: so many rounds; it dies of anything but our errors."""
    for number in range(count):
        round_of(f"{endpoint}-{number}", random.Random(f"{seed}/{number}"))
    return count


@pytest.mark.parametrize("count", [30, pytest.param(500, marks=pytest.mark.ci)])
def test_queue_calls_do_not_crash_with_random_bytes_anywhere(endpoint: str, seed: int, count: int) -> None:
    try:
        assert run_child(run_hostile_rounds, endpoint, seed, count) == count
    finally:
        for path in SHM.glob(f"msgqjobs_{endpoint}-*"):
            path.unlink()


def test_queue_under_constant_random_writes_stays_usable(queue: MessageQueue, endpoint: str) -> None:
    """Another thread writes without a pause, where receivers look twice."""
    file, over = QueueFile(endpoint), threading.Event()

    def scribble() -> None:
        rng = random.Random(2)
        while not over.is_set():
            file.write(READY_COUNT, rng.getrandbits(64))
            file.write(file.word(rng.randrange(MESSAGES)), READY_BIT | rng.getrandbits(63))
            file.write(file.word(rng.randrange(MESSAGES)), rng.choice((0, HELD_BITS)))
            file.write(file.entered(rng.randrange(3)), rng.getrandbits(64))

    stranger = Task(scribble)
    until = time.monotonic() + 0.2
    while time.monotonic() < until:
        all_calls(queue)
    over.set()
    stranger.result()
    with contextlib.suppress(MessageTooLargeError):
        check_delivers(queue)
