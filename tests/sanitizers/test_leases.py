"""A server and clients of frames as threads of one process (leases.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of leases.c, with what the thread sanitizer can and cannot see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.header_mutation import mutate_header
from tests.sanitizers.stress import LIMITS, RUNS, Stress, needs_tsan

pytestmark = LIMITS


@pytest.mark.parametrize(("flags", "seconds"), RUNS)
def test_held_frames_stay_unchanged_in_lease_stress_test(seed: int, flags: Any, seconds: Any) -> None:
    # all buffers are seldom held at once
    Stress("leases").check(seed, flags, seconds, seldom=["dropped"])


LEASES = ("FRAME_HEADERS", "leases.h")
RELAXED = {
    "lease": ("mq_store_release_u32(&table->rows[row].lease[buffer], 0);", "table->rows[row].lease[buffer].value, 0"),
    "frame": (
        "mq_store_release_u32(&table->generation[buffer], generation);",
        "table->generation[buffer].value, generation",
    ),
}


@needs_tsan
@pytest.mark.parametrize("edge", RELAXED)
@pytest.mark.nightly
def test_sanitizer_detects_race_of_relaxed_lease_memory_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    """A test of the test: leases that are returned, or generations that are stored, without release."""
    old, what = RELAXED[edge]
    mutate_header(tmp_path, monkeypatch, *LEASES, old, f"atomic_store_explicit(&{what}, memory_order_relaxed);")
    assert "data race" in Stress("leases").run_until_failure(tmp_path, "thread", 3)


@pytest.mark.nightly
def test_lease_stress_detects_missing_lease_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: a server that takes buffers whoever holds them must be found out by the frames' words."""
    look = "if (mq_load_acquire_u32(&table->rows[row].lease[buffer]) == generation)"
    mutate_header(tmp_path, monkeypatch, *LEASES, look, "if (!table && buffer)")
    assert "leases:" in Stress("leases").run_until_failure(tmp_path, "native", 10)
