"""Chunks of a recording that are being filled, below Python."""

from typing import Self, final

#: Bytes of a message record before its payload.
RECORD_HEADER: int
#: NumPy dtype of `Chunk.entries`, as its descr.
ENTRY: list[tuple[str, str]]

@final
class Chunk:
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

    def clear(self) -> None:
        """Make it empty again."""
