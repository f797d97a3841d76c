"""The handler of SIGBUS as threads and forks meet it (mapguard.c), under the address sanitizer and without.

What, why, and what a failure would mean are at the top of mapguard.c.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.header_mutation import mutate_header
from tests.sanitizers.stress import LIMITS, RUNS, Stress

pytestmark = LIMITS


@pytest.mark.parametrize(("flags", "seconds"), RUNS[:3])
def test_mapguard_stress_finds_each_fault_and_touches_no_other_page(seed: int, flags: Any, seconds: Any) -> None:
    Stress("mapguard").check(seed, flags, seconds)


@pytest.mark.nightly
def test_mapguard_stress_test_detects_unreported_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of the test: zeros without a word that says so."""
    clear = "mq_store_release_u64(&guard->not_truncated, 0);"
    mutate_header(tmp_path, monkeypatch, "HEADERS", "base/mapguard.h", clear, "(void)guard;")
    assert "nobody noticed" in Stress("mapguard").run_until_failure(tmp_path, "native", 1)
