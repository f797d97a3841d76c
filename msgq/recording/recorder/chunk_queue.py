"""Chunks from the thread that fills them to the one that writes them, and back when they are written."""

from __future__ import annotations

import threading
from collections import deque

from msgq.recording.mcap_io.core import ChunkBuffer
from msgq.recording.recorder.snapshot_buffer import SnapshotBuffer

_MIN_WAITING_CHUNKS = 2  # may wait, however large: else who fills would stand still whenever one is written
_SPARE_CHUNKS_MAX = 8  # written ones that are kept, to be filled again


class ChunkQueue:
    """What is recorded and not written yet. One thread fills chunks, another writes them; any may ask for figures.

    How much waits is bounded: who fills waits for who writes, and the rings hold what comes meanwhile. With a buffer
    nothing waits before that is released, and then as much as it had.
    """

    def __init__(self, max_bytes: int, chunk_bytes: int, snapshot_buffer: SnapshotBuffer | None) -> None:
        """Begin, empty.

        Parameters
        ----------
        max_bytes : bytes that may wait to be written, or two chunks if these are more.
        chunk_bytes : bytes from which on a chunk is full.
        snapshot_buffer : keeps what is put until `release_snapshot`; None: it is to be written.
        """
        self._max_bytes, self._chunk_bytes, self._snapshot_buffer = max_bytes, chunk_bytes, snapshot_buffer
        self._waiting_chunks: deque[ChunkBuffer] = deque()
        self._unwritten_chunks = self._unwritten_bytes = 0  # those that wait, and the one that is being written
        self._open_chunk: ChunkBuffer | None = None
        self._spare_chunks: list[ChunkBuffer] = []
        self._is_input_ended = self._is_abandoned = False
        self._state_changed = threading.Condition()

    # ---- figures ----

    @property
    def waiting_bytes(self) -> int:
        """Of chunks that were put and are not written, those in memory included."""
        return self._unwritten_bytes + (
            self._snapshot_buffer.buffered_bytes if self._snapshot_buffer is not None else 0
        )

    @property
    def at_risk_bytes(self) -> int:
        """What a kill would cost now: all that is not written, the chunk included that is being filled."""
        with self._state_changed:
            return self.waiting_bytes + (self._open_chunk.used_bytes if self._open_chunk is not None else 0)

    @property
    def is_idle(self) -> bool:
        """Whether all that was to be written is."""
        return not self._unwritten_chunks

    # ---- the thread that fills ----

    @property
    def open_chunk(self) -> ChunkBuffer | None:
        """The chunk that is being filled; None without one."""
        return self._open_chunk

    def open_next_chunk(self, largest: int) -> ChunkBuffer:
        """Return an empty chunk to fill. largest : bytes of the largest message to be expected."""
        with self._state_changed:
            while self._spare_chunks:
                self._open_chunk = self._spare_chunks.pop()
                if self._open_chunk.capacity_bytes >= self._chunk_bytes + largest:
                    return self._open_chunk
            self._open_chunk = ChunkBuffer(self._chunk_bytes, largest)
            return self._open_chunk

    def put_chunk(self, chunk: ChunkBuffer) -> None:
        """Hand on a chunk, which is not to be filled any more; wait while too much waits."""
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
        """Let what is in memory be written."""
        if self._snapshot_buffer is not None:
            with self._state_changed:
                for chunk in self._snapshot_buffer.drain_chunks():
                    self._append_chunk(chunk)

    def _append_chunk(self, chunk: ChunkBuffer) -> None:
        self._waiting_chunks.append(chunk)
        self._unwritten_chunks += 1
        self._unwritten_bytes += chunk.used_bytes
        self._state_changed.notify_all()

    def end_input(self) -> None:
        """Say that nothing more is put. What is in memory, and was not released, is not wanted any more."""
        with self._state_changed:
            self._is_input_ended, self._open_chunk = True, None
            if self._snapshot_buffer is not None:
                self._snapshot_buffer.drain_chunks()
            self._state_changed.notify_all()

    # ---- the thread that writes ----

    def get_next_chunk(self) -> tuple[ChunkBuffer, bool] | None:
        """Wait for the next chunk to write, oldest first; None: there will be none.

        Returns
        -------
        The chunk, and whether more than half of what may wait does so behind it.
        """
        with self._state_changed:
            self._state_changed.wait_for(lambda: self._waiting_chunks or self._is_input_ended)
            if not self._waiting_chunks:
                return None
            chunk = self._waiting_chunks.popleft()
            behind = self._snapshot_buffer is None and self._unwritten_bytes - chunk.used_bytes > self._max_bytes // 2
            return chunk, behind

    def recycle_chunk(self, chunk: ChunkBuffer) -> None:
        """Give back a chunk that needs not be kept any more."""
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
