"""The floor: a toy ring in C behind the smallest extension. One reader, nothing checked."""

# The methods are described in base.py.
# ruff: noqa: D102

import itertools
import mmap
from typing import Any

from tools.bench.adapters.base import Call, Publisher, Subscriber, System, Topic, unlink
from tools.bench.floor import build


class Floor(System):
    """It waits for its reader's cursor where nothing may be lost, so it needs no credits."""

    name = "floor"
    lossless = True
    readers = range(2)

    def __init__(self, topic: Topic) -> None:
        super().__init__(topic)
        self.ring = build.load(topic.folder).Ring
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

    def open_both(self) -> Any:
        return self.ring(self.path, self.bytes), self.ring(self.path, self.bytes)

    def remove(self) -> None:
        unlink(self.path)
