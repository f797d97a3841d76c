"""Atomic snapshots of a vector that one process writes in turn.

Random traffic (`test_traffic.py`) writes elements at random, which shows whether each is whole, but not whether all are
of one instant.
"""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from msgq.records import SeqlockVector
from tests.stress.process_group import ProcessGroup, finish
from tests.stress.roles import has_input
from tests.support import DEADLINE, LONGER, say
from tools.chaos.kinds.records import dtype, make_stamped_values, read_stamps


def write_chain(name: str, seed: int) -> int:
    """Write all elements in turn, with the number of the round, until told to stop; return the rounds."""
    rng, number = random.Random(seed), 0
    with SeqlockVector(name) as vector:
        length = len(vector)
        say("ready")
        while not has_input():
            for _ in range(rng.randrange(1, 20)):
                number += 1
                values = make_stamped_values(vector.dtype, [number] * length)
                if rng.random() < 0.5:
                    vector[:] = values
                else:
                    for i in range(length):
                        vector[i] = values[i]
            time.sleep(rng.random() * 0.001)  # so that there are instants to be had
    return number


def take_snapshots(name: str, passive: bool, wanted: int) -> int:
    """Take snapshots of one instant: no element is ahead of the one before it, or more than one behind the first.

    Returns the number of snapshots whose instants differ.
    """
    count, last = 0, 0
    with SeqlockVector(name, passive=passive) as vector:
        say("ready")
        while count < wanted:
            stamps = read_stamps(vector.snapshot(atomic=True, timeout=DEADLINE)).astype(np.int64)
            assert (np.diff(stamps) <= 0).all(), stamps
            assert stamps[0] - stamps[-1] <= 1, stamps
            assert stamps[-1] >= last, "it goes back"
            count += int(stamps[-1]) > last
            last = int(stamps[-1])
    return count


@pytest.mark.parametrize(
    ("item", "length", "wanted"),
    [
        (8, 100, 100),
        pytest.param(56, 1000, 300, marks=pytest.mark.nightly),
        pytest.param(4096, 30, 300, marks=pytest.mark.nightly),
    ],
)
def test_atomic_snapshot_shows_values_of_one_instant(
    scene: ProcessGroup, endpoint: str, seed: int, item: int, length: int, wanted: int
) -> None:
    """What: one process writes all elements in turn; others take atomic snapshots.

    Why: elements that are each whole may still be of different instants.
    """
    wanted = int(wanted * LONGER)
    with SeqlockVector(endpoint, dtype(item), length) as vector:
        takers = scene.start_all([(take_snapshots, endpoint, passive, wanted) for passive in (False, True)])
        writer = scene.start(write_chain, endpoint, seed)
        assert [taker.result() for taker in takers] == [wanted] * 2
        (rounds,) = finish([writer])
        assert (vector.counts() == rounds).all()
