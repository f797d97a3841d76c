"""msgq.posix_ipc does what posix_ipc does: 10,000 random programs on both, and what they do not reach, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

pytest.importorskip("posix_ipc")

from tests.contract.posix_programs import Stage, far_end, program
from tests.support import Child

FAST, SLOW, SLICES = 300, 10_000, 20


@pytest.fixture
def stage(endpoint: str) -> Iterator[Stage]:
    with Child(far_end) as child:
        stage = Stage(child, [f"/{endpoint}a", f"/{endpoint}b"])
        yield stage
        child.say(None)
        child.result()
        stage.thread.shutdown()


def run_programs(stage: Stage, seeds: range) -> None:
    for seed in seeds:
        steps = program(random.Random(seed), stage.names)
        if stage.differs(steps):
            pytest.fail(stage.report(seed, steps))


def test_random_programs_have_the_same_results(stage: Stage) -> None:
    run_programs(stage, range(FAST))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(SLICES))
def test_thousands_of_random_programs_have_the_same_results(stage: Stage, part: int) -> None:
    size = SLOW // SLICES
    run_programs(stage, range(FAST + part * size, FAST + (part + 1) * size))
