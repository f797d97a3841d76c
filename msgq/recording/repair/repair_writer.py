"""Writes the new file of a repair, according to its plan."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mcap import records
from mcap.opcode import Opcode

from msgq import __version__
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import crc32
from msgq.recording.mcap_io.record_scanner import decompress_chunk, read_unknown_chunk_fields
from msgq.recording.mcap_io.record_structs import (
    CHUNK_HEAD_STRUCT,
    MCAP_MAGIC,
    MESSAGE_INDEX_HEAD_STRUCT,
    RECORD_HEAD_STRUCT,
    encode_records,
)
from msgq.recording.mcap_io.segment_writer import ChunkCompressor
from msgq.recording.mcap_io.unknown_records import SKIPPED_BYTES_MAGIC, SKIPPED_BYTES_OPCODE
from msgq.recording.repair.chunk_parser import ChunkContents, ChunkParser
from msgq.recording.repair.repair_plan import RepairAction, RepairPlan, RepairStep

_SKIPPED_RECORD_BYTES_MAX = 1 << 30  # maximum bytes of a skipped record
_BLOCK_BYTES = 1 << 20


class RepairWriter:
    """Writes a repaired file. One thread at a time."""

    def __init__(self, old: ByteReader, new: int, most: int, report_position: Callable[[int], object]) -> None:
        """Set the files.

        Args:
            old: bytes of the old file.
            new: descriptor of the new file.
            most: maximum bytes of a chunk before compression.
            report_position: callable for the byte offset in the old file, after each block and each chunk.
        """
        self._source, self._new_fd, self._max_chunk_bytes = old, new, most
        self._report_position = report_position
        self._written_bytes = self._written_crc = 0
        self._chunk_parser = ChunkParser()

    def copy_range(self, start: int, end: int) -> None:
        """Copy the bytes between two offsets of the old file."""
        while start < end:
            data = self._source.pread(min(_BLOCK_BYTES, end - start), start)
            if not data:
                raise OSError(0, "the file became shorter during the repair")
            self._write_bytes(data)
            start += len(data)
            self._report_position(start)

    def write_file(self, plan: RepairPlan) -> None:
        """Write the whole file. The call stores the new offsets in the plan."""
        self._write_bytes(MCAP_MAGIC)
        if not plan.has_header:
            self._write_bytes(_build_header(plan))
        for number, step in enumerate(plan.steps):
            if number == plan.leading_position:
                self._write_bytes(b"".join(plan.leading_declarations.values()))
            self._write_step(step, plan)
        if plan.leading_position == len(plan.steps):
            self._write_bytes(b"".join(plan.leading_declarations.values()))
        schemas = [record for (opcode, _), record in plan.declarations.items() if opcode == Opcode.SCHEMA]
        channels = [record for (opcode, _), record in plan.declarations.items() if opcode == Opcode.CHANNEL]
        self._write_bytes(
            plan.summary_builder.build_data_end_and_summary(self._written_bytes, schemas, channels, self._written_crc)
        )

    def _write_bytes(self, data: bytes) -> None:
        self._written_crc = crc32(data, self._written_crc)
        self._written_bytes += len(data)
        pending = memoryview(data)
        while pending:
            pending = pending[os.write(self._new_fd, pending) :]

    def _write_step(self, step: RepairStep, plan: RepairPlan) -> None:
        index, moved, record = plan.summary_builder, self._written_bytes - step.start_offset, step.parsed_record
        if step.repair_action is RepairAction.PASS_OVER:
            for start in range(step.start_offset, step.end_offset, _SKIPPED_RECORD_BYTES_MAX):
                end = min(step.end_offset, start + _SKIPPED_RECORD_BYTES_MAX)
                self._write_bytes(
                    RECORD_HEAD_STRUCT.pack(SKIPPED_BYTES_OPCODE, len(SKIPPED_BYTES_MAGIC) + end - start)
                    + SKIPPED_BYTES_MAGIC
                )
                self.copy_range(start, end)
        elif step.repair_action is RepairAction.KEEP or (
            step.repair_action is RepairAction.ENCLOSE and not plan.has_chunks
        ):
            self.copy_range(step.start_offset, step.end_offset)
            if isinstance(record, records.ChunkIndex):
                offsets = {channel: at + moved for channel, at in record.message_index_offsets.items()}
                start = record.chunk_start_offset + moved
                index.chunk_indexes.append(replace(record, chunk_start_offset=start, message_index_offsets=offsets))
            elif isinstance(record, records.AttachmentIndex):
                index.attachment_indexes.append(replace(record, offset=record.offset + moved))
            elif isinstance(record, records.MetadataIndex):
                index.metadata_indexes.append(replace(record, offset=record.offset + moved))
        else:
            plan.summary_builder.chunk_indexes.append(self._write_chunk(step))

    def _write_chunk(self, step: RepairStep) -> records.ChunkIndex:
        """Write a chunk with its valid records and a new index."""
        at = self._written_bytes
        record: records.ChunkIndex = step.parsed_record
        content, tail = self._source.pread(step.end_offset - step.start_offset, step.start_offset), b""
        if step.repair_action is not RepairAction.ENCLOSE:
            tail = read_unknown_chunk_fields(content)
            content = decompress_chunk(content, self._max_chunk_bytes)
        inside = self._chunk_parser.parse_chunk(content)
        if step.repair_action is RepairAction.INDEX:
            self.copy_range(step.start_offset, step.end_offset)
        else:
            content = _remove_ranges(content, inside.bad_ranges)
            inside = self._chunk_parser.parse_chunk(content)
            data, record = _build_chunk(content, inside, record.compression if record is not None else "zstd", tail)
            self._write_bytes(data)
            self._report_position(step.end_offset)
        offsets, begin = {}, self._written_bytes
        for channel, places in inside.group_by_channel().items():
            entries = places.astype("<u8").tobytes()
            offsets[channel] = self._written_bytes
            self._write_bytes(
                MESSAGE_INDEX_HEAD_STRUCT.pack(Opcode.MESSAGE_INDEX, 6 + len(entries), channel, len(entries)) + entries
            )
        changes: dict[str, Any] = {
            "message_index_offsets": offsets,
            "message_index_length": self._written_bytes - begin,
        }
        return replace(record, chunk_start_offset=at, **changes)


def _build_chunk(
    content: bytes, inside: ChunkContents, compression: str, tail: bytes
) -> tuple[bytes, records.ChunkIndex]:
    """Return a chunk record and its index, for offset 0 and without message indexes."""
    data = ChunkCompressor(compression or "none", None).compress_chunk(content)
    first, last = int(inside.log_times.min()) if len(inside.log_times) else 0, int(inside.log_times.max(initial=0))
    head = CHUNK_HEAD_STRUCT.pack(first, last, len(content), crc32(content), len(compression)) + compression.encode()
    body = head + len(data).to_bytes(8, "little") + data + tail
    index = records.ChunkIndex(
        chunk_length=RECORD_HEAD_STRUCT.size + len(body),
        chunk_start_offset=0,
        compression=compression,
        compressed_size=len(data),
        message_end_time=last,
        message_index_length=0,
        message_index_offsets={},
        message_start_time=first,
        uncompressed_size=len(content),
    )
    return RECORD_HEAD_STRUCT.pack(Opcode.CHUNK, len(body)) + body, index


def _remove_ranges(content: bytes, bad: list[tuple[int, int, str]]) -> bytes:
    """Return the content without the bad ranges."""
    pieces, position = [], 0
    for start, end, _ in bad:
        pieces.append(content[position:start])
        position = end
    return b"".join((*pieces, content[position:]))


def _build_header(plan: RepairPlan) -> bytes:
    """Return a header for a file that has lost its header."""
    names = {step.parsed_record.name for step in plan.steps if isinstance(step.parsed_record, records.MetadataIndex)}
    profile = metadata_keys.MSGQ_PROFILE if metadata_keys.RECORDING_METADATA in names else ""
    return encode_records(records.Header(profile=profile, library=f"msgq-bus {__version__}"))
