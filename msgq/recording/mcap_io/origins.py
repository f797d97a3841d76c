"""Origins of tracked messages in a file: a record before each chunk.

The record has an opcode that MCAP reserves for applications, and is outside of chunks. Other readers skip the record.
The record belongs to the chunk that starts at its end. In any other place, readers ignore it.
"""

from __future__ import annotations

from typing import Any

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import CHUNK_ENTRY_FIELDS, ChunkBuffer, ScanColumns
from msgq.recording.mcap_io.record_scanner import ChunkTooLargeError
from msgq.recording.mcap_io.record_structs import MESSAGE_HEAD_BYTES, RECORD_HEAD_STRUCT

ORIGINS_OPCODE = 0x8A
_ORIGINS_MAGIC = b"msgqorat"  # other applications have the same opcodes
_ORIGIN_FIELDS = [("offset", "<u8"), ("origin_time", "<i8")]  # offset: of the message's record in the chunk's content
_ORIGIN_BYTES = 16
_OFFSET_MAX = 1 << 62


def build_origins_record(chunk: ChunkBuffer, shift: int) -> bytes:
    """Return the origins record for a chunk; b"": no message has an origin.

    `shift`: bytes of the chunk's content before its messages.
    """
    if not chunk.has_origins:
        return b""
    import numpy as np  # imported late: the summary of a file needs no array

    entries = np.frombuffer(chunk.message_entries, CHUNK_ENTRY_FIELDS)
    having = entries[entries["origin_time"] != 0]
    rows = np.empty(len(having), _ORIGIN_FIELDS)
    rows["offset"], rows["origin_time"] = having["offset"] + np.uint64(shift), having["origin_time"]
    return RECORD_HEAD_STRUCT.pack(ORIGINS_OPCODE, len(_ORIGINS_MAGIC) + rows.nbytes) + _ORIGINS_MAGIC + rows.tobytes()


def is_origins_record(head: bytes) -> bool:
    """Return True if a record is an origins record. `head`: the first 17 bytes of the record, or the whole record."""
    return head[0] == ORIGINS_OPCODE and head[RECORD_HEAD_STRUCT.size :].startswith(_ORIGINS_MAGIC)


class MessageOrigins:
    """Origins of the messages of a chunk."""

    def __init__(self, record: bytes) -> None:
        """Parse a record. The bytes of the record may be invalid.

        Raises:
            ValueError: the record is not one of these.
        """
        import numpy as np

        content = memoryview(record)[RECORD_HEAD_STRUCT.size :]
        magic, rows = bytes(content[: len(_ORIGINS_MAGIC)]), content[len(_ORIGINS_MAGIC) :]
        if magic != _ORIGINS_MAGIC or len(rows) % _ORIGIN_BYTES:
            raise ValueError("the record has no origins")
        entries = np.frombuffer(rows, _ORIGIN_FIELDS)
        entries = entries[entries["offset"] < _OFFSET_MAX]
        keys = entries["offset"].astype(np.int64) + MESSAGE_HEAD_BYTES
        order = np.argsort(keys, kind="stable")
        self._message_keys, self._origin_times = keys[order], entries["origin_time"][order]

    @classmethod
    def read_record(cls, source: ByteReader, place: tuple[int, int], most: int) -> MessageOrigins:
        """Read an origins record of a file. `place`: its start and end offset. `most`: its maximum number of bytes.

        Raises:
            ValueError: the record is not an origins record, or is too large.
        """
        start, end = place
        if end - start > most:
            raise ChunkTooLargeError(end - start, most)
        return cls(source.pread(end - start, start))

    def find_origin_times(self, columns: ScanColumns, rows: slice) -> Any:
        """Return the origin of each message in these rows, in ns since the epoch; 0: no origin."""
        import numpy as np

        if not len(self._message_keys):
            return np.zeros(rows.stop - rows.start, np.int64)
        keys = columns.offset[rows]
        at = np.minimum(np.searchsorted(self._message_keys, keys), len(self._message_keys) - 1)
        return np.where(self._message_keys[at] == keys, self._origin_times[at], 0)
