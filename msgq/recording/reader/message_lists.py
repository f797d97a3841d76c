"""Messages of a log as lists, in the order of log_time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from msgq.recording.mcap_io.core import TIME_MAX, ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.reader.log_view import LogView
from msgq.recording.reader.message import Message
from msgq.recording.reader.message_builder import build_messages
from msgq.recording.reader.time_order import BlockMergeBuffer, BlockMessages

_SCAN_ROWS = 16384
_MESSAGE_BATCH_ROWS = 1024  # messages that are made at once: their memory stays in the cache
_OVERLAPPING_BLOCKS_MAX = 4  # largest chunks whose messages may wait at the same time


def read_message_lists(view: LogView) -> Iterator[Iterable[Message]]:
    """Yield the messages of a log as lists.

    At equal times, the message of the chunk that begins first comes first, and then that of the first file.
    """
    columns = ScanColumns(_SCAN_ROWS)
    blocks = view.plan_wanted_blocks(by_time=True)
    buffer = BlockMergeBuffer(_OVERLAPPING_BLOCKS_MAX * view.max_chunk_bytes)
    for number, (file, block) in enumerate(blocks):
        yield buffer.pop_before_time(block.start_time)
        rows = _read_block_messages(view, file, block, columns)
        following = blocks[number + 1][1].start_time if number + 1 < len(blocks) else TIME_MAX
        if rows is None:
            continue
        if not buffer and rows.last_time <= following:
            yield from _build_messages(view, rows)
        elif not buffer.add_block(number, chain.from_iterable(_build_messages(view, rows)), rows.memory_bytes):
            limit = f"{buffer.max_memory_bytes} bytes overlap in time, four times max_chunk_bytes (--max-chunk-bytes)"
            view.report_problem(Problem(str(file.path), block.offset, f"a chunk was skipped: more than {limit}"))
    yield buffer.pop_before_time(TIME_MAX + 1)


def _read_block_messages(view: LogView, file: McapFile, block: DataBlock, columns: ScanColumns) -> BlockMessages | None:
    """Return the messages of a block in the order of log_time; None: there are none."""
    scans = view.scan_block(file, block, columns)
    parts = [BlockMessages.copy_columns(content, columns) for content in scans if columns.row_count]
    return BlockMessages.merge_scans(parts) if parts else None


def _build_messages(view: LogView, rows: BlockMessages) -> Iterator[list[Message]]:
    """Yield lists of messages. A chunk may have millions of messages, so a list has only a part of them."""
    channels = [(c.endpoint, c.epoch, c.schema, c.message_source) for c in view.channels]
    for begin in range(0, rows.row_count, _MESSAGE_BATCH_ROWS):
        yield build_messages(rows, begin, min(begin + _MESSAGE_BATCH_ROWS, rows.row_count), channels)
