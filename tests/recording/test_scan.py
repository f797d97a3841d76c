"""What is below Python: the CRC, and the bounds that Python code cannot cross."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.core import ScanColumns, combine_crc32, crc32, tally_dtype
from tests.recording.logs import encode_parts, message

CODES = np.zeros(4, np.int32)


def test_crc_equals_zlib_crc() -> None:
    data = random.Random(1).randbytes(5000)
    for size in [*range(300), *range(300, 1200, 13), 4096, 5000]:
        for start in (0, 1, 7):
            assert crc32(data[start:size]) == zlib.crc32(data[start:size])
            assert crc32(data[start:size], start + 77) == zlib.crc32(data[start:size], start + 77)


def test_combined_crc_equals_crc_of_both_parts() -> None:
    data = random.Random(1).randbytes(5000)
    for middle in [*range(70), 1000, 4096, 5000]:
        first, second = zlib.crc32(data[:middle]), zlib.crc32(data[middle:])
        assert combine_crc32(first, second, len(data) - middle) == zlib.crc32(data)


def test_combined_crc_of_more_than_4_gib_equals_crc_of_each_block() -> None:
    begin, block = zlib.crc32(b"begin"), zlib.crc32(bytes(1 << 20))
    crc, size, doubled = begin, 1 << 20, block
    for _ in range(5000):
        crc = combine_crc32(crc, block, 1 << 20)
    zeros = 0
    for bit in range(13):  # 5000 blocks, as powers of two
        if 5000 >> bit & 1:
            zeros = combine_crc32(zeros, doubled, size)
        size, doubled = 2 * size, combine_crc32(doubled, doubled, size)
    assert combine_crc32(begin, zeros, 5000 << 20) == crc


def fill_columns() -> tuple[ScanColumns, bytes]:
    data = encode_parts(*(message(i, i, 10 * i, b"x" * i) for i in range(4)))
    columns = ScanColumns(10)
    columns.scan_messages(data, 0, CODES, 0, 1000)
    assert columns.row_count == 4
    return columns, data


def test_payload_copy_checks_bounds() -> None:
    columns, data = fill_columns()
    into, ends = np.zeros(6, np.uint8), np.zeros(4, np.int32)
    assert columns.copy_payloads(data, 0, into, 0, ends) == 6
    assert ends.tolist() == [0, 1, 3, 6]
    for wrong in (
        lambda: columns.copy_payloads(data, 0, into[:5], 0, ends),
        lambda: columns.copy_payloads(data, 0, into, 1, ends),
        lambda: columns.copy_payloads(data, 0, into, 0, ends[:3]),
        lambda: columns.copy_payloads(data, 5, into, 0, ends),
        lambda: columns.copy_payloads(data, -1, into, 0, ends),
        lambda: columns.copy_payloads(data[:-1], 0, into, 0, ends),
        lambda: columns.scan_messages(data, -1, CODES, 0, 1),
        lambda: columns.scan_messages(data, len(data) + 1, CODES, 0, 1),
        lambda: columns.update_tallies(np.zeros(0, tally_dtype()), 0, np.zeros(9, np.int32)),
        lambda: columns.update_tallies(np.zeros(9, tally_dtype()), 0, np.zeros(0, np.int32)),
        lambda: columns.update_tallies(np.zeros(9, tally_dtype()), 0, np.full(9, 9, np.int32)),
        lambda: ScanColumns(0),
    ):
        with pytest.raises(InvalidValueError):
            wrong()
