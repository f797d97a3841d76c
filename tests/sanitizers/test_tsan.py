"""Publishers and subscribers as threads of one process (threads.c), with the thread sanitizer and without.

What, why, and what a failure would mean are at the top of threads.c, with what this sanitizer can and cannot see.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutated import mutated
from tests.sanitizers.stress import SLOW, Stress, check_counts, needs_tsan

SECONDS = 3
pytestmark = SLOW


@needs_tsan
def test_no_shared_byte_is_touched_by_a_plain_access(tmp_path: Path) -> None:
    check_counts(Stress("threads", tmp_path).counts("thread", SECONDS), "membarrier", "overtaken")


def test_native_stress_with_checksums(tmp_path: Path) -> None:
    check_counts(Stress("threads", tmp_path).counts("native", SECONDS), "membarrier", "overtaken")


@needs_tsan
def test_sanitizer_sees_a_plain_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: without the copies made for it, the sanitizer must object."""
    mutated(tmp_path, monkeypatch, "HEADERS", "ground/atomics.h", "defined(__SANITIZE_THREAD__)", "0")
    assert "data race" in Stress("threads", tmp_path).complaint("thread", 1)


def test_stress_sees_a_missing_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: a subscriber that takes every copy for intact must be found out by the checksums."""
    check = "if (mq_unlikely(!mq_subscriber_validate(s)))\n        return false;"
    mutated(tmp_path, monkeypatch, "HEADERS", "ring/subscriber.h", check, "")
    assert "threads:" in Stress("threads", tmp_path).complaint("native", 10)


def test_stress_sees_a_lap_that_is_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: who joins from the oldest message on and does not count what was before must be found out."""
    count = "former = (int64_t)mq_subscriber_sequence(s);"
    mutated(tmp_path, monkeypatch, "HEADERS", "ring/onlooker.h", count, "former = 0;")
    assert "of those received" in Stress("threads", tmp_path).complaint("native", 10)
