"""CRCs of parts of a file. The DataEnd record stores the CRC of all bytes before it."""

from __future__ import annotations

from msgq.recording.mcap_io.byte_reader import ByteReader
from msgq.recording.mcap_io.core import crc32

_BLOCK_BYTES = 1 << 20


class DataCrc:
    """CRC-32 of a file from its first byte to `position`.

    Attributes:
        position: byte offset after the last added byte.
        value: CRC of all bytes before `position`.
    """

    def __init__(self) -> None:
        self.position = self.value = 0

    def add_bytes(self, source: ByteReader, data: memoryview[int], start: int) -> None:
        """Add bytes that were read at offset `start`.

        The call reads the bytes between `position` and `start` from the file.
        """
        self.read_up_to(source, start)
        self.value = crc32(data, self.value)
        self.position += len(data)

    def read_up_to(self, source: ByteReader, place: int) -> None:
        """Add the bytes of the file up to an offset. If the file was shortened, the CRC differs."""
        while self.position < place:
            data = source.pread(min(_BLOCK_BYTES, place - self.position), self.position)
            self.value = crc32(data, self.value)
            self.position = self.position + len(data) if data else place


def compute_range_crc(source: ByteReader, start: int, end: int) -> int:
    """Return the CRC-32 of the bytes between two offsets."""
    crc = 0
    for offset in range(start, end, _BLOCK_BYTES):
        crc = crc32(source.pread(min(_BLOCK_BYTES, end - offset), offset), crc)
    return crc
