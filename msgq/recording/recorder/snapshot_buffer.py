"""Latest chunks in memory, for snapshots."""

from __future__ import annotations

import time
from collections import deque

from msgq.recording.mcap_io.core import ChunkBuffer


class SnapshotBuffer:
    """Keeps the latest chunks in memory, for snapshots."""

    def __init__(self, seconds: float | None, size: int | None) -> None:
        """Set the limits in seconds and bytes; None: no limit."""
        self._max_seconds = seconds
        self._max_bytes = size
        self._chunks: deque[tuple[float, ChunkBuffer]] = deque()
        self.buffered_bytes = 0

    def add_chunk(self, chunk: ChunkBuffer) -> list[ChunkBuffer]:
        """Keep a chunk. Return the chunks that exceed the limits now."""
        now = time.monotonic()
        self._chunks.append((now, chunk))
        self.buffered_bytes += chunk.used_bytes
        dropped = []
        while len(self._chunks) > 1 and (
            (self._max_seconds is not None and now - self._chunks[0][0] > self._max_seconds)
            or (self._max_bytes is not None and self.buffered_bytes > self._max_bytes)
        ):
            _, old = self._chunks.popleft()
            self.buffered_bytes -= old.used_bytes
            dropped.append(old)
        return dropped

    def drain_chunks(self) -> list[ChunkBuffer]:
        """Remove and return all chunks, oldest first."""
        chunks = [chunk for _, chunk in self._chunks]
        self._chunks.clear()
        self.buffered_bytes = 0
        return chunks
