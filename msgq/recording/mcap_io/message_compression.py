"""Payloads that were compressed one by one, as in rosbag2's compression_mode MESSAGE.

A message does not state its compression. But rosbag2 compresses all messages or none, and no CDR payload starts with
the first bytes of zstd. Readers therefore check the first bytes, and need no metadata.yaml.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from mcap.opcode import Opcode

from msgq.recording.mcap_io.compression import ZSTD_MAGIC, decompress_zstd_frame
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT

_MESSAGE_PAYLOAD_OFFSET = 22  # bytes of a message before its payload
_SEARCHED_RECORDS_MAX = 2 << 16  # records that may come before the first message of a chunk: schemas and channels
_CHANNEL_ID_STRUCT = struct.Struct("<H")


def starts_with_compressed_payload(records: bytes) -> bool:
    """Return True if the first message of these records is compressed."""
    position = 0
    for _ in range(_SEARCHED_RECORDS_MAX):
        if position + RECORD_HEAD_STRUCT.size > len(records):
            break
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(records, position)
        if opcode == Opcode.MESSAGE:
            return records.startswith(ZSTD_MAGIC, position + RECORD_HEAD_STRUCT.size + _MESSAGE_PAYLOAD_OFFSET)
        position += RECORD_HEAD_STRUCT.size + int(length)
    return False


def decompress_payloads(
    records: bytes, is_wanted: Callable[[int], bool], most: int, problem: Callable[[str], None]
) -> bytes:
    """Return records with decompressed payloads.

    Args:
        records: records of a chunk, or messages outside of chunks.
        is_wanted: callable that returns True for a channel id whose payloads must be decompressed. Other payloads stay
            compressed.
        most: maximum bytes of all decompressed records.
        problem: callable for the reason of each omitted message.
    """
    plain, position, begin, room = bytearray(), 0, 0, most - len(records)
    while position + RECORD_HEAD_STRUCT.size <= len(records):
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(records, position)
        start, end = (
            position + RECORD_HEAD_STRUCT.size + _MESSAGE_PAYLOAD_OFFSET,
            position + RECORD_HEAD_STRUCT.size + length,
        )
        is_compressed = opcode == Opcode.MESSAGE and end <= len(records) and records.startswith(ZSTD_MAGIC, start, end)
        if is_compressed and is_wanted(_CHANNEL_ID_STRUCT.unpack_from(records, position + RECORD_HEAD_STRUCT.size)[0]):
            plain += memoryview(records)[begin:position]
            try:
                payload = decompress_zstd_frame(records[start:end], max(0, room + length))
                room += length - len(payload)
                plain += (
                    RECORD_HEAD_STRUCT.pack(opcode, _MESSAGE_PAYLOAD_OFFSET + len(payload))
                    + records[position + RECORD_HEAD_STRUCT.size : start]
                    + payload
                )
            except ValueError as error:
                problem(f"a message was skipped: {error}")
            begin = end
        position = end
    return bytes(plain + memoryview(records)[begin:])
