"""Bytes of MCAP records and of the end of a file, where the `mcap` library is too slow or too strict.

Format: https://mcap.dev/spec.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import starmap
from typing import Any

from mcap import records
from mcap.data_stream import ReadDataStream, RecordBuilder
from mcap.exceptions import EndOfFile
from mcap.opcode import Opcode

from msgq.recording.mcap_io.core import crc32

MCAP_MAGIC = b"\x89MCAP0\r\n"
RECORD_HEAD_STRUCT = struct.Struct("<BQ")  # opcode, length of what follows: how each record begins
MESSAGE_HEAD_BYTES = RECORD_HEAD_STRUCT.size + 22  # then channel, sequence and two times, before the payload
CHUNK_HEAD_STRUCT = struct.Struct(
    "<QQQII"
)  # behind the head: start, end, uncompressed size, its crc, bytes of the codec's name
MESSAGE_INDEX_HEAD_STRUCT = struct.Struct("<BQHI")  # opcode, length, channel, bytes of the entries
_CHUNK_INDEX_HEAD_STRUCT = struct.Struct("<QQQQI")  # start, end, offset and bytes of the chunk, bytes of the offsets
_CHUNK_INDEX_TAIL_STRUCT = struct.Struct("<QI")  # bytes of the message indexes, bytes of the codec's name
_CHUNK_SIZES_STRUCT = struct.Struct("<QQ")  # compressed and uncompressed size
_MESSAGE_INDEX_OFFSET_STRUCT = struct.Struct("<HQ")  # channel, offset of its message index
FOOTER_BYTES = RECORD_HEAD_STRUCT.size + 20 + len(MCAP_MAGIC)  # bytes of the footer and of all that follows it


class RecordStream(ReadDataStream):
    """Reads the fields of one record. A field that exceeds the record raises an error."""

    def __init__(self, content: bytes) -> None:
        """Set the content: the bytes after the record's length."""
        super().__init__(BytesIO(content))

    def read(self, length: int) -> bytes:
        """Return the next bytes.

        Raises:
            EndOfFile: the record has fewer bytes.
        """
        data = super().read(length)
        if len(data) < length:
            raise EndOfFile
        return data


def read_chunk_index(stream: ReadDataStream) -> records.ChunkIndex:
    """Return a chunk index. A file with many channels in each of many chunks has millions of offsets."""
    head = stream.read(_CHUNK_INDEX_HEAD_STRUCT.size)
    start_time, end_time, chunk_offset, chunk_bytes, offsets_bytes = _CHUNK_INDEX_HEAD_STRUCT.unpack(head)
    offsets = dict(_MESSAGE_INDEX_OFFSET_STRUCT.iter_unpack(stream.read(offsets_bytes)))
    index_bytes, name_bytes = _CHUNK_INDEX_TAIL_STRUCT.unpack(stream.read(_CHUNK_INDEX_TAIL_STRUCT.size))
    compression = stream.read(name_bytes).decode()
    compressed_size, uncompressed_size = _CHUNK_SIZES_STRUCT.unpack(stream.read(_CHUNK_SIZES_STRUCT.size))
    return records.ChunkIndex(
        message_start_time=start_time,
        message_end_time=end_time,
        chunk_start_offset=chunk_offset,
        chunk_length=chunk_bytes,
        message_index_offsets=offsets,
        message_index_length=index_bytes,
        compression=compression,
        compressed_size=compressed_size,
        uncompressed_size=uncompressed_size,
    )


def encode_chunk_index(index: records.ChunkIndex) -> bytes:
    """Return a chunk index as bytes, because the `mcap` library needs 30 us for an index. Each chunk has an index."""
    offsets = b"".join(starmap(_MESSAGE_INDEX_OFFSET_STRUCT.pack, index.message_index_offsets.items()))
    name = index.compression.encode()
    head = _CHUNK_INDEX_HEAD_STRUCT.pack(
        index.message_start_time,
        index.message_end_time,
        index.chunk_start_offset,
        index.chunk_length,
        len(offsets),
    )
    tail = struct.pack(
        f"<QI{len(name)}sQQ",
        index.message_index_length,
        len(name),
        name,
        index.compressed_size,
        index.uncompressed_size,
    )
    length = len(head) + len(offsets) + len(tail)
    return b"".join((RECORD_HEAD_STRUCT.pack(Opcode.CHUNK_INDEX, length), head, offsets, tail))


@dataclass
class _ExtensibleRecord:
    """A record with fields that MCAP does not define yet. The bytes of unknown fields follow the known fields."""

    unknown_fields: bytes = b""

    def write(self, stream: RecordBuilder) -> None:
        """Write the record to a stream of the `mcap` library."""
        builder = RecordBuilder()
        super().write(builder)  # type: ignore[misc]
        stream.write(append_unknown_fields(builder.end(), self.unknown_fields))


@dataclass
class ExtensibleHeader(_ExtensibleRecord, records.Header):
    """A header that keeps unknown fields."""


@dataclass
class ExtensibleSchema(_ExtensibleRecord, records.Schema):
    """A schema that keeps unknown fields."""


@dataclass
class ExtensibleChannel(_ExtensibleRecord, records.Channel):
    """A channel that keeps unknown fields."""


@dataclass
class ExtensibleMetadata(_ExtensibleRecord, records.Metadata):
    """Metadata that keeps unknown fields."""


def drop_unknown_fields(record: Any) -> Any:
    """Return a record of the `mcap` library without fields that MCAP does not define yet."""
    return replace(record, unknown_fields=b"") if isinstance(record, _ExtensibleRecord) else record


def append_unknown_fields(record: bytes, tail: bytes) -> bytes:
    """Return a record with more bytes at its end."""
    opcode, length = RECORD_HEAD_STRUCT.unpack_from(record)
    return RECORD_HEAD_STRUCT.pack(opcode, length + len(tail)) + record[RECORD_HEAD_STRUCT.size :] + tail


def encode_records(*parts: Any) -> bytes:
    """Return records of the `mcap` library as bytes."""
    builder = RecordBuilder()
    for part in parts:
        part.write(builder)
    return bytes(builder.end())


def build_summary_section(start: int, groups: list[tuple[int, bytes]]) -> bytes:
    """Return all bytes after the data section: the summary with its offsets, the footer and the magic bytes.

    Args:
        start: byte offset of the summary in the file.
        groups: records as bytes. Each group has records of one kind.
    """
    offsets, position = [], start
    for opcode, data in groups:
        if data:
            offsets.append(records.SummaryOffset(group_opcode=opcode, group_start=position, group_length=len(data)))
            position += len(data)
    data = b"".join(data for _, data in groups) + encode_records(*offsets)
    footer = struct.pack("<BQQQ", Opcode.FOOTER, 20, start, position)
    return data + footer + struct.pack("<I", crc32(footer, crc32(data))) + MCAP_MAGIC
