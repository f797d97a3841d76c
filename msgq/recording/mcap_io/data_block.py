"""Locations of the parts of an MCAP file: blocks of messages, and other records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DataBlock:
    """A chunk, or a run of messages outside of chunks. Times and sizes are those stated in the file.

    The times use the clock of the `McapFile`.
    """

    offset: int
    stored_bytes: int
    uncompressed_bytes: int  # bytes before compression
    start_time: int
    end_time: int
    channel_ids: set[int] | None  # ids; None: any
    is_chunk: bool
    origins_range: tuple[int, int] | None = None  # start and end of the record with its messages' origins


class ExtraRecord(NamedTuple):
    """Location of an attachment, metadata, or a record that MCAP does not define."""

    opcode: int
    offset: int
    record_bytes: int
    is_in_summary: bool = False


def clip_block(block: DataBlock, begin: int, end: int) -> DataBlock | None:
    """Return the part of a block between two byte offsets. A chunk belongs to the part if its first byte does."""
    if block.is_chunk:
        return block if begin <= block.offset < end else None
    first, last = max(begin, block.offset), min(end, block.offset + block.stored_bytes)
    return (
        replace(block, offset=first, stored_bytes=last - first, uncompressed_bytes=last - first)
        if first < last
        else None
    )
