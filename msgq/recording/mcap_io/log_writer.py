"""Writer of a new MCAP file, for single messages or columns. The file appears when it is complete."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from mcap import records

from msgq.common.handler_errors import raise_handler_error
from msgq.common.schema import Schema
from msgq.common.storage.new_names import give_new_name
from msgq.errors import ForkedSocketError, InvalidTypeError, InvalidValueError, RecordingError, StateError
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.core import CHANNEL_ID_COUNT, ChunkWriter
from msgq.recording.mcap_io.message_columns import MessageColumns, build_payload_columns
from msgq.recording.mcap_io.segment_writer import ChunkCompressor, EncodedChannel, SegmentWriter, check_chunk_bytes
from msgq.recording.mcap_io.writer_arguments import check_texts, check_time, to_integer

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

_INTEGER_TYPES = (int, type(None))  # types of an optional number that need no conversion
_TEMPORARY_NUMBERS = itertools.count()  # numbers of unfinished files, because several may be written for one path


@contextmanager
def create_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary name, which becomes `path` on success. After an exception, no file is left.

    Raises:
        RecordingError: `path` exists, or cannot be written.
    """
    pid = os.getpid()
    unfinished = path.with_name(f".{path.name}.{pid}-{next(_TEMPORARY_NUMBERS)}.part")
    try:
        if path.exists():
            raise RecordingError(f"output file '{path}' exists; use another name, or remove it")
        yield unfinished
        give_new_name(unfinished, path)  # never over another file
    except OSError as error:
        raise_handler_error(error)
        raise RecordingError(f"output file '{path}' cannot be written: {error.strerror}", errno=error.errno) from error
    finally:
        if os.getpid() == pid:  # a forked child must not remove the parent's file
            unfinished.unlink(missing_ok=True)


