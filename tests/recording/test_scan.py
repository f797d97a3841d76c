"""What is below Python: the CRC, and the bounds that Python code cannot cross."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.core import TALLY_DTYPE, ScanColumns, crc32
from tests.recording.logs import encode_parts, message

CODES = np.zeros(4, np.int32)


def test_crc_equals_zlib_crc() -> None:
    data = random.Random(1).randbytes(5000)
    for size in [*range(300), 1000, 4096, 5000]:
        for start in (0, 1, 7):
            assert crc32(data[start:size]) == zlib.crc32(data[start:size])
            assert crc32(data[start:size], start + 77) == zlib.crc32(data[start:size], start + 77)


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
        lambda: columns.update_tallies(np.zeros(0, TALLY_DTYPE), 0, np.zeros(9, np.int32)),
        lambda: columns.update_tallies(np.zeros(9, TALLY_DTYPE), 0, np.zeros(0, np.int32)),
        lambda: columns.update_tallies(np.zeros(9, TALLY_DTYPE), 0, np.full(9, 9, np.int32)),
        lambda: ScanColumns(0),
    ):
        with pytest.raises(InvalidValueError):
            wrong()
