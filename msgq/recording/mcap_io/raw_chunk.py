"""Chunks that can be copied without decompression, because their message indexes describe their content."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from mcap.opcode import Opcode

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import TIME_MAX
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.message_indexes import iterate_message_indexes
from msgq.recording.mcap_io.record_structs import CHUNK_HEAD_STRUCT, RECORD_HEAD_STRUCT

_COPYABLE_COMPRESSIONS = ("", "zstd", "lz4")
_INDEX_BYTES_MAX = 64 << 20  # maximum bytes of a chunk's indexes; a chunk with more is read as a whole


class ChannelIndexSummary(NamedTuple):
    """Summary of a channel in a chunk's message index."""

    index_start: int  # position of the record in the file
    index_end: int
    message_count: int
    first_time: int
    last_time: int


@dataclass(frozen=True, slots=True)
class RawChunk:
    """A chunk with its message indexes, and the origins record before it.

    Attributes:
        start_offset: byte offset of the origins record.
        chunk_offset: byte offset of the chunk.
        index_offset: byte offset of the chunk's message indexes.
        end_offset: byte offset of the end of the message indexes.
        compression: "zstd", "lz4", or "" for no compression.
        compressed_bytes: bytes after compression.
        uncompressed_bytes: bytes before compression.
        channel_indexes: index summary by channel id.
    """

    start_offset: int
    chunk_offset: int
    index_offset: int
    end_offset: int
    compression: str
    compressed_bytes: int
    uncompressed_bytes: int
    channel_indexes: dict[int, ChannelIndexSummary]

    @property
    def first_time(self) -> int:
        """Return log_time of the first message, ns since the epoch."""
        return min(channel.first_time for channel in self.channel_indexes.values())

    @property
    def last_time(self) -> int:
        """Return log_time of the last message, ns since the epoch."""
        return max(channel.last_time for channel in self.channel_indexes.values())


def find_raw_chunk(source: ByteReader, block: DataBlock) -> RawChunk | None:
    """Return a chunk with its indexes.

    None: the indexes are missing or contradict the chunk, so the chunk must be read.
    """
    head = source.pread(
        RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + 16, block.offset
    )  # a name of at most 8 bytes, and a size
    if len(head) < RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size:
        return None
    opcode, length = RECORD_HEAD_STRUCT.unpack_from(head)
    first, last, size, _, name_bytes = CHUNK_HEAD_STRUCT.unpack_from(head, RECORD_HEAD_STRUCT.size)
    name = head[RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size :][:name_bytes]
    is_copyable = name.decode(errors="replace") in _COPYABLE_COMPRESSIONS and name_bytes <= len(name)
    compressed = int.from_bytes(head[RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + name_bytes :][:8], "little")
    room = length - CHUNK_HEAD_STRUCT.size - name_bytes - 8 - compressed  # behind the messages are unknown fields
    if opcode != Opcode.CHUNK or RECORD_HEAD_STRUCT.size + length != block.stored_bytes or not is_copyable or room < 0:
        return None
    index = block.offset + block.stored_bytes
    channels = _read_message_indexes(source, index, size)
    begin = block.origins_range[0] if block.origins_range else block.offset
    end = max((channel.index_end for channel in channels.values()), default=index)
    chunk = RawChunk(begin, block.offset, index, end, name.decode(), compressed, size, channels)
    if not channels or channels.keys() != block.channel_ids or (chunk.first_time, chunk.last_time) != (first, last):
        return None
    return chunk if last < TIME_MAX else None


def _read_message_indexes(source: ByteReader, at: int, size: int) -> dict[int, ChannelIndexSummary]:
    """Return the message indexes at an offset, by channel id.

    Empty if an index has no messages, or is invalid for a chunk of `size` bytes.
    """
    channels: dict[int, ChannelIndexSummary] = {}
    try:
        for index in iterate_message_indexes(source, at, at + _INDEX_BYTES_MAX, size):
            times = index.entries["log_time"]
            if not len(times):
                return {}
            summary = (index.start_offset, index.end_offset, len(times), int(times.min()), int(times.max()))
            channels[index.channel_id] = ChannelIndexSummary(*summary)
    except ValueError:
        return {}
    return channels
