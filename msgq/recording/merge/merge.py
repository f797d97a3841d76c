"""Messages of several logs in the order of time: as rows, or as chunks that can be copied unchanged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from msgq.errors import RecordingError
from msgq.recording.mcap_io.core import CHANNEL_CODE_UNKNOWN, TIME_MAX, ScanColumns, message_row_dtype
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.raw_chunk import RawChunk, find_raw_chunk
from msgq.recording.merge.channel_mapping import ChannelMapping
from msgq.recording.reader.log_view import LogView

_BATCH_ROWS = 1 << 16
_OVERLAPPING_BLOCKS_MAX = 4  # largest chunks whose messages may wait at the same time
_PENDING_BLOCKS_MAX = 4096  # each new block is compared with all of these blocks
_RowArray = np.ndarray[Any, Any]


class CopyableChunk(NamedTuple):
    """A chunk that can be copied unchanged: all of its messages are wanted, and its ids have the same meaning."""

    log_number: int
    mcap_file: McapFile
    raw_chunk: RawChunk


class DecodedRows(NamedTuple):
    """Wanted messages as rows of dtype `message_row_dtype()`, and the buffers of their payloads."""

    message_rows: _RowArray
    payload_contents: list[bytes]


@dataclass(slots=True)
class _PendingBlock:
    """Messages of a block in the order of log_time. Row `next_row` is the next one to write."""

    block_content: bytes
    message_rows: _RowArray
    log_times: np.ndarray[Any, np.dtype[np.int64]]
    next_row: int = 0

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the block occupies."""
        return len(self.block_content) + self.message_rows.nbytes + self.log_times.nbytes

    def pop_rows_until(self, time: int) -> _RowArray:
        """Remove and return the rows whose log_time is at most `time`."""
        begin, self.next_row = self.next_row, int(np.searchsorted(self.log_times, time, "right"))
        return self.message_rows[begin : self.next_row]


class LogMerger:
    """Iterates over the messages of several logs in the order of log_time.

    At equal times, the order of logs and files counts.

    Memory is limited. If too many blocks overlap in time, the oldest rows are yielded early, out of order.
    """

    def __init__(self, logs: Sequence[LogView], channels: ChannelMapping, compression: str | None) -> None:
        """Prepare. `compression`: required compression of copied chunks; None: any."""
        self._logs, self._channel_mapping, self._compression = logs, channels, compression
        self._scan_columns = ScanColumns(_BATCH_ROWS)
        self._pending_blocks: list[_PendingBlock] = []
        self._max_chunk_bytes = _OVERLAPPING_BLOCKS_MAX * max(log.max_chunk_bytes for log in logs)

    def __iter__(self) -> Iterator[CopyableChunk | DecodedRows]:
        blocks = [(number, *pair) for number, log in enumerate(self._logs) for pair in log.iter_wanted_blocks()]
        blocks.sort(key=lambda pending: pending[2].start_time)
        nexts = [block.start_time for _, _, block in blocks[1:]] + [TIME_MAX] * bool(blocks)
        for (number, file, block), following in zip(blocks, nexts, strict=True):
            yield from self._pop_rows_until(block.start_time)
            copyable = None if self._pending_blocks else self._find_copyable_chunk(number, file, block, following)
            if copyable is not None:
                yield copyable
                continue
            pending = self._read_pending_block(number, file, block)
            if pending is not None:
                self._pending_blocks.append(pending)
            while (
                len(self._pending_blocks) > _PENDING_BLOCKS_MAX
                or sum(entry.memory_bytes for entry in self._pending_blocks) > self._max_chunk_bytes
            ):
                yield from self._pop_rows_until(min(int(entry.log_times[-1]) for entry in self._pending_blocks))
        yield from self._pop_rows_until(TIME_MAX)

    def _pop_rows_until(self, time: int) -> Iterator[DecodedRows]:
        """Yield the pending rows whose log_time is at most `time`."""
        parts = [
            (pending.block_content, rows)
            for pending in self._pending_blocks
            if len(rows := pending.pop_rows_until(time))
        ]
        self._pending_blocks = [
            pending for pending in self._pending_blocks if pending.next_row < len(pending.message_rows)
        ]
        if not parts:
            return
        for number, (_, rows) in enumerate(parts):
            rows["content_index"] = number
        together = parts[0][1]
        if len(parts) > 1:
            together = np.concatenate([rows for _, rows in parts])
            together = together[np.argsort(together["log_time"], kind="stable")]
        yield DecodedRows(together, [content for content, _ in parts])

    def _find_copyable_chunk(
        self, number: int, file: McapFile, block: DataBlock, following: int
    ) -> CopyableChunk | None:
        """Return the chunk if it can be copied unchanged. `following`: start time of the next chunk."""
        log, described = self._logs[number], file.registry
        if not block.is_chunk or not block.channel_ids or block.end_time > following or file.has_compressed_payloads:
            return None
        if not file.knows_all_channels:  # the chunk may declare a channel that the new file would not count
            return None
        codes = [
            int(described.channel_codes[channel_id]) if channel_id in described.channels else CHANNEL_CODE_UNKNOWN
            for channel_id in block.channel_ids
        ]
        if min(codes) < 0 or not self._channel_mapping.map_file(number, file).is_unchanged:
            return None
        if not log.start_time <= block.start_time <= block.end_time < log.end_time:
            return None
        try:
            with file.file_source.open_bytes() as source:
                chunk = find_raw_chunk(source, block)
        except RecordingError:  # the read of the chunk reports the problem
            return None
        if chunk is None or self._compression not in (None, chunk.compression):
            return None
        if file.on_bytes_read is not None:
            file.on_bytes_read(block.stored_bytes)
        return CopyableChunk(number, file, chunk)

    def _read_pending_block(self, number: int, file: McapFile, block: DataBlock) -> _PendingBlock | None:
        """Return the wanted messages of a block; None: no message."""
        pieces = []
        content = b""
        for content in self._logs[number].scan_block(file, block, self._scan_columns):
            columns = self._scan_columns
            rows = np.empty(columns.row_count, message_row_dtype())
            if columns.row_count:
                rows["channel"] = self._channel_mapping.map_rows(number, file, content, columns)
            for name in ("log_time", "publish_time", "origin_time", "offset", "length", "sequence"):
                rows[name] = getattr(columns, name)[: columns.row_count]
            pieces.append(rows)
        rows = np.concatenate(pieces) if pieces else np.empty(0, message_row_dtype())
        if not len(rows):
            return None
        times = np.ascontiguousarray(rows["log_time"])
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows[order], times[order]
        return _PendingBlock(content, rows, times)
