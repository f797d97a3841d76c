"""Writers, readers and sleepers of vectors and boards as threads and processes (record.c), under the sanitizers and
without.

What, why, and what a failure would mean are at the top of record.c, with what the thread sanitizer can and cannot see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.header_mutation import mutate_header
from tests.sanitizers.stress import LIMITS, RUNS, Stress, needs_tsan

pytestmark = LIMITS


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize(("flags", "seconds"), RUNS)
def test_record_stress_has_no_torn_old_or_lost_value(seed: int, flags: Any, seconds: Any, processes: int) -> None:
    Stress("record").check(seed, flags, seconds, processes, seldom=[] if processes else ["killed"])


PLAIN = {
    "copy into element": (
        "vector.h",
        "mq_copy_to_shared(value, from, item_bytes);",
        "memcpy(value, from, item_bytes);",
    ),
    "copy from element": (
        "vector.h",
        "mq_copy_from_shared(to, copy + 1, item_bytes);",
        "memcpy(to, copy + 1, item_bytes);",
    ),
    "copy of board value": (
        "board.h",
        "mq_copy_to_shared(value + 1, from, length);",
        "memcpy(value + 1, from, length);",
    ),
}


@needs_tsan
@pytest.mark.parametrize("copy", PLAIN)
@pytest.mark.nightly
def test_sanitizer_detects_race_of_non_atomic_record_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copy: Any
) -> None:
    """A test of the test."""
    header, old, new = PLAIN[copy]
    mutate_header(tmp_path, monkeypatch, "HEADERS", f"records/{header}", old, new)
    assert "data race" in Stress("record").run_until_failure(tmp_path, "thread", 20, 0)


MISSING = {
    "second check of version": ("cell.h", "parts->config.copies - 2;", "parts->config.copies + now % 2;"),
    "choice of copy to fill": (
        "cell.h",
        "mq_cell_value_copy_at(parts, version, count + 1)",
        "mq_cell_value_copy_at(parts, version, count)",
    ),
    "exchange that acquires": (
        "cell.h",
        "mq_likely(mq_compare_exchange_u64(version, now, now | owner)) ? 0",
        "(mq_store_release_u64(version, now | owner), true) ? 0",
    ),
    "liveness check of holder": (
        "writer.h",
        "is_dead && mq_cell_steal_ownership",
        "(is_dead || !is_dead) && mq_cell_steal_ownership",
    ),
    "acquire from dead holder": (
        "writer.h",
        "is_dead && mq_cell_steal_ownership",
        "is_dead && !is_dead && mq_cell_steal_ownership",
    ),
    "exclusive owner check": ("writer.h", "if (life != MQ_DEAD)\n            return false;", "(void)life;"),
    "rest of snapshot": (
        "vector.h",
        "        same = false;\n",
        "        same = i + 1 == parts->config.length;\n",
    ),
    "wake": ("writer.h", "mq_eventcount_notify_mp(eventcount);", "(void)*eventcount;"),
    "sleeper check after store": (
        "writer.h",
        "if (mq_unlikely(mq_eventcount_has_waiters_mp(eventcount)))",
        "if (!exclusive)",
    ),
}


@pytest.mark.parametrize("piece", MISSING)
@pytest.mark.nightly
def test_record_stress_test_detects_missing_algorithm_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: Any
) -> None:
    """A test of the test."""
    header, old, new = MISSING[piece]
    mutate_header(tmp_path, monkeypatch, "HEADERS", f"records/{header}", old, new)
    assert "record:" in Stress("record").run_until_failure(tmp_path, "native", 20, 0)
