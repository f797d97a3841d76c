"""Attention among several publishers as threads (eventcount.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of eventcount.c. The orders are searched by tools/model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.header_mutation import mutate_header
from tests.sanitizers.stress import LIMITS, RUNS, Stress

pytestmark = LIMITS
#: Removable pieces of eventcount.h: (text of the file, replacement).
PIECES = {
    "flag kept until wake": (
        "waking = (old | MQ_EVENTCOUNT_NOTIFYING) + MQ_EVENTCOUNT_WAKE;",
        "waking = (old & ~3u) + MQ_EVENTCOUNT_WAKE;",
    ),
    "wake": ("mq_futex_wake_all(mq_futex_word(word));\n    mq_compare", "mq_compare"),
}


@pytest.mark.parametrize(("flags", "seconds"), RUNS)
def test_eventcount_stress_loses_no_wake(seed: int, flags: Any, seconds: Any) -> None:
    Stress("eventcount").check(seed, flags, seconds)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.nightly
def test_eventcount_stress_test_detects_missing_algorithm_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: Any
) -> None:
    """A test of the test."""
    mutate_header(tmp_path, monkeypatch, "HEADERS", "base/eventcount.h", *PIECES[piece])
    complaint = Stress("eventcount").run_until_failure(tmp_path, "impatient", 10)
    assert "eventcount: somebody sleeps through" in complaint or "eventcount: the others" in complaint
