"""The messages of several logs as rows in the order of their time, or as chunks that can be copied as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from msgq.errors import RecordingError
from msgq.recording.mcap_io.chunk_buffer import ROW
from msgq.recording.mcap_io.mcap_file import DataBlock, McapFile
from msgq.recording.mcap_io.raw_chunk import RawChunk, find_raw_chunk
from msgq.recording.mcap_io.scan import TIME_MAX, UNKNOWN, ScanColumns
from msgq.recording.merge.channel_mapping import NewChannels
from msgq.recording.reader.log_view import Contents

_ROWS = 1 << 16
_OVERLAP = 4  # largest chunks whose messages may wait at the same time
_WAITING_MAX = 4096  # blocks; each of them is looked at for each that begins
_Rows = np.ndarray[Any, Any]


class Untouched(NamedTuple):
    """A chunk all of whose messages are wanted, and which means the same in the new file."""

    log: int
    file: McapFile
    found: RawChunk


class Touched(NamedTuple):
    """Messages that are wanted, of dtype ROW, and the bytes that they lie in."""

    rows: _Rows
    contents: list[bytes]


@dataclass(slots=True)
class _Waiting:
    """Messages of a block in the order of log_time, from row `done` on."""

    content: bytes
    rows: _Rows
    times: np.ndarray[Any, np.dtype[np.int64]]
    done: int = 0

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.content) + self.rows.nbytes + self.times.nbytes

    def until(self, time: int) -> _Rows:
        """Return the rows whose log_time is not behind `time`, once."""
        begin, self.done = self.done, int(np.searchsorted(self.times, time, "right"))
        return self.rows[begin : self.done]


class Merge:
    """Messages of several logs, in the order of log_time; those of one time are in the order of logs and files.

    The memory is bounded. Where more overlaps in time than may wait, the oldest that waits goes on, out of order.
    """

    def __init__(self, logs: Sequence[Contents], channels: NewChannels, compression: str | None) -> None:
        """Begin. compression : that a chunk must have to be copied as it is; None: any."""
        self._logs, self._channels, self._compression = logs, channels, compression
        self._columns = ScanColumns(_ROWS)
        self._waiting: list[_Waiting] = []
        self._most = _OVERLAP * max(log.max_chunk_bytes for log in logs)

    def __iter__(self) -> Iterator[Untouched | Touched]:
        blocks = [(number, *pair) for number, log in enumerate(self._logs) for pair in log.blocks()]
        blocks.sort(key=lambda found: found[2].start)
        nexts = [block.start for _, _, block in blocks[1:]] + [TIME_MAX] * bool(blocks)
        for (number, file, block), following in zip(blocks, nexts, strict=True):
            yield from self._until(block.start)
            untouched = None if self._waiting else self._untouched(number, file, block, following)
            if untouched is not None:
                yield untouched
                continue
            found = self._read(number, file, block)
            if found is not None:
                self._waiting.append(found)
            while len(self._waiting) > _WAITING_MAX or sum(one.size for one in self._waiting) > self._most:
                yield from self._until(min(int(one.times[-1]) for one in self._waiting))
        yield from self._until(TIME_MAX)

    def _until(self, time: int) -> Iterator[Touched]:
        """Give what waits and is not behind `time`."""
        found = [(one.content, rows) for one in self._waiting if len(rows := one.until(time))]
        self._waiting = [one for one in self._waiting if one.done < len(one.rows)]
        if not found:
            return
        for number, (_, rows) in enumerate(found):
            rows["content"] = number
        together = found[0][1]
        if len(found) > 1:
            together = np.concatenate([rows for _, rows in found])
            together = together[np.argsort(together["log_time"], kind="stable")]
        yield Touched(together, [content for content, _ in found])

    def _untouched(self, number: int, file: McapFile, block: DataBlock, following: int) -> Untouched | None:
        """Return a chunk that can be copied as it is; `following` is when the next one begins."""
        log, described = self._logs[number], file.registry
        if not block.is_chunk or not block.channels or block.end > following or file.has_compressed_payloads:
            return None
        codes = [int(described.codes[one]) if one in described.channels else UNKNOWN for one in block.channels]
        if min(codes) < 0 or not self._channels.of(number, file).unchanged:
            return None
        if not log.start <= block.start <= block.end < log.end:
            return None
        try:
            with file.source.open() as fd:
                found = find_raw_chunk(fd, block)
        except RecordingError:  # it is said where the chunk is read
            return None
        if found is None or self._compression not in (None, found.compression):
            return None
        if file.on_read is not None:
            file.on_read(block.length)
        return Untouched(number, file, found)

    def _read(self, number: int, file: McapFile, block: DataBlock) -> _Waiting | None:
        """Return the wanted messages of a block; None: there are none."""
        pieces = []
        content = b""
        for content in self._logs[number].scan_block(file, block, self._columns):
            columns = self._columns
            rows = np.empty(columns.rows, ROW)
            if columns.rows:
                rows["channel"] = self._channels.numbers(number, file, content, columns)
            for name in ("log_time", "publish_time", "origin_time", "offset", "length", "sequence"):
                rows[name] = getattr(columns, name)[: columns.rows]
            pieces.append(rows)
        rows = np.concatenate(pieces) if pieces else np.empty(0, ROW)
        if not len(rows):
            return None
        times = np.ascontiguousarray(rows["log_time"])
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            rows, times = rows[order], times[order]
        return _Waiting(content, rows, times)