class Writer:
    """Writes an MCAP file with messages, attachments and metadata. The file appears when it is complete.

    Use it as a context manager: the file exists after the block. After an exception in the block, no file is left. One
    thread at a time may use a writer. After a fork, the writer belongs to the parent.

    Attributes:
        path: absolute path of the file.
    """

    _is_closed = True  # also before it is open

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        compression: str = "zstd",
        level: int | None = None,
        profile: str = metadata_keys.MSGQ_PROFILE,
        chunk_bytes: int = 1 << 20,
    ) -> None:
        """Begin a file. The file has another name until it is complete.

        Args:
            path: path of the file, which must not exist.
            compression: "zstd", "lz4" or "none".
            level: level of the compression; None: 1 for zstd, 0 for lz4.
            profile: profile of the messages in the header: "ros1", "ros2", or "" for any; see
                https://mcap.dev/spec/registry.
            chunk_bytes: bytes of messages per chunk, before compression, 1024 to 128 MiB.

        Raises:
            RecordingError: the file exists, or cannot be written.
            InvalidValueError: an argument is out of range.
        """
        check_chunk_bytes(chunk_bytes)
        self.path: Path = Path(path).absolute()  # the program may change its working directory
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
        """Number of written messages."""
        return self._chunk_writer.message_count

    def channel(self, endpoint: str, schema: Schema | None = None, *, metadata: Mapping[str, str] | None = None) -> int:
        """Create a channel, and return its number.

        Args:
            endpoint: name of the endpoint (MCAP's topic).
            schema: description of the messages.
            metadata: texts by name. docs/reference/recordings.md lists the keys that readers interpret. For example,
                "sequence" with the value "published" declares that gaps in the numbers are losses.

        Raises:
            InvalidTypeError: a name or a text is no str.
            InvalidValueError: a name or a text is not UTF-8.
            RecordingError: all 65535 numbers are used.
            StateError: the writer is closed.
        """
        self._check_open()
        check_texts("endpoint", endpoint)
        check_texts("metadata", *chain.from_iterable((metadata or {}).items()))
        number = len(self._chunk_writer.channels) + 1
        if number >= CHANNEL_ID_COUNT:
            text = f"the file has {CHANNEL_ID_COUNT - 1} channels, the maximum; write another file"
            raise RecordingError(text, endpoint)
        record = self._add_schema(schema) if schema and metadata_keys.needs_schema_record(schema) else None
        encoding = schema.encoding if schema else ""
        described = records.Channel(number, endpoint, encoding, dict(metadata or {}), record.id if record else 0)
        self._chunk_writer.add_channel(EncodedChannel(described, record))
        return number

    def _add_schema(self, schema: Schema) -> records.Schema:
        """Return the record of a schema. Equal schemas share a record."""
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
        """Write a message. Messages in the order of their times are cheaper to read.

        Args:
            channel: number returned by `channel`.
            data: payload, contiguous bytes.
            log_time: recording time, in ns since the epoch.
            publish_time: publishing time, in ns since the epoch; None: `log_time`.
            sequence: number of the message within its channel, stored with 32 bits; None: the previous number plus 1.
            origin_time: time of the first event that led to the message, in ns since the epoch; 0: unknown.

        Raises:
            InvalidTypeError: a time or the sequence is no integer.
            InvalidValueError: the channel does not exist, or a time is before 1970 or after 2262.
            RecordingError: the disk is full or failed. The message was not written, and you may call `write` again.
            StateError: the writer is closed.
        """
        if not (
            type(log_time) is type(origin_time) is int
            and type(publish_time) in _INTEGER_TYPES
            and type(sequence) in _INTEGER_TYPES
        ):
            log_time, origin_time = to_integer("log_time", log_time), to_integer("origin_time", origin_time)
            publish_time = None if publish_time is None else to_integer("publish_time", publish_time)
            sequence = None if sequence is None else to_integer("sequence", sequence)
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
        """Write many messages at once, and return their number.

        A single number instead of an array counts for all messages.

        Args:
            channel: numbers returned by `channel`.
            data: payloads: an Arrow column of binaries or texts (pyarrow, Polars, ...), a NumPy array whose first axis
                counts the messages, or a sequence of bytes.
            log_time: as in `write`: integers, or NumPy's datetime64.
            publish_time: as in `write`: integers, or NumPy's datetime64.
            sequence: as in `write`: integers.

        Raises:
            InvalidValueError: the columns differ in length, or a value is out of range. Nothing was written.
            RecordingError: the disk is full or failed. `messages` counts the messages that were written before.
            StateError: the writer is closed.
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
        """Write an attachment: a file of any format.

        Args:
            name: name of the file.
            data: content of the file.
            media_type: media type, for example "text/plain".
            log_time: recording time, in ns since the epoch; None: the time of the newest message.
            create_time: creation time, in ns since the epoch; 0: unknown.

        Raises:
            InvalidTypeError: a time is no integer, a text is no str, or the content is not bytes.
            InvalidValueError: a time is before 1970 or after 2262, or a text is not UTF-8.
            RecordingError: the disk is full or failed.
            StateError: the writer is closed.
        """
        self._check_open()
        check_texts("attachment", name, media_type)
        time = self._chunk_writer.latest_time if log_time is None else check_time("log_time", log_time)
        create_time = check_time("create_time", create_time)
        try:
            content = bytes(memoryview(data))
        except TypeError:
            raise InvalidTypeError(f"data of attachment is of type {type(data).__name__}; give bytes") from None
        self._segment_writer.write_attachment(records.Attachment(create_time, time, name, media_type, content))

    def add_metadata(self, name: str, metadata: Mapping[str, str]) -> None:
        """Write named texts about the whole file. Several records may have one name.

        Raises:
            InvalidTypeError: the name, or a text, is no str.
            InvalidValueError: the name, or a text, is not UTF-8.
            RecordingError: the disk is full or failed.
            StateError: the writer is closed.
        """
        self._check_open()
        check_texts("metadata", name, *chain.from_iterable(metadata.items()))
        self._segment_writer.write_metadata(name, metadata)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateError(f"the writer of '{self.path}' is closed; create another Writer")
        if os.getpid() != self._pid:
            raise ForkedSocketError(
                f"the writer of '{self.path}' belongs to the parent process; create another in this process"
            )

    def close(self) -> None:
        """Complete the file. A second close has no effect.

        Raises:
            RecordingError: a file of that name exists now, or the disk is full or failed. No file is left.
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
        """Delete the unfinished file. No effect if the writer is closed, or belongs to the parent."""
        if self._is_closed or os.getpid() != self._pid:
            return
        self._is_closed = True
        self._chunk_writer.close_channels()
        self._segment_writer.close_without_summary()
        self._file_stack = ExitStack()  # the unfinished file is not published

    def __del__(self) -> None:
        self.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()
