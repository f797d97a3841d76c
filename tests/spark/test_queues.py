"""What became of the messages of work queues, against a plain computation on random histories."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("pyspark")
from msgq.common.queue_events import Event
from msgq.lake.metrics.queues import OUTCOME_BY_EVENT
from msgq.spark import read, tables
from tests.spark.kind_logs import (
    BEGIN,
    History,
    QueueEvent,
    RecordedMessage,
    of_queue,
    on_channel,
    random_history,
    write_kinds,
)
from tests.spark.rows import SECOND, message, messages, sorted_rows

COLUMNS = (
    *(
        "queue",
        "epoch",
        "number",
        "deliveries",
        "priority",
        "size_bytes",
        "sent_time",
        "delivered_time",
        "queue_time_ns",
    ),
    *("ended_time", "processing_time_ns", "outcome", "handle", "pid", "publisher"),
)
COUNTS = ("sent", "delivered", "acknowledged", "requeued", "rejected", "redelivered")
ENDS = (Event.ACKNOWLEDGED, Event.RECEIVED, Event.RETURNED)


def in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, rows), key=lambda row: [(value is not None, value) for value in row])


def expected_deliveries(queue: str, told: list[QueueEvent]) -> list[tuple[Any, ...]]:
    """Go through the events of each message, one by one."""
    by_message: dict[Any, list[QueueEvent]] = defaultdict(list)
    rows: list[tuple[Any, ...]] = []
    about: tuple[Any, ...]
    for one in sorted(set(told), key=told.index):
        if one.event == Event.REFUSED:
            about = (queue, one.epoch, None, 0, one.priority, one.size, None, None, None)
            rows.append((*about, one.time, None, "rejected", one.row, one.pid, one.publisher or None))
        else:
            by_message[one.epoch, one.number, one.sent_time].append(one)
    for (epoch, number, sent), events in by_message.items():
        about = (queue, epoch, number)
        takes = sorted({one.deliveries for one in events} - {0})
        if not takes:
            one = events[0]
            who = (one.row, one.pid, one.publisher or None)
            rows.append((*about, 0, one.priority, one.size, sent, None, None, None, None, "pending", *who))
        returned: int | None = None
        for count in takes:
            mine = [one for one in events if one.deliveries == count]
            began = [one for one in mine if one.event in (Event.TAKEN, Event.RECEIVED)]
            said = [one.taken_time for one in mine if one.taken_time]
            end = next((one for event in ENDS for one in mine if one.event == event), None)
            taken = began[0].time if began and began[0].event == Event.TAKEN else said[0] if said else None
            since = sent if count == 1 else returned if count - 1 in takes else None
            by = next(iter([*began, *(one for one in mine if one.event == Event.ACKNOWLEDGED)]), None)
            ended = end.time if end else None
            served = end is not None and end.event != Event.RECEIVED and taken is not None
            rows.append(
                (
                    *(*about, count, mine[0].priority, mine[0].size, sent, taken),
                    None if since is None or taken is None else taken - since,
                    ended,
                    ended - taken if served and ended is not None and taken is not None else None,
                    OUTCOME_BY_EVENT[end.event] if end else "in_flight",
                    *((by.row, by.pid, by.publisher or None) if by else (None, None, None)),
                )
            )
            returned = ended if end and end.event == Event.RETURNED else None
    return in_order(rows)


def shuffle_events(rng: random.Random, history: History) -> list[RecordedMessage]:
    """Return the messages of a history, as late as they like, some of them twice."""
    late = [rng.choice((10, 3000, 2 * SECOND)) for _ in history.events]
    said = of_queue("jobs", history.events, late)
    return said + rng.sample(said, len(said) // 5)


@pytest.fixture(scope="module")
def histories(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """40 queues, each in a run of its own: of some nothing is missing, of others many events are."""
    where = tmp_path_factory.mktemp("histories")
    made = {}
    for seed in range(40):
        rng = random.Random(seed)
        history = random_history(rng, rng.choice((3, 40, 200)))
        if seed % 2:
            kept = [one for one in history.events if rng.random() < 0.7]
            history = History(kept, [])
        made[f"run{seed}"] = history
        write_kinds(where / f"{seed}.mcap", shuffle_events(rng, history), f"run{seed}")
    return made, read(spark, str(where)).repartition(3)


def test_queue_deliveries_of_random_histories_are_exact(histories: Any) -> None:
    made, table = histories
    found = tables.queue_deliveries(table).collect()
    for run, history in made.items():
        mine = in_order([row[name] for name in COLUMNS] for row in found if row["run"] == run)
        assert mine == expected_deliveries("jobs", history.events), run
    outcomes = Counter(row["outcome"] for row in found)
    assert all(
        outcomes[name] > 20 for name in ("acknowledged", "received", "requeued", "in_flight", "pending", "rejected")
    )


def test_queue_windows_of_random_histories_are_exact(histories: Any) -> None:
    """Counts and the longest times are exact; percentiles are of the right rank; the backlog is what really waited."""
    made, table = histories
    window = 3 * SECOND
    work = tables.queue_deliveries(table).persist()
    found = tables.queue_windows(work, window).collect()
    backwards = tables.queue_windows(work, window).orderBy("window_start", ascending=False)
    totals = {row["run"]: row for row in tables.queue_summary(backwards).collect()}
    assert set(totals) == {run for run, history in made.items() if history.events}
    for run, history in made.items():
        rows = [dict(zip(COLUMNS, row, strict=True)) for row in expected_deliveries("jobs", history.events)]
        mine = {row["window_start"]: row for row in found if row["run"] == run}
        known = count_events(rows, window)
        assert {time: {name: row[name] for name in COUNTS} for time, row in mine.items()} == known
        for name, at in (("queue_time", "delivered_time"), ("processing_time", "ended_time")):
            spread(rows, mine, name, at, window)
        if history.waits:
            for time, row in mine.items():
                assert row["backlog"] == [count for at, count in history.waits if at < time + window][-1], (run, time)
        if mine:
            assert totals[run]["backlog"] == mine[max(mine)]["backlog"]
            for name in COUNTS:
                assert totals[run][name] == sum(row[name] for row in mine.values())
    work.unpersist()


def count_events(rows: list[dict[str, Any]], window: int) -> dict[int, dict[str, int]]:
    """Return how often each thing happened in each window."""
    happened: list[tuple[int, str]] = []
    numbers = set()
    for row in sorted(rows, key=lambda row: row["deliveries"]):
        key = (row["epoch"], row["number"], row["sent_time"])
        if row["outcome"] != "rejected" and key not in numbers:
            numbers.add(key)
            happened.append((row["sent_time"], "sent"))
        if row["deliveries"]:
            taken = row["ended_time"] if row["delivered_time"] is None else row["delivered_time"]
            happened += [(taken, "delivered")] + [(taken, "redelivered")] * (row["deliveries"] > 1)
        end = {"received": "acknowledged"}.get(row["outcome"], row["outcome"])
        if end in COUNTS:
            happened.append((row["ended_time"], end))
        following = [
            one
            for one in rows
            if (one["epoch"], one["number"], one["sent_time"]) == key and one["deliveries"] > row["deliveries"]
        ]
        if following and row["outcome"] != "requeued":  # it came back: the window has a row for that
            happened.append((min(following, key=lambda one: one["deliveries"])["delivered_time"], "came back"))
    found: dict[int, dict[str, int]] = {}
    for time, name in happened:
        counts = found.setdefault(time - time % window, dict.fromkeys(COUNTS, 0))
        if name in COUNTS:
            counts[name] += 1
    return found


def spread(rows: list[dict[str, Any]], mine: Any, name: str, at: str, window: int) -> None:
    by_window: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        if row[f"{name}_ns"] is not None:
            by_window[row[at] - row[at] % window].append(row[f"{name}_ns"])
    for time, row in mine.items():
        durations = by_window[time]
        assert row[f"{name}_count"] == len(durations)
        if durations:
            assert row[f"{name}_max"] == max(durations)
            assert min(durations) <= row[f"{name}_p50"] <= row[f"{name}_p99"] <= max(durations)
            for title, rank in (("p50", 50), ("p99", 99)):
                known = np.percentile(durations, rank, method="inverted_cdf")
                assert row[f"{name}_{title}"] == pytest.approx(known, rel=0.022)
        else:
            assert (row[f"{name}_p50"], row[f"{name}_max"]) == (None, None)


def test_queue_tables_shuffle_events_once(histories: Any) -> None:
    """All that is said of a message is put together by one shuffle, however its deliveries are looked at."""
    plan = tables.queue_deliveries(histories[1].coalesce(3))._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange hashpartitioning") == 1


def test_queue_message_without_send_event_is_found_by_delivery_events(spark: Any, tmp_path: Path) -> None:
    """Its sender was killed between the two; and the end of another one tells when that was taken."""
    told = [
        QueueEvent(Event.TAKEN, 7, BEGIN + 50, 1, BEGIN + 10, row=3, pid=33),
        QueueEvent(Event.ACKNOWLEDGED, 8, BEGIN + 90, 1, BEGIN + 20, BEGIN + 60, row=4, pid=44),
        QueueEvent(Event.RETURNED, 9, BEGIN + 95, 2, BEGIN + 30, row=5, pid=55),
        QueueEvent(Event.RETURNED, 10, BEGIN + 97, 1, BEGIN + 40, BEGIN + 70, row=5),
        QueueEvent(Event.ACKNOWLEDGED, 10, BEGIN + 98, 1, BEGIN + 40, BEGIN + 70, row=6),
    ]
    table = read(spark, str(write_kinds(tmp_path / "a.mcap", of_queue("jobs", told))))
    work = tables.queue_deliveries(table)
    columns = (
        "number",
        "deliveries",
        "sent_time",
        "delivered_time",
        "queue_time_ns",
        "processing_time_ns",
        "outcome",
        "handle",
    )
    assert sorted_rows(work, *columns) == [
        (7, 1, BEGIN + 10, BEGIN + 50, 40, None, "in_flight", 3),
        (8, 1, BEGIN + 20, BEGIN + 60, 40, 30, "acknowledged", 4),
        (9, 2, BEGIN + 30, None, None, None, "requeued", None),
        (10, 1, BEGIN + 40, BEGIN + 70, 30, 28, "acknowledged", 6),
    ]
    assert sorted_rows(tables.queue_windows(work), *COUNTS, "backlog") == [(4, 4, 2, 1, 0, 1, 1)]


def test_queue_message_of_dead_consumer_is_pending(spark: Any, tmp_path: Path) -> None:
    told = [
        QueueEvent(Event.SENT, 1, BEGIN, 0, BEGIN),
        QueueEvent(Event.TAKEN, 1, BEGIN + 10, 1, BEGIN),
        QueueEvent(Event.TAKEN, 1, BEGIN + 4 * SECOND, 2, BEGIN),
        QueueEvent(Event.ACKNOWLEDGED, 1, BEGIN + 5 * SECOND, 2, BEGIN, BEGIN + 4 * SECOND),
    ]
    work = tables.queue_deliveries(read(spark, str(write_kinds(tmp_path / "a.mcap", of_queue("jobs", told)))))
    columns = ("deliveries", "queue_time_ns", "processing_time_ns", "outcome")
    assert sorted_rows(work, *columns) == [(1, 10, None, "in_flight"), (2, None, SECOND, "acknowledged")]
    rows = sorted_rows(tables.queue_windows(work), "window_start", "delivered", "redelivered", "backlog")
    assert rows == [(BEGIN, 1, 0, 0), (BEGIN + 4 * SECOND, 1, 1, 0), (BEGIN + 5 * SECOND, 0, 0, 0)]


def test_deliveries_of_queues_and_recreated_queues_are_separate(spark: Any, tmp_path: Path) -> None:
    """Two queues with the same numbers, one of which was made anew; what is no event, and no queue, is left out."""
    sent = [QueueEvent(Event.SENT, n, BEGIN + n, 0, BEGIN + n, epoch=epoch) for n in range(3) for epoch in (1, 2)]
    said = of_queue("jobs", sent) + of_queue("a/b", [QueueEvent(Event.RECEIVED, 0, BEGIN + 9, 1, BEGIN)])
    said += [said[0]._replace(sequence=90, data=b"short"), said[0]._replace(sequence=91, data=bytes(48))]
    said += [on_channel("jobs:events", "p", 5, BEGIN + 5, said[0].data)]
    work = tables.queue_deliveries(read(spark, str(write_kinds(tmp_path / "a.mcap", said))))
    assert sorted_rows(work, "queue", "epoch", "number", "outcome") == [
        ("a/b", 1, 0, "received"),
        *(("jobs", epoch, number, "pending") for epoch in (1, 2) for number in range(3)),
    ]
    windows = tables.queue_windows(work)
    assert sorted_rows(windows, "queue", "epoch", "backlog") == [("a/b", 1, 0), ("jobs", 1, 3), ("jobs", 2, 3)]
    assert sorted_rows(tables.queue_summary(windows), "queue", "sent", "backlog") == [("a/b", 1, 0), ("jobs", 6, 3)]


def test_repeated_queue_message_number_starts_a_new_message(spark: Any, tmp_path: Path) -> None:
    """A sender died between taking its number and sending."""
    told = [
        one
        for sent in (BEGIN, BEGIN + SECOND)
        for one in (
            QueueEvent(Event.SENT, 5, sent, 0, sent),
            QueueEvent(Event.RECEIVED, 5, sent + 30, 1, sent, sent + 10),
        )
    ]
    work = tables.queue_deliveries(read(spark, str(write_kinds(tmp_path / "a.mcap", of_queue("jobs", told)))))
    columns = ("number", "sent_time", "delivered_time", "ended_time", "queue_time_ns", "processing_time_ns")
    assert sorted_rows(work, *columns) == [
        (5, sent, sent + 10, sent + 30, 10, None) for sent in (BEGIN, BEGIN + SECOND)
    ]
    assert sorted_rows(tables.queue_windows(work), "sent", "delivered", "backlog") == [(1, 1, 0), (1, 1, 0)]


def test_messages_without_kind_have_no_deliveries(spark: Any) -> None:
    work = tables.queue_deliveries(
        messages(spark, [message("queue/jobs", 1, 5, data=QueueEvent(Event.SENT, 1, 5, 0, 5).data())])
    )
    assert (work.count(), tables.queue_summary(tables.queue_windows(work)).count()) == (0, 0)
