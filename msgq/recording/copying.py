"""Logs to other files: MCAP, Parquet, JSON lines, CSV."""

from __future__ import annotations

import base64
import contextlib
import csv
import json
import os
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import Any

import numpy as np

from msgq.errors import RecordingError
from msgq.recording import layout
from msgq.recording.capture import Chunk
from msgq.recording.decode import Undecoded
from msgq.recording.message import Message
from msgq.recording.reader import LogReader
from msgq.recording.segment import ChannelRecords, Compressor, Segment, channel_records
from msgq.recording.walk import CHUNK_BYTES_MAX
from msgq.schema import Schema

_CHUNK_BYTES = 1 << 20
_CHANNELS_MAX = 0xFFFF


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Give a name to write to, which becomes `path` when all went well; nothing is left otherwise.

    Raises
    ------
    RecordingError : `path` exists, or cannot be written.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        if path.exists():
            raise RecordingError(f"{path} exists; give another name, or remove it")
        yield part
        os.link(part, path)  # never over another file
    except OSError as error:
        raise RecordingError(f"cannot write {path}: {error.strerror}", errno=error.errno) from error
    finally:
        part.unlink(missing_ok=True)


def write_mcap(logs: Sequence[LogReader], output: Path, compression: str = "zstd") -> int:
    """Write one MCAP file with the messages of all logs in the order of log_time; return how many.

    The epochs of several logs are numbered anew: those of one are not those of another one.
    """
    compressor = Compressor(compression, None)
    described = [log.files[0].metadata.get(layout.RECORDING) for log in logs]
    about = described[0] if all(one == described[0] for one in described) else None
    with new_file(output) as part, contextlib.closing(Segment(part, compressor, about)) as segment:
        copy = _Copy(segment, logs)
        for message, log in merge(*map(_numbered, range(len(logs)), logs), key=lambda found: found[0].log_time):
            copy.add(message, log)
        copy.flush()
    return segment.messages


def write_pieces(
    paths: Sequence[Path], directory: Path, every_ns: int, compression: str, max_chunk_bytes: int = CHUNK_BYTES_MAX
) -> Iterator[tuple[Path, int]]:
    """Write segments of the same duration into a new directory; give each one and its number of messages.

    Raises
    ------
    RecordingError : the directory exists.
    """
    try:
        directory.mkdir()
    except OSError as error:
        raise RecordingError(f"cannot create {directory}: {error.strerror}", errno=error.errno) from error
    begin, index = 0, 0
    log = LogReader(*paths, max_chunk_bytes=max_chunk_bytes)
    while (first := log.between(begin).start_time) is not None:
        begin = first if index == 0 else begin + (first - begin) // every_ns * every_ns  # not a file for each silence
        path = layout.segment_path(directory, index)
        yield path, write_mcap([log.between(begin, begin + every_ns)], path, compression)
        begin, index = begin + every_ns, index + 1


def _numbered(number: int, log: LogReader) -> Iterator[tuple[Message, int]]:
    for message in log:
        yield message, number


class _Copy:
    """A file that is being written."""

    def __init__(self, segment: Segment, logs: Sequence[LogReader]) -> None:
        self._segment, self._logs = segment, logs
        self._chunk = Chunk(_CHUNK_BYTES, 0)
        self._channels: dict[int, ChannelRecords] = {}
        self._numbers: dict[tuple[int, str, int, Schema | None], int] = {}
        self._epochs: dict[str, list[tuple[int, int]]] = {}

    def add(self, message: Message, log: int) -> None:
        """Append a message of the log with this index."""
        key = (log, message.endpoint, message.epoch, message.schema)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._register(message, log)
        fields = (number, message.sequence, message.log_time, message.publish_time, message.data)
        if not self._chunk.append(*fields):
            self.flush()
            self._chunk = Chunk(_CHUNK_BYTES, len(message.data))
            self._chunk.append(*fields)
        if self._chunk.used >= _CHUNK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what was appended."""
        if len(self._chunk):
            self._segment.write_chunk(self._chunk, self._channels)
            self._chunk.clear()

    def _register(self, message: Message, log: int) -> int:
        """Return the id of a new channel."""
        number = len(self._channels) + 1
        if number > _CHANNELS_MAX:
            raise RecordingError(f"{_CHANNELS_MAX} endpoints and epochs are all that one file can number; select fewer")
        counted = self._logs[log].is_counted(message.endpoint, message.epoch)
        counting = layout.PUBLISHED if counted else layout.RECEIVED
        epoch = self._epoch(message, log)
        self._channels[number] = channel_records(number, message.endpoint, message.schema, epoch, counting)
        return number

    def _epoch(self, message: Message, log: int) -> int:
        if len(self._logs) == 1:
            return message.epoch
        epochs = self._epochs.setdefault(message.endpoint, [])
        if (log, message.epoch) not in epochs:
            epochs.append((log, message.epoch))
        return epochs.index((log, message.epoch)) + 1


def write_parquet(log: LogReader, output: Path) -> int:
    """Write a Parquet file with the columns of `LogReader.batches`; return how many messages. Needs pyarrow."""
    import pyarrow.parquet as pq

    from msgq.recording.batches import arrow_schema  # needs pyarrow, which nothing else here does

    count = 0
    with new_file(output) as part, pq.ParquetWriter(part, arrow_schema(None), compression="zstd") as writer:
        for batch in log.batches():
            writer.write_batch(batch)
            count += batch.num_rows
    return count


_FIELDS = ("endpoint", "epoch", "sequence", "log_time", "publish_time")


def write_jsonl(log: LogReader, output: Path) -> int:
    """Write a JSON object a line: the fields of the message, and `value`, decoded; or `data` in base64."""
    count = 0
    with new_file(output) as part, part.open("w") as file:
        for message, value in log.decoded():
            text, data = _value(message, value)
            line = json.dumps({name: getattr(message, name) for name in _FIELDS} | data)
            file.write(f'{line[:-1]}, "value": {text}}}\n' if text else f"{line}\n")
            count += 1
    return count


def write_csv(log: LogReader, output: Path) -> int:
    """Write comma-separated values with a head: the fields, `value` as JSON or, not decoded, `data` in base64."""
    count = 0
    with new_file(output) as part, part.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*_FIELDS, "value", "data"))
        for message, value in log.decoded():
            text, data = _value(message, value)
            writer.writerow((*(getattr(message, name) for name in _FIELDS), text, data.get("data", "")))
            count += 1
    return count


WRITERS: dict[str, Callable[[LogReader, Path], int]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "csv": write_csv,
}


def _value(message: Message, value: Any) -> tuple[str, dict[str, str]]:
    """Return what a message says as JSON; or "" and its payload in base64, with the reason for that if there is one."""
    if isinstance(value, bytes):
        return "", {"data": _plain(value)}
    if not isinstance(value, Undecoded):
        try:
            return json.dumps(value, default=_plain), {}
        except Exception as error:  # what somebody sent may be any object of any library
            value = Undecoded(message.data, f"it cannot be written as JSON: {error or type(error).__name__}")
    return "", {"data": _plain(value.data), "reason": value.reason}


def _plain(value: Any) -> Any:
    """Return what JSON can say for what it cannot."""
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, np.void) and value.dtype.names:
        return {name: value[name] for name in value.dtype.names}
    if isinstance(value, np.ndarray) and value.dtype.names:
        return list(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import MessageToDict

        return MessageToDict(value, preserving_proto_field_name=True)
    return str(value)
