"""Messages of a log in rows, in the order of a time, without an object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from heapq import heappop, heappush
from typing import Any

import numpy as np

from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.reader.log_view import LogView
from msgq.recording.reader.time_order import BlockMessages

_Array = np.ndarray[Any, np.dtype[Any]]
_BATCH_ROWS = 65536
OVERLAP_BLOCKS = 4  # largest chunks whose messages may wait at the same time


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages in rows, whose payloads are parts of what was read: contents[content][offset : offset + length].

    Attributes
    ----------
    contents : what the payloads are parts of. The others are arrays with an element for each message:
    content : int32; which of the contents it is in.
    time : int64; by which the rows are in order, ns since the epoch: log_time, until a player has one of its own.
    code : int32; index in `LogReader.channels`.
    log_time, publish_time, origin_time : int64; as of `Message`.
    offset, length : int64.
    """

    contents: tuple[bytes, ...]
    content: _Array
    time: _Array
    code: _Array
    log_time: _Array
    publish_time: _Array
    origin_time: _Array
    offset: _Array
    length: _Array

    def __len__(self) -> int:
        return len(self.time)

    @property
    def size(self) -> int:
        """Bytes that it keeps in memory."""
        return sum(map(len, self.contents)) + sum(int(getattr(self, name).nbytes) for name in _COLUMNS)

    def select(self, selection: slice | _Array) -> MessageBatch:
        """Return some of the rows: a slice, or their indexes, or a bool for each."""
        return MessageBatch(self.contents, *(getattr(self, name)[selection] for name in _COLUMNS))

    def clamp_to(self, time_ns: int) -> MessageBatch:
        """Return it without times before this one: what would come earlier, comes then."""
        return self if self.time[0] >= time_ns else replace(self, time=np.maximum(self.time, time_ns))

    def sort(self) -> MessageBatch:
        """Return it in the order of time; rows of the same time stay in theirs."""
        if (self.time[1:] >= self.time[:-1]).all():
            return self
        return self.select(np.argsort(self.time, kind="stable"))


_COLUMNS = tuple(field.name for field in fields(MessageBatch) if field.name != "contents")


def merge_batches(batches: Sequence[MessageBatch]) -> MessageBatch:
    """Return the rows of all in the order of time; rows of the same time in the order given."""
    if len(batches) == 1:
        return batches[0]
    contents: dict[int, tuple[int, bytes]] = {}
    shifted = []
    for batch in batches:
        places = [contents.setdefault(id(content), (len(contents), content))[0] for content in batch.contents]
        shifted.append(replace(batch, content=np.array(places, np.int32)[batch.content]))
    columns = (np.concatenate([getattr(batch, name) for batch in shifted]) for name in _COLUMNS)
    return MessageBatch(tuple(content for _, content in contents.values()), *columns).sort()


class BatchMergeBuffer:
    """Merges batches that overlap in time. False while it is empty.

    Attributes
    ----------
    size : bytes that they keep in memory.
    last_time : the latest time of all that were added.
    """

    def __init__(self) -> None:
        self.size = self.last_time = 0
        self._added = 0
        self._heap: list[tuple[int, int, MessageBatch, int]] = []  # first time, number, unread rows, size of the whole

    def __bool__(self) -> bool:
        return bool(self._heap)

    @property
    def first_time(self) -> int:
        """Return the time of the first one that waits."""
        return self._heap[0][0]

    def add(self, batch: MessageBatch) -> None:
        """Let a batch wait. Among rows of the same time, those that were added first are first."""
        self.size += batch.size
        self._added += 1
        ordered = batch.sort()
        self.last_time = max(self.last_time, int(ordered.time[-1]))
        self._push(self._added, ordered, batch.size)

    def _push(self, number: int, batch: MessageBatch, size: int) -> None:
        heappush(self._heap, (int(batch.time[0]), number, batch, size))

    def pop_until(self, time: int | None = None) -> Iterator[MessageBatch]:
        """Give what is not later than a time, as one batch in order; None: all. Nothing, if there is none."""
        heads: dict[int, MessageBatch] = {}
        while self._heap and (time is None or self._heap[0][0] <= time):
            _, number, batch, size = heappop(self._heap)
            count = len(batch) if time is None else int(np.searchsorted(batch.time, time, "right"))
            heads[number] = batch.select(slice(count))
            if count < len(batch):
                self._push(number, batch.select(slice(count, None)), size)
            else:
                self.size -= size
        if heads:
            yield merge_batches([heads[number] for number in sorted(heads)])


def read_in_log_order(view: LogView) -> Iterator[MessageBatch]:
    """Give the messages in the order of log_time, those of one time in the order of the files."""
    columns, waiting = ScanColumns(_BATCH_ROWS), BatchMergeBuffer()
    most = OVERLAP_BLOCKS * view.max_chunk_bytes
    for file, block in sorted(view.blocks(), key=lambda pair: pair[1].start_time):
        yield from waiting.pop_until(block.start_time)  # those of the same time stand before what follows
        for batch in _read_block(view, file, block, columns):
            if waiting and waiting.size + batch.size > most:
                text = f"more than {most} bytes overlap in time, four times max_chunk_bytes (--max-chunk-bytes)"
                view.report(Problem(str(file.path), block.offset, f"a chunk was skipped: {text}"))
            else:
                waiting.add(batch)
    yield from waiting.pop_until()


def _read_block(view: LogView, file: McapFile, block: DataBlock, columns: ScanColumns) -> Iterator[MessageBatch]:
    """Give the messages of a block as one batch, if there are any."""
    scans = view.scan_block(file, block, columns)
    parts = [BlockMessages.copy_from(content, columns) for content in scans if columns.rows]
    if parts:
        rows = BlockMessages.merge(parts)
        times = rows.log_time, rows.code, rows.log_time, rows.publish_time, rows.origin_time
        yield MessageBatch((rows.content,), np.zeros(rows.rows, np.int32), *times, rows.offset, rows.length)
