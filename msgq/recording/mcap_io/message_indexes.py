"""Message indexes behind a chunk: for each channel, time and offset of its messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from mcap.opcode import Opcode

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.record_structs import MESSAGE_HEAD_BYTES, MESSAGE_INDEX_HEAD_STRUCT, RECORD_HEAD_STRUCT

INDEX_ENTRY_DTYPE = np.dtype([("log_time", "<u8"), ("offset", "<u8")])
_FIELD_BYTES = MESSAGE_INDEX_HEAD_STRUCT.size - RECORD_HEAD_STRUCT.size  # bytes between the record's head and entries


class MessageIndex(NamedTuple):
    """The index of a channel's messages in a chunk.

    Attributes:
        channel_id: channel of the messages.
        start_offset: byte offset of the record in the file.
        end_offset: byte offset of the end of the record.
        entries: log_time and offset of each message, an array of `INDEX_ENTRY_DTYPE`.
    """

    channel_id: int
    start_offset: int
    end_offset: int
    entries: np.ndarray[Any, np.dtype[Any]]


def iterate_message_indexes(source: ByteReader, offset: int, end: int, chunk_bytes: int) -> Iterator[MessageIndex]:
    """Yield the message indexes of a chunk.

    Args:
        source: bytes of the file.
        offset: byte offset of the first index, which is the end of the chunk.
        end: byte offset that no index may exceed.
        chunk_bytes: size of the chunk's messages before compression.

    Raises:
        ValueError: an index exceeds `end`, is damaged, repeats a channel, or has messages that the chunk cannot have.
        OSError: the file cannot be read.
    """
    entries_left, seen = chunk_bytes // MESSAGE_HEAD_BYTES, set()
    while len(head := source.pread(MESSAGE_INDEX_HEAD_STRUCT.size, offset)) == MESSAGE_INDEX_HEAD_STRUCT.size:
        opcode, length, channel_id, entry_bytes = MESSAGE_INDEX_HEAD_STRUCT.unpack(head)
        if opcode != Opcode.MESSAGE_INDEX:
            return
        index_end = offset + RECORD_HEAD_STRUCT.size + length
        count, rest = divmod(entry_bytes, INDEX_ENTRY_DTYPE.itemsize)
        entries_left -= count
        is_valid = index_end <= end and length >= _FIELD_BYTES + entry_bytes and not rest and entries_left >= 0
        data = source.pread(entry_bytes, offset + len(head)) if is_valid and channel_id not in seen else None
        if data is None or len(data) < entry_bytes:
            raise ValueError(f"the message index at byte {offset} is invalid")
        entries = np.frombuffer(data, INDEX_ENTRY_DTYPE)
        if count and int(entries["offset"].max()) > chunk_bytes - MESSAGE_HEAD_BYTES:
            raise ValueError(f"the message index at byte {offset} has a message outside of the chunk")
        seen.add(channel_id)
        yield MessageIndex(channel_id, offset, index_end, entries)
        offset = index_end
