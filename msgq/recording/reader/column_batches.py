"""Messages of a log as rows of arrays, in the order of time, without a Python object for each message."""

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

_NumpyArray = np.ndarray[Any, np.dtype[Any]]
_BATCH_ROWS = 65536
OVERLAPPING_BLOCKS_MAX = 4  # largest chunks whose messages may wait at the same time


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages as rows of arrays. The payload of a row is contents[content_index][offset : offset + length].

    Attributes:
        contents: buffers with the payloads. All other attributes are arrays with one element for each message.
        content_index: int32, index of the buffer.
        order_time: int64, time that orders the rows, in ns since the epoch: log_time, unless a player sets another
            time.
        channel_code: int32, index in `LogReader.channels`.
        log_time: int64, as in `Message`.
        publish_time: int64, as in `Message`.
        origin_time: int64, as in `Message`.
        offset: byte offset, int64.
        length: number of bytes, int64.
    """

    contents: tuple[bytes, ...]
    content_index: _NumpyArray
    order_time: _NumpyArray
    channel_code: _NumpyArray
    log_time: _NumpyArray
    publish_time: _NumpyArray
    origin_time: _NumpyArray
    offset: _NumpyArray
    length: _NumpyArray

    def __len__(self) -> int:
        return len(self.order_time)

    @property
    def memory_bytes(self) -> int:
        """Bytes of memory that the batch occupies."""
        return sum(map(len, self.contents)) + sum(int(getattr(self, name).nbytes) for name in _BATCH_COLUMN_NAMES)

    def select_rows(self, selection: slice | _NumpyArray) -> MessageBatch:
        """Return some of the rows, selected by a slice, an array of indexes, or an array with a bool for each row."""
        return MessageBatch(self.contents, *(getattr(self, name)[selection] for name in _BATCH_COLUMN_NAMES))

    def clamp_times_to(self, time_ns: int) -> MessageBatch:
        """Return the batch with earlier times replaced by `time_ns`."""
        return self if self.order_time[0] >= time_ns else replace(self, order_time=np.maximum(self.order_time, time_ns))

    def sort_by_time(self) -> MessageBatch:
        """Return the batch in the order of time. Rows of the same time keep their order."""
        if (self.order_time[1:] >= self.order_time[:-1]).all():
            return self
        return self.select_rows(np.argsort(self.order_time, kind="stable"))


_BATCH_COLUMN_NAMES = tuple(field.name for field in fields(MessageBatch) if field.name != "contents")


def merge_batches(batches: Sequence[MessageBatch]) -> MessageBatch:
    """Return the rows of all batches in the order of time. Rows of the same time keep the order of the batches."""
    if len(batches) == 1:
        return batches[0]
    contents: dict[int, tuple[int, bytes]] = {}
    shifted = []
    for batch in batches:
        places = [contents.setdefault(id(content), (len(contents), content))[0] for content in batch.contents]
        shifted.append(replace(batch, content_index=np.array(places, np.int32)[batch.content_index]))
    columns = (np.concatenate([getattr(batch, name) for batch in shifted]) for name in _BATCH_COLUMN_NAMES)
    return MessageBatch(tuple(content for _, content in contents.values()), *columns).sort_by_time()


class BatchMergeBuffer:
    """Merges batches that overlap in time. False in a condition while it is empty.

    Attributes:
        memory_bytes: bytes of memory that the batches occupy.
        last_time: latest time of all added batches.
    """

    def __init__(self) -> None:
        self.memory_bytes = self.last_time = 0
        self._added_batches = 0
        self._batch_heap: list[
            tuple[int, int, MessageBatch, int]
        ] = []  # first time, number, unread rows, size of the whole

    def __bool__(self) -> bool:
        return bool(self._batch_heap)

    @property
    def first_time(self) -> int:
        """Time of the first pending row."""
        return self._batch_heap[0][0]

    def add_batch(self, batch: MessageBatch) -> None:
        """Add a batch. Rows of the same time keep the order in which they were added."""
        self.memory_bytes += batch.memory_bytes
        self._added_batches += 1
        ordered = batch.sort_by_time()
        self.last_time = max(self.last_time, int(ordered.order_time[-1]))
        self._push_batch(self._added_batches, ordered, batch.memory_bytes)

    def _push_batch(self, number: int, batch: MessageBatch, size: int) -> None:
        heappush(self._batch_heap, (int(batch.order_time[0]), number, batch, size))

    def pop_until_time(self, time: int | None = None) -> Iterator[MessageBatch]:
        """Yield the rows up to a time, as one ordered batch; None: all rows. Yields nothing without rows."""
        heads: dict[int, MessageBatch] = {}
        while self._batch_heap and (time is None or self._batch_heap[0][0] <= time):
            _, number, batch, size = heappop(self._batch_heap)
            count = len(batch) if time is None else int(np.searchsorted(batch.order_time, time, "right"))
            heads[number] = batch.select_rows(slice(count))
            if count < len(batch):
                self._push_batch(number, batch.select_rows(slice(count, None)), size)
            else:
                self.memory_bytes -= size
        if heads:
            yield merge_batches([heads[number] for number in sorted(heads)])


def read_batches_by_log_time(view: LogView) -> Iterator[MessageBatch]:
    """Yield the messages in the order of log_time.

    At equal times, the message of the chunk that begins first comes first, and then that of the first file.
    """
    columns, waiting = ScanColumns(_BATCH_ROWS), BatchMergeBuffer()
    most = OVERLAPPING_BLOCKS_MAX * view.max_chunk_bytes
    for file, block in view.plan_wanted_blocks(by_time=True):
        yield from waiting.pop_until_time(block.start_time)  # those of the same time stand before what follows
        for batch in _read_block_batches(view, file, block, columns):
            if waiting and waiting.memory_bytes + batch.memory_bytes > most:
                text = f"more than {most} bytes overlap in time, four times max_chunk_bytes (--max-chunk-bytes)"
                view.report_problem(Problem(str(file.path), block.offset, f"a chunk was skipped: {text}"))
            else:
                waiting.add_batch(batch)
    yield from waiting.pop_until_time()


def _read_block_batches(
    view: LogView, file: McapFile, block: DataBlock, columns: ScanColumns
) -> Iterator[MessageBatch]:
    """Yield the messages of a block as one batch, or nothing without messages."""
    scans = view.scan_block(file, block, columns)
    parts = [BlockMessages.copy_columns(content, columns) for content in scans if columns.row_count]
    if parts:
        rows = BlockMessages.merge_scans(parts)
        times = rows.log_time, rows.channel_code, rows.log_time, rows.publish_time, rows.origin_time
        yield MessageBatch((rows.content,), np.zeros(rows.row_count, np.int32), *times, rows.offset, rows.length)
