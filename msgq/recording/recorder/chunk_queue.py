"""Queue of chunks between the thread that fills them and the thread that writes them."""

from __future__ import annotations

import threading
from collections import deque

from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder.snapshot_buffer import SnapshotBuffer

_MIN_WAITING_CHUNKS = 2  # chunks of any size that may wait. Otherwise each write would stop the filling thread
_SPARE_CHUNKS_MAX = 8  # written chunks that are kept and filled again


class ChunkQueue:
    """Chunks that are recorded and not written yet.

    One thread fills, one thread writes, any thread may read the counters.

    The queue is limited. If it is full, the filling thread waits for the writing thread, and new messages stay in the
    rings. With a snapshot buffer, the filling thread never waits, and chunks wait for writing only after
    `release_snapshot`.
    """

    def __init__(self, max_bytes: int, chunk_bytes: int, snapshot_buffer: SnapshotBuffer | None) -> None:
        """Start empty.

        Args:
            max_bytes: maximum bytes of waiting chunks. Two chunks may always wait.
            chunk_bytes: minimum bytes of a full chunk.
            snapshot_buffer: keeps chunks until `release_snapshot`; None: write all chunks.
        """
        self._max_bytes, self._chunk_bytes, self._snapshot_buffer = max_bytes, chunk_bytes, snapshot_buffer
        self._waiting_chunks: deque[ChunkBuffer] = deque()
        self._unwritten_chunks = self._unwritten_bytes = 0  # waiting chunks, and the chunk that is being written
        self._open_chunk: ChunkBuffer | None = None
        self._spare_chunks: list[ChunkBuffer] = []
        self._is_input_ended = self._is_abandoned = False
        self._state_changed = threading.Condition()

    # ---- counters ----

    @property
    def waiting_bytes(self) -> int:
        """Bytes of chunks that are put and not written yet, including chunks in the snapshot buffer."""
        return self._unwritten_bytes + (
            self._snapshot_buffer.buffered_bytes if self._snapshot_buffer is not None else 0
        )

    @property
    def at_risk_bytes(self) -> int:
        """Bytes that a kill would cost now: `waiting_bytes` and the open chunk."""
        with self._state_changed:
            return self.waiting_bytes + (self._open_chunk.used_bytes if self._open_chunk is not None else 0)

    @property
    def is_idle(self) -> bool:
        """True if all chunks for the writing thread are written."""
        return not self._unwritten_chunks

    # ---- the filling thread ----

    @property
    def open_chunk(self) -> ChunkBuffer | None:
        """The chunk that is being filled; None: no open chunk."""
        return self._open_chunk

    def open_next_chunk(self, largest: int) -> ChunkBuffer:
        """Return an empty chunk to fill. `largest`: maximum payload bytes of its largest message."""
        with self._state_changed:
            while self._spare_chunks:
                self._open_chunk = self._spare_chunks.pop()
                if self._open_chunk.capacity_bytes >= self._chunk_bytes + largest:
                    return self._open_chunk
            self._open_chunk = ChunkBuffer(self._chunk_bytes, largest)
            return self._open_chunk

    def put_chunk(self, chunk: ChunkBuffer) -> None:
        """Add a filled chunk. Waits while the queue is full."""
        with self._state_changed:
            self._open_chunk = None
            if self._snapshot_buffer is not None:
                for old in self._snapshot_buffer.add_chunk(chunk):
                    self._keep_spare_chunk(old)
                return
            self._append_chunk(chunk)
            self._state_changed.wait_for(
                lambda: (
                    self._unwritten_bytes <= self._max_bytes
                    or self._unwritten_chunks <= _MIN_WAITING_CHUNKS
                    or self._is_abandoned
                )
            )

    def release_snapshot(self) -> None:
        """Move the chunks of the snapshot buffer to the writing thread."""
        if self._snapshot_buffer is not None:
            with self._state_changed:
                for old in self._snapshot_buffer.drop_old_chunks():
                    self._keep_spare_chunk(old)
                for chunk in self._snapshot_buffer.drain_chunks():
                    self._append_chunk(chunk)

    def _append_chunk(self, chunk: ChunkBuffer) -> None:
        self._waiting_chunks.append(chunk)
        self._unwritten_chunks += 1
        self._unwritten_bytes += chunk.used_bytes
        self._state_changed.notify_all()

    def end_input(self) -> None:
        """End the input. Chunks that are still in the snapshot buffer are discarded."""
        with self._state_changed:
            self._is_input_ended, self._open_chunk = True, None
            if self._snapshot_buffer is not None:
                self._snapshot_buffer.drain_chunks()
            self._state_changed.notify_all()

    # ---- the writing thread ----

    def get_next_chunk(self) -> tuple[ChunkBuffer, bool] | None:
        """Wait for the next chunk to write, oldest first; None: no more chunks.

        Returns:
            The chunk, and True if the chunks after it fill more than half of the queue.
        """
        with self._state_changed:
            self._state_changed.wait_for(lambda: self._waiting_chunks or self._is_input_ended)
            if not self._waiting_chunks:
                return None
            chunk = self._waiting_chunks.popleft()
            behind = self._snapshot_buffer is None and self._unwritten_bytes - chunk.used_bytes > self._max_bytes // 2
            return chunk, behind

    def recycle_chunk(self, chunk: ChunkBuffer) -> None:
        """Return a chunk whose content is no longer needed."""
        with self._state_changed:
            self._unwritten_chunks -= 1
            self._unwritten_bytes -= chunk.used_bytes
            self._keep_spare_chunk(chunk)
            self._state_changed.notify_all()

    def abandon_waits(self) -> None:
        """End the waits of the filling thread after a failure of the recording."""
        with self._state_changed:
            self._is_abandoned = True
            self._state_changed.notify_all()

    def _keep_spare_chunk(self, chunk: ChunkBuffer) -> None:
        chunk.clear_messages()
        if len(self._spare_chunks) < _SPARE_CHUNKS_MAX:
            self._spare_chunks.append(chunk)
