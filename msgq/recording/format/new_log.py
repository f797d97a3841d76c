"""A new MCAP file, message by message, which is there when it is whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from msgq.errors import RecordingError
from msgq.recording.format import conventions
from msgq.recording.format.chunk import Chunk
from msgq.recording.format.writer import ChannelRecords, Compressor, Segment, channel_records
from msgq.schema import Schema
from msgq.source import TOPIC, Source

_CHUNK_BYTES = 1 << 20
_CHANNELS_MAX = 0xFFFF


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a name to write to, which becomes `path` when all went well; nothing is left otherwise.

    Raises
    ------
    RecordingError : `path` exists, or cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists():
            raise RecordingError(f"{path} exists; give another name, or remove it")
        yield unfinished
        os.link(unfinished, path)  # never over another file
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror}", errno=error.errno) from error
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def new_log(path: Path, compression: str = "zstd", recording: Mapping[str, str] | None = None) -> Iterator[LogWriter]:
    """Give a writer of a file, which is there when all went well.

    Parameters
    ----------
    path : of the file, which must not exist.
    compression : "zstd", "lz4" or "none".
    recording : the metadata of the recording that the messages come from, if it is one.

    Raises
    ------
    RecordingError : the file exists, or cannot be written.
    InvalidValueError : there is no such compression.
    """
    compressor = Compressor(compression, None)
    with new_file(path) as unfinished, closing(Segment(unfinished, compressor, recording)) as segment:
        writer = LogWriter(segment)
        yield writer
        writer.flush()


class LogWriter:
    """Writes messages, in the order of their log_time, into a segment. For one thread at a time."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._chunk = Chunk(_CHUNK_BYTES, 0)
        self._channels: dict[int, ChannelRecords] = {}
        self.messages = 0

    def new_channel(
        self,
        endpoint: str,
        schema: Schema | None,
        epoch: int,
        counting: str = conventions.PUBLISHED,
        tracked: bool = False,
        source: Source = TOPIC,
    ) -> int:
        """Return the number of a new channel. See `conventions`: EPOCH, SEQUENCE, TRACKED for what they are.

        Raises
        ------
        RecordingError : no number is left, after 65535.
        """
        number = len(self._channels) + 1
        if number > _CHANNELS_MAX:
            raise RecordingError(f"{_CHANNELS_MAX} endpoints and epochs are all that one file can number; select fewer")
        self._channels[number] = channel_records(number, endpoint, schema, epoch, counting, tracked, source)
        return number

    def add(
        self, channel: int, sequence: int, log_time: int, publish_time: int, data: bytes, origin_time: int = 0
    ) -> None:
        """Append a message.

        Parameters
        ----------
        channel : as `new_channel` returned it.
        sequence : 32 bits.
        log_time : ns since the epoch, not before the last one's.
        publish_time : ns since the epoch.
        data : of the message.
        origin_time : ns since the epoch; 0: it is not known.
        """
        fields = (channel, sequence, log_time, publish_time, data, origin_time)
        if not self._chunk.append(*fields):
            self.flush()
            self._chunk = Chunk(_CHUNK_BYTES, len(data))
            self._chunk.append(*fields)
        self.messages += 1
        if self._chunk.used >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was appended."""
        if len(self._chunk):
            self._segment.write_chunk(self._chunk, self._channels)
            self._chunk.clear()
