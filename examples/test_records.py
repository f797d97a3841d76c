"""The example of records prints the expected results, and leaves no files."""

from __future__ import annotations

import numpy as np
import pytest

import msgq
from examples import order_book
from examples.test_channels import numbers, run


@pytest.mark.ci
def test_writers_killed_during_write_do_not_disturb_readers(prefix: str) -> None:
    output = run("order_book", prefix)
    killed, unfinished, writes = numbers(
        output["market"], r"^(\d+) writers killed, (\d+) in the middle of a write; (\d+) writes, none torn or lost$"
    )
    assert killed >= unfinished == order_book.UNFINISHED
    assert writes > killed
    for reader in ("Ann", "Ben"):
        (reads,) = numbers(output[reader], r"^(\d+) reads, 0 torn, 0 older than before$")
        assert reads > killed


def test_torn_order_book_level_is_detected(prefix: str) -> None:
    levels = np.zeros(3, order_book.LEVEL)
    for number in range(3):
        order_book.fill(levels[number : number + 1], number + 1)
    assert order_book.torn(levels) == 0
    levels["orders"][1, -1] += 1
    levels["check"][2] += 1
    assert order_book.torn(levels) == 2
    with msgq.SeqlockVector("book", order_book.LEVEL, 3) as book:
        book[:] = levels
        assert (order_book.torn(book.snapshot()), order_book.newest(book)) == (2, 3)
