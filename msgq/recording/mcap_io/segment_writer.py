"""One MCAP file that is being written: chunk after chunk, each of which can be read by itself.

The records come from the `mcap` library, apart from the two that have to be fast.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq import __version__
from msgq.common.message_source import TOPIC, MessageSource
from msgq.common.schema import Schema
from msgq.errors import ForkedSocketError, InvalidValueError, RecordingError
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import BoundaryLosses
from msgq.recording.mcap_io.channel_registry import METADATA_BYTES_MAX
from msgq.recording.mcap_io.channel_statistics import ChannelStatistics
from msgq.recording.mcap_io.core import ENTRY, ChunkBuffer, crc32
from msgq.recording.mcap_io.origins import build_origins_record
from msgq.recording.mcap_io.raw_chunk import RawChunk
from msgq.recording.mcap_io.record_structs import (
    CHUNK_HEAD,
    MCAP_MAGIC,
    MESSAGE_INDEX_HEAD,
    RECORD_HEAD,
    Header,
    Metadata,
    build_summary,
    encode,
)

COMPRESSIONS = ("zstd", "lz4", "none")
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class EncodedChannel:
    """A channel, with its schema if it has one, and both as bytes for the start of a chunk."""

    channel: records.Channel
    schema: records.Schema | None
    data: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", encode(*filter(None, (self.schema, self.channel))))


def encode_channel(
    number: int,
    endpoint: str,
    schema: Schema | None,
    epoch: int,
    counting: str,
    tracked: bool = False,
    source: MessageSource = TOPIC,
    boundary_losses: BoundaryLosses | None = None,
) -> EncodedChannel:
    """Return a channel of a recording of ours; see `metadata_keys.channel_metadata` for what it says."""
    record = None
    if schema is not None and metadata_keys.has_schema_record(schema):
        record = records.Schema(id=number, name=schema.name, encoding=schema.schema_encoding, data=schema.data)
    channel = records.Channel(
        id=number,
        topic=endpoint,
        message_encoding=schema.encoding if schema else "",
        metadata=metadata_keys.channel_metadata(
            epoch, counting, tracked, source, boundary_losses and boundary_losses.metadata()
        ),
        schema_id=number if record else 0,
    )
    return EncodedChannel(channel, record)


class Compressor:
    """One way to compress chunks. For one thread at a time."""

    def __init__(self, name: str, level: int | None) -> None:
        if name not in COMPRESSIONS:
            raise InvalidValueError(f"compression {name!r} is not known; give one of {', '.join(COMPRESSIONS)}")
        self.name = "" if name == "none" else name
        self._level = level
        if name == "zstd":
            import zstandard

            self._zstd = zstandard.ZstdCompressor(level=1 if level is None else level)

    def compress(self, start: bytes, data: memoryview[int]) -> bytes:
        """Return both parts as one stream."""
        if not self.name:
            return b"".join((start, data))
        if self.name == "zstd":
            stream = self._zstd.compressobj(size=len(start) + len(data))
            return b"".join((stream.compress(start), stream.compress(data), stream.flush()))
        import lz4.frame

        level = 0 if self._level is None else self._level
        compressed: bytes = lz4.frame.compress(b"".join((start, data)), compression_level=level)
        return compressed


_NO_COMPRESSION = Compressor("none", None)


@dataclass(slots=True)
class SummaryBuilder:
    """What the end of a file says of the data before it.

    Attributes
    ----------
    counts : messages by channel id.
    chunks, attachments, metadata : where they are.
    unknown : records of the summary that MCAP does not define.
    times : the first and the last log_time; empty without messages.
    """

    counts: dict[int, int] = field(default_factory=dict)
    chunks: list[records.ChunkIndex] = field(default_factory=list)
    attachments: list[records.AttachmentIndex] = field(default_factory=list)
    metadata: list[records.MetadataIndex] = field(default_factory=list)
    unknown: list[bytes] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def add_messages(self, channel: int, messages: int) -> None:
        """Note messages of a channel."""
        self.counts[channel] = self.counts.get(channel, 0) + messages

    def extend_time_range(self, *times: int) -> None:
        """Note log_times."""
        if times:
            self.times = (
                [min(*self.times, *times), max(*self.times, *times)] if self.times else [min(times), max(times)]
            )

    def build(self, at: int, schemas: Sequence[bytes], channels: Sequence[bytes], crc: int = 0) -> bytes:
        """Return all that comes behind the data, to the end of the file.

        Parameters
        ----------
        at : where in the file that will be.
        schemas, channels : their records.
        crc : of all that is before it; 0: it is not known.
        """
        statistics = records.Statistics(
            attachment_count=len(self.attachments),
            channel_count=len(channels),
            channel_message_counts=self.counts,
            chunk_count=len(self.chunks),
            message_count=sum(self.counts.values()),
            metadata_count=len(self.metadata),
            message_start_time=min(self.times, default=0),
            message_end_time=max(self.times, default=0),
            schema_count=len(schemas),
        )
        groups: list[tuple[int, bytes]] = [
            (Opcode.SCHEMA, b"".join(schemas)),
            (Opcode.CHANNEL, b"".join(channels)),
            (Opcode.STATISTICS, encode(statistics)),
            (Opcode.CHUNK_INDEX, encode(*self.chunks)),
            (Opcode.ATTACHMENT_INDEX, encode(*self.attachments)),
            (Opcode.METADATA_INDEX, encode(*self.metadata)),
        ]
        for opcode in dict.fromkeys(record[0] for record in self.unknown):
            groups.append((opcode, b"".join(record for record in self.unknown if record[0] == opcode)))
        data_end = encode(records.DataEnd(data_section_crc=crc))
        return data_end + build_summary(at + len(data_end), groups)


class SegmentWriter:
    """The file. Whole after `close`; before that, readers of truncated files find every chunk that was written.

    Attributes
    ----------
    path : where.
    size : bytes written.
    messages : in it.
    """

    def __init__(
        self,
        path: Path,
        compressor: Compressor,
        metadata: Mapping[str, str] | None = None,
        profile: str = metadata_keys.PROFILE,
        header_tail: bytes = b"",
    ) -> None:
        """Create the file, which must not exist.

        Parameters
        ----------
        path : of the file.
        compressor : of chunks.
        metadata : of the recording, if it is one.
        profile : what the header says of the messages; see https://mcap.dev/spec/registry.
        header_tail : fields of the header that MCAP does not define yet.

        Raises
        ------
        RecordingError : it exists, or cannot be created.
        """
        self.path = path
        self.size = self.messages = 0
        self._compressor = compressor
        self._channels: dict[int, EncodedChannel] = {}  # that are described in the data, here or in a chunk
        self._schemas: dict[int, records.Schema] = {}
        self._index = SummaryBuilder()
        self._statistics = ChannelStatistics()
        self._crc, self._pid = 0, os.getpid()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # held until it is closed: `recover` keeps off a file that still grows
        except OSError as error:
            hint = "; give another name, or remove it" if isinstance(error, FileExistsError) else ""
            raise RecordingError(f"cannot create {path}: {error.strerror}{hint}", errno=error.errno) from error
        header = Header(profile, f"msgq-bus {__version__}", header_tail)
        try:
            self._write(MCAP_MAGIC, encode(header))
            if metadata is not None:
                self.add_metadata(metadata_keys.RECORDING, metadata)
        except BaseException:  # there is nothing in it
            path.unlink(missing_ok=True)
            self.abandon()
            raise

    def _write(self, *parts: bytes | memoryview[int]) -> None:
        """Append, whole."""
        if os.getpid() != self._pid:
            raise ForkedSocketError(f"{self.path} is written by the parent of this process; write another file here")
        wanted = sum(map(len, parts))
        try:
            done = os.writev(self._fd, parts)
            if done < wanted:  # a signal, or the disk is nearly full: the rest says which
                pending = memoryview(b"".join(parts))[done:]
                while pending:
                    pending = pending[os.write(self._fd, pending) :]
        except OSError as error:
            os.ftruncate(self._fd, self.size)  # half a record would hide what a later one says
            os.lseek(self._fd, self.size, os.SEEK_SET)
            text = f"cannot write {wanted} bytes to {self.path}: {error.strerror}"
            raise RecordingError(text, errno=error.errno) from error
        for part in parts:
            self._crc = crc32(part, self._crc)
        self.size += wanted

    def add_metadata(self, name: str, metadata: Mapping[str, str], tail: bytes = b"") -> None:
        """Write a Metadata record. tail : fields that MCAP does not define yet.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        data = encode(Metadata(name, dict(metadata), tail))
        index = records.MetadataIndex(offset=self.size, length=len(data), name=name)
        self._write(data)
        self._index.metadata.append(index)

    def attach(self, attachment: records.Attachment) -> None:
        """Write an attachment.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        data = encode(attachment)
        index = records.AttachmentIndex(
            offset=self.size,
            length=len(data),
            log_time=attachment.log_time,
            create_time=attachment.create_time,
            data_size=len(attachment.data),
            name=attachment.name,
            media_type=attachment.media_type,
        )
        self._write(data)
        self._index.attachments.append(index)

    def copy_metadata(self, source: int, offset: int, length: int, name: str) -> None:
        """Write a Metadata record of another file as it is; see `copy_chunk`."""
        index = records.MetadataIndex(offset=self.size, length=length, name=name)
        self._copy(source, offset, length)
        self._index.metadata.append(index)

    def add_unknown(self, record: bytes) -> None:
        """Write a record that MCAP does not define.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        self._write(record)

    def copy_unknown(self, source: int, offset: int, length: int, in_summary: bool) -> None:
        """Write a record of another file that MCAP does not define; see `copy_chunk`.

        in_summary : write it into the summary, which is kept in memory until the file is closed.
        """
        if not in_summary:
            self._copy(source, offset, length)
        elif length > METADATA_BYTES_MAX:
            raise ValueError(f"a record of {length} bytes in the summary; {METADATA_BYTES_MAX} are all that is copied")
        else:
            self._index.unknown.append(os.pread(source, length, offset))

    def copy_attachment(self, source: int, source_index: records.AttachmentIndex) -> None:
        """Write an attachment of another file as it is; see `copy_chunk`. source_index : its index there."""
        index = replace(source_index, offset=self.size)
        self._copy(source, source_index.offset, source_index.length)
        self._index.attachments.append(index)

    def copy_chunk(self, source: int, chunk: RawChunk, channels: Mapping[int, EncodedChannel]) -> None:
        """Write a chunk of another file as it is, with all that belongs to it.

        Parameters
        ----------
        source : descriptor of the other file.
        chunk : location and sizes of the chunk to copy.
        channels : as they are in both files, by id.

        Raises
        ------
        EOFError, OSError : the other file cannot be read. RecordingError: this one cannot be written. It has no part of
            the chunk then.
        """
        self.write_channels(channels[number] for number in chunk.channels)
        moved = self.size - chunk.begin
        self._copy(source, chunk.begin, chunk.end - chunk.begin)
        self._index.chunks.append(
            records.ChunkIndex(
                chunk_length=chunk.index - chunk.chunk,
                chunk_start_offset=chunk.chunk + moved,
                compression=chunk.compression,
                compressed_size=chunk.compressed_size,
                message_end_time=chunk.last_time,
                message_index_length=chunk.end - chunk.index,
                message_index_offsets={number: channel.at + moved for number, channel in chunk.channels.items()},
                message_start_time=chunk.first_time,
                uncompressed_size=chunk.size,
            )
        )
        self._index.extend_time_range(chunk.first_time, chunk.last_time)
        for number, channel in chunk.channels.items():
            self.messages += channel.messages
            self._index.add_messages(number, channel.messages)
            self._statistics.add_raw_messages(number, channel.messages, channel.first_time, channel.last_time)

    def adopt_tallies(self, tallies: Mapping[int, Any]) -> None:
        """Take what is known of copied messages; see `ChannelStatistics.adopt_tallies`."""
        self._statistics.adopt_tallies(tallies)

    def _copy(self, source: int, offset: int, length: int) -> None:
        before, end = (self.size, self._crc), offset + length
        try:
            while offset < end:
                data = os.pread(source, min(_BLOCK_BYTES, end - offset), offset)
                if not data:
                    raise EOFError(f"the file ends at {offset}, and {end - offset} bytes more were to be copied")
                self._write(data)
                offset += len(data)
        except BaseException:
            self.size, self._crc = before
            os.ftruncate(self._fd, self.size)
            os.lseek(self._fd, self.size, os.SEEK_SET)
            raise

    def write_channels(self, channels: Iterable[EncodedChannel], schemas: Iterable[records.Schema] = ()) -> None:
        """Write the channels and schemas that are not in the file yet, outside of chunks.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        unused = [schema for schema in schemas if schema.id not in self._schemas]
        new = [channel for channel in channels if channel.channel.id not in self._channels]
        if not unused and not new:
            return
        self._write(encode(*unused), b"".join(channel.data for channel in new))  # writev takes 1024 parts
        self._schemas.update((schema.id, schema) for schema in unused)
        for channel in new:
            self._register(channel)

    def _register(self, channel: EncodedChannel) -> None:
        """Note a channel whose messages may follow."""
        if channel.channel.id not in self._channels:
            self._channels[channel.channel.id] = channel
            self._statistics.add_channel(channel.channel)
            if channel.schema is not None:
                self._schemas[channel.schema.id] = channel.schema

    def write_chunk(self, chunk: ChunkBuffer, channels: Mapping[int, EncodedChannel], compress: bool = True) -> None:
        """Write a chunk that is not empty, with the channels it uses, and its index. compress : False: as it is.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        entries = np.frombuffer(chunk.entries, ENTRY)
        counts = chunk.count_by_channel()
        start = b"".join([channels[number].data for number in counts])
        compressor = self._compressor if compress else _NO_COMPRESSION
        compressed = compressor.compress(start, chunk.data)
        name = compressor.name.encode()
        size = len(start) + chunk.used
        first, last = int(entries["log_time"].min()), int(entries["log_time"].max())
        length = CHUNK_HEAD.size + len(name) + 8 + len(compressed)
        crc = crc32(chunk.data, crc32(start))
        head = RECORD_HEAD.pack(Opcode.CHUNK, length) + CHUNK_HEAD.pack(first, last, size, crc, len(name)) + name
        head += len(compressed).to_bytes(8, "little")
        origins, index = build_origins_record(entries, len(start)), chunk.build_index(len(start))
        at = self.size + len(origins)
        self._write(origins, head, compressed, index)
        self._index.chunks.append(
            records.ChunkIndex(
                chunk_length=RECORD_HEAD.size + length,
                chunk_start_offset=at,
                compression=compressor.name,
                compressed_size=len(compressed),
                message_end_time=last,
                message_index_length=len(index),
                message_index_offsets=_compute_index_offsets(counts, at + RECORD_HEAD.size + length),
                message_start_time=first,
                uncompressed_size=size,
            )
        )
        self._index.extend_time_range(first, last)
        self.messages += len(entries)
        for number, count in counts.items():
            self._register(channels[number])
            self._index.add_messages(number, count)
        self._statistics.count(chunk)

    def sync(self) -> None:
        """Let the disk have what was written."""
        os.fdatasync(self._fd)

    def close(self, losses: Mapping[str, str] | None = None, synced: bool = True) -> None:
        """Write the figures and the summary, and close. The file is closed in any case.

        Parameters
        ----------
        losses : endpoint -> messages lost so far, if it is a recording.
        synced : let the disk have it first; False for a file that is of no use after a power cut.

        Raises
        ------
        RecordingError : the disk is full, or fails; readers of truncated files can read it.
        """
        try:
            if losses is not None:
                self.add_metadata(metadata_keys.LOSSES, losses)
            self.add_metadata(metadata_keys.STATISTICS, self._statistics.metadata(self.size))
            self._write(self._build_summary())
            if synced:
                os.fsync(self._fd)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is."""
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # or a child that was forked meanwhile would hold it by its copy
        os.close(self._fd)

    def _build_summary(self) -> bytes:
        """Return all that comes behind the data, to the file's end."""
        schemas = [encode(schema) for schema in self._schemas.values()]
        channels = [encode(channel.channel) for channel in self._channels.values()]
        return self._index.build(self.size, schemas, channels, self._crc)


def _compute_index_offsets(counts: Mapping[int, int], at: int) -> dict[int, int]:
    """Return where the message index of each channel begins. counts : of messages; at : where the first one is."""
    sizes = (MESSAGE_INDEX_HEAD.size + 16 * count for count in counts.values())
    return dict(zip(counts, accumulate(sizes, initial=at), strict=False))
