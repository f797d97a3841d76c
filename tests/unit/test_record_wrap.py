"""The times that an element was written come to their last value, and begin again without that which says "never"."""

from __future__ import annotations

import pytest

from msgq.records import Board, SeqlockVector
from tests.unit.recordfile import RecordFile

LAST = 2**40 - 1
TIMES = 24  # bit of the version at which the times begin


def set_write_count(endpoint: str, element: int, times: int) -> None:
    """Make an element that was written `times` modulo its copies be one that was written `times` times."""
    file = RecordFile(endpoint)
    file.write(file.version(element), times << TIMES)


@pytest.mark.parametrize("copies", [2, 4])
@pytest.mark.parametrize("exclusive", [True, False])
def test_vector_is_readable_after_wrap_of_write_counter(endpoint: str, exclusive: bool, copies: int) -> None:
    with (
        SeqlockVector(endpoint, "f8", 2, exclusive=exclusive, copies=copies) as vector,
        SeqlockVector(endpoint, passive=True) as reader,
    ):
        for value in range(1, copies):
            vector[1] = value
        set_write_count(endpoint, 1, LAST)
        assert reader[1] == copies - 1
        reader.changes()
        for value in range(10, 10 + 2 * copies):
            vector[1] = value
            assert reader[1] == value
            assert reader.counts([1])[0] == copies + value - 10
            assert reader.changes().indices.tolist() == [1]
        assert reader[0] == 0
        assert reader.counts([0])[0] == 0


def test_board_is_readable_after_wrap_of_write_counter(endpoint: str) -> None:
    with Board(endpoint) as board, board.declare("state") as entry:
        observed = board.observe("state")
        entry.write(b"0")
        set_write_count(endpoint, 0, LAST)
        assert observed.data() == b"0"
        for value in (b"1", b"2", b"3", b"4"):
            entry.write(value)
            assert observed.changed
            assert observed.data() == value
            assert board["state"] == value
            assert not observed.changed
