"""Logs to other files: MCAP, Parquet, JSON lines, CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from pathlib import Path
from typing import Any

from msgq.errors import RecordingError
from msgq.recording.format import conventions
from msgq.recording.format.new_log import LogWriter, new_file, new_log
from msgq.recording.format.walk import CHUNK_BYTES_MAX
from msgq.recording.reader.decoders import Undecoded, as_json
from msgq.recording.reader.json_values import json_text, json_value
from msgq.recording.reader.message import Message
from msgq.recording.reader.reader import LogReader
from msgq.schema import Schema
from msgq.source import Source


def write_mcap(logs: Sequence[LogReader], output: Path, compression: str = "zstd") -> int:
    """Write one MCAP file with the messages of all logs in the order of log_time; return how many.

    The epochs of several logs are numbered anew: those of one are not those of another one.
    """
    described = [log.files[0].metadata.get(conventions.RECORDING) for log in logs]
    recording = described[0] if all(one == described[0] for one in described) else None
    with new_log(output, compression, recording) as writer:
        copy = _Copy(writer, logs)
        for message, log in merge(*map(_numbered, range(len(logs)), logs), key=lambda pair: pair[0].log_time):
            copy.add(message, log)
    return writer.messages


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
        path = conventions.segment_path(directory, index)
        yield path, write_mcap([log.between(begin, begin + every_ns)], path, compression)
        begin, index = begin + every_ns, index + 1


def _numbered(number: int, log: LogReader) -> Iterator[tuple[Message, int]]:
    for message in log:
        yield message, number


class _Copy:
    """Logs on their way into a file: which channel of the file a message gets."""

    def __init__(self, writer: LogWriter, logs: Sequence[LogReader]) -> None:
        self._writer, self._logs = writer, logs
        self._numbers: dict[tuple[int, str, int, Schema | None, Source], int] = {}
        self._epochs: dict[str, list[tuple[int, int]]] = {}

    def add(self, message: Message, log: int) -> None:
        """Append a message of the log with this index."""
        key = (log, message.endpoint, message.epoch, message.schema, message.source)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._new_channel(message, log)
        self._writer.add(
            number, message.sequence, message.log_time, message.publish_time, message.data, message.origin_time
        )

    def _new_channel(self, message: Message, log: int) -> int:
        counted = self._logs[log].is_counted(message.endpoint, message.epoch)
        counting = conventions.PUBLISHED if counted else conventions.RECEIVED
        tracked = self._logs[log].is_tracked(message.endpoint)
        epoch = self._epoch(message, log)
        return self._writer.new_channel(message.endpoint, message.schema, epoch, counting, tracked, message.source)

    def _epoch(self, message: Message, log: int) -> int:
        if len(self._logs) == 1:
            return message.epoch
        epochs = self._epochs.setdefault(message.endpoint, [])
        if (log, message.epoch) not in epochs:
            epochs.append((log, message.epoch))
        return epochs.index((log, message.epoch)) + 1


#: What is written of each message beside its payload.
_FIELDS = ("endpoint", "epoch", "sequence", "log_time", "publish_time", "origin_time", "kind", "publisher", "key")


def write_parquet(log: LogReader, output: Path) -> int:
    """Write a Parquet file: the fields of each message, and its payload as `data`; return how many. Needs pyarrow."""
    import pyarrow.parquet as pq

    from msgq.recording.reader.batches import arrow_schema  # needs pyarrow, which nothing else here does

    count, columns = 0, (*_FIELDS, "data")
    schema = arrow_schema(columns)
    with new_file(output) as unfinished, pq.ParquetWriter(unfinished, schema, compression="zstd") as writer:
        for batch in log.batches(columns):
            writer.write_batch(batch)
            count += batch.num_rows
    return count


def write_jsonl(log: LogReader, output: Path) -> int:
    """Write a JSON object a line: the fields of the message, and `value`, decoded; or `data` in base64."""
    count = 0
    with new_file(output) as unfinished, unfinished.open("w") as file:
        for message, value in log.decoded():
            fields = {name: getattr(message, name) for name in _FIELDS}
            file.write(f"{json_text(fields | _said(message, value))}\n")
            count += 1
    return count


def write_csv(log: LogReader, output: Path) -> int:
    """Write comma-separated values with a head: the fields, `value` as JSON or, not decoded, `data` in base64."""
    count = 0
    with new_file(output) as unfinished, unfinished.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*_FIELDS, "value", "data"))
        for message, value in log.decoded():
            said = _said(message, value)
            text = json_text(said["value"]) if "value" in said else ""
            writer.writerow((*(getattr(message, name) for name in _FIELDS), text, said.get("data", "")))
            count += 1
    return count


WRITERS: dict[str, Callable[[LogReader, Path], int]] = {
    "parquet": write_parquet,
    "jsonl": write_jsonl,
    "csv": write_csv,
}


def _said(message: Message, value: Any) -> dict[str, Any]:
    """Return what a message says as `value`; or its payload in base64 as `data`, with the `reason` if there is one."""
    found = as_json(value, message.data)
    if not isinstance(found, Undecoded):
        return {"value": found}
    return {"data": json_value(found.data)} | ({"reason": found.reason} if found.reason else {})
