"""The example of work queues prints the expected results, and leaves no files."""

from __future__ import annotations

import pytest

from examples.test_channels import numbers, run


@pytest.fixture
def output(prefix: str) -> dict[str, str]:
    return run("workers", prefix)


def test_queue_example_with_killed_and_hanging_workers_loses_no_result(output: dict[str, str]) -> None:
    first, second, *rest = output["pool"].splitlines()
    assert {first, second} == {"Ann has a job", "Ben has a job"}
    assert rest == ["200 results, all right: True; dead letter: poison", "0 jobs wait, 0 are taken"]
    assert output["Ben"] == "lease expired"
    assert sum(numbers(output[name], r"(\d+) done")[0] for name in ("Cleo", "Dan")) >= 200
    # A killed reader blocks the other queue forever.
    assert output["MessageQueue"] == "hello"
    assert output["multiprocessing.Queue"] == "received nothing in 0.5 s, although 1 message waits"
