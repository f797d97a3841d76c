"""Writer of one MCAP file. Each chunk contains its schemas and channels, so readers need no other chunk.

The `mcap` library encodes all records except messages and message indexes, which are encoded by faster code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from mcap import records
from mcap.opcode import Opcode

from msgq import __version__
from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema
from msgq.errors import InvalidValueError
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import BoundaryLosses
from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX
from msgq.recording.mcap_io.channel_statistics import ChannelStatistics
from msgq.recording.mcap_io.core import ChunkBuffer, combine_crc32, crc32
from msgq.recording.mcap_io.origins import build_origins_record
from msgq.recording.mcap_io.raw_chunk import RawChunk
from msgq.recording.mcap_io.record_scanner import CHUNK_BYTES_MAX
from msgq.recording.mcap_io.record_structs import (
    CHUNK_HEAD_STRUCT,
    MCAP_MAGIC,
    MESSAGE_INDEX_HEAD_STRUCT,
    RECORD_HEAD_STRUCT,
    ExtensibleHeader,
    ExtensibleMetadata,
    build_summary_section,
    drop_unknown_fields,
    encode_chunk_index,
    encode_records,
)
from msgq.recording.mcap_io.segment_file import CommitStep, SegmentFile

COMPRESSION_NAMES = ("zstd", "lz4", "none")


@dataclass(frozen=True, slots=True)
class EncodedChannel:
    """A channel and its schema, as objects and as bytes for the start of a chunk.

    The bytes lack fields that MCAP does not define yet, because the Python library `mcap` takes such fields within a
    chunk for the next record. The summary has these fields.
    """

    channel_record: records.Channel
    schema_record: records.Schema | None
    encoded_records: bytes = field(init=False)

    def __post_init__(self) -> None:
        records = map(drop_unknown_fields, filter(None, (self.schema_record, self.channel_record)))
        object.__setattr__(self, "encoded_records", encode_records(*records))


def encode_channel(
    number: int,
    endpoint: str,
    schema: Schema | None,
    epoch: int,
    counting: str,
    tracked: bool = False,
    source: MessageSource = TOPIC_SOURCE,
    boundary_losses: BoundaryLosses | None = None,
) -> EncodedChannel:
    """Return a channel of a msgq recording. For its metadata, see `metadata_keys.build_channel_metadata`."""
    record = None
    if schema is not None and metadata_keys.needs_schema_record(schema):
        record = records.Schema(id=number, name=schema.name, encoding=schema.schema_encoding, data=schema.data)
    channel = records.Channel(
        id=number,
        topic=endpoint,
        message_encoding=schema.encoding if schema else "",
        metadata=metadata_keys.build_channel_metadata(
            epoch, counting, tracked, source, boundary_losses and boundary_losses.build_metadata()
        ),
        schema_id=number if record else 0,
    )
    return EncodedChannel(channel, record)


#: Least and greatest level of each compression with levels.
_LEVEL_RANGES = {"zstd": (-131072, 22), "lz4": (-65537, 16)}
#: Limits of the option `chunk_bytes`. A chunk and its last message then stay below the default limit of readers.
CHUNK_OPTION_BYTES = range(1024, CHUNK_BYTES_MAX // 2 + 1)


def check_chunk_bytes(chunk_bytes: int) -> None:
    """Raise InvalidValueError if a chunk would be too small or too large."""
    if chunk_bytes not in CHUNK_OPTION_BYTES:
        limits = f"{CHUNK_OPTION_BYTES[0]} to {CHUNK_OPTION_BYTES[-1]} bytes"
        raise InvalidValueError(f"chunk_bytes={chunk_bytes} is out of range; use {limits}")


class ChunkCompressor:
    """Compresses chunks with one algorithm. One thread at a time."""

    def __init__(self, name: str, level: int | None) -> None:
        if name not in COMPRESSION_NAMES:
            raise InvalidValueError(f"compression {name!r} is unknown; use one of {', '.join(COMPRESSION_NAMES)}")
        least, greatest = _LEVEL_RANGES.get(name, (-math.inf, math.inf))
        if level is not None and not least <= level <= greatest:
            raise InvalidValueError(f"level={level} is out of range; use {least} to {greatest} for {name}")
        self.compression_name = "" if name == "none" else name
        self._compression_level = level
        if name == "zstd":
            import zstandard

            self._zstd_compressor = zstandard.ZstdCompressor(level=1 if level is None else level)

    def compress_chunk(self, content: bytes | memoryview[int]) -> bytes | memoryview[int]:
        """Return the compressed content of a chunk; without compression, `content` itself."""
        if not self.compression_name:
            return content
        if self.compression_name == "zstd":
            return self._zstd_compressor.compress(content)
        import lz4.frame

        level = 0 if self._compression_level is None else self._compression_level
        compressed: bytes = lz4.frame.compress(content, compression_level=level)
        return compressed


_NO_COMPRESSION = ChunkCompressor("none", None)


@dataclass(slots=True)
class SummaryBuilder:
    """Content of the summary at the end of a file.

    Attributes:
        message_counts: messages by channel id.
        chunk_indexes: index records of chunks.
        attachment_indexes: index records of attachments.
        metadata_indexes: index records of metadata.
        unknown_records: records of the summary that MCAP does not define.
        time_range: first and last log_time in ns; empty without messages.
    """

    message_counts: dict[int, int] = field(default_factory=dict)
    chunk_indexes: list[records.ChunkIndex] = field(default_factory=list)
    attachment_indexes: list[records.AttachmentIndex] = field(default_factory=list)
    metadata_indexes: list[records.MetadataIndex] = field(default_factory=list)
    unknown_records: list[bytes] = field(default_factory=list)
    time_range: list[int] = field(default_factory=list)

    def count_messages(self, channel: int, messages: int) -> None:
        """Add messages of a channel."""
        self.message_counts[channel] = self.message_counts.get(channel, 0) + messages

    def extend_time_range(self, *times: int) -> None:
        """Extend the time range to these log_times."""
        if times:
            self.time_range = [min((*self.time_range, *times)), max((*self.time_range, *times))]

    def prepare_chunk(self, index: records.ChunkIndex, counts: Mapping[int, int]) -> list[CommitStep]:
        """Return the steps that add a chunk. `counts`: its messages by channel id."""
        times = *self.time_range, index.message_start_time, index.message_end_time
        totals = {number: self.message_counts.get(number, 0) + count for number, count in counts.items()}
        return [
            partial(self.chunk_indexes.append, index),
            partial(setattr, self, "time_range", [min(times), max(times)]),
            partial(self.message_counts.update, totals),
        ]

    def build_data_end_and_summary(
        self, at: int, schemas: Sequence[bytes], channels: Sequence[bytes], crc: int = 0
    ) -> bytes:
        """Return all bytes after the data section, up to the end of the file.

        Args:
            at: byte offset of these bytes in the file.
            schemas: schema records as bytes.
            channels: channel records as bytes.
            crc: CRC of all preceding bytes; 0: unknown.
        """
        statistics = records.Statistics(
            attachment_count=len(self.attachment_indexes),
            channel_count=len(channels),
            channel_message_counts=self.message_counts,
            chunk_count=len(self.chunk_indexes),
            message_count=sum(self.message_counts.values()),
            metadata_count=len(self.metadata_indexes),
            message_start_time=min(self.time_range, default=0),
            message_end_time=max(self.time_range, default=0),
            schema_count=len(schemas),
        )
        groups: list[tuple[int, bytes]] = [
            (Opcode.SCHEMA, b"".join(schemas)),
            (Opcode.CHANNEL, b"".join(channels)),
            (Opcode.STATISTICS, encode_records(statistics)),
            (Opcode.CHUNK_INDEX, b"".join(map(encode_chunk_index, self.chunk_indexes))),
            (Opcode.ATTACHMENT_INDEX, encode_records(*self.attachment_indexes)),
            (Opcode.METADATA_INDEX, encode_records(*self.metadata_indexes)),
        ]
        for opcode in dict.fromkeys(record[0] for record in self.unknown_records):
            groups.append((opcode, b"".join(record for record in self.unknown_records if record[0] == opcode)))
        data_end = encode_records(records.DataEnd(data_section_crc=crc))
        return data_end + build_summary_section(at + len(data_end), groups)


class SegmentWriter:
    """Writes one file. The file is complete after `close`. Before `close`, readers of truncated files find all chunks.

    Attributes:
        path: path of the file.
        message_count: number of messages in the file.
    """

    def __init__(
        self,
        path: Path,
        compressor: ChunkCompressor,
        metadata: Mapping[str, str] | None = None,
        profile: str = metadata_keys.MSGQ_PROFILE,
        header_tail: bytes = b"",
    ) -> None:
        """Create the file, which must not exist.

        Args:
            path: path of the file.
            compressor: compressor of chunks.
            metadata: metadata of the recording; None: the file is not a recording.
            profile: profile of the messages in the header; see https://mcap.dev/spec/registry.
            header_tail: fields of the header that MCAP does not define yet.

        Raises:
            RecordingError: the file exists, or cannot be created.
        """
        self.path = path
        self.message_count = 0
        self._compressor = compressor
        self._written_channels: dict[int, EncodedChannel] = {}  # channels that the data or a chunk describes
        self._written_schemas: dict[int, records.Schema] = {}
        self._summary_builder = SummaryBuilder()
        self._channel_statistics = ChannelStatistics()
        self._file = SegmentFile(path)
        header = ExtensibleHeader(profile, f"msgq-bus {__version__}", header_tail)
        try:
            self._file.append_bytes(MCAP_MAGIC, encode_records(header))
            if metadata is not None:
                self.write_metadata(metadata_keys.RECORDING_METADATA, metadata)
        except BaseException:  # the file has no messages
            path.unlink(missing_ok=True)
            self.close_without_summary()
            raise

    @property
    def size_bytes(self) -> int:
        """Number of written bytes."""
        return self._file.size_bytes

    def write_metadata(self, name: str, metadata: Mapping[str, str], tail: bytes = b"") -> None:
        """Write a Metadata record. `tail`: fields that MCAP does not define yet.

        Raises:
            RecordingError: the disk is full or failed. The file is unchanged.
        """
        data = encode_records(ExtensibleMetadata(name, dict(metadata), tail))
        index = records.MetadataIndex(offset=self.size_bytes, length=len(data), name=name)
        self._file.append_bytes(data, steps=[partial(self._summary_builder.metadata_indexes.append, index)])

    def write_attachment(self, attachment: records.Attachment) -> None:
        """Write an attachment.

        Raises:
            RecordingError: the disk is full or failed. The file is unchanged.
        """
        data = encode_records(attachment)
        index = records.AttachmentIndex(
            offset=self.size_bytes,
            length=len(data),
            log_time=attachment.log_time,
            create_time=attachment.create_time,
            data_size=len(attachment.data),
            name=attachment.name,
            media_type=attachment.media_type,
        )
        self._file.append_bytes(data, steps=[partial(self._summary_builder.attachment_indexes.append, index)])

    def copy_metadata_record(self, source: ByteReader, offset: int, length: int, name: str) -> None:
        """Copy a Metadata record of another file unchanged; see `copy_chunk`."""
        index = records.MetadataIndex(offset=self.size_bytes, length=length, name=name)
        self._file.copy_bytes(source, offset, length)
        self._summary_builder.metadata_indexes.append(index)

    def write_unknown_record(self, record: bytes) -> None:
        """Write a record that MCAP does not define.

        Raises:
            RecordingError: the disk is full or failed. The file is unchanged.
        """
        self._file.append_bytes(record)

    def copy_unknown_record(self, source: ByteReader, offset: int, length: int, in_summary: bool) -> None:
        """Copy a record of another file that MCAP does not define; see `copy_chunk`.

        `in_summary`: True: write the record into the summary. Until `close`, the record stays in memory.
        """
        if not in_summary:
            self._file.copy_bytes(source, offset, length)
        elif length > METADATA_BYTES_MAX:
            raise ValueError(f"a record of the summary has {length} bytes; the maximum is {METADATA_BYTES_MAX}")
        else:
            self._summary_builder.unknown_records.append(source.pread(length, offset))

    def copy_attachment(self, source: ByteReader, source_index: records.AttachmentIndex) -> None:
        """Copy an attachment of another file unchanged; see `copy_chunk`.

        `source_index`: its index in the other file.
        """
        index = replace(source_index, offset=self.size_bytes)
        self._file.copy_bytes(source, source_index.offset, source_index.length)
        self._summary_builder.attachment_indexes.append(index)

    def copy_chunk(self, source: ByteReader, chunk: RawChunk, channels: Mapping[int, EncodedChannel]) -> None:
        """Copy a chunk of another file unchanged, with its message indexes and origins.

        Args:
            source: descriptor of the other file.
            chunk: location and sizes of the chunk to copy.
            channels: channels by id. The ids are the same in both files.

        Raises:
            EOFError, OSError: the other file cannot be read. This file is unchanged.
            RecordingError: this file cannot be written. The file is unchanged.
        """
        self.write_channels(channels[number] for number in chunk.channel_indexes)
        moved = self.size_bytes - chunk.start_offset
        self._file.copy_bytes(source, chunk.start_offset, chunk.end_offset - chunk.start_offset)
        self._summary_builder.chunk_indexes.append(
            records.ChunkIndex(
                chunk_length=chunk.index_offset - chunk.chunk_offset,
                chunk_start_offset=chunk.chunk_offset + moved,
                compression=chunk.compression,
                compressed_size=chunk.compressed_bytes,
                message_end_time=chunk.last_time,
                message_index_length=chunk.end_offset - chunk.index_offset,
                message_index_offsets={
                    number: channel.index_start + moved for number, channel in chunk.channel_indexes.items()
                },
                message_start_time=chunk.first_time,
                uncompressed_size=chunk.uncompressed_bytes,
            )
        )
        self._summary_builder.extend_time_range(chunk.first_time, chunk.last_time)
        for number, channel in chunk.channel_indexes.items():
            self.message_count += channel.message_count
            self._summary_builder.count_messages(number, channel.message_count)
            self._channel_statistics.count_raw_messages(
                number, channel.message_count, channel.first_time, channel.last_time
            )

    def adopt_tallies(self, tallies: Mapping[int, Any]) -> None:
        """Use the statistics of copied messages; see `ChannelStatistics.adopt_tallies`."""
        self._channel_statistics.adopt_tallies(tallies)

    def write_channels(self, channels: Iterable[EncodedChannel], schemas: Iterable[records.Schema] = ()) -> None:
        """Write channels and schemas that the file does not contain yet, outside of chunks.

        Raises:
            RecordingError: the disk is full or failed. The file is unchanged.
        """
        unused = [schema for schema in schemas if schema.id not in self._written_schemas]
        new = [channel for channel in channels if channel.channel_record.id not in self._written_channels]
        if not unused and not new:
            return
        parts = encode_records(*unused), b"".join(channel.encoded_records for channel in new)  # writev takes 1024 parts
        self._file.append_bytes(
            *parts,
            steps=[
                partial(self._written_schemas.update, {schema.id: schema for schema in unused}),
                *self._prepare_channels(new),
            ],
        )

    def _prepare_channels(self, channels: Iterable[EncodedChannel]) -> list[CommitStep]:
        """Return the steps that register channels before their messages."""
        new = [channel for channel in channels if channel.channel_record.id not in self._written_channels]
        for channel in new:
            self._channel_statistics.add_channel(channel.channel_record)  # no effect without messages
        schemas = {channel.schema_record.id: channel.schema_record for channel in new if channel.schema_record}
        return [
            partial(self._written_channels.update, {channel.channel_record.id: channel for channel in new}),
            partial(self._written_schemas.update, schemas),
        ]

    def write_chunk(
        self,
        chunk: ChunkBuffer,
        channels: Mapping[int, EncodedChannel],
        compress: bool = True,
        steps: Sequence[CommitStep] = (),
    ) -> None:
        """Write a chunk with messages, its channels and its index.

        Args:
            chunk: the chunk.
            channels: channels by id.
            compress: False: write the chunk uncompressed.
            steps: bookkeeping of the caller; see `SegmentFile.append_parts`.

        Raises:
            RecordingError: the disk is full or failed. The file is unchanged.
        """
        counts = chunk.count_messages_by_channel()
        start = b"".join([channels[number].encoded_records for number in counts])
        content = chunk.prepend_records(start)
        compressor = self._compressor if compress else _NO_COMPRESSION
        compressed = compressor.compress_chunk(content)
        name = compressor.compression_name.encode()
        first, last = chunk.first_time, chunk.last_time
        length = CHUNK_HEAD_STRUCT.size + len(name) + 8 + len(compressed)
        crc = crc32(content)
        head = (
            RECORD_HEAD_STRUCT.pack(Opcode.CHUNK, length)
            + CHUNK_HEAD_STRUCT.pack(first, last, len(content), crc, len(name))
            + name
        )
        head += len(compressed).to_bytes(8, "little")
        origins, index = build_origins_record(chunk, len(start)), chunk.build_message_indexes(len(start))
        at = self.size_bytes + len(origins)
        chunk_index = records.ChunkIndex(
            chunk_length=RECORD_HEAD_STRUCT.size + length,
            chunk_start_offset=at,
            compression=compressor.compression_name,
            compressed_size=len(compressed),
            message_end_time=last,
            message_index_length=len(index),
            message_index_offsets=_compute_message_index_offsets(counts, at + RECORD_HEAD_STRUCT.size + length),
            message_start_time=first,
            uncompressed_size=len(content),
        )
        crc_before = crc32(head, crc32(origins, self._file.crc))
        compressed_crc = crc if compressed is content else crc32(compressed)  # read each byte once
        self._file.append_parts(
            (origins, head, compressed, index),
            crc32(index, combine_crc32(crc_before, compressed_crc, len(compressed))),
            [
                *self._prepare_channels(channels[number] for number in counts),
                *self._summary_builder.prepare_chunk(chunk_index, counts),
                partial(setattr, self, "message_count", self.message_count + len(chunk)),
                self._channel_statistics.prepare_chunk(chunk),
                *steps,
            ],
        )

    def sync_to_disk(self) -> None:
        """Sync the written bytes to the disk."""
        self._file.sync_data()

    def close(self, losses: Mapping[str, str] | None = None, synced: bool = True) -> None:
        """Write the statistics and the summary, and close the file, also after an error.

        Args:
            losses: lost messages by endpoint, if the file is a recording.
            synced: True: sync the file to the disk first. False: do not, because the file is useless after a power
                failure.

        Raises:
            RecordingError: the disk is full or failed. Readers of truncated files can read the file.
        """
        try:
            if losses is not None:
                self.write_metadata(metadata_keys.LOSSES_METADATA, losses)
            self.write_metadata(
                metadata_keys.STATISTICS_METADATA, self._channel_statistics.build_metadata(self.size_bytes)
            )
            self._file.append_bytes(self._build_data_end_and_summary())
            if synced:
                self._file.sync()
        finally:
            self.close_without_summary()

    def close_without_summary(self) -> None:
        """Close the file without statistics and summary."""
        self._file.close()

    def _build_data_end_and_summary(self) -> bytes:
        """Return all bytes after the data section, up to the end of the file."""
        schemas = [encode_records(schema) for schema in self._written_schemas.values()]
        channels = [encode_records(channel.channel_record) for channel in self._written_channels.values()]
        return self._summary_builder.build_data_end_and_summary(self.size_bytes, schemas, channels, self._file.crc)


def _compute_message_index_offsets(counts: Mapping[int, int], at: int) -> dict[int, int]:
    """Return the byte offset of each channel's message index. `counts`: messages by channel. `at`: the first offset."""
    sizes = (MESSAGE_INDEX_HEAD_STRUCT.size + 16 * count for count in counts.values())
    return dict(zip(counts, accumulate(sizes, initial=at), strict=False))
