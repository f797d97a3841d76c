"""Chunks of a recording that are being filled, below Python."""

from collections.abc import Sequence
from typing import Any, Self, final

import numpy as np

#: Bytes of a message record before its payload.
RECORD_HEADER: int
#: NumPy dtype of `ChunkBuffer.entries`, as its descr.
ENTRY: list[tuple[str, str]]
#: What `ChunkBuffer.take` appends: a message whose payload lies at `offset` of one of several contents.
ROW: np.dtype[Any]
#: How many ids there can be of channels.
CHANNEL_IDS: int

@final
class ChunkBuffer:
    """A buffer for message records, and an entry for each that says where it is. For one thread at a time."""

    def __new__(cls, enough: int, largest: int) -> Self:
        """Make an empty one.

        Parameters
        ----------
        enough : bytes of records from which on it is full.
        largest : bytes of the largest message to be expected; a chunk takes one more of these. Memory that is not
            written is not used.
        """

    @property
    def room(self) -> int:
        """Bytes in all."""

    @property
    def used(self) -> int:
        """Bytes of the records."""

    def __len__(self) -> int:
        """Return the number of records."""

    @property
    def data(self) -> memoryview[int]:
        """The records, read-only; they change after `clear`."""

    @property
    def entries(self) -> memoryview[int]:
        """One ENTRY a record, in the order of log_time; its offset is one into `data`."""

    def append(
        self,
        channel: int,
        sequence: int,
        log_time: int,
        publish_time: int,
        data: bytes | bytearray,
        origin_time: int = 0,
    ) -> bool:
        """Add a message. False: it does not fit.

        Parameters
        ----------
        channel : its number in the file, 16 bits.
        sequence : 32 bits.
        log_time : ns since the epoch, not before the last one's.
        publish_time : ns since the epoch.
        data : of the message.
        origin_time : of what the message comes from, ns since the epoch; 0: it is not known.
        """

    def append_rows(self, rows: np.ndarray[Any, Any], start: int, contents: Sequence[Any]) -> int:
        """Append messages that lie in other bytes, from row `start` on, until it is full or the next does not fit.

        Parameters
        ----------
        rows : of dtype ROW, contiguous.
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

    def count(self, tallies: np.ndarray[Any, Any], numberings: np.ndarray[Any, np.dtype[np.uint16]]) -> None:
        """Count the messages; a gap in the sequence of a numbering is a loss.

        Parameters
        ----------
        tallies : of dtype TALLY (scan.pyi), one for each channel id; added to.
        numberings : of each channel id, the one in whose tally losses count: the same for those that share a numbering.

        Notes
        -----
        Releases the GIL.
        """

    def count_by_channel(self) -> dict[int, int]:
        """Return how many messages each channel has, by its id, in the order of these."""

    def build_index(self, shift: int) -> bytes:
        """Return the MessageIndex records of all channels, in the order of `channels`.

        Parameters
        ----------
        shift : bytes that are before the messages in the chunk that is written.
        """

    def clear(self) -> None:
        """Make it empty again."""
