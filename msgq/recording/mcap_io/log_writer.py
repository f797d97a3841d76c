"""A new MCAP file, message by message or many at once, which is there when it is whole."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mcap import records

from msgq.common.schema import Schema
from msgq.errors import ForkedSocketError, InvalidValueError, RecordingError, StateError
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, ChunkWriter
from msgq.recording.mcap_io.message_columns import MessageColumns, build_payload_columns
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, EncodedChannel, SegmentWriter

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_TEMPORARY_NUMBERS = itertools.count()  # of unfinished files, of which several may become one path


@contextmanager
def create_atomically(path: Path) -> Iterator[Path]:
    """Give a name to write to, which becomes `path` when all went well; nothing is left otherwise.

    Raises
    ------
    RecordingError : `path` exists, or cannot be written.
    """
    pid = os.getpid()
    unfinished = path.with_name(f".{path.name}.{pid}-{next(_TEMPORARY_NUMBERS)}.part")
    try:
        if path.exists():
            raise RecordingError(f"output file '{path}' exists; use another name, or remove it")
        yield unfinished
        os.link(unfinished, path)  # never over another file
    except OSError as error:
        raise RecordingError(f"output file '{path}' cannot be written: {error.strerror}", errno=error.errno) from error
    finally:
        if os.getpid() == pid:  # what a forked child throws away is the parent's
            unfinished.unlink(missing_ok=True)


class Writer:
    """Writes an MCAP file: messages, attachments and metadata. The file is there when it is whole.

    A context manager: the file is there after the block, and nothing of it after an exception. For one thread at a
    time; after a fork it is the parent's.

    Attributes
    ----------
    path : of the file.
    """

    _is_closed = True  # until it is open

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        compression: str = "zstd",
        level: int | None = None,
        profile: str = metadata_keys.MSGQ_PROFILE,
        chunk_bytes: int = 1 << 20,
    ) -> None:
        """Begin a file, under another name until it is whole.

        Parameters
        ----------
        path : of the file, which must not exist.
        compression : "zstd", "lz4" or "none".
        level : of the compression; None: 1 for zstd, 0 for lz4.
        profile : what the header says of the messages: "ros1", "ros2", "" for nothing; see
            https://mcap.dev/spec/registry.
        chunk_bytes : of messages, before compression, that make a chunk.

        Raises
        ------
        RecordingError : the file exists, or cannot be written.
        InvalidValueError : a value that is not possible.
        """
        if chunk_bytes < 1024:
            raise InvalidValueError(f"chunk_bytes={chunk_bytes} is too small; use 1024 or more")
        self.path = Path(path)
        self._pid = os.getpid()
        self._schema_records: dict[tuple[str, str, bytes], records.Schema] = {}
        compressor = ChunkCompressor(compression, level)
        with ExitStack() as stack:
            self._segment_writer = SegmentWriter(
                stack.enter_context(create_atomically(self.path)), compressor, profile=profile
            )
            self._chunk_writer = ChunkWriter(self._segment_writer, {}, chunk_bytes)
            self._file_stack = stack.pop_all()
        self._is_closed = False

    @property
    def messages(self) -> int:
        """How many were written so far."""
        return self._chunk_writer.message_count

    def channel(self, endpoint: str, schema: Schema | None = None, *, metadata: Mapping[str, str] | None = None) -> int:
        """Return the number of a new channel.

        Parameters
        ----------
        endpoint : its name, which MCAP calls topic.
        schema : what its messages mean.
        metadata : any texts by name. docs/reference/recordings.md lists the keys that readers interpret. For example,
            "sequence" with the value "published" says that gaps in the numbers are losses.

        Raises
        ------
        RecordingError : no number is left, after 65535.
        StateError : it is closed.
        """
        self._check_open()
        number = len(self._chunk_writer.channels) + 1
        if number >= CHANNEL_ID_COUNT:
            text = f"{CHANNEL_ID_COUNT - 1} channels are all that one file can number; write another one"
            raise RecordingError(text, endpoint)
        record = self._add_schema(schema) if schema and metadata_keys.needs_schema_record(schema) else None
        encoding = schema.encoding if schema else ""
        described = records.Channel(number, endpoint, encoding, dict(metadata or {}), record.id if record else 0)
        self._chunk_writer.add_channel(EncodedChannel(described, record))
        return number

    def _add_schema(self, schema: Schema) -> records.Schema:
        """Return the record of a schema; equal ones share it."""
        key = (schema.name, schema.schema_encoding, schema.data)
        if key not in self._schema_records:
            name, encoding, data = key
            self._schema_records[key] = records.Schema(
                id=len(self._schema_records) + 1, name=name, encoding=encoding, data=data
            )
        return self._schema_records[key]

    def write(
        self,
        channel: int,
        data: Any,
        log_time: int,
        publish_time: int | None = None,
        sequence: int | None = None,
        origin_time: int = 0,
    ) -> None:
        """Write a message. They need not come in the order of their time, but reading is cheaper when they do.

        Parameters
        ----------
        channel : as `channel` returned it.
        data : the payload, contiguous bytes.
        log_time : when it was recorded, ns since the epoch.
        publish_time : when it was published, ns since the epoch; None: `log_time`.
        sequence : its number among those of the channel, of which 32 bits are kept; None: that after the last one's.
        origin_time : when that came about which it was made from, ns since the epoch; 0: it is not known.

        Raises
        ------
        InvalidValueError : there is no such channel, or a time before 1970 or behind 2262.
        RecordingError : the disk is full, or fails.
        StateError : it is closed.
        """
        try:
            self._chunk_writer.write_message(channel, data, log_time, publish_time, sequence, origin_time)
        except (InvalidValueError, OverflowError) as error:
            self._check_open()
            raise InvalidValueError(str(error)) from None

    def write_columns(
        self,
        channel: ArrayLike,
        data: Any,
        log_time: ArrayLike,
        publish_time: ArrayLike | None = None,
        sequence: ArrayLike | None = None,
    ) -> int:
        """Write many messages at once; return how many. What is one number instead of an array holds for all.

        Parameters
        ----------
        channel : numbers, as `channel` returned them.
        data : the payloads: an Arrow column of binaries or texts (of pyarrow, Polars, ...); a NumPy array, of which
            each element along the first axis is a message; or a sequence of bytes.
        log_time, publish_time, sequence : as of `write`; integers, or NumPy's datetime64 for times.

        Raises
        ------
        InvalidValueError : the columns differ in length, or a value is not possible. Nothing is written then.
        RecordingError : the disk is full, or fails.
        StateError : it is closed.
        """
        self._check_open()
        payloads = build_payload_columns(data)
        columns = MessageColumns(sum(map(len, payloads)), channel, log_time, publish_time, sequence)
        numbers = self._chunk_writer.assign_sequences(columns.channel_ids, columns.sequences)
        for rows, content in columns.iter_row_batches(payloads, numbers):
            self._chunk_writer.append_rows(rows, [content])
        return len(numbers)

    def attach(
        self,
        name: str,
        data: bytes,
        media_type: str = "application/octet-stream",
        *,
        log_time: int | None = None,
        create_time: int = 0,
    ) -> None:
        """Write an attachment: a file of any kind that belongs to the messages.

        Parameters
        ----------
        name : of the file.
        data : what is in it.
        media_type : as "text/plain".
        log_time : when it was recorded, ns since the epoch; None: as the newest message.
        create_time : when it was made, ns since the epoch; 0: it is not known.

        Raises
        ------
        RecordingError : the disk is full, or fails.
        StateError : it is closed.
        """
        self._check_open()
        time = self._chunk_writer.latest_time if log_time is None else log_time
        self._segment_writer.write_attachment(records.Attachment(create_time, time, name, media_type, bytes(data)))

    def add_metadata(self, name: str, metadata: Mapping[str, str]) -> None:
        """Write texts by name, which are about the whole; there may be several of one name.

        Raises
        ------
        RecordingError : the disk is full, or fails.
        StateError : it is closed.
        """
        self._check_open()
        self._segment_writer.write_metadata(name, metadata)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateError(f"the writer of '{self.path}' is closed; create another Writer")
        if os.getpid() != self._pid:
            raise ForkedSocketError(
                f"the writer of '{self.path}' belongs to the parent process; create another in this process"
            )

    def close(self) -> None:
        """Let the file be there, whole. Twice does nothing more.

        Raises
        ------
        RecordingError : there is a file of that name now, the disk is full, or fails. Nothing of it is left.
        """
        if self._is_closed:
            return
        self._check_open()
        self._is_closed = True
        self._chunk_writer.close_channels()
        with self._file_stack:
            try:
                self._chunk_writer.flush_chunk()
                self._segment_writer.write_channels(self._chunk_writer.channels.values())
            except BaseException:
                self._segment_writer.close_without_summary()
                raise
            self._segment_writer.close()

    def discard(self) -> None:
        """Leave nothing of the file. Does nothing if it is closed, or is the parent's."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        self._chunk_writer.close_channels()
        self._segment_writer.close_without_summary()
        self._file_stack = ExitStack()  # what was to become the file goes with the old one

    def __del__(self) -> None:
        self.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
