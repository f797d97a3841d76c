"""Publishers and subscribers as threads of one process (threads.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of threads.c, with what the thread sanitizer can and cannot see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.header_mutation import mutate_header
from tests.sanitizers.stress import LIMITS, RUNS, Stress, needs_tsan

pytestmark = LIMITS


@pytest.mark.parametrize(("flags", "seconds"), RUNS)
def test_ring_stress_has_no_torn_repeated_or_missed_message(seed: int, flags: Any, seconds: Any) -> None:
    Stress("threads").check(seed, flags, seconds, seldom=["membarrier", "overtaken"])


@needs_tsan
@pytest.mark.nightly
def test_sanitizer_detects_race_of_non_atomic_ring_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: without the copies made for it, the sanitizer must object."""
    mutate_header(tmp_path, monkeypatch, "HEADERS", "base/atomics.h", "defined(__SANITIZE_THREAD__)", "0")
    assert "data race" in Stress("threads").run_until_failure(tmp_path, "thread", 1)


@pytest.mark.nightly
def test_ring_stress_test_detects_missing_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: a subscriber that takes every copy for intact must be found out by the checksums."""
    check = "if (mq_unlikely(!mq_ring_subscriber_validate_cursor(s)))\n        return false;"
    mutate_header(tmp_path, monkeypatch, "HEADERS", "ring/subscriber.h", check, "")
    assert "threads:" in Stress("threads").run_until_failure(tmp_path, "native", 10)


@pytest.mark.nightly
def test_ring_stress_test_detects_uncounted_lap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: who joins from the oldest message on and does not count what was before must be found out."""
    count = "former = (int64_t)mq_ring_subscriber_sequence(s);"
    mutate_header(tmp_path, monkeypatch, "HEADERS", "ring/seek.h", count, "former = 0;")
    assert "of those received" in Stress("threads").run_until_failure(tmp_path, "native", 10)
