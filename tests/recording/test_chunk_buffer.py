"""The buffer of a chunk, and its index in the summary."""

from __future__ import annotations

import numpy as np
import pytest
from mcap import records

from msgq.recording.mcap_io.core import CHUNK_ENTRY_FIELDS, ChunkBuffer
from msgq.recording.mcap_io.record_structs import encode_chunk_index, encode_records


def test_chunk_states_times_counts_and_origins_of_its_messages() -> None:
    chunk = ChunkBuffer(1 << 16, 100)
    assert (chunk.first_time, chunk.last_time, chunk.has_origins) == (0, 0, False)
    for number, time in enumerate((30, 10, 20)):
        assert chunk.append_message(1 + number % 2, number, time, time, b"abc")
    assert (chunk.first_time, chunk.last_time, chunk.has_origins) == (10, 30, False)
    assert chunk.count_messages_by_channel() == {1: 2, 2: 1}
    assert chunk.append_message(2, 3, 15, 15, b"", origin_time=5)
    assert (chunk.has_origins, chunk.count_messages_by_channel()) == (True, {1: 2, 2: 2})
    chunk.clear_messages()
    assert (chunk.first_time, chunk.last_time, chunk.has_origins, len(chunk)) == (0, 0, False, 0)
    for number in range(4):  # same number of messages as before
        assert chunk.append_message(9, number, 40 + number, 40, b"")
    assert (chunk.first_time, chunk.last_time) == (40, 43)
    assert chunk.count_messages_by_channel() == {9: 4}


def test_chunk_prepends_bytes_of_any_size_to_its_records() -> None:
    chunk = ChunkBuffer(1 << 12, 100)
    for number in range(10):
        assert chunk.append_message(1, number, number, number, bytes(100))
    records = bytes(chunk.record_bytes)
    for size in (0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 200_000):
        start = bytes(np.arange(size, dtype=np.uint8))
        assert bytes(chunk.prepend_records(start)) == start + records
    assert bytes(chunk.record_bytes) == records
    assert np.frombuffer(chunk.message_entries, CHUNK_ENTRY_FIELDS)["log_time"].tolist() == list(range(10))


@pytest.mark.parametrize("offsets", [{}, {7: 1 << 40}, {1: 5, 65535: 6}])
def test_encoded_chunk_index_equals_that_of_mcap_library(offsets: dict[int, int]) -> None:
    for compression in ("", "zstd"):
        index = records.ChunkIndex(1 << 33, 2, compression, 3, 4, 5, offsets, 6, (1 << 64) - 1)
        assert encode_chunk_index(index) == encode_records(index)
