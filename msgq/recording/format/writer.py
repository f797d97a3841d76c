"""One MCAP file that is being written: chunk after chunk, each of which can be read by itself.

The records come from the `mcap` library, apart from the two that have to be fast.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq import __version__
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording.format import conventions
from msgq.recording.format.chunk import ENTRY, Chunk
from msgq.recording.format.container import CHUNK, HEAD, MAGIC, MESSAGE_INDEX, encoded, summary
from msgq.recording.format.origins import origins_record
from msgq.recording.format.scan import crc32
from msgq.schema import Schema
from msgq.source import TOPIC, Source

COMPRESSIONS = ("zstd", "lz4", "none")


@dataclass(frozen=True, slots=True)
class ChannelRecords:
    """A channel, with its schema if it has one, and both as bytes for the start of a chunk."""

    channel: records.Channel
    schema: records.Schema | None
    data: bytes = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", encoded(*filter(None, (self.schema, self.channel))))


def channel_records(
    number: int,
    endpoint: str,
    schema: Schema | None,
    epoch: int,
    counting: str,
    tracked: bool = False,
    source: Source = TOPIC,
) -> ChannelRecords:
    """Return a channel of a recording of ours; see `conventions`: EPOCH, SEQUENCE, TRACKED for what they are."""
    record = None
    if schema is not None and conventions.has_schema_record(schema):
        encoding = conventions.schema_encoding(schema.encoding)
        record = records.Schema(id=number, name=schema.name, encoding=encoding, data=schema.data)
    channel = records.Channel(
        id=number,
        topic=endpoint,
        message_encoding=schema.encoding if schema else "",
        metadata={
            conventions.EPOCH: str(epoch),
            conventions.SEQUENCE: counting,
            **({conventions.TRACKED: "1"} if tracked else {}),
            **source.metadata(),
        },
        schema_id=number if record else 0,
    )
    return ChannelRecords(channel, record)


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


@dataclass(slots=True)
class DataIndex:
    """What the end of a file says of the data before it.

    Attributes
    ----------
    counts : messages by channel id.
    chunks, attachments, metadata : where they are.
    times : the first and the last log_time; empty without messages.
    """

    counts: dict[int, int] = field(default_factory=dict)
    chunks: list[records.ChunkIndex] = field(default_factory=list)
    attachments: list[records.AttachmentIndex] = field(default_factory=list)
    metadata: list[records.MetadataIndex] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def count(self, channel: int, messages: int) -> None:
        """Note messages of a channel."""
        self.counts[channel] = self.counts.get(channel, 0) + messages

    def widen(self, *times: int) -> None:
        """Note log_times."""
        if times:
            self.times = (
                [min(*self.times, *times), max(*self.times, *times)] if self.times else [min(times), max(times)]
            )

    def ending(self, at: int, schemas: Sequence[bytes], channels: Sequence[bytes]) -> bytes:
        """Return all that comes behind the data, to the end of the file.

        Parameters
        ----------
        at : where in the file that will be.
        schemas, channels : their records.
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
        groups = [
            (Opcode.SCHEMA, b"".join(schemas)),
            (Opcode.CHANNEL, b"".join(channels)),
            (Opcode.STATISTICS, encoded(statistics)),
            (Opcode.CHUNK_INDEX, encoded(*self.chunks)),
            (Opcode.ATTACHMENT_INDEX, encoded(*self.attachments)),
            (Opcode.METADATA_INDEX, encoded(*self.metadata)),
        ]
        data_end = encoded(records.DataEnd(data_section_crc=0))
        return data_end + summary(at + len(data_end), groups)


def message_indexes(channels: Any, places: Any) -> Iterator[tuple[int, bytes]]:
    """Give each channel of a chunk with the record of its message index.

    Parameters
    ----------
    channels : of the messages, array of ids in their order.
    places : of the messages, array with their log_time and offset in the chunk, uint64, shape (messages, 2).
    """
    order = np.argsort(channels, kind="stable")
    numbers, begins = np.unique(channels[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, begins[1:]), strict=False):
        entries = places[rows].astype("<u8").tobytes()
        yield number, MESSAGE_INDEX.pack(Opcode.MESSAGE_INDEX, 6 + len(entries), number, len(entries)) + entries


