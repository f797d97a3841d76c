"""Messages of chunks in the order of their time, without making all of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Any

import numpy as np

from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.reader.message import Message

_Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class BlockMessages:
    """Where the messages of a block are in its content; the columns are those of a scan."""

    content: bytes
    code: _Array
    sequence: _Array
    log_time: _Array
    publish_time: _Array
    offset: _Array
    length: _Array
    origin_time: _Array

    @classmethod
    def copy_from(cls, content: bytes, columns: ScanColumns) -> BlockMessages:
        """Return what a scan found, copied."""
        return cls(content, *(getattr(columns, name)[: columns.rows].copy() for name in _COLUMNS))

    @classmethod
    def merge(cls, parts: Sequence[BlockMessages]) -> BlockMessages:
        """Return what all scans of a content found, in the order of log_time; those of one time stay in their order."""
        columns = [np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS]
        times = columns[_COLUMNS.index("log_time")]
        if (times[1:] < times[:-1]).any():
            order = np.argsort(times, kind="stable")
            columns = [column[order] for column in columns]
        return cls(parts[0].content, *columns)

    @property
    def rows(self) -> int:
        """How many messages."""
        return len(self.code)

    @property
    def last_time(self) -> int:
        """Return log_time of the last one."""
        return int(self.log_time[-1])

    @property
    def size(self) -> int:
        """Bytes that it takes."""
        return len(self.content) + sum(int(getattr(self, name).nbytes) for name in _COLUMNS)


_COLUMNS = tuple(field.name for field in fields(BlockMessages) if field.name != "content")


class MergeBuffer:
    """Messages of blocks that overlap in time. False while there are none.

    Attributes
    ----------
    max_bytes : bytes that the blocks may take together.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._bytes = 0
        self._heap: list[tuple[int, int, Iterator[Message], Message, int]] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, number: int, messages: Iterator[Message], size: int) -> bool:
        """Let messages of a block wait; return whether there was room. Among those of one time, `number` counts."""
        if self._heap and self._bytes + size > self.max_bytes:
            return False
        self._bytes += size
        self._push(number, messages, size)
        return True

    def _push(self, number: int, pending: Iterator[Message], size: int) -> None:
        following = next(pending, None)
        if following is None:
            self._bytes -= size
        else:
            heappush(self._heap, (following.log_time, number, pending, following, size))

    def pop_before(self, time: int) -> Iterator[Message]:
        """Give what waits and is older than `time`, oldest first."""
        while self._heap and self._heap[0][0] < time:
            _, number, pending, message, size = heappop(self._heap)
            yield message
            self._push(number, pending, size)
