"""Scans the records of an MCAP file that may be damaged, truncated, or still open for writing.

If a record has an invalid length, the scan continues at the next valid chunk. Damage therefore costs only the damaged
bytes and the bytes up to the next chunk.
"""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from mcap.opcode import Opcode

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.compression import decompress_data, read_decompressed_size
from msgq.recording.mcap_io.core import crc32
from msgq.recording.mcap_io.record_structs import CHUNK_HEAD_STRUCT, MCAP_MAGIC, RECORD_HEAD_STRUCT

CHUNK_BYTES_MAX = 256 << 20  # maximum uncompressed bytes of a chunk, unless the user sets a larger limit
RECORD_BYTES_MAX = 2**31 - 1  # Arrow cannot store longer records, so they count as damage
FIRST_PRIVATE_OPCODE = 0x80  # opcodes from here on are free for applications; others ignore them
DAMAGE_OPCODE = 0  # no opcode of MCAP's
_COMPRESSION_NAME_BYTES = 16  # maximum bytes of the name of a compression
_CHUNK_HEAD_BYTES = RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + _COMPRESSION_NAME_BYTES + 8
_BLOCK_BYTES = 1 << 20
# A chunk of less than 4 GiB. The search tries each byte, because a chunk may begin within a wrong match.
_CHUNK_PATTERN = re.compile(rb"\x06(?=.{4}\0{4}.{28}(?:\x04\0\0\0zstd|\x03\0\0\0lz4|\0\0\0\0))", re.DOTALL)


