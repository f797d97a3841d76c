"""Pages of a ring: mapped before the publisher comes to them, and not by whoever opens a topic."""

from __future__ import annotations

import mmap
import platform
import struct
from pathlib import Path

import pytest

import msgq
from tests.unit.ringfile import HEADER, lap_end, message_bytes_in_ring

KERNEL = tuple(int(part) for part in platform.release().split(".")[:2])
PRESENT = 1 << 63
MIB = 1 << 20
SIZE = 2000  # two messages in a page, but one where it ends

pytestmark = [
    pytest.mark.skipif(KERNEL < (5, 14), reason="this kernel cannot map pages ahead"),
    pytest.mark.needs_shm(24 << 20),  # a publisher that allocates ahead leaves 16 MiB free
]


class Pages:
    """Which pages of a ring this process has mapped; there is one mapping of it."""

    def __init__(self, endpoint: str) -> None:
        inode = str(Path(f"/dev/shm/msgq_{endpoint}").stat().st_ino)  # its name there is that of a file without one
        lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
        (span,) = [line[0] for line in lines if line[4] == inode]
        self.first, self.end = (int(edge, 16) // mmap.PAGESIZE for edge in span.split("-"))

    def mapped(self) -> list[bool]:
        with Path("/proc/self/pagemap").open("rb") as file:
            file.seek(8 * self.first)
            return [bool(word & PRESENT) for (word,) in struct.iter_unpack("Q", file.read(8 * (self.end - self.first)))]

    def hold(self, offset: int, size: int) -> bool:
        first, last = ((HEADER + edge) // mmap.PAGESIZE for edge in (offset, offset + size - 1))
        return all(self.mapped()[first : last + 1])


def fill(pub: msgq.PubSocket, offset: int, until: int) -> int:
    """Send until the next message would end behind `until`; return where it begins."""
    while offset + message_bytes_in_ring(SIZE) <= until:
        pub.send(bytes(SIZE))
        offset += message_bytes_in_ring(SIZE)
    return offset


def test_opening_topic_does_not_populate_its_pages(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, MIB):
        assert sum(Pages(endpoint).mapped()) <= 3  # the header's, the tail's


def test_publisher_populates_pages_before_each_later_message(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, MIB) as pub:
        pages, offset = Pages(endpoint), 0
        while offset + message_bytes_in_ring(SIZE) <= lap_end(MIB):
            assert offset == 0 or pages.hold(offset, message_bytes_in_ring(SIZE)), offset
            offset = fill(pub, offset, offset + message_bytes_in_ring(SIZE))
        assert all(pages.mapped())


def test_publisher_that_starts_mid_ring_populates_all_pages_in_one_lap(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, MIB) as former:
        middle = fill(former, 0, MIB // 2)
    del former  # it keeps its mapping
    with msgq.pub_sock(endpoint, MIB) as pub:
        pages = Pages(endpoint)
        assert not pages.hold(middle + 100_000, mmap.PAGESIZE)
        pub.send(bytes(SIZE))
        assert pages.hold(middle, 100_000)
        fill(pub, middle + message_bytes_in_ring(SIZE), lap_end(MIB))
        pub.send(bytes(SIZE))
        fill(pub, message_bytes_in_ring(SIZE), middle)
        assert all(pages.mapped())


@pytest.mark.parametrize("size", [128, 4096, 65536])
def test_small_ring_is_populated_by_first_message(endpoint: str, size: int) -> None:
    with msgq.pub_sock(endpoint, size) as pub:
        pub.send(bytes(16))
        assert all(Pages(endpoint).mapped())


def test_large_ring_is_populated_shortly_before_use(endpoint: str) -> None:
    with msgq.pub_sock(endpoint, 10 * MIB) as pub:
        pages, offset = Pages(endpoint), 0
        while offset < 2 * MIB:
            offset = fill(pub, offset, offset + MIB // 8)
            ahead = sum(pages.mapped()) * mmap.PAGESIZE - offset
            assert ahead <= 65536 + MIB // 4 + 4 * mmap.PAGESIZE
