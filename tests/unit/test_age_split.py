"""Parts of the ages of messages, from synthetic records and samples."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from msgq.common.thread_samples import SAMPLES_SCHEMA
from msgq.records.age_split import PART_NAMES, AgeParts, average_parts, drop_overlaps, split_ages
from msgq.records.tracing_rules import TIMING_DTYPE

MS = 1_000_000
RowArray = np.ndarray[Any, np.dtype[Any]]


def record(origin: int, sent: int, received: int, ended: int) -> tuple[int, ...]:
    return ended * MS, origin * MS, received * MS, sent * MS


def timing_records(*rows: tuple[int, ...]) -> RowArray:
    return np.array([record(*row) for row in rows], TIMING_DTYPE)


def thread_samples(*rows: tuple[int, int, int, int, str]) -> RowArray:
    """Return samples. A row: begin, end, ran and waited in ms, state."""
    samples = np.zeros(len(rows), SAMPLES_SCHEMA.dtype)
    for sample, (begin, end, ran, waited, state) in zip(samples, rows, strict=True):
        sample["begin_time"], sample["publish_time"] = begin * MS, end * MS
        sample["ran_ns"], sample["waited_ns"], sample["state"] = ran * MS, waited * MS, state
    return samples


def split(records: RowArray, samples: RowArray, thread_records: RowArray | None = None) -> list[dict[str, int]]:
    """Return the parts of each message in ms that are not 0."""
    parts = split_ages(records, records if thread_records is None else thread_records, samples)
    rows = ({name: round(float(parts[name][row]) / MS) for name in PART_NAMES} for row in range(len(records)))
    return [{name: value for name, value in row.items() if value} for row in rows]


def test_working_message_has_its_age_as_work() -> None:
    records = timing_records((1000, 1000, 1000, 1050))
    assert split(records, thread_samples((1000, 1100, 50, 0, ""))) == [{"worked": 50}]


def test_waiting_for_processor_counts_before_and_in_span() -> None:
    records = timing_records((1000, 1000, 1020, 1050))
    samples = thread_samples((1000, 1100, 12, 38, ""))
    assert split(records, samples) == [{"no_cpu": 38, "worked": 7, "asleep": 5}]


def test_message_behind_another_one_waits_for_queue() -> None:
    records = timing_records((1000, 1000, 1000, 1040), (1000, 1000, 1040, 1050))
    samples = thread_samples((1000, 1100, 50, 0, ""))
    assert split(records, samples) == [{"worked": 40}, {"queue": 40, "worked": 10}]


def test_message_behind_one_without_processor_waits_for_processor() -> None:
    records = timing_records((1000, 1000, 1000, 1080), (1000, 1000, 1080, 1100))
    samples = thread_samples((1000, 1100, 50, 50, ""))
    assert split(records, samples) == [{"no_cpu": 40, "worked": 40}, {"no_cpu": 50, "queue": 40, "worked": 10}]


def test_stopped_thread_explains_waiting_time() -> None:
    records = timing_records((1000, 1000, 3000, 3010))
    samples = thread_samples((900, 2000, 0, 0, "T"), (2000, 2990, 0, 0, "T"), (2990, 3090, 10, 0, ""))
    assert split(records, samples) == [{"stopped": 1990, "worked": 10, "asleep": 10}]


def test_late_sender_explains_time_before_sending() -> None:
    records = timing_records((1000, 1095, 1095, 1100))
    assert split(records, thread_samples((1000, 1100, 5, 0, ""))) == [{"sender": 95, "worked": 5}]


def test_message_without_origin_and_publish_time_has_only_its_span() -> None:
    records = timing_records((0, 0, 1095, 1100))
    assert split(records, thread_samples((1000, 1100, 5, 0, ""))) == [{"worked": 5}]


def test_sleep_in_span_is_neither_work_nor_waiting_for_processor() -> None:
    records = timing_records((1000, 1000, 1000, 1100))
    assert split(records, thread_samples((1000, 1100, 5, 1, ""))) == [{"no_cpu": 1, "worked": 5, "asleep": 94}]


def test_time_without_samples_is_unknown() -> None:
    records = timing_records((1000, 1000, 1000, 1100))
    assert split(records, thread_samples((1000, 1040, 40, 0, ""))) == [{"worked": 40, "unknown": 60}]
    assert split(records, thread_samples()) == [{"unknown": 100}]


def test_queue_is_known_without_samples() -> None:
    records = timing_records((1000, 1000, 1000, 1040), (1000, 1000, 1040, 1050))
    assert split(records, thread_samples()) == [{"unknown": 40}, {"queue": 40, "unknown": 10}]


def test_wait_that_ended_in_later_sample_counts_in_earlier_samples() -> None:
    records = timing_records((1000, 1000, 1000, 1300))
    samples = thread_samples((1000, 1100, 0, 0, "S"), (1100, 1200, 0, 0, "S"), (1200, 1300, 10, 290, ""))
    assert split(records, samples) == [{"no_cpu": 290, "worked": 10}]


def test_runnable_thread_that_never_ran_waits_for_processor() -> None:
    records = timing_records((1000, 1000, 1200, 1200))
    assert split(records, thread_samples((1000, 1200, 0, 0, "R"))) == [{"no_cpu": 200}]


def test_spans_of_other_endpoints_of_same_thread_are_queue() -> None:
    records = timing_records((1000, 1000, 1050, 1060))
    others = timing_records((1000, 1000, 1000, 1050), (1000, 1000, 1050, 1060))
    samples = thread_samples((1000, 1100, 60, 0, ""))
    assert split(records, samples, others) == [{"queue": 50, "worked": 10}]


def test_samples_of_two_recorders_count_once() -> None:
    records = timing_records((1000, 1000, 1000, 1400))
    first, second = ([(at, at + 100, 25, 25, "") for at in range(begin, 1500, 100)] for begin in (900, 950))
    both = thread_samples(*sorted([*first, *second], key=lambda row: row[1]))
    assert (
        split(records, both)
        == split(records, thread_samples(*first))
        == [{"no_cpu": 100, "worked": 100, "asleep": 200}]
    )


def test_overlaps_are_dropped_in_samples_of_same_thread_only() -> None:
    samples = thread_samples((0, 10, 1, 0, ""), (0, 10, 2, 0, ""), (5, 15, 3, 0, ""), (10, 20, 4, 0, ""))
    samples["pid"], samples["thread_id"] = [7, 7, 7, 7], [7, 8, 7, 7]
    assert (drop_overlaps(samples)["ran_ns"] // MS).tolist() == [1, 2, 4]
    samples["pid"] = [7, 8, 9, 7]
    assert len(drop_overlaps(samples)) == 4


@pytest.mark.parametrize("seed", range(5))
def test_parts_add_up_to_age_of_each_message(seed: int) -> None:
    random = np.random.default_rng(seed)
    steps = np.cumsum(random.integers(0, 30, (200, 4)), axis=1) + random.integers(1, 2000, 200)[:, None]
    records = timing_records(*map(tuple, steps.tolist()))
    edges = [0, *np.cumsum(random.integers(1, 200, 20)).tolist()]
    states = random.choice(["", "T", "R"], len(edges)).tolist()
    times = random.integers(0, (200, 400), (len(edges), 2)).tolist()
    rows = [(*both, *some, state) for both, some, state in zip(pairwise(edges), times, states, strict=False)]
    parts = split_ages(records, records, thread_samples(*rows))
    total = sum(parts.values())
    assert all((part >= -1).all() for part in parts.values())
    np.testing.assert_allclose(total, records["publish_time"] - records["origin_time"], atol=10)


def test_average_of_no_messages_is_unknown() -> None:
    parts = split_ages(timing_records(), timing_records(), thread_samples())
    assert average_parts(parts) is None


def test_total_is_sum_of_parts() -> None:
    assert AgeParts(1, 2, 3, 4, 5, 6, 7).total == 28
