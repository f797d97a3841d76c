"""Finds the blocks of an MCAP file, and the records between the blocks.

The summary at the end of a file lists the chunks. Other parts of the file are scanned record by record. A file without
a summary is scanned completely, so truncated files open like complete files.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable
from dataclasses import replace

from mcap import records
from mcap.opcode import Opcode

from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX, ChannelRegistry
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, TIME_MAX, ScanColumns
from msgq.recording.mcap_io.crc import DataCrc
from msgq.recording.mcap_io.data_block import DataBlock, ExtraRecord, clip_block
from msgq.recording.mcap_io.origins import is_origins_record
from msgq.recording.mcap_io.record_scanner import DAMAGE_OPCODE, ChunkTooLargeError, RecordScanner
from msgq.recording.mcap_io.record_structs import CHUNK_HEAD_STRUCT, MCAP_MAGIC, MESSAGE_HEAD_BYTES, RECORD_HEAD_STRUCT
from msgq.recording.mcap_io.summary import SummarySection, find_chunk_end_offset, read_summary
from msgq.recording.mcap_io.unknown_records import is_foreign_record

EXTRA_RECORDS_MAX = 1 << 20
_BLOCK_BYTES = 1 << 20


class BlockMapper:
    """Maps one file. Use an object once. The registry learns the schemas, channels and metadata of the file.

    Attributes:
        blocks: blocks of messages in the order of the file.
        extra_records: attachments, metadata, and records that MCAP does not define, in the order of the file.
        is_complete: True if the file was closed properly and ends with a summary.
        statistics: statistics of the summary; None: no statistics, or only a part of the file is read.
        data_end_offset: byte offset of the DataEnd record; None: a scan has not found the record.
    """

    def __init__(
        self,
        source: ByteReader,
        size: int,
        registry: ChannelRegistry,
        max_chunk_bytes: int,
        report_problem: Callable[[int, str], None],
    ) -> None:
        """Prepare for a file of `size` bytes. `report_problem` gets the byte offset and the text of each problem."""
        self.blocks: list[DataBlock] = []
        self.extra_records: list[ExtraRecord] = []
        self.is_complete = False
        self.statistics: records.Statistics | None = None
        self.data_end_offset: int | None = None
        self._source, self._file_bytes, self._registry = source, size, registry
        self._max_chunk_bytes, self._report_problem = max_chunk_bytes, report_problem
        self._data_crc: DataCrc | None = (
            DataCrc()
        )  # checksum of the data, if messages are outside of chunks; None: damaged
        self._origins_range = (0, 0)  # start and end of the last record with origins

    def map_file(self, span: tuple[int, int] | None, needs_clock_records: bool) -> None:
        """Find all blocks, or the blocks within a span of byte offsets; see `McapFile`.

        `needs_clock_records`: True: the registry also learns the clock records before the span.
        """
        position = self._read_header()
        if (
            span is not None and self._registry.header.profile == metadata_keys.MSGQ_PROFILE
        ):  # each chunk has its channels
            if needs_clock_records:
                self._map_records(position, span[0])
                self.blocks.clear()
            self._map_records(max(position, span[0]), min(span[1], self._file_bytes))
            return self._allow_any_channel_in_last_block()
        record_count = len(self.extra_records)
        summary = read_summary(
            self._source, self._file_bytes, self._max_chunk_bytes, self._report_problem
        ) or SummarySection(self._file_bytes, is_complete=False)
        if not self._map_by_summary(position, summary):
            self.blocks.clear()
            del self.extra_records[record_count:]
            self.statistics, self._data_crc = None, DataCrc()
            self._map_records(position, self._file_bytes)
        for opcode, start, end in summary.unknown_records:
            self._add_extra_record(opcode, start, end, in_summary=True)
        if not self.is_complete:
            self._allow_any_channel_in_last_block()
        if span is not None:
            self.statistics = None
            self.blocks = [clipped for block in self.blocks if (clipped := clip_block(block, *span)) is not None]
        return None

    def _map_by_summary(self, position: int, summary: SummarySection) -> bool:
        """Add the chunks of the summary. Return False if the bytes between the chunks are invalid."""
        self.is_complete = summary.is_complete
        for opcode, content, offset in summary.declarations:
            self._registry.learn_record(opcode, content, offset)
        self.statistics = summary.statistics
        good = True
        for index in summary.chunk_indexes:
            good &= self._map_records(position, index.chunk_start_offset)
            place = (index.chunk_start_offset, index.chunk_length, index.uncompressed_size)
            times = (index.message_start_time, index.message_end_time)
            chunk = DataBlock(*place, *times, set(index.message_index_offsets) or None, True)
            self.blocks.append(self._attach_origins(chunk))
            position = find_chunk_end_offset(index)
        good &= self._map_records(position, summary.start_offset)
        return good or not summary.chunk_indexes

    def _allow_any_channel_in_last_block(self) -> None:
        """Allow messages of any channel in the last chunk, because its message index may be missing or truncated."""
        if self.blocks:
            self.blocks[-1] = replace(self.blocks[-1], channel_ids=None)

    def _read_header(self) -> int:
        """Read the header and the recorder's metadata after the header. Return the byte offset after both."""
        scanner = RecordScanner(self._source, len(MCAP_MAGIC), self._file_bytes, self._max_chunk_bytes)
        for opcode, record in zip((Opcode.HEADER, Opcode.METADATA), scanner, strict=False):
            if record.opcode != opcode or record.end_offset - record.start_offset > _BLOCK_BYTES:
                return record.start_offset
            content = self._source.pread(record.end_offset - record.start_offset, record.start_offset)[
                RECORD_HEAD_STRUCT.size :
            ]
            self._registry.learn_record(opcode, content, record.start_offset)
            if opcode == Opcode.METADATA:
                self._add_extra_record(opcode, record.start_offset, record.end_offset)
        return scanner.position

    def _map_records(self, position: int, end: int) -> bool:
        """Scan the records between two byte offsets for blocks and descriptions.

        Return False if some bytes are invalid.
        """
        sound = True
        scanner = RecordScanner(self._source, position, end, self._max_chunk_bytes)
        for opcode, start, following, head, reason in scanner:
            length = following - start - RECORD_HEAD_STRUCT.size
            if opcode == DAMAGE_OPCODE:
                self._report_problem(start, reason)
                self._allow_any_channel_in_last_block()
                self._data_crc, sound = None, False
            elif opcode == Opcode.MESSAGE:
                scanner.position = self._map_messages(start, end)
            elif opcode == Opcode.CHUNK and length >= CHUNK_HEAD_STRUCT.size:
                first, last, size, *_ = CHUNK_HEAD_STRUCT.unpack_from(head, RECORD_HEAD_STRUCT.size)
                chunk = DataBlock(start, following - start, size, first, last, None, True)
                self.blocks.append(self._attach_origins(chunk))
            elif is_origins_record(head):
                self._origins_range = (start, following)
            elif opcode == Opcode.DATA_END:
                self.data_end_offset = start
                self._check_data_crc(start, head)
            elif opcode == Opcode.MESSAGE_INDEX and length >= 2 and self.blocks:
                self._add_channel_to_last_block(struct.unpack_from("<H", head, RECORD_HEAD_STRUCT.size)[0])
            elif opcode in (Opcode.SCHEMA, Opcode.CHANNEL, Opcode.METADATA):
                length = min(length, METADATA_BYTES_MAX)  # longer records are not used
                self._registry.learn_record(opcode, self._source.pread(length, start + RECORD_HEAD_STRUCT.size), start)
            elif opcode in (Opcode.CHUNK, Opcode.MESSAGE_INDEX):
                self._report_problem(
                    start, f"a record of opcode {opcode:#x} with {length} bytes is too short, or follows no chunk"
                )
            if opcode in (Opcode.ATTACHMENT, Opcode.METADATA) or is_foreign_record(head):
                self._add_extra_record(opcode, start, following)
        return sound

    def _add_extra_record(self, opcode: int, start: int, end: int, in_summary: bool = False) -> None:
        if len(self.extra_records) < EXTRA_RECORDS_MAX:
            self.extra_records.append(ExtraRecord(opcode, start, end - start, in_summary))
        else:
            self._report_problem(
                start, f"this record was skipped: at most {EXTRA_RECORDS_MAX} records besides messages are read"
            )

    def _attach_origins(self, chunk: DataBlock) -> DataBlock:
        """Return the chunk with its origins record, if this record ends at the start of the chunk."""
        return replace(chunk, origins_range=self._origins_range) if self._origins_range[1] == chunk.offset else chunk

    def _add_channel_to_last_block(self, number: int) -> None:
        """Add a channel id to the last chunk."""
        last = self.blocks[-1]
        if last.channel_ids is not None:
            last.channel_ids.add(number)
        elif last.is_chunk:
            self.blocks[-1] = replace(last, channel_ids={number})

    def _map_messages(self, position: int, end: int) -> int:
        """Add a block of messages outside of chunks. Return the byte offset of its end."""
        buffer = self._source.pread(min(_BLOCK_BYTES, end - position), position)
        length = RECORD_HEAD_STRUCT.unpack_from(buffer)[1]
        if len(buffer) < RECORD_HEAD_STRUCT.size + length <= self._max_chunk_bytes:
            buffer = self._source.pread(RECORD_HEAD_STRUCT.size + length, position)
        elif RECORD_HEAD_STRUCT.size + length > self._max_chunk_bytes:
            self._report_problem(
                position, f"a message was skipped: {ChunkTooLargeError(length, self._max_chunk_bytes)}"
            )
            return position + RECORD_HEAD_STRUCT.size + int(length)
        columns = ScanColumns(len(buffer) // MESSAGE_HEAD_BYTES + 1)
        size = columns.scan_messages(buffer, 0, array("i", [0]) * CHANNEL_ID_COUNT, 0, TIME_MAX, strict=True)[1]
        if size == 0:
            self._report_problem(position, "a message is too short or too long, or has an invalid time")
            return position + RECORD_HEAD_STRUCT.size + int(length)
        if self._data_crc is not None:  # only this CRC covers messages outside of chunks
            self._data_crc.add_bytes(self._source, memoryview(buffer)[:size], position)
        times = columns.log_time[: columns.row_count]
        channels = None  # unknown: each block may have messages of all channels
        self.blocks.append(DataBlock(position, size, size, int(times.min()), int(times.max()), channels, False))
        return position + size

    def _check_data_crc(self, end: int, head: bytes) -> None:
        """If messages are outside of chunks, compare the CRC of the data section with the CRC in the DataEnd record."""
        opcode, length = RECORD_HEAD_STRUCT.unpack_from(head)
        stated_crc = (
            int.from_bytes(head[RECORD_HEAD_STRUCT.size : RECORD_HEAD_STRUCT.size + 4], "little") if length >= 4 else 0
        )
        if self._data_crc is None or not self._data_crc.position or opcode != Opcode.DATA_END or not stated_crc:
            return
        self._data_crc.read_up_to(self._source, end)
        if self._data_crc.value != stated_crc:
            text = "messages outside of chunks, descriptions or attachments are damaged"
            self._report_problem(end, f"the data section's CRC is wrong: {text}")
