"""Messages of chunks in the order of time. Only a part of them is created at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Any

import numpy as np

from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.reader.message import Message

_NumpyArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class BlockMessages:
    """Location of a block's messages in its content, in the columns of a scan."""

    content: bytes
    channel_code: _NumpyArray
    sequence: _NumpyArray
    log_time: _NumpyArray
    publish_time: _NumpyArray
    offset: _NumpyArray
    length: _NumpyArray
    origin_time: _NumpyArray

    @classmethod
    def copy_columns(cls, content: bytes, columns: ScanColumns) -> BlockMessages:
        """Return a copy of the scanned rows."""
        return cls(content, *(getattr(columns, name)[: columns.row_count].copy() for name in _BLOCK_COLUMN_NAMES))

    @classmethod
    def merge_scans(cls, parts: Sequence[BlockMessages]) -> BlockMessages:
        """Return the rows of several scans in the order of log_time. Rows of the same time keep their order."""
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in _BLOCK_COLUMN_NAMES]
        times = columns[_BLOCK_COLUMN_NAMES.index("log_time")]
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            columns = [column[order] for column in columns]
        return cls(parts[0].content, *columns)

    @property
    def row_count(self) -> int:
        """Number of messages."""
        return len(self.channel_code)

    @property
    def last_time(self) -> int:
        """log_time of the last message, in ns since the epoch."""
        return int(self.log_time[-1])

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the messages occupy."""
        return len(self.content) + sum(int(getattr(self, name).nbytes) for name in _BLOCK_COLUMN_NAMES)


_BLOCK_COLUMN_NAMES = tuple(field.name for field in fields(BlockMessages) if field.name != "content")


class BlockMergeBuffer:
    """Merges messages of blocks that overlap in time. False in a condition while it is empty.

    Attributes:
        max_memory_bytes: maximum bytes of memory of all blocks.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_memory_bytes = max_bytes
        self._memory_bytes = 0
        self._block_heap: list[tuple[int, int, Iterator[Message], Message, int]] = []

    def __bool__(self) -> bool:
        return bool(self._block_heap)

    def add_block(self, number: int, messages: Iterator[Message], size: int) -> bool:
        """Add a block. Return False if the memory is full.

        At equal times, the block with the lower `number` comes first.
        """
        if self._block_heap and self._memory_bytes + size > self.max_memory_bytes:
            return False
        self._memory_bytes += size
        self._push_block(number, messages, size)
        return True

    def _push_block(self, number: int, pending: Iterator[Message], size: int) -> None:
        following = next(pending, None)
        if following is None:
            self._memory_bytes -= size
        else:
            heappush(self._block_heap, (following.log_time, number, pending, following, size))

    def pop_before_time(self, time: int) -> Iterator[Message]:
        """Yield the pending messages that are older than `time`, oldest first."""
        while self._block_heap and self._block_heap[0][0] < time:
            _, number, pending, message, size = heappop(self._block_heap)
            yield message
            self._push_block(number, pending, size)
