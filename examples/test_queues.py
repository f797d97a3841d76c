"""The program that shows work queues does what it says, and leaves nothing behind."""

from __future__ import annotations

import pytest

from examples.test_channels import numbers, run


@pytest.fixture
def said(prefix: str) -> dict[str, str]:
    return run("workers", prefix)


def test_queue_example_with_killed_and_hanging_workers_loses_no_result(said: dict[str, str]) -> None:
    first, second, *rest = said["pool"].splitlines()
    assert {first, second} == {"Ann has a piece", "Ben has a piece"}
    assert rest == ["200 results, all right: True; put aside: poison", "0 wait, 0 taken"]
    assert said["Ben"] == "came too late, and was told"
    assert sum(numbers(said[name], r"(\d+) done")[0] for name in ("Cleo", "Dan")) >= 200
    # A reader that is killed is the end of the other queue.
    assert said["MessageQueue"] == "hello"
    assert said["multiprocessing.Queue"] == "nothing in half a second, of 1 that is there"
