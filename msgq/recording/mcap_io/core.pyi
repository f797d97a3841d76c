"""Compiled code for chunks of MCAP files: scans into columns, buffers and writers."""

from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np

from msgq.recording.mcap_io.segment_writer import EncodedChannel, SegmentWriter

#: Why a scan stopped: at the end, no row was left, at a schema, a channel or no plain message, at a record that is cut,
#: at opcode 0.
SCAN_END_OF_BYTES: int
SCAN_COLUMNS_FULL: int
SCAN_OTHER_RECORD: int
SCAN_TRUNCATED_RECORD: int
SCAN_ZERO_OPCODE: int
#: Codes of channels besides those from 0 on: a scan stops at an unknown one, and passes over an unwanted one.
CHANNEL_CODE_UNKNOWN: int
CHANNEL_CODE_UNWANTED: int
#: Times are at most so many ns.
TIME_MAX: int
#: What is counted of a code: messages, bytes, first_time, last_time, lost, next_sequence (the number after that of the
#: newest message), first_sequence, largest. The numbers are those of a whole numbering; see tally.h.
TALLY_DTYPE: np.dtype[Any]

def crc32(data: bytes | memoryview[int], start: int = 0) -> int:
    """Return the same as `zlib.crc32`. Several times as fast if the processor has carry-less multiplication.

    Parameters
    ----------
    data : contiguous bytes.
    start : CRC of the preceding bytes.

    Notes
    -----
    Releases the GIL.
    """

@final
class ScanColumns:
    """Messages as rows, with the positions of their payloads in the scanned bytes. One thread at a time.

    The arrays use this object's memory: later scans overwrite the rows after `clear_rows`.
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

        Set by `McapFile.scan_block_messages`, not by scans of this class.
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
        codes: np.ndarray[Any, np.dtype[np.int32]],
        start: int,
        end: int,
        strict: bool = False,
    ) -> tuple[int, int]:
        """Append the messages from a position on; return why that stopped, and the position there.

        Parameters
        ----------
        data : records.
        position : of a record.
        codes : for each channel id; ids beyond are unknown.
        start : the first log_time that is wanted, in ns.
        end : the log_time from which on none is wanted, in ns.
        strict : whether to stop at records that chunks do not have as well; else they are passed over.

        Notes
        -----
        Releases the GIL.
        """

    def count_payload_bytes(self, first: int) -> int:
        """Return the bytes of all payloads from row `first` on, as a sum."""

    def copy_payloads(
        self,
        data: bytes,
        first: int,
        into: np.ndarray[Any, np.dtype[np.uint8]],
        used: int,
        ends: np.ndarray[Any, np.dtype[np.int32]],
    ) -> int:
        """Copy payloads one behind the other; return how many bytes are taken then.

        Parameters
        ----------
        data : what the rows from `first` on were found in, the same bytes.
        first : the row to begin with.
        into : where to.
        used : bytes of it that are taken.
        ends : of each row, where its payload ends.

        Raises
        ------
        InvalidValueError : there is no room, or the data are too short to be those that were scanned.

        Notes
        -----
        Releases the GIL.
        """

    def keep_rows(self, first: int, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Remove some rows.

        Parameters
        ----------
        first : first row.
        mask : for each row from `first` on, False to remove the row; shape (rows - first,).
        """

    def update_tallies(
        self, tallies: np.ndarray[Any, Any], first: int, numberings: np.ndarray[Any, np.dtype[np.int32]]
    ) -> None:
        """Count the rows of chunks; a gap in the sequence of a numbering is a loss.

        Parameters
        ----------
        tallies : of dtype TALLY_DTYPE, one for each code; added to.
        first : the row to begin with.
        numberings : of each code, the code in whose tally losses count: the same for those that share a numbering.
        """

#: Bytes of a message record before its payload.
MESSAGE_RECORD_HEADER_BYTES: int
#: NumPy dtype of `ChunkBuffer.message_entries`, as its descr.
CHUNK_ENTRY_FIELDS: list[tuple[str, str]]
#: What `ChunkBuffer.take` appends: a message whose payload lies at `offset` of one of several contents.
MESSAGE_ROW_DTYPE: np.dtype[Any]
#: How many ids there can be of channels.
CHANNEL_ID_COUNT: int

