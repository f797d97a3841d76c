"""A work queue's senders and consumers as threads and processes (queue.c), under the sanitizers and without.

What, why, and what a failure would mean are at the top of queue.c, with what the thread sanitizer can and cannot see.
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
def test_queue_stress_has_no_torn_lost_or_duplicate_message(
    seed: int, flags: Any, seconds: Any, processes: int
) -> None:
    Stress("queue").check(seed, flags, seconds, processes, seldom=[] if processes else ["killed"])


def relaxed_exchange(word: str, expected: str, desired: str) -> tuple[str, str]:
    """Return an exchange as it stands in a header, and one without order."""
    exchange = f"mq_compare_exchange_u64({word}, {expected}, {desired})"
    weak = f"__atomic_compare_exchange_n((uint64_t *)(void *)({word}), &(uint64_t){{{expected}}}, {desired}, false, "
    return exchange, f"{weak}__ATOMIC_RELAXED, __ATOMIC_RELAXED)"


RELAXED = {
    "message, sent": (
        "sender.h",
        "mq_store_release_u64(&h->parts.slot_states[slot], key);",
        "mq_store_relaxed_u64(&h->parts.slot_states[slot], key);",
    ),
    "message, taken": ("receiver.h", *relaxed_exchange("&h->parts.slot_states[best.slot]", "best.key", "word")),
    "free, by taker": (
        "receiver.h",
        *relaxed_exchange("&h->parts.slot_states[delivery->slot]", "delivery->word", "0"),
    ),
    "free, held": ("sender.h", *relaxed_exchange("word", "0", "filling")),
    "lease, given": (
        "receiver.h",
        "mq_store_release_u64(&h->parts.slot_headers",
        "mq_store_relaxed_u64(&h->parts.slot_headers",
    ),
    "lease, over": (
        "recovery.h",
        "mq_load_acquire_u64(&h->parts.slot_headers[slot].lease)",
        "mq_load_relaxed_u64(&h->parts.slot_headers[slot].lease)",
    ),
}


@needs_tsan
@pytest.mark.parametrize("edge", RELAXED)
@pytest.mark.nightly
def test_sanitizer_detects_race_of_relaxed_queue_memory_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: Any
) -> None:
    """A test of the test."""
    header, old, new = RELAXED[edge]
    mutate_header(tmp_path, monkeypatch, "HEADERS", f"workqueue/{header}", old, new)
    assert "data race" in Stress("queue").run_until_failure(tmp_path, "thread", 20, 0)


MISSING = {
    "fill count": (
        "sender.h",
        "mq_fetch_add_u64(&h->parts.fill_counts[slot / MQ_QUEUE_BLOCK_SLOTS], 1);",
        "",
    ),
    "check for other slots in block": ("scan.h", ".is_valid = !words.any_owned", ".is_valid = true"),
    "check for other messages in block": ("scan.h", "cache->has_others ? 0 : taken", "taken"),
    "check for new messages": (
        "scan.h",
        "if (h->found_empty && h->empty_ready_count == ready_count)",
        "if (h->found_empty)",
    ),
    "second check of ready count": (
        "receiver.h",
        "if (mq_load_relaxed_u64(&h->parts.queue->ready_count) == ready)",
        "if (ready || !ready)",
    ),
    "reset of taken count": (
        "receiver.h",
        "mq_queue_invalidate_block_cache(h, best.slot / MQ_QUEUE_BLOCK_SLOTS);",
        "",
    ),
    "generation in slot state": (
        "recovery.h",
        "!= generation)\n        return true;",
        "!= generation)\n        return false;",
    ),
    "wake of receiver": (
        "handle.h",
        "mq_queue_wake_rows(queue, MQ_QUEUE_RECEIVER, messages);",
        "(void)messages;",
    ),
    "wake of sender": ("handle.h", "mq_queue_wake_rows(queue, MQ_QUEUE_SENDER, 1);", "(void)queue;"),
    "taker in lease": (
        "slot_state.h",
        "return lease && (uint32_t)lease == (uint32_t)mq_job_lease_encode(word, 0);",
        "return lease && word;",
    ),
    "take count in slot state": (
        "slot_state.h",
        "(uint64_t)generation << 32 | take;",
        "(uint64_t)generation << 32 | (take & 0);",
    ),
}


@pytest.mark.parametrize("piece", MISSING)
@pytest.mark.nightly
def test_queue_stress_test_detects_missing_algorithm_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: Any
) -> None:
    """A test of the test."""
    header, old, new = MISSING[piece]
    mutate_header(tmp_path, monkeypatch, "HEADERS", f"workqueue/{header}", old, new)
    assert "queue:" in Stress("queue").run_until_failure(tmp_path, "native", 12, 0)
