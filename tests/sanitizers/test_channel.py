"""A channel's publishers and subscribers as threads of one process (channel.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of channel.c, with what the thread sanitizer can and cannot see.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.header_mutation import mutate_header
from tests.sanitizers.stress import LIMITS, RUNS, Stress, needs_tsan

pytestmark = LIMITS


@pytest.mark.parametrize(("flags", "seconds"), RUNS)
def test_channel_stress_has_no_torn_or_miscounted_message(seed: int, flags: Any, seconds: Any) -> None:
    # all slots are seldom held at once
    Stress("channel").check(seed, flags, seconds, seldom=["refused"])


EXCHANGE = "mq_compare_exchange_u64(at, entry, mq_index_entry_pack(position, row, slot))"
RELAXED = {
    "order": (
        "channel/index_ring.h",
        EXCHANGE,
        "__atomic_compare_exchange_n((uint64_t *)(void *)at, &entry, mq_index_entry_pack(position, row, slot), false, "
        "__ATOMIC_RELAXED, __ATOMIC_RELAXED)",
    ),
    "unpin": (
        "channel/pool.h",
        "mq_fetch_and_u64(&slots->pool_header->pins[slot].holders, ~(1ull << viewer));",
        "atomic_fetch_and_explicit(&slots->pool_header->pins[slot].holders.value, ~(1ull << viewer), "
        "memory_order_relaxed);",
    ),
    "unpin of other side": (
        "channel/pool.h",
        "return mq_load_seq_cst_u64(&slots->pool_header->pins[slot].holders);",
        "return mq_load_relaxed_u64(&slots->pool_header->pins[slot].holders);",
    ),
}


@needs_tsan
@pytest.mark.parametrize("edge", RELAXED)
@pytest.mark.nightly
def test_sanitizer_detects_race_of_relaxed_channel_memory_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    """A test of the test. A relaxed look at the entry is not seen: the second look, behind the pin, acquires."""
    mutate_header(tmp_path, monkeypatch, "HEADERS", *RELAXED[edge])
    assert "data race" in Stress("channel").run_until_failure(tmp_path, "thread", 5)


MISSING = {
    "check after copy": (
        "channel/subscriber.h",
        "if (mq_load_relaxed_u64(mq_index_ring_entry_at(&s->order, m->position)) != m->entry)\n        return false;",
        "",
    ),
    "check after pin": (
        "channel/subscriber.h",
        "if (!mq_index_ring_entry_is_unchanged(&s->order, m->position, m->entry)) {",
        "if (0) {",
    ),
    "check of pins": (
        "channel/publisher.h",
        "if (!mq_pool_pin_holders(&p->slots, slot))\n        return (int)slot;",
        "return (int)slot;",
    ),
    "helping": ("channel/index_ring.h", "if (ahead == 0)", "if (0)"),
    "count of evicted entries": (
        "channel/subscriber.h",
        "mq_channel_skip_lost(s, m->position + 1);\n            continue;",
        "mq_channel_set_cursor(s, m->position + 1);\n            continue;",
    ),
}


@pytest.mark.parametrize("piece", MISSING)
@pytest.mark.nightly
def test_channel_stress_test_detects_missing_algorithm_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: Any
) -> None:
    """A test of the test."""
    mutate_header(tmp_path, monkeypatch, "HEADERS", *MISSING[piece])
    assert "channel:" in Stress("channel").run_until_failure(tmp_path, "native", 10)
