"""Chunks of messages into columns, below Python."""

from typing import Any, Self, final

import numpy as np

#: Why a scan stopped: at the end, no row was left, at a schema, a channel or no plain message, at a record that is cut,
#: at opcode 0.
END: int
FULL: int
RECORD: int
CUT: int
ZERO: int
#: Codes of channels besides those from 0 on: a scan stops at an unknown one, and passes over an unwanted one.
UNKNOWN: int
UNWANTED: int
#: Times are at most so many ns.
TIME_MAX: int
#: What is counted of a code: messages, bytes, first_time, last_time, lost, following (the number after that of the
#: newest message), first_sequence, largest. The numbers are those of a whole numbering; see tally.h.
TALLY: np.dtype[Any]

def crc32(data: bytes | memoryview[int], start: int = 0) -> int:
    """Return what `zlib.crc32` does, several times as fast where the processor can multiply without carries.

    Parameters
    ----------
    data : contiguous bytes.
    start : the CRC of what comes before them.

    Notes
    -----
    Releases the GIL.
    """

@final
class ScanColumns:
    """Messages in rows, their payloads as places in the bytes they were found in. For one thread at a time.

    The arrays are this object's memory: rows are overwritten after `clear`.
    """

    def __new__(cls, capacity: int) -> Self:
        """Make room for so many rows."""

    @property
    def capacity(self) -> int:
        """Rows that it can have."""

    @property
    def rows(self) -> int:
        """Rows that it has."""

    @property
    def code(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """The code of the channel."""

    @property
    def sequence(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As in the message."""

    @property
    def log_time(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As in the message, ns."""

    @property
    def publish_time(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """As in the message, ns."""

    @property
    def offset(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Where the payload is in the bytes that were scanned."""

    @property
    def origin_time(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Of what the message comes from, ns since the epoch; 0: not known. `McapFile.scan` fills it, no scan here."""

    @property
    def length(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Bytes of the payload."""

    def clear(self) -> None:
        """Have no rows."""

    def scan(
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

    def payload_bytes(self, first: int) -> int:
        """Return how many bytes the payloads have together, from row `first` on."""

    def gather(
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

    def keep(self, first: int, mask: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Forget some rows.

        Parameters
        ----------
        first : the row to begin with.
        mask : of each row from that on, shape (rows - first,): False to forget it.
        """

    def count(self, tallies: np.ndarray[Any, Any], first: int, numberings: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        """Count the rows of chunks; a gap in the sequence of a numbering is a loss.

        Parameters
        ----------
        tallies : of dtype TALLY, one for each code; added to.
        first : the row to begin with.
        numberings : of each code, the code in whose tally losses count: the same for those that share a numbering.
        """
