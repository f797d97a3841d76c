"""The file of a work queue: its constants and parts, written from docs/internals/queue-protocol.md alone."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.independent.shared_file import (
    SHM,
    WAITERS,
    CorruptFileError,
    EventCount,
    SharedFile,
    align,
    atomics,
    host_time_ns,
    padded,
)

# "Constants", "The header" and "A row"
MAGIC, VERSION = 0x3153424F4A515347, 1 << 32
HEADER = struct.Struct("<8Q64sQQ")
HEADER_BYTES, LINE, BLOCK = 57344, 64, 64
READY_COUNT, SLEEPING_ROWS, NOTIFY_REQUESTED, NOTIFY_SEQ, LAST_TICKET, HANDOFF = 256, 320, 368, 384, 448, 512
DELAY_COUNT = 536
ROWS, ROW_BYTES, ROW_COUNT = 4096, 256, 128
GENERATION, COUNTS_BEFORE, TAKE_COUNT, COUNTS, NOTIFY_DEBT, EVENTCOUNTS, OLDEST_TICKET = 64, 72, 128, 136, 176, 192, 216
SENT, RECEIVED, ACKNOWLEDGED, RETURNED, REFUSED = range(COUNTS, COUNTS + 40, 8)
RECEIVER, WATCHER, SENDER = range(3)
PRIORITY_MAX, ORDER_MASK, TICK_NS = 32767, (1 << 48) - 1, 10_000_000
# "States"
FREE, FILLING, TAKEN, DELAYED, READY = 0, 1 << 61, 1 << 62, 3 << 61, 1 << 63
OWNER_MASK = 0xFFFFFF << 32
# "A head"
KEY, LENGTH, DELIVERIES, SENT_TIME, ORIGIN_TIME, LEASE, HEAD_BYTES = 0, 8, 16, 24, 32, 40, 64


def path_of(name: str) -> Path:
    return SHM / f"msgqjobs_{name}"


def create_queue(name: str, max_messages: int, max_message_size: int) -> None:
    """Create the file complete, then give it its name ("Creating and opening")."""
    sizes = Sizes(max_messages, max_message_size)
    file = SharedFile.create_unnamed(sizes.total)
    creator = padded(Path("/proc/self/comm").read_text().strip(), 64)
    fields = (VERSION, HEADER_BYTES, sizes.total, host_time_ns(), os.getpid(), max_messages, max_message_size)
    file.write(0, HEADER.pack(0, *fields, creator, sizes.stride, 0))
    file.store(0, MAGIC)
    file.link(path_of(name))
    file.close()


class Sizes:
    """Where the parts after the header are ("The header")."""

    def __init__(self, max_messages: int, max_message_size: int) -> None:
        self.stride = align(max_message_size, LINE)
        self.words = HEADER_BYTES + align(-(-max_messages // BLOCK) * 8, LINE)
        self.heads = self.words + align(max_messages * 8, LINE)
        self.payloads = self.heads + max_messages * HEAD_BYTES
        self.total = self.payloads + max_messages * self.stride


class QueueFile:
    """A queue that is open: its slots, and how sleepers are woken."""

    def __init__(self, name: str) -> None:
        self.path = path_of(name)
        self.file = SharedFile.open(self.path)
        header: tuple[int, ...] = HEADER.unpack(self.file.read(0, HEADER.size))
        magic, version, header_bytes, total, _, _, self.max_messages, self.max_message_size, _, stride, events = header
        self.sizes = Sizes(self.max_messages, self.max_message_size)
        if magic != MAGIC or version >> 32 != VERSION >> 32 or events:
            raise CorruptFileError(f"{name} is not a queue of version 1 without events")
        if (header_bytes, total, total, stride) != (HEADER_BYTES, self.file.size, self.sizes.total, self.sizes.stride):
            raise CorruptFileError(f"{name} has {self.file.size} bytes")

    def word(self, slot: int) -> int:
        return self.sizes.words + slot * 8

    def head(self, slot: int) -> int:
        return self.sizes.heads + slot * HEAD_BYTES

    def payload(self, slot: int) -> int:
        return self.sizes.payloads + slot * self.sizes.stride

    # --- The best message: steps 1 to 3 of "Receiving" ----------------------------------------------------------------

    def find_best(self) -> tuple[int, int]:
        """1 to 3: the slot of the largest READY word, and the word; 0: there is none."""
        last = None
        while True:
            ready_count = self.file.load(READY_COUNT)  # EDGE sent
            words = [self.file.load(self.word(slot)) for slot in range(self.max_messages)]
            best = max(words)
            found = (words.index(best), best) if best & READY else (0, 0)
            atomics().fence()
            if self.file.load(READY_COUNT) == ready_count or found == last:
                return found
            last = found

    # --- Sleeping and waking, Notification ----------------------------------------------------------------------------

    def wake(self, kind: int) -> None:
        """Wake the row that has waited longest and that no other waker wakes, or each row that watches."""
        for _, at in sorted(self._announced_rows(kind)):
            is_counted = EventCount(self.file, at + EVENTCOUNTS + 4 * kind).notify()
            if is_counted and kind != WATCHER:
                return

    def _announced_rows(self, kind: int) -> Iterator[tuple[int, int]]:
        """Yield the tickets and places of rows that sleep."""
        for half in (0, 64):
            bits = self.file.load(SLEEPING_ROWS + 16 * kind + half // 8)
            for row in (half + bit for bit in range(bits.bit_length()) if bits >> bit & 1):
                at = ROWS + row * ROW_BYTES
                if self.file.load32(at + EVENTCOUNTS + 4 * kind) & WAITERS:
                    yield self.file.load(at + OLDEST_TICKET + 8 * kind), at  # EDGE ticket

    def notify_empty_queue(self) -> None:
        """Notify whoever requested it; without a proof that the queue was not empty, notify ("Notification")."""
        atomics().fence()
        if any(self.file.load(NOTIFY_REQUESTED + offset) for offset in (0, 8)):
            self.file.add32(NOTIFY_SEQ, 1)
            self.file.futex_wake(NOTIFY_SEQ)

    def end_handoff(self, kind: int, handoff: int) -> None:
        if self.file.exchange(HANDOFF + 8 * kind, handoff, 0):
            atomics().fence()
            words = [self.file.load(self.word(slot)) for slot in range(self.max_messages)]
            for _ in range(sum(word == FREE if kind == SENDER else word >= READY for word in words)):
                self.wake(kind)
            if any(word >= READY for word in words):
                self.notify_empty_queue()