class Segment:
    """The file. Whole after `close`; before that, readers of truncated files find every chunk that was written.

    Attributes
    ----------
    path : where.
    size : bytes written.
    messages : in it.
    """

    def __init__(self, path: Path, compressor: Compressor, metadata: Mapping[str, str] | None) -> None:
        """Create the file, which must not exist. metadata : of the recording, if it is one.

        Raises
        ------
        RecordingError : it exists, or cannot be created.
        """
        self.path = path
        self.size = self.messages = 0
        self._compressor = compressor
        self._channels: dict[int, ChannelRecords] = {}
        self._index = DataIndex()
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # held until it is closed: `recover` keeps off a file that still grows
        except OSError as error:
            hint = "; give another name, or remove it" if isinstance(error, FileExistsError) else ""
            raise RecordingError(f"cannot create {path}: {error.strerror}{hint}", errno=error.errno) from error
        header = records.Header(profile=conventions.PROFILE, library=f"msgq-bus {__version__}")
        try:
            self._write(MAGIC, encoded(header))
            if metadata is not None:
                self._write_metadata(conventions.RECORDING, metadata)
        except BaseException:  # there is nothing in it
            path.unlink(missing_ok=True)
            self._let_go()
            raise

    def _write(self, *parts: bytes | memoryview[int]) -> None:
        """Append, whole."""
        wanted = sum(map(len, parts))
        try:
            done = os.writev(self._fd, parts)
            if done < wanted:  # a signal, or the disk is nearly full: the rest says which
                rest = memoryview(b"".join(parts))[done:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError as error:
            os.ftruncate(self._fd, self.size)  # half a record would hide what a later one says
            os.lseek(self._fd, self.size, os.SEEK_SET)
            text = f"cannot write {wanted} bytes to {self.path}: {error.strerror}"
            raise RecordingError(text, errno=error.errno) from error
        self.size += wanted

    def _write_metadata(self, name: str, metadata: Mapping[str, str]) -> None:
        data = encoded(records.Metadata(name=name, metadata=dict(metadata)))
        self._index.metadata.append(records.MetadataIndex(offset=self.size, length=len(data), name=name))
        self._write(data)

    def write_chunk(self, chunk: Chunk, channels: Mapping[int, ChannelRecords]) -> None:
        """Write a chunk that is not empty, with the channels it uses, and its index.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        entries = np.frombuffer(chunk.entries, ENTRY)
        used, counts = np.unique(entries["channel"], return_counts=True)
        start = b"".join([channels[number].data for number in used.tolist()])
        compressed = self._compressor.compress(start, chunk.data)
        name = self._compressor.name.encode()
        size = len(start) + chunk.used
        first, last = int(entries["log_time"][0]), int(entries["log_time"][-1])  # log_time never goes back
        length = CHUNK.size + len(name) + 8 + len(compressed)
        crc = crc32(chunk.data, crc32(start))
        head = HEAD.pack(Opcode.CHUNK, length) + CHUNK.pack(first, last, size, crc, len(name)) + name
        head += len(compressed).to_bytes(8, "little")
        places = np.stack((entries["log_time"], entries["offset"] + len(start)), axis=1)
        indexes = dict(message_indexes(entries["channel"], places))
        origins = origins_record(entries)
        at = self.size + len(origins)
        begins = accumulate(map(len, indexes.values()), initial=at + HEAD.size + length)
        index = b"".join(indexes.values())
        self._write(origins, head, compressed, index)
        self._index.chunks.append(
            records.ChunkIndex(
                chunk_length=HEAD.size + length,
                chunk_start_offset=at,
                compression=self._compressor.name,
                compressed_size=len(compressed),
                message_end_time=last,
                message_index_length=len(index),
                message_index_offsets=dict(zip(indexes, begins, strict=False)),
                message_start_time=first,
                uncompressed_size=size,
            )
        )
        self._index.widen(first, last)
        self.messages += len(entries)
        for number, count in zip(used.tolist(), counts.tolist(), strict=True):
            self._channels[number] = channels[number]
            self._index.count(number, count)

    def sync(self) -> None:
        """Let the disk have what was written."""
        os.fdatasync(self._fd)

    def close(self, losses: Mapping[str, str] | None = None, synced: bool = True) -> None:
        """Write the summary, and close. The file is closed in any case.

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
                self._write_metadata(conventions.LOSSES, losses)
            self._write(self._ending())
            if synced:
                os.fsync(self._fd)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # or a child that was forked meanwhile would hold it by its copy
        os.close(self._fd)

    def _ending(self) -> bytes:
        """Return all that comes behind the data, to the file's end."""
        schemas = {c.schema.id: encoded(c.schema) for c in self._channels.values() if c.schema is not None}
        channels = [encoded(c.channel) for c in self._channels.values()]
        return self._index.ending(self.size, list(schemas.values()), channels)