@final
class ChunkBuffer:
    """A buffer of message records, with an entry for the position of each record. One thread at a time."""

    def __new__(cls, target_bytes: int, largest_bytes: int) -> Self:
        """Make an empty one.

        Parameters
        ----------
        target_bytes : bytes of records from which on it is full.
        largest_bytes : bytes of the largest message to be expected; a chunk takes one more of these. Memory that is not
            written is not used.
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
    def record_bytes(self) -> memoryview[int]:
        """The records, read-only. The bytes change after `clear_messages`."""

    @property
    def message_entries(self) -> memoryview[int]:
        """One CHUNK_ENTRY_FIELDS a record, in the order of log_time; its offset is one into `data`."""

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

        Parameters
        ----------
        channel : number of the channel in the file, 16 bits.
        sequence : number of the message, 32 bits.
        log_time : ns since the epoch, not before the previous message.
        publish_time : ns since the epoch.
        data : payload.
        origin_time : origin of the message, in ns since the epoch; 0: unknown.
        """

    def append_rows(self, rows: np.ndarray[Any, Any], start: int, contents: Sequence[Any]) -> int:
        """Append messages that lie in other bytes, from row `start` on, until it is full or the next does not fit.

        Parameters
        ----------
        rows : of dtype MESSAGE_ROW_DTYPE, contiguous.
        start : the row to begin with.
        contents : contiguous buffers of bytes, in which the payloads lie.

        Returns
        -------
        The row behind the last one that was appended.

        Raises
        ------
        InvalidValueError : a row does not lie in its content; those before it are appended.

        Notes
        -----
        Releases the GIL.
        """

    def update_tallies(self, tallies: np.ndarray[Any, Any], numberings: np.ndarray[Any, np.dtype[np.uint16]]) -> None:
        """Count the messages; a gap in the sequence of a numbering is a loss.

        Parameters
        ----------
        tallies : of dtype TALLY_DTYPE (core.pyi), one for each channel id; added to.
        numberings : of each channel id, the one in whose tally losses count: the same for those that share a numbering.

        Notes
        -----
        Releases the GIL.
        """

    def count_messages_by_channel(self) -> dict[int, int]:
        """Return the number of messages by channel id, in the order of the ids."""

    def build_message_indexes(self, shift: int) -> bytes:
        """Return the MessageIndex records of all channels, in the order of `channels`.

        Parameters
        ----------
        shift : bytes that are before the messages in the chunk that is written.
        """

    def clear_messages(self) -> None:
        """Remove all messages."""

@final
class ChunkWriter:
    """Fills chunks, and writes full chunks. One thread at a time."""

    def __new__(cls, segment: SegmentWriter, channels: dict[int, EncodedChannel], chunk_bytes: int) -> Self:
        """Begin with no messages.

        Parameters
        ----------
        segment : where chunks are written to.
        channels : what messages of `take` may have, by id; more may come into it.
        chunk_bytes : before compression, that make a chunk.
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
        """Let messages of `write_message` have a channel, too, and be numbered from 0."""

    def write_message(
        self, channel: int, data: Any, log_time: int, publish_time: int | None, sequence: int | None, origin_time: int
    ) -> None:
        """Add a message.

        Parameters
        ----------
        channel : id of an added channel.
        data : contiguous bytes.
        log_time : ns since the epoch.
        publish_time : ns since the epoch; None: `log_time`.
        sequence : number of the message, stored with 32 bits; None: the channel's previous number plus 1.
        origin_time : origin of the message, in ns since the epoch; 0: unknown.

        Raises
        ------
        InvalidValueError : the channel does not exist, or a time is out of range.
        OverflowError : a number does not fit 64 bits.
        RecordingError : the disk is full or failed.
        """

    def assign_sequences(
        self,
        channels: np.ndarray[Any, np.dtype[np.int64]],
        sequences: np.ndarray[Any, np.dtype[np.int64]] | None = None,
    ) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """Return the numbers of messages, which those that follow them go on from.

        Parameters
        ----------
        channels : of the messages.
        sequences : their numbers, of which 32 bits are kept; None: those that follow.

        Raises
        ------
        InvalidValueError : there is no such channel.
        """

    def append_rows(self, rows: np.ndarray[Any, Any], contents: Sequence[Any]) -> None:
        """Take messages that lie in other bytes.

        Parameters
        ----------
        rows : of dtype MESSAGE_ROW_DTYPE, contiguous; their channels are in `channels`.
        contents : contiguous buffers of bytes, in which the payloads lie.

        Raises
        ------
        InvalidValueError : a row does not lie in its content.
        RecordingError : the disk is full, or fails.
        """

    def close_channels(self) -> None:
        """Let there be no channel for `write_message` and `assign_sequences`."""

    def flush_chunk(self) -> None:
        """Write the added messages.

        Raises
        ------
        RecordingError : the disk is full or failed.
        """
