"""One MCAP file that is being written: chunk after chunk, each of which can be read by itself.

The records come from the `mcap` library, apart from the two that have to be fast.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from mcap import records
from mcap.opcode import Opcode

from msgq import __version__
from msgq.errors import InvalidValueError, RecordingError
from msgq.recording import layout
from msgq.recording.capture import ENTRY, Chunk
from msgq.recording.container import CHUNK, HEAD, MAGIC, MESSAGE_INDEX, encoded, summary
from msgq.recording.scan import crc32
from msgq.schema import Schema

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
    number: int, endpoint: str, schema: Schema | None, epoch: int, counting: str
) -> ChannelRecords:
    """Return a channel of a recording of ours: `layout.EPOCH` and `layout.SEQUENCE` say what the last two are for."""
    record = None
    if schema is not None and layout.has_schema_record(schema):
        encoding = layout.schema_encoding(schema.encoding)
        record = records.Schema(id=number, name=schema.name, encoding=encoding, data=schema.data)
    channel = records.Channel(
        id=number, topic=endpoint, message_encoding=schema.encoding if schema else "",
        metadata={layout.EPOCH: str(epoch), layout.SEQUENCE: counting}, schema_id=number if record else 0,
    )  # fmt: skip
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
        self._counts: dict[int, int] = {}
        self._chunks: list[records.ChunkIndex] = []
        self._metadata: list[records.MetadataIndex] = []
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)  # held until it is closed: `recover` keeps off a file that still grows
        except OSError as error:
            hint = "; give another name, or remove it" if isinstance(error, FileExistsError) else ""
            raise RecordingError(f"cannot create {path}: {error.strerror}{hint}", errno=error.errno) from error
        header = records.Header(profile=layout.PROFILE, library=f"msgq-bus {__version__}")
        try:
            self._write(MAGIC, encoded(header))
            if metadata is not None:
                self._write_metadata(layout.RECORDING, metadata)
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
        self._metadata.append(records.MetadataIndex(offset=self.size, length=len(data), name=name))
        self._write(data)

    def write_chunk(self, chunk: Chunk, channels: Mapping[int, ChannelRecords]) -> None:
        """Write a chunk that is not empty, with the channels it uses, and its index.

        Raises
        ------
        RecordingError : the disk is full, or fails; the file is as it was before.
        """
        entries = np.frombuffer(chunk.entries, ENTRY)
        order = np.argsort(entries["channel"], kind="stable")
        used, starts, counts = np.unique(entries["channel"][order], return_index=True, return_counts=True)
        start = b"".join([channels[number].data for number in used.tolist()])
        compressed = self._compressor.compress(start, chunk.data)
        name = self._compressor.name.encode()
        size = len(start) + chunk.used
        first, last = int(entries["log_time"][0]), int(entries["log_time"][-1])  # log_time never goes back
        length = CHUNK.size + len(name) + 8 + len(compressed)
        crc = crc32(chunk.data, crc32(start))
        head = HEAD.pack(Opcode.CHUNK, length) + CHUNK.pack(first, last, size, crc, len(name)) + name
        head += len(compressed).to_bytes(8, "little")
        places = np.stack((entries["log_time"], entries["offset"] + len(start)), axis=1)[order].tobytes()
        bounds = [*(starts * 16).tolist(), len(places)]
        indexes = {
            number: MESSAGE_INDEX.pack(Opcode.MESSAGE_INDEX, 6 + end - begin, number, end - begin) + places[begin:end]
            for number, begin, end in zip(used.tolist(), bounds, bounds[1:], strict=False)
        }
        at = self.size
        begins = accumulate(map(len, indexes.values()), initial=at + HEAD.size + length)
        index = b"".join(indexes.values())
        self._write(head, compressed, index)
        self._chunks.append(
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
        self.messages += len(entries)
        for number, count in zip(used.tolist(), counts.tolist(), strict=True):
            self._channels[number] = channels[number]
            self._counts[number] = self._counts.get(number, 0) + count

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
                self._write_metadata(layout.LOSSES, losses)
            self._write(encoded(records.DataEnd(data_section_crc=0)))
            self._write(self._summary())
            if synced:
                os.fsync(self._fd)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)  # or a child that was forked meanwhile would hold it by its copy
        os.close(self._fd)

    def _summary(self) -> bytes:
        """Return all that comes behind the data, to the file's end."""
        schemas = {c.schema.id: c.schema for c in self._channels.values() if c.schema is not None}
        groups: list[tuple[Opcode, list[Any]]] = [
            (Opcode.SCHEMA, list(schemas.values())),
            (Opcode.CHANNEL, [c.channel for c in self._channels.values()]),
            (Opcode.STATISTICS, [self._statistics(len(schemas))]),
            (Opcode.CHUNK_INDEX, self._chunks),
            (Opcode.METADATA_INDEX, self._metadata),
        ]
        return summary(self.size, [(opcode, encoded(*group)) for opcode, group in groups])

    def _statistics(self, schemas: int) -> records.Statistics:
        return records.Statistics(
            attachment_count=0, channel_count=len(self._channels), channel_message_counts=self._counts,
            chunk_count=len(self._chunks), message_count=self.messages, metadata_count=len(self._metadata),
            message_start_time=min((c.message_start_time for c in self._chunks), default=0),
            message_end_time=max((c.message_end_time for c in self._chunks), default=0),
            schema_count=schemas,
        )  # fmt: skip
