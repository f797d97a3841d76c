"""CRCs of parts of a file; that of the data section is of all bytes before the DataEnd record, which says it."""

from __future__ import annotations

import os

from msgq.recording.mcap_io.core import crc32

_BLOCK_BYTES = 1 << 20


class DataCrc:
    """The CRC-32 of a file from its first byte on, as far as it was told or has read.

    Attributes
    ----------
    position : end of the bytes that were added.
    value : of what is before.
    """

    def __init__(self) -> None:
        self.position = self.value = 0

    def add_bytes(self, fd: int, data: memoryview[int], start: int) -> None:
        """Take what was read at a place, and read what is before it."""
        self.read_up_to(fd, start)
        self.value = crc32(data, self.value)
        self.position += len(data)

    def read_up_to(self, fd: int, place: int) -> None:
        """Read up to a place; a file that is shorter now has another CRC."""
        while self.position < place:
            data = os.pread(fd, min(_BLOCK_BYTES, place - self.position), self.position)
            self.value = crc32(data, self.value)
            self.position = self.position + len(data) if data else place


def compute_range_crc(fd: int, start: int, end: int) -> int:
    """Return the CRC-32 of what is between two places."""
    crc = 0
    for offset in range(start, end, _BLOCK_BYTES):
        crc = crc32(os.pread(fd, min(_BLOCK_BYTES, end - offset), offset), crc)
    return crc
