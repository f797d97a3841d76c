"""The floor: a toy ring in C behind the smallest extension. Nothing is checked."""

import itertools
import mmap
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from tools.bench.adapters.base import Call, Polled, Publisher, Subscriber, System, Topic, Values, unlink
from tools.bench.floor import build

LINE = 64
PLACES = 2


class Floor(System):
    """A value is a memoryview of shared memory, many are arrays of NumPy.

    The ring waits for its reader's cursor where nothing may be lost, so it needs no credits.
    """

    name = "floor"
    lossless = True
    readers = range(64)
    shares_values = True  # whatever comes of it

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.module = build.load(topic.folder)
        self.ring = self.module.Ring
        self.path = f"/dev/shm/{topic.name}"
        self.bytes = max(1 << 20, topic.depth * (topic.size + 16) & ~7)

    def publisher(self) -> Publisher:
        ring = self.ring(self.path, self.bytes)
        lossless = Call(ring.send_lossless, "message")
        return Publisher(Call(ring.send, "message"), stream=lossless, wake=Call(ring.send_waking, "message"))

    def subscriber(self) -> Subscriber:
        ring = self.ring(self.path, self.bytes)
        room = bytearray(self.topic.size)
        return Subscriber(
            Call(ring.receive), Call(ring.receive_blocking), in_place=Call(lambda: ring.receive_into(room))
        )

    @classmethod
    def poll(cls, systems: Sequence[Any]) -> Polled:
        rings = tuple(system.ring(system.path, system.bytes) for system in systems)
        return Polled(Call(partial(systems[0].module.poll, rings), "timeout"), Call(None, form="ready.receive()"))

    def frame_publisher(self) -> Publisher:
        import numpy as np

        ring, size = self.ring(self.path, 1 << 20), self.topic.size
        buffers = [np.frombuffer(mmap.mmap(-1, size), np.uint8) for _ in range(self.topic.depth)]
        next_buffer = itertools.cycle(buffers).__next__

        def copy(message: bytes) -> None:
            np.copyto(next_buffer(), np.frombuffer(message, np.uint8))

        return Publisher(Call(copy, "message"), wake=Call(ring.send_waking, "message[:64]"))

    def frame_subscriber(self) -> Subscriber:
        ring = self.ring(self.path, 1 << 20)
        return Subscriber(Call(ring.receive), Call(ring.receive_blocking))

    def writing(self, number: int = 0) -> Call:
        return Call(self._line(number), "message", "CALL[:] = ARGUMENTS")

    def reading(self, number: int = 0) -> Call:
        return Call(self._line(number), form="bytes(CALL)")

    def values(self) -> Values:
        import numpy as np

        kind, depth = np.dtype((np.void, self.topic.size)), self.topic.depth
        rows, memory, room = (np.zeros(depth, kind) for _ in range(3))
        counts = np.ones((depth, LINE // 8), np.uint64)[:, 0]
        seen, few = counts.copy(), slice(None, None, depth // 8)
        copy = Call(np.copyto, "*message")

        def touch() -> None:
            counts[few] += 1

        def find() -> Any:
            where = np.flatnonzero(counts != seen)
            seen[where] = counts[where]
            return where

        return Values((memory, rows), (room, memory), copy, copy, copy, Call(touch), Call(find))

    def open_both(self) -> Any:
        return self.ring(self.path, self.bytes), self.ring(self.path, self.bytes)

    def remove(self) -> None:
        unlink(self.path)

    def _line(self, number: int) -> memoryview:
        """Return shared memory for one value, in lines of its own."""
        stride = -(-self.topic.size // LINE) * LINE
        file = os.open(f"{self.path}.values", os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(file, PLACES * stride)
        memory = memoryview(mmap.mmap(file, PLACES * stride))
        os.close(file)
        return memory[number * stride :][: self.topic.size]
