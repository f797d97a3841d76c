"""Reading of attachment and metadata records of a file."""

from __future__ import annotations

import struct

from mcap import records
from mcap.exceptions import McapError

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT, ExtensibleMetadata, RecordStream

ATTACHMENT_CRC_BYTES = 4  # bytes of the checksum after an attachment's data
_ATTACHMENT_TIMES_STRUCT = struct.Struct("<QQ")  # log_time, create_time: how an attachment begins
_ATTACHMENT_TEXTS_BYTES_MAX = 1 << 16  # maximum bytes of an attachment's name and media type


def read_attachment_index(source: ByteReader, offset: int, length: int) -> records.AttachmentIndex:
    """Read an attachment's record without its content, and return its index.

    Raises:
        ValueError: the lengths contradict each other, or the record is not an attachment.
        OSError: the record cannot be read.
    """
    data = source.pread(
        min(length - RECORD_HEAD_STRUCT.size, _ATTACHMENT_TEXTS_BYTES_MAX), offset + RECORD_HEAD_STRUCT.size
    )
    try:
        log_time, create_time = _ATTACHMENT_TIMES_STRUCT.unpack_from(data)
        stream = RecordStream(data[_ATTACHMENT_TIMES_STRUCT.size :])
        name, media_type = stream.read_prefixed_string(), stream.read_prefixed_string()
        size = stream.read8()
    except (McapError, ValueError, struct.error) as error:
        raise ValueError(f"an attachment is invalid: {str(error) or type(error).__name__}") from None
    if (
        _ATTACHMENT_TIMES_STRUCT.size + stream.count + size + ATTACHMENT_CRC_BYTES > length - RECORD_HEAD_STRUCT.size
    ):  # unknown fields follow the CRC
        raise ValueError(f"an attachment of {size} bytes does not fit into its record of {length} bytes")
    return records.AttachmentIndex(
        offset=offset,
        length=length,
        log_time=log_time,
        create_time=create_time,
        data_size=size,
        name=name,
        media_type=media_type,
    )


def find_attachment_crc_offset(index: records.AttachmentIndex) -> int:
    """Return the byte offset of an attachment's CRC in the file. The CRC covers the record before this offset."""
    texts = sum(4 + len(text.encode()) for text in (index.name, index.media_type))
    return int(index.offset + RECORD_HEAD_STRUCT.size + _ATTACHMENT_TIMES_STRUCT.size + texts + 8 + index.data_size)


def read_metadata_record(source: ByteReader, offset: int, length: int) -> ExtensibleMetadata:
    """Read a Metadata record.

    Raises:
        ValueError: the record is invalid or too large.
        OSError: the record cannot be read.
    """
    if length > METADATA_BYTES_MAX:
        raise ValueError(f"a metadata record has {length} bytes; the maximum is {METADATA_BYTES_MAX}")
    data = source.pread(length - RECORD_HEAD_STRUCT.size, offset + RECORD_HEAD_STRUCT.size)
    try:
        stream = RecordStream(data)
        record = records.Metadata.read(stream)
    except (McapError, ValueError, struct.error, EOFError) as error:
        raise ValueError(f"a metadata record is invalid: {str(error) or type(error).__name__}") from None
    return ExtensibleMetadata(record.name, record.metadata, data[stream.count :])
