"""Messages on their way into the chunks of a segment, below Python."""

from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np

from msgq.recording.mcap_io.segment_writer import EncodedChannel, SegmentWriter

@final
class ChunkWriter:
    """Fills chunks, and writes those that are full. For one thread at a time."""

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
        """What messages may have, by id."""

    @property
    def messages(self) -> int:
        """How many were taken so far."""

    @property
    def latest_time(self) -> int:
        """The last log_time of all, ns since the epoch; 0 without messages."""

    def add_channel(self, records: EncodedChannel) -> None:
        """Let messages of `write` have a channel, too, and be numbered from 0."""

    def write(
        self, channel: int, data: Any, log_time: int, publish_time: int | None, sequence: int | None, origin_time: int
    ) -> None:
        """Take a message.

        Parameters
        ----------
        channel : that was added.
        data : contiguous bytes.
        log_time : ns since the epoch.
        publish_time : the same; None: `log_time`.
        sequence : of which 32 bits are kept; None: the number after that of the channel's last message.
        origin_time : ns since the epoch; 0: it is not known.

        Raises
        ------
        InvalidValueError : there is no such channel, or a time is not possible. OverflowError: not even 64 bits.
        RecordingError : the disk is full, or fails.
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
        rows : of dtype ROW, contiguous; their channels are in `channels`.
        contents : contiguous buffers of bytes, in which the payloads lie.

        Raises
        ------
        InvalidValueError : a row does not lie in its content.
        RecordingError : the disk is full, or fails.
        """

    def close_channels(self) -> None:
        """Let there be no channel for `write` and `number`."""

    def flush(self) -> None:
        """Write what was taken.

        Raises
        ------
        RecordingError : the disk is full, or fails.
        """
