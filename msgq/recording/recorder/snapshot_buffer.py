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
        self._chunks.append((time.monotonic(), chunk))
        self.buffered_bytes += chunk.used_bytes
        dropped = self.drop_old_chunks()
        while len(self._chunks) > 1 and self._max_bytes is not None and self.buffered_bytes > self._max_bytes:
            dropped.append(self._drop_oldest_chunk())
        return dropped

    def drop_old_chunks(self) -> list[ChunkBuffer]:
        """Remove and return the chunks that are too old now, also if no chunk has been added since."""
        dropped: list[ChunkBuffer] = []
        if self._max_seconds is not None:
            oldest_s = time.monotonic() - self._max_seconds
            while self._chunks and self._chunks[0][0] < oldest_s:
                dropped.append(self._drop_oldest_chunk())
        return dropped

    def _drop_oldest_chunk(self) -> ChunkBuffer:
        _, oldest = self._chunks.popleft()
        self.buffered_bytes -= oldest.used_bytes
        return oldest

    def drain_chunks(self) -> list[ChunkBuffer]:
        """Remove and return all chunks, oldest first."""
        chunks = [chunk for _, chunk in self._chunks]
        self._chunks.clear()
        self.buffered_bytes = 0
        return chunks
