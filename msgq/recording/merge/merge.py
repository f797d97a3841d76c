"""The messages of several logs as rows in the order of their time, or as chunks that can be copied as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from msgq.errors import RecordingError
from msgq.recording.mcap_io.core import CODE_UNKNOWN, ROW_DTYPE, TIME_MAX, ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.raw_chunk import RawChunk, find_raw_chunk
from msgq.recording.merge.channel_mapping import ChannelMapping
from msgq.recording.reader.log_view import LogView

_BATCH_ROWS = 1 << 16
_OVERLAP_BLOCKS = 4  # largest chunks whose messages may wait at the same time
_PENDING_BLOCKS_MAX = 4096  # blocks; each of them is looked at for each that begins
_RowArray = np.ndarray[Any, Any]


class CopyableChunk(NamedTuple):
    """A chunk all of whose messages are wanted, and which means the same in the new file."""

    log: int
    file: McapFile
    chunk: RawChunk


class DecodedRows(NamedTuple):
    """Messages that are wanted, of dtype ROW_DTYPE, and the bytes that they lie in."""

    rows: _RowArray
    contents: list[bytes]


@dataclass(slots=True)
class _PendingBlock:
    """Messages of a block in the order of log_time, from row `done` on."""

    content: bytes
    rows: _RowArray
    times: np.ndarray[Any, np.dtype[np.int64]]
    done: int = 0

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.content) + self.rows.nbytes + self.times.nbytes

    def pop_until(self, time: int) -> _RowArray:
        """Return the rows whose log_time is not behind `time`, once."""
        begin, self.done = self.done, int(np.searchsorted(self.times, time, "right"))
        return self.rows[begin : self.done]


class LogMerger:
    """Messages of several logs, in the order of log_time; those of one time are in the order of logs and files.

    The memory is bounded. Where more overlaps in time than may wait, the oldest that waits goes on, out of order.
    """

    def __init__(self, logs: Sequence[LogView], channels: ChannelMapping, compression: str | None) -> None:
        """Begin. compression : that a chunk must have to be copied as it is; None: any."""
        self._logs, self._channels, self._compression = logs, channels, compression
        self._columns = ScanColumns(_BATCH_ROWS)
        self._pending: list[_PendingBlock] = []
        self._max_chunk_bytes = _OVERLAP_BLOCKS * max(log.max_chunk_bytes for log in logs)

    def __iter__(self) -> Iterator[CopyableChunk | DecodedRows]:
        blocks = [(number, *pair) for number, log in enumerate(self._logs) for pair in log.blocks()]
        blocks.sort(key=lambda pending: pending[2].start_time)
        nexts = [block.start_time for _, _, block in blocks[1:]] + [TIME_MAX] * bool(blocks)
        for (number, file, block), following in zip(blocks, nexts, strict=True):
            yield from self._pop_until(block.start_time)
            copyable = None if self._pending else self._find_copyable_chunk(number, file, block, following)
            if copyable is not None:
                yield copyable
                continue
            pending = self._read_block(number, file, block)
            if pending is not None:
                self._pending.append(pending)
            while (
                len(self._pending) > _PENDING_BLOCKS_MAX
                or sum(entry.size for entry in self._pending) > self._max_chunk_bytes
            ):
                yield from self._pop_until(min(int(entry.times[-1]) for entry in self._pending))
        yield from self._pop_until(TIME_MAX)

    def _pop_until(self, time: int) -> Iterator[DecodedRows]:
        """Give what waits and is not behind `time`."""
        parts = [(pending.content, rows) for pending in self._pending if len(rows := pending.pop_until(time))]
        self._pending = [pending for pending in self._pending if pending.done < len(pending.rows)]
        if not parts:
            return
        for number, (_, rows) in enumerate(parts):
            rows["content"] = number
        together = parts[0][1]
        if len(parts) > 1:
            together = np.concatenate([rows for _, rows in parts])
            together = together[np.argsort(together["log_time"], kind="stable")]
        yield DecodedRows(together, [content for content, _ in parts])

    def _find_copyable_chunk(
        self, number: int, file: McapFile, block: DataBlock, following: int
    ) -> CopyableChunk | None:
        """Return a chunk that can be copied as it is; `following` is when the next one begins."""
        log, described = self._logs[number], file.registry
        if not block.is_chunk or not block.channel_ids or block.end_time > following or file.has_compressed_payloads:
            return None
        codes = [
            int(described.channel_codes[channel_id]) if channel_id in described.channels else CODE_UNKNOWN
            for channel_id in block.channel_ids
        ]
        if min(codes) < 0 or not self._channels.map_file(number, file).unchanged:
            return None
        if not log.start <= block.start_time <= block.end_time < log.end:
            return None
        try:
            with file.file_source.open_descriptor() as fd:
                chunk = find_raw_chunk(fd, block)
        except RecordingError:  # it is said where the chunk is read
            return None
        if chunk is None or self._compression not in (None, chunk.compression):
            return None
        if file.on_bytes_read is not None:
            file.on_bytes_read(block.stored_bytes)
        return CopyableChunk(number, file, chunk)

    def _read_block(self, number: int, file: McapFile, block: DataBlock) -> _PendingBlock | None:
        """Return the wanted messages of a block; None: there are none."""
        pieces = []
        content = b""
        for content in self._logs[number].scan_block(file, block, self._columns):
            columns = self._columns
            rows = np.empty(columns.rows, ROW_DTYPE)
            if columns.rows:
                rows["channel"] = self._channels.map_rows(number, file, content, columns)
            for name in ("log_time", "publish_time", "origin_time", "offset", "length", "sequence"):
                rows[name] = getattr(columns, name)[: columns.rows]
            pieces.append(rows)
        rows = np.concatenate(pieces) if pieces else np.empty(0, ROW_DTYPE)
        if not len(rows):
            return None
        times = np.ascontiguousarray(rows["log_time"])
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows[order], times[order]
        return _PendingBlock(content, rows, times)
