"""Compiled code for chunks of MCAP files: scans into columns, buffers and writers."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any, Self, final

import numpy as np

from msgq.recording.mcap_io.segment_writer import EncodedChannel, SegmentWriter

#: Reasons why a scan stopped: the bytes ended, the columns are full, the caller must handle the next record (a schema,
#: a channel or an invalid message), the next record exceeds the bytes, the next opcode is 0.
SCAN_END_OF_BYTES: int
SCAN_COLUMNS_FULL: int
SCAN_OTHER_RECORD: int
SCAN_TRUNCATED_RECORD: int
SCAN_ZERO_OPCODE: int
#: Codes of channels in addition to the caller's codes from 0. A scan stops at a message of an unknown channel, and
#: skips messages of unwanted channels.
CHANNEL_CODE_UNKNOWN: int
CHANNEL_CODE_UNWANTED: int
#: Latest time of a message, in ns since the epoch.
TIME_MAX: int

def tally_dtype() -> np.dtype[Any]:
    """Return the dtype of the statistics of a channel code. The first call imports NumPy.

    Fields of 8 bytes: messages, bytes, first_time, last_time (ns since the epoch), lost, next_sequence (newest sequence
    plus 1; 0: no message), first_sequence, largest (bytes). Codes with the same numbering share the three fields lost,
    next_sequence and first_sequence, stored with the numbering's first code; see tally.h.
    """

def crc32(data: bytes | memoryview[int], start: int = 0) -> int:
    """Return the CRC-32 of bytes, as `zlib.crc32` does.

    If the processor has carry-less multiplication, the call is several times faster than zlib.

    Args:
        data: contiguous bytes.
        start: CRC of the preceding bytes.

    Notes:
        Releases the GIL.
    """

def combine_crc32(first: int, second: int, second_bytes: int) -> int:
    """Return the CRC-32 of two consecutive parts, from the CRCs of both parts and the size of the second part."""

@final
class ScanColumns:
    """Messages as rows, with the positions of their payloads in the scanned bytes. One thread at a time.

    The arrays use this object's memory. If a scan follows `clear_rows`, the scan overwrites the rows in the arrays.
    """

    def __new__(cls, capacity: int) -> Self:
        """Allocate memory for `capacity` rows."""

    @property
    def capacity(self) -> int:
        """Maximum number of rows."""

    @property
    def row_count(self) -> int:
        """Number of rows."""

    @property
    def channel_code(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Code of the channel."""

    @property
    def sequence(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Sequence of the message."""

    @property
    def log_time(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Recording time of the message, in ns."""

    @property
    def publish_time(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Publishing time of the message, in ns."""

    @property
    def offset(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Byte offset of the payload in the scanned bytes."""

    @property
    def origin_time(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Origin of the message, in ns since the epoch; 0: unknown.

        Scans of this class leave the origin at 0, and `McapFile.scan_block_messages` sets the origin.
        """

    @property
    def length(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Bytes of the payload."""

    def clear_rows(self) -> None:
        """Remove all rows."""

    def scan_messages(
        self,
        data: bytes,
        position: int,
        codes: np.ndarray[Any, np.dtype[np.int32]] | array[int],
        start: int,
        end: int,
        strict: bool = False,
    ) -> tuple[int, int]:
        """Append one row for each wanted message.

        Args:
            data: records of a chunk or of a data section.
            position: byte offset of the first record to scan.
            codes: shape (channels,): code of each channel id. Larger ids are unknown.
            start: earliest log_time of wanted messages, in ns since the epoch.
            end: log_time after the latest wanted message, in ns since the epoch.
            strict: True: stop also at records that chunks do not contain. False: skip these records.

        Returns:
            The reason of the stop (`SCAN_END_OF_BYTES` and following), and the byte offset of the first unscanned
            record.

        Raises:
            InvalidValueError: `position` is outside of the data.

        Notes:
            Releases the GIL.
        """

    def count_payload_bytes(self, first: int) -> int:
        """Return the total bytes of the payloads of row `first` and all later rows."""

    def copy_payloads(
        self,
        data: bytes,
        first: int,
        into: np.ndarray[Any, np.dtype[np.uint8]],
        used: int,
        ends: np.ndarray[Any, np.dtype[np.int32]],
    ) -> int:
        """Copy the payloads of row `first` and all later rows into a buffer, one after the other.

        Args:
            data: the scanned bytes of these rows.
            first: first row.
            into: the buffer.
            used: byte offset in the buffer at which the first payload is stored.
            ends: array in which the call stores, for each row, the byte offset in the buffer at which the payload ends;
                shape (rows,) or longer.

        Returns:
            Byte offset in the buffer at which the last payload ends.

        Raises:
            InvalidValueError: the buffer or `ends` is too small, or a payload exceeds the data.

        Notes:
            Releases the GIL.
        """

    def keep_rows(self, first: int, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Remove some rows.

        Args:
            first: first row.
            mask: for each row from `first` on, False to remove the row; shape (rows - first,).
        """

    def update_tallies(
        self, tallies: np.ndarray[Any, Any], first: int, numberings: np.ndarray[Any, np.dtype[np.int32]] | array[int]
    ) -> None:
        """Add row `first` and all later rows to the statistics.

        If the sequence of a numbering has a gap, the missing messages count as lost.

        Args:
            tallies: statistics of each code, with dtype `tally_dtype()`; updated by the call.
            first: first row.
            numberings: for each code, the code whose statistics count its losses. Codes that share a numbering have the
                same value.

        Raises:
            InvalidValueError: `tallies` has another dtype, or a code or numbering has no element in `tallies`.
        """

#: Bytes of a message record before its payload.
MESSAGE_RECORD_HEADER_BYTES: int
#: NumPy dtype of `ChunkBuffer.message_entries`, as its descr.
CHUNK_ENTRY_FIELDS: list[tuple[str, str]]

def message_row_dtype() -> np.dtype[Any]:
    """Return the dtype of rows for `ChunkBuffer.append_rows`. The first call imports NumPy.

    A payload is stored at byte `offset` of the content with index `content_index`.
    """

#: Number of possible channel ids.
CHANNEL_ID_COUNT: int

@final
class ChunkBuffer:
    """A buffer of message records, with an entry for the position of each record. One thread at a time."""

    def __new__(cls, target_bytes: int, largest_bytes: int) -> Self:
        """Allocate an empty buffer. Pages of the memory are used only after a write.

        Args:
            target_bytes: the buffer counts as full after this number of bytes.
            largest_bytes: maximum payload bytes of one message. The last message may exceed `target_bytes`.
        """

    @property
    def capacity_bytes(self) -> int:
        """Maximum bytes of records."""

    @property
    def used_bytes(self) -> int:
        """Bytes of the records."""

    def __len__(self) -> int:
        """Return the number of records."""

    @property
    def first_time(self) -> int:
        """Earliest log_time of a message, in ns since the epoch; 0 without messages."""

    @property
    def last_time(self) -> int:
        """Latest log_time of a message, in ns since the epoch; 0 without messages."""

    @property
    def has_origins(self) -> bool:
        """True if a message has an origin."""

    @property
    def record_bytes(self) -> memoryview[int]:
        """The records, read-only. The bytes change after `clear_messages`."""

    def prepend_records(self, start: bytes) -> memoryview[int]:
        """Return `start` and all records of the chunk as one contiguous buffer, read-only.

        `clear_messages`, and the next call with another `start`, overwrite these bytes. If `start` has more than
        64 KiB, the call copies all records.
        """

    @property
    def message_entries(self) -> memoryview[int]:
        """Entries of dtype CHUNK_ENTRY_FIELDS, one for each record, in the order of log_time.

        `offset` is the byte offset of the record in `record_bytes`.
        """

    def append_message(
        self,
        channel: int,
        sequence: int,
        log_time: int,
        publish_time: int,
        data: bytes | bytearray,
        origin_time: int = 0,
    ) -> bool:
        """Add a message. Return False if the message does not fit.

        Args:
            channel: number of the channel in the file, 16 bits.
            sequence: number of the message, 32 bits.
            log_time: ns since the epoch, not before the previous message.
            publish_time: ns since the epoch.
            data: payload.
            origin_time: origin of the message, in ns since the epoch; 0: unknown.
        """

    def append_rows(self, rows: np.ndarray[Any, Any], start: int, contents: Sequence[Any]) -> int:
        """Append the messages of rows. Stops when the buffer is full, or before a message that does not fit.

        Args:
            rows: contiguous array of dtype `message_row_dtype()`.
            start: first row to append.
            contents: contiguous buffers with the payloads.

        Returns:
            Index of the first row that was not appended.

        Raises:
            InvalidValueError: `start` or the dtype is invalid, or a payload exceeds its content. Earlier rows are
                appended.

        Notes:
            Releases the GIL.
        """

    def update_tallies(self, tallies: np.ndarray[Any, Any], numberings: np.ndarray[Any, np.dtype[np.uint16]]) -> None:
        """Add all messages to the statistics.

        If the sequence of a numbering has a gap, the missing messages count as lost.

        Args:
            tallies: statistics of each channel id, with dtype `tally_dtype()` and shape (CHANNEL_ID_COUNT,); updated by
                the call.
            numberings: for each channel id, the id whose statistics count its losses. Ids that share a numbering have
                the same value.

        Raises:
            InvalidValueError: an array has another shape, or `tallies` another dtype.

        Notes:
            Releases the GIL.
        """

    def count_messages_by_channel(self) -> dict[int, int]:
        """Return the number of messages by channel id, in the order of the ids. Do not change the dictionary."""

    def build_message_indexes(self, shift: int) -> bytes:
        """Return the MessageIndex records of all channels, in the order of the channel ids.

        Args:
            shift: bytes before the first message in the written chunk. Offsets in the records include `shift`.
        """

    def clear_messages(self) -> None:
        """Remove all messages."""

@final
class ChunkWriter:
    """Fills chunks, and writes full chunks. One thread at a time."""

    def __new__(cls, segment: SegmentWriter, channels: dict[int, EncodedChannel], chunk_bytes: int) -> Self:
        """Start with an empty chunk.

        Args:
            segment: writes the chunks to a file.
            channels: channels of messages, by id. The caller and `add_channel` may add more to this dict.
            chunk_bytes: minimum bytes of a full chunk, before compression.
        """

    @property
    def channels(self) -> dict[int, EncodedChannel]:
        """Channels of messages, by id."""

    @property
    def message_count(self) -> int:
        """Number of added messages."""

    @property
    def latest_time(self) -> int:
        """Latest log_time, in ns since the epoch; 0 without messages."""

    def add_channel(self, records: EncodedChannel) -> None:
        """Add a channel for `write_message` and `assign_sequences`.

        The first message of the channel has number 0 by default.
        """

    def write_message(
        self, channel: int, data: Any, log_time: int, publish_time: int | None, sequence: int | None, origin_time: int
    ) -> None:
        """Add a message.

        Args:
            channel: id of an added channel.
            data: contiguous bytes.
            log_time: ns since the epoch.
            publish_time: ns since the epoch; None: `log_time`.
            sequence: number of the message, stored with 32 bits; None: the channel's previous number plus 1.
            origin_time: origin of the message, in ns since the epoch; 0: unknown.

        Raises:
            InvalidValueError: the channel does not exist, or a time is out of range.
            OverflowError: a number does not fit 64 bits.
            RecordingError: the disk is full or failed.
        """

    def assign_sequences(
        self,
        channels: np.ndarray[Any, np.dtype[np.int64]],
        sequences: np.ndarray[Any, np.dtype[np.int64]] | None = None,
    ) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the numbers of messages.

        Later messages of the channel get the numbers after the channel's last number.

        Args:
            channels: channel id of each message.
            sequences: number of each message; only the low 32 bits are used. None: continue the channels' numbers.

        Raises:
            InvalidValueError: a channel does not exist, or the arrays have different lengths.
        """

    def append_rows(self, rows: np.ndarray[Any, Any], contents: Sequence[Any]) -> None:
        """Add the messages of rows.

        Args:
            rows: contiguous array of dtype `message_row_dtype()`. The channels must be in `channels`.
            contents: contiguous buffers with the payloads.

        Raises:
            InvalidValueError: the dtype is invalid, or a payload exceeds its content.
            RecordingError: the disk is full or failed.
        """

    def close_channels(self) -> None:
        """Remove all channels of `write_message` and `assign_sequences`.

        Both methods then raise `InvalidValueError`.
        """

    def flush_chunk(self) -> None:
        """Write the added messages.

        Raises:
            RecordingError: the disk is full or failed.
        """

def preallocate_space(fd: int, offset: int, size: int) -> bool:
    """Allocate disk space of a file, also after its end. The size of the file stays.

    Returns:
        False if the space was not allocated: the file system is in memory (tmpfs) or cannot allocate, or the disk is
        nearly full. The file is unchanged.
    """

def write_and_commit(
    fd: int, offset: int, parts: Sequence[bytes | memoryview[int]], steps: Sequence[Callable[[], object]]
) -> None:
    """Write all parts to a file at an offset, then call all steps. No signal handler of Python runs in between.

    After a success, all steps were called, also if a handler raises an exception when this function returns. After an
    error, no step was called, and the file may have some of the bytes.

    Args:
        fd: descriptor of the file.
        offset: offset of the first byte in the file.
        parts: parts to write.
        steps: functions that are implemented in C, such as `partial(setattr, ...)`. Handlers run during Python code.

    Raises:
        OSError: the disk is full or failed.
    """