class ChunkTooLargeError(ValueError):
    """A chunk exceeds the memory limit. The chunk may be valid."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(f"{size} bytes exceed max_chunk_bytes (--max-chunk-bytes), which is {most}")


class ScannedRecord(NamedTuple):
    """A record, or a range of skipped bytes.

    Attributes:
        opcode: opcode of the record; DAMAGE for skipped bytes.
        start_offset: byte offset of the begin in the file.
        end_offset: byte offset of the end in the file.
        head_bytes: first bytes of the record, at most as many as a chunk has before its data.
        damage_reason: reason why the bytes are skipped.
    """

    opcode: int
    start_offset: int
    end_offset: int
    head_bytes: bytes
    damage_reason: str = ""


class RecordScanner:
    """Iterates over the records between two byte offsets. Ends at the end of the data section, or of the file.

    Attributes:
        position: byte offset of the next record. A caller that has read more records sets it.
    """

    def __init__(self, source: ByteReader, position: int, end: int, most: int) -> None:
        """Set the range.

        `most` limits the bytes of a chunk that may be decompressed in the search for the next chunk.
        """
        self.position = position
        self._source, self._end_offset, self._max_chunk_bytes = source, end, most
        self._last_record_end = (-1, b"")

    def __iter__(self) -> RecordScanner:
        return self

    def __next__(self) -> ScannedRecord:
        if self.position >= self._end_offset:
            raise StopIteration
        record = self._scan_record(self.position)
        if record.opcode in (Opcode.DATA_END, Opcode.FOOTER):
            record = self._check_data_end(record)
        self.position = record.end_offset
        return record

    def _read_record_head(self, position: int) -> bytes:
        if self._last_record_end[0] != position:
            self._last_record_end = (
                position,
                self._source.pread(min(_CHUNK_HEAD_BYTES, self._end_offset - position), position),
            )
        return self._last_record_end[1]

    def _scan_record(self, position: int) -> ScannedRecord:
        """Return the record, or the damaged bytes, at an offset."""
        head = self._read_record_head(position)
        opcode, length = (
            RECORD_HEAD_STRUCT.unpack_from(head) if len(head) >= RECORD_HEAD_STRUCT.size else (DAMAGE_OPCODE, 0)
        )
        following = position + RECORD_HEAD_STRUCT.size + length
        if opcode == DAMAGE_OPCODE or following > self._end_offset:
            return self._skip_damaged_bytes(position, head)
        least = _read_chunk_length(head) if opcode == Opcode.CHUNK else 0
        if length < least:
            return self._skip_damaged_bytes(position, head)
        doubtful = not self._is_plausible_record(following) or (
            least > 0 and self._is_complete_record(position + RECORD_HEAD_STRUCT.size + least)
        )
        if length != least and doubtful:
            chunk = self._find_next_chunk(position)
            if chunk < following + RECORD_HEAD_STRUCT.size:  # its length would hide a chunk, or is too small
                reason = _explain_damage(head, "has a wrong length; reading continues at the next chunk")
                return ScannedRecord(DAMAGE_OPCODE, position, chunk, head, reason)
        return ScannedRecord(opcode, position, following, head)

    def _is_plausible_record(self, position: int) -> bool:
        """Return True if a record may start here, complete or truncated."""
        head = self._read_record_head(position)
        if len(head) < RECORD_HEAD_STRUCT.size or self._is_complete_record(position):
            return True
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(head)
        is_known: bool = 0 < opcode <= Opcode.DATA_END or opcode >= FIRST_PRIVATE_OPCODE
        return is_known and length <= RECORD_BYTES_MAX

    def _is_complete_record(self, position: int) -> bool:
        """Return True if a record that starts here ends within the range."""
        head = self._read_record_head(position)
        fits: bool = (
            len(head) >= RECORD_HEAD_STRUCT.size
            and RECORD_HEAD_STRUCT.unpack_from(head)[1] <= self._end_offset - position - RECORD_HEAD_STRUCT.size
        )
        return fits and head[0] != DAMAGE_OPCODE

    def _skip_damaged_bytes(self, position: int, head: bytes) -> ScannedRecord:
        chunk = self._find_next_chunk(position)
        if head[:1] == b"\0":
            reason = "zeros instead of a record"
        elif chunk == self._end_offset:
            reason = "the file ends within a record: the file was truncated, or is still being written"
        else:
            reason = _explain_damage(head, "does not fit into the file; reading continues at the next chunk")
        return ScannedRecord(DAMAGE_OPCODE, position, chunk, head, reason)

    def _find_next_chunk(self, position: int) -> int:
        """Return the byte offset of the next valid chunk after `position`; the end if no chunk follows."""
        for block_at in range(position + 1, self._end_offset, _BLOCK_BYTES):
            block = self._source.pread(min(_BLOCK_BYTES + _CHUNK_HEAD_BYTES, self._end_offset - block_at), block_at)
            for match in _CHUNK_PATTERN.finditer(block):
                start = block_at + match.start()
                length = RECORD_HEAD_STRUCT.unpack_from(block, match.start())[1]
                if start + RECORD_HEAD_STRUCT.size + length > self._end_offset or length != _read_chunk_length(
                    block[match.start() :]
                ):
                    continue
                if self._is_valid_chunk(start, RECORD_HEAD_STRUCT.size + length):
                    return start
        return self._end_offset

    def _is_valid_chunk(self, start: int, length: int) -> bool:
        """Return True if the bytes are a valid chunk, as far as the memory limit permits a check."""
        try:
            if length <= self._max_chunk_bytes + _CHUNK_HEAD_BYTES:
                decompress_chunk(self._source.pread(length, start), self._max_chunk_bytes)
        except ChunkTooLargeError:
            return True
        except ValueError:
            return False
        return True

    def _check_data_end(self, record: ScannedRecord) -> ScannedRecord:
        """Return the DataEnd record if only the end of the file follows. Otherwise return a range of skipped bytes."""
        position, last = record.start_offset, record
        while position < self._end_offset:
            last = self._scan_record(position)
            position = last.end_offset
            if last.opcode in (Opcode.CHUNK, Opcode.MESSAGE) or (
                last.opcode == DAMAGE_OPCODE and position < self._end_offset
            ):
                position = last.start_offset if last.opcode else position
                reason = _explain_damage(record.head_bytes, "marks the end of the data, but more data follow")
                return ScannedRecord(DAMAGE_OPCODE, record.start_offset, position, record.head_bytes, reason)
            if last.opcode == Opcode.FOOTER and self._source.pread(len(MCAP_MAGIC), position) == MCAP_MAGIC:
                return self._check_file_end(record, position + len(MCAP_MAGIC))
        return ScannedRecord(Opcode.DATA_END, record.start_offset, self._end_offset, record.head_bytes)

    def _check_file_end(self, record: ScannedRecord, end: int) -> ScannedRecord:
        """Return the record if it ends the file. Otherwise return a range to skip, because another file may follow."""
        if end >= self._end_offset:
            return ScannedRecord(Opcode.DATA_END, record.start_offset, self._end_offset, record.head_bytes)
        text = f"an MCAP file ends at byte {end}, but {self._end_offset - end} bytes follow"
        if self._source.pread(len(MCAP_MAGIC), end) == MCAP_MAGIC:
            return ScannedRecord(
                DAMAGE_OPCODE,
                record.start_offset,
                min(end + len(MCAP_MAGIC), self._end_offset),
                record.head_bytes,
                f"{text}: another file",
            )
        return ScannedRecord(DAMAGE_OPCODE, record.start_offset, self._end_offset, record.head_bytes, text)


def _explain_damage(head: bytes, fault: str) -> str:
    opcode, length = RECORD_HEAD_STRUCT.unpack_from(head)
    return f"a record (opcode {opcode:#x}) of {length} bytes {fault}"


def _read_chunk_length(head: bytes) -> int:
    """Return the bytes of a chunk record after its head, according to the length of its data; -1: unknown."""
    if len(head) < RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + 8:
        return -1
    name_bytes: int = CHUNK_HEAD_STRUCT.unpack_from(head, RECORD_HEAD_STRUCT.size)[4]
    if (
        name_bytes > _COMPRESSION_NAME_BYTES
        or len(head) < RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + name_bytes + 8
    ):
        return -1
    size: int = struct.unpack_from("<Q", head, RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size + name_bytes)[0]
    return CHUNK_HEAD_STRUCT.size + name_bytes + 8 + size


def read_unknown_chunk_fields(record: bytes) -> bytes:
    """Return the fields of a complete chunk record that MCAP does not define yet."""
    return record[RECORD_HEAD_STRUCT.size + _read_chunk_length(record[:_CHUNK_HEAD_BYTES]) :]


def decompress_chunk(record: bytes, most: int) -> bytes:
    """Return the decompressed content of a chunk record. Bytes after the known fields are ignored, as MCAP requires.

    Raises:
        ValueError: the record is invalid, or its CRC is wrong.
        TooLargeError: the content has more than `most` bytes.
    """
    opcode, length = RECORD_HEAD_STRUCT.unpack_from(record)
    if opcode != Opcode.CHUNK or length != len(record) - RECORD_HEAD_STRUCT.size or length < CHUNK_HEAD_STRUCT.size + 8:
        raise ValueError("the summary refers to a position without a chunk")
    _, _, size, crc, name_bytes = CHUNK_HEAD_STRUCT.unpack_from(record, RECORD_HEAD_STRUCT.size)
    name_at = RECORD_HEAD_STRUCT.size + CHUNK_HEAD_STRUCT.size
    data_at = name_at + name_bytes + 8
    end = data_at + (struct.unpack_from("<Q", record, data_at - 8)[0] if data_at <= len(record) else 0)
    if end > len(record):
        raise ValueError("the lengths of the chunk contradict each other")
    if size > RECORD_BYTES_MAX:
        raise ValueError(f"the stated size of {size} bytes is too large")
    name = record[name_at : data_at - 8].decode(errors="replace")
    data = memoryview(record)[data_at:end]
    if size > most:
        stated_size = read_decompressed_size(name, data)
        if stated_size not in (None, size):
            raise ValueError(f"the decompressed data have {stated_size} bytes instead of {size}")
        raise ChunkTooLargeError(size, most)
    content = decompress_data(name, data, size)
    if crc and crc32(content) != crc:
        raise ValueError("the CRC of the chunk is wrong")
    return content
