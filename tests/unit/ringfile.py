"""The two files of a topic, looked at and written to behind the library's back."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Self

from tests.support import SHM

HEADER = 384
SLOTS = 15
SIDE_BYTES = 65536
WRAP_MARK = 2**64 - 1
STRANGER_UID = 0xABCDEF << 32  # a publisher that no side segment knows

# Offsets in the side segment.
MAGIC, VERSION, RING_INODE, ATTENTION, PUBLISHERS, READERS = 0, 8, 40, 64, 256, 2304


def ring_path(endpoint: str) -> Path:
    return SHM / f"msgq_{endpoint}"


def side_path(endpoint: str) -> Path:
    return SHM / f"msgqside_{endpoint}"


def ring_position(cycle: int, offset: int) -> int:
    return cycle << 32 | offset


def message_bytes_in_ring(size: int) -> int:
    """Ring bytes of a message."""
    return (size + 15) & ~7


def lap_end(data_bytes: int) -> int:
    """The largest offset at which a lap may end."""
    return (data_bytes - 9) & ~7


def announced_chunk_bytes(data_bytes: int) -> int:
    """How far ahead a publisher announces."""
    return min((data_bytes // 16) & ~7, 65536)


class Words:
    """A mapped file, as 64-bit words."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self.bytes = mmap.mmap(file.fileno(), 0)

    def __getitem__(self, offset: int) -> int:
        return int(struct.unpack_from("<Q", self.bytes, offset)[0])

    def __setitem__(self, offset: int, value: int) -> None:
        struct.pack_into("<Q", self.bytes, offset, value & WRAP_MARK)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes.close()


class RingFile(Words):
    """A ring; also a publisher without a side segment, as a stock process is (but it signals nobody)."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(ring_path(endpoint))
        self.data_bytes = len(self.bytes) - HEADER

    @classmethod
    def make(cls, endpoint: str, data_bytes: int, write_pointer: int = 0) -> Self:
        """Create a ring as if somebody had used it before."""
        path = ring_path(endpoint)
        path.write_bytes(bytes(HEADER + data_bytes))
        path.chmod(0o600)
        ring = cls(endpoint)
        ring.write_pointer = write_pointer
        return ring

    num_readers = property(lambda self: self[0])

    @property
    def write_pointer(self) -> int:
        return self[8]

    @write_pointer.setter
    def write_pointer(self, value: int) -> None:
        self[8] = value

    @property
    def write_uid(self) -> int:
        return self[16]

    @write_uid.setter
    def write_uid(self, value: int) -> None:
        self[16] = value

    def read_pointers(self) -> list[int]:
        return [self[24 + 8 * i] for i in range(SLOTS)]

    def read_valids(self) -> list[int]:
        return [self[144 + 8 * i] for i in range(SLOTS)]

    def read_uids(self) -> list[int]:
        return [self[264 + 8 * i] for i in range(SLOTS)]

    def start_stranger(self) -> None:
        """Start publishing as a stock process does: a new uid, and all slots wiped."""
        self.write_uid = STRANGER_UID
        for offset in (0, *range(144, HEADER, 8)):
            self[offset] = 0

    def publish(self, message: bytes) -> None:
        """Publish as a stock process does, without flags and signals."""
        cycle, offset = self.write_pointer >> 32, self.write_pointer & 0xFFFFFFFF
        if offset + message_bytes_in_ring(len(message)) > lap_end(self.data_bytes):
            self[HEADER + offset] = WRAP_MARK
            cycle, offset = (cycle + 1) & 0xFFFFFFFF, 0
            self.write_pointer = ring_position(cycle, offset)
        start = HEADER + offset
        self[start] = len(message)
        self.bytes[start + 8 : start + 8 + len(message)] = message
        self.write_pointer = ring_position(cycle, offset + message_bytes_in_ring(len(message)))
