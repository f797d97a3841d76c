"""Attention among several publishers as threads (attention.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of attention.c. The orders are searched by tools/model.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.mutated import mutated
from tests.sanitizers.stress import LIMITS, RUNS, Stress

pytestmark = LIMITS
#: What may be missing in attention.h: (what stands there, what to write instead).
PIECES = {
    "the flag stands until the wake": (
        "waking = (old | MQ_ATTENTION_WAKING) + MQ_ATTENTION_WAKE;",
        "waking = (old & ~3u) + MQ_ATTENTION_WAKE;",
    ),
    "the wake": ("mq_futex_wake_all(mq_futex_word(word));\n    mq_compare", "mq_compare"),
}


@pytest.mark.parametrize(("flags", "seconds"), RUNS)
def test_nobody_sleeps_through_a_message_of_several_publishers(seed: int, flags: Any, seconds: Any) -> None:
    Stress("attention").check(seed, flags, seconds)


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.nightly
def test_the_stress_sees_a_missing_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: Any) -> None:
    """A test of the test."""
    mutated(tmp_path, monkeypatch, "HEADERS", "base/eventcount.h", *PIECES[piece])
    complaint = Stress("attention").complaint(tmp_path, "impatient", 10)
    assert "attention: somebody sleeps through" in complaint or "attention: the others" in complaint
