"""Parses records in memory: the content of a chunk, or messages outside of chunks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mcap import records
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode

from msgq.recording.mcap_io.core import (
    SCAN_OTHER_RECORD,
    SCAN_TRUNCATED_RECORD,
    SCAN_ZERO_OPCODE,
    TIME_MAX,
    ScanColumns,
)
from msgq.recording.mcap_io.mcap_file import NON_MESSAGES_MAX
from msgq.recording.mcap_io.record_structs import RECORD_HEAD_STRUCT, RecordStream, read_chunk_index

MESSAGE_HEAD_BYTES = 22  # bytes before the payload: channel, sequence, log_time, publish_time
_ALL_CHANNEL_CODES = np.arange(1 << 16, dtype=np.int32)
_MESSAGE_TIME_STRUCT = struct.Struct("<H4xQ")  # channel, log_time: how a message begins
_VALID_CACHE_BYTES_MAX = 1 << 20
_RECORD_READERS: dict[int, Callable[[ReadDataStream], Any]] = {
    Opcode.HEADER: records.Header.read,
    Opcode.SCHEMA: records.Schema.read,
    Opcode.CHANNEL: records.Channel.read,
    Opcode.METADATA: records.Metadata.read,
    Opcode.STATISTICS: records.Statistics.read,
    Opcode.CHUNK_INDEX: read_chunk_index,
    Opcode.ATTACHMENT_INDEX: records.AttachmentIndex.read,
    Opcode.METADATA_INDEX: records.MetadataIndex.read,
    Opcode.SUMMARY_OFFSET: records.SummaryOffset.read,
    Opcode.DATA_END: records.DataEnd.read,
    Opcode.FOOTER: records.Footer.read,
}


def parse_record(record: bytes) -> Any:
    """Return an MCAP record with its head as an object of the `mcap` library.

    Raises:
        ValueError: the bytes are invalid, or the record is a schema with the id 0.
    """
    try:
        parsed = _RECORD_READERS[record[0]](RecordStream(record[RECORD_HEAD_STRUCT.size :]))
    except (McapError, ValueError, struct.error, EOFError, MemoryError) as error:
        raise ValueError(f"a field is invalid: {str(error) or type(error).__name__}") from None
    if isinstance(parsed, records.Schema) and parsed.id == 0:
        raise ValueError("a schema has the ID 0, which is reserved for channels without a schema")
    return parsed


def get_record_name(opcode: int) -> str:
    """Return the name of a record type, for texts."""
    return Opcode(opcode).name.lower().replace("_", " ") if opcode in set(Opcode) else f"record of opcode {opcode:#x}"


@dataclass(slots=True)
class ChunkContents:
    """Content of a chunk, or of a run of messages.

    Attributes:
        channel_ids: channel id of each message, uint16.
        log_times: log_time of each message in ns, uint64.
        record_offsets: byte offset of the record of each message, uint64.
        declarations: schema and channel records, each with the number of messages before it.
        bad_ranges: start offset, end offset and reason of each invalid range of bytes.
        skipped_bytes: bytes of records that do not belong into chunks. Readers skip these records.
        end_offset: byte offset at which the parser stopped.
    """

    channel_ids: np.ndarray[Any, np.dtype[np.uint16]]
    log_times: np.ndarray[Any, np.dtype[np.uint64]]
    record_offsets: np.ndarray[Any, np.dtype[np.uint64]]
    declarations: list[tuple[int, bytes]] = field(default_factory=list)
    bad_ranges: list[tuple[int, int, str]] = field(default_factory=list)
    skipped_bytes: int = 0
    end_offset: int = 0

    def group_by_channel(self) -> dict[int, np.ndarray[Any, np.dtype[np.uint64]]]:
        """Return the log_time and record offset of each message, by channel id; shape (messages, 2)."""
        order = np.argsort(self.channel_ids, kind="stable")
        numbers, begins = np.unique(self.channel_ids[order], return_index=True)
        places = np.stack((self.log_times, self.record_offsets), axis=1)[order]
        return dict(zip(numbers.tolist(), np.split(places, begins[1:]), strict=False))

    def count_messages_before_first_use(self) -> dict[int, int]:
        """Return for each channel id the number of messages before its first message."""
        numbers, firsts = np.unique(self.channel_ids, return_index=True)
        return dict(zip(numbers.tolist(), firsts.tolist(), strict=True))


class ChunkParser:
    """Parses chunks and messages. One thread at a time."""

    def __init__(self) -> None:
        self._columns = ScanColumns(16384)
        self._valid_declarations: set[bytes] = set()  # schemas and channels: chunks repeat them
        self._valid_declaration_bytes = 0

    def parse_chunk(self, content: bytes) -> ChunkContents:
        """Parse the content of a chunk."""
        return self._parse_content(content, outside=False)

    def parse_messages(self, content: bytes) -> ChunkContents:
        """Parse messages outside of chunks. Stops at another record, and at a truncated record."""
        return self._parse_content(content, outside=True)

    def _parse_content(self, content: bytes, outside: bool) -> ChunkContents:
        contents = ChunkContents(np.empty(0, np.uint16), np.empty(0, np.uint64), np.empty(0, np.uint64))
        pieces: list[tuple[Any, Any, Any]] = [(contents.channel_ids, contents.log_times, contents.record_offsets)]
        count = position = non_messages = known_bytes = 0
        while position < len(content):
            self._columns.clear_rows()
            reason, position = self._columns.scan_messages(
                content, position, _ALL_CHANNEL_CODES, 0, TIME_MAX, strict=outside
            )
            if rows := self._columns.row_count:
                pieces.append(self._copy_scanned_rows(rows))
                known_bytes += int(self._columns.length[:rows].sum()) + rows * (
                    RECORD_HEAD_STRUCT.size + MESSAGE_HEAD_BYTES
                )
                count += rows
            if reason in (SCAN_TRUNCATED_RECORD, SCAN_ZERO_OPCODE) or non_messages > NON_MESSAGES_MAX:
                if not outside:
                    contents.bad_ranges.append(
                        (position, len(content), _SCAN_STOP_REASONS.get(reason, f"{non_messages} other records"))
                    )
                break
            if reason == SCAN_OTHER_RECORD:
                opcode, length = RECORD_HEAD_STRUCT.unpack_from(content, position)
                if outside and opcode != Opcode.MESSAGE:
                    break
                non_messages, following = non_messages + 1, position + RECORD_HEAD_STRUCT.size + length
                if (
                    opcode == Opcode.MESSAGE and length >= MESSAGE_HEAD_BYTES
                ):  # its time has 64 bits, which only Python's integers hold
                    channel, time = _MESSAGE_TIME_STRUCT.unpack_from(content, position + RECORD_HEAD_STRUCT.size)
                    pieces.append(
                        (np.array([channel], np.uint16), np.array([time], np.uint64), np.array([position], np.uint64))
                    )
                    count += 1
                else:
                    self._parse_declaration(contents, content[position:following], position, count)
                known_bytes, position = known_bytes + RECORD_HEAD_STRUCT.size + length, following
        contents.channel_ids, contents.log_times, contents.record_offsets = map(
            np.concatenate, zip(*pieces, strict=True)
        )
        contents.end_offset = position
        contents.skipped_bytes = 0 if contents.bad_ranges else position - known_bytes
        return contents

    def _copy_scanned_rows(self, rows: int) -> tuple[Any, Any, Any]:
        columns = self._columns
        offset = (columns.offset[:rows] - RECORD_HEAD_STRUCT.size - MESSAGE_HEAD_BYTES).astype(np.uint64)
        return columns.channel_code[:rows].astype(np.uint16), columns.log_time[:rows].astype(np.uint64), offset

    def _parse_declaration(self, contents: ChunkContents, record: bytes, position: int, count: int) -> None:
        """Store a schema or channel record. An invalid record or message becomes a bad range."""
        if record not in self._valid_declarations:
            try:
                if record[0] == Opcode.MESSAGE:
                    raise ValueError(
                        f"a message has {len(record) - RECORD_HEAD_STRUCT.size} bytes, too few for its fields"
                    )
                parse_record(record)
            except ValueError as error:
                contents.bad_ranges.append(
                    (position, position + len(record), f"a {get_record_name(record[0])}: {error}")
                )
                return
            if self._valid_declaration_bytes + len(record) <= _VALID_CACHE_BYTES_MAX:
                self._valid_declarations.add(record)
                self._valid_declaration_bytes += len(record)
        contents.declarations.append((count, record))


_SCAN_STOP_REASONS = {
    SCAN_TRUNCATED_RECORD: "a record ends after the end of its chunk or file",
    SCAN_ZERO_OPCODE: "zeros instead of a record",
}
