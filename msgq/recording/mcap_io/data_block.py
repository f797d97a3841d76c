"""Where the parts of an MCAP file are: its blocks of messages, and the records beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class DataBlock:
    """A chunk, or messages outside of chunks that follow each other. Times and size are what the file says; the times
    are by the clock of the `McapFile`.
    """

    offset: int
    stored_bytes: int
    uncompressed_bytes: int  # in bytes, before compression
    start_time: int
    end_time: int
    channel_ids: set[int] | None  # ids; None: any
    is_chunk: bool
    origins_range: tuple[int, int] | None = None  # from where to where the record with its messages' origins is


class ExtraRecord(NamedTuple):
    """Location of an attachment, metadata, or a record that MCAP does not define."""

    opcode: int
    offset: int
    record_bytes: int
    is_in_summary: bool = False


def clip_block(block: DataBlock, begin: int, end: int) -> DataBlock | None:
    """Return what of a block is between two places; a chunk is there if it begins there."""
    if block.is_chunk:
        return block if begin <= block.offset < end else None
    first, last = max(begin, block.offset), min(end, block.offset + block.stored_bytes)
    return (
        replace(block, offset=first, stored_bytes=last - first, uncompressed_bytes=last - first)
        if first < last
        else None
    )
