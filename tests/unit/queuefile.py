"""A work queue's file as a stranger writes it: any word, at any time."""

from __future__ import annotations

import mmap
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msgq.errors import IpcError, QueueFullError
from msgq.workqueue import MessageQueue
from tests.support import DEADLINE, SHM

HEADER = 57344
ROWS, ROW_BYTES, SCHEMA = 4096, 256, 36864
READY_COUNT, BITS, ARRIVED, TICKETS, TURNS = 256, 320, 384, 448, 512
ATTENTION = ROWS + 192  # offset of the first row's word
READY_BIT, HELD_BITS, TAKEN_BITS = 1 << 63, 1 << 61, 2 << 61
#: Values at which arithmetic goes wrong.
EDGES = (0, 1, 64, 2**16, 2**31, 2**32 - 1, 2**48, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


#: The queues that are written to: two whole blocks, and the beginning of a third.
MESSAGES, SIZE = 130, 64
CALL_SECONDS = DEADLINE  # a call waits 10 ms at most, but a busy machine may keep it from its core; a bug hangs
SANE = b"a sound message beside the nonsense"


def lines(count: int) -> int:
    return (count + 63) // 64 * 64


class QueueFile:
    """The parts of a queue's file, by name; each is a place in the file.

    Args:
        endpoint: the queue's name.
        messages: how many it holds.
    """

    def __init__(self, endpoint: str, messages: int = MESSAGES) -> None:
        self.path: Path = SHM / f"msgqjobs_{endpoint}"
        with self.path.open("r+b") as file:
            self.map = mmap.mmap(file.fileno(), 0)
        self.messages, self.blocks = messages, (messages + 63) // 64
        self._words = HEADER + lines(8 * self.blocks)
        self._heads = self._words + lines(8 * messages)

    def entered(self, block: int) -> int:
        return HEADER + 8 * block

    def word(self, place: int) -> int:
        return self._words + 8 * place

    def head(self, place: int, field: int) -> int:
        """Return where a word of a head is: 0 key, length, deliveries, sent_time, origin_time, 5 lease."""
        return self._heads + 64 * place + 8 * field

    def row(self, row: int, field: int) -> int:
        """Return where a word of a row is: 0 to 7 who it is, 8 the generation, 9 to 13 counts, 16 take."""
        return ROWS + ROW_BYTES * row + 8 * field

    def write(self, at: int, value: int) -> None:
        self.map[at : at + 8] = (value % 2**64).to_bytes(8, "little")

    def read(self, at: int) -> int:
        return int.from_bytes(self.map[at : at + 8], "little")


def words_of_all_kinds(row: int, generation: int) -> Iterator[int]:
    """Each kind of word, of an owner who lives, of others, and what is none."""
    for kind in (HELD_BITS, TAKEN_BITS):
        for owner in (row, (row + 1) % 128, 127, 128, 255):
            for since in (generation, generation + 1):
                yield kind | owner << 48 | (since & 0xFFFF) << 32
                yield kind | owner << 48 | (since & 0xFFFF) << 32 | 2**32 - 1
        yield kind | 1 << 60
    for priority in (0, 32767):
        for order in (0, 1, 2**48 - 1):
            yield READY_BIT | priority << 48 | order
    yield from EDGES
    yield 3 << 61


def random_word(rng: random.Random) -> int:
    """Return a word that steers, more often than not."""
    row, generation = rng.randrange(4), rng.randrange(4)
    word = rng.choice((HELD_BITS, TAKEN_BITS)) | row << 48 | generation << 32 | rng.randrange(3)
    ready = READY_BIT | rng.randrange(3) << 48 | 2**48 - 1 - rng.randrange(100)
    return rng.choice((word, ready, rng.getrandbits(64), rng.randrange(70), -rng.randrange(70), rng.choice(EDGES)))


# ---- calls that must end ----


def call_with_time_limit(call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call it; an error of ours is a result, too."""
    begun = time.monotonic()
    try:
        result = call(*args, **options)
    except IpcError as error:
        result = error
    assert time.monotonic() - begun < CALL_SECONDS, call
    return result


def take_and(end: str, queue: MessageQueue, **options: Any) -> None:
    job = queue.take(0, **options)
    if job is not None:
        getattr(job, end)()


CALLS: tuple[Callable[[MessageQueue], Any], ...] = (
    lambda queue: queue.send(b"1", timeout=0),
    lambda queue: queue.send(b"2", 32767, timeout=0.002),
    lambda queue: queue.send_many([b"3", b"4"], timeout=0),
    lambda queue: queue.receive(0),
    lambda queue: queue.receive(0.002),
    lambda queue: queue.receive_into(bytearray(SIZE), 0),
    lambda queue: queue.receive_into(bytearray(0), 0),
    lambda queue: queue.receive_many(3),
    lambda queue: take_and("ack", queue),
    lambda queue: take_and("nack", queue),
    lambda queue: take_and("ack", queue, lease=0.001),
    lambda queue: queue.wait_space(0),
    lambda queue: queue.peek(5),
    lambda queue: (queue.current_messages, queue.in_flight, repr(queue)),
    lambda queue: queue.schema,
)


def all_calls(queue: MessageQueue) -> None:
    for call in CALLS:
        call_with_time_limit(call, queue)


def check_delivers(queue: MessageQueue, receiver: MessageQueue | None = None) -> None:
    """A sound message goes through, or there is no room for it."""
    if isinstance(call_with_time_limit(queue.send, SANE, timeout=0), QueueFullError):
        return
    receiver = receiver or queue
    for _ in range(2 * MESSAGES):
        message = call_with_time_limit(receiver.receive, 2.0)
        assert message is not None
        if not isinstance(message, IpcError) and message.data == SANE:
            return
    raise AssertionError("it did not come")


def free_all_slots(file: QueueFile) -> None:
    """Make all places free, as nobody but a stranger can."""
    for place in range(MESSAGES):
        file.write(file.word(place), 0)
