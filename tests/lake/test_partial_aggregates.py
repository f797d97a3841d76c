"""What is made of messages, against plain Python; however they come to the lake."""

from __future__ import annotations

import itertools
import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("deltalake")
from msgq import kinds
from msgq.common.units import NS_PER_S
from msgq.lake.gold import gold_tables as gold
from msgq.lake.gold.gold_files import get_stored_columns
from msgq.lake.gold.gold_increments import GoldIncrement, number_increments, restore_increments
from msgq.lake.metrics import hops, partial_aggregates
from msgq.lake.metrics.checks import CheckThresholds
from msgq.lake.metrics.dropouts import compute_message_intervals, find_dropouts
from msgq.lake.metrics.queues import compute_event_hours, compute_queue_deliveries, read_queue_events
from msgq.lake.metrics.time_windows import TRAFFIC_WINDOWS_SCHEMA, compute_traffic_windows
from tests.lake import plain
from tests.lake.bronze_rows import HOUR, MIDNIGHT, SECOND, Row, pieces, row, some_rows, table
from tests.lake.rows import in_order, sorted_rows
from tests.spark.kind_logs import RecordedMessage

pytestmark = pytest.mark.watchdog(300)
HOP = ("run", "parent", "endpoint", "messages", "max")
MIXED = (*[1] * 44, *[1.1] * 6, *[2] * 4, *[4] * 4, *[20] * 2)  # periods between two messages
SEEDS = st.integers(0, 1 << 30)


def batch(rows: list[Row], ordered: bool = True) -> pa.Table:
    """Return rows as a writer of parts has them: in order, texts as dictionaries; or as they come."""
    found = table(rows)
    data = found.column("data").to_pylist()
    found = found.append_column("size_bytes", pa.array(list(map(len, data)), pa.int64()))
    kinds = ["png" if one.startswith(b"\x89PNG") else None for one in data]
    found = found.append_column("picture", pa.array(kinds, pa.string()))
    if not ordered:
        return found
    found = found.sort_by([(name, "ascending") for name in ("run", "endpoint", "epoch", "schema", "log_time")])
    for name in ("run", "endpoint", "kind", "publisher", "schema"):
        found = found.set_column(found.schema.get_field_index(name), name, found.column(name).dictionary_encode())
    return found.combine_chunks()


def make_inputs(parts: list[list[Row]], ordered: bool = True) -> tuple[dict[str, pa.Table], list[GoldIncrement]]:
    """Return the aggregates of parts, and the hours of all runs."""
    found = [partial_aggregates.compute_aggregates(batch(part, ordered)) for part in parts]
    every = {name: pa.concat_tables([one[name] for one in found]) for name in partial_aggregates.AGGREGATE_SCHEMAS}
    every["origins"] = pa.concat_tables([batch(part, False).select(hops.HOP_INPUT_SCHEMA.names) for part in parts])
    times = {time // HOUR for part in parts for one in part for time in (one["log_time"], one["origin_time"] or 0)}
    hours = sorted(times | set(compute_event_hours(every["events"]).tolist()))
    return every, [GoldIncrement(run, hour) for run in ("r", "s") for hour in hours]


def make_hours(aggregates: dict[str, pa.Table], chosen: list[GoldIncrement]) -> dict[str, pa.Table]:
    """Return the tables of hours of runs, as files have them."""
    inputs = {name: number_increments(name, rows, chosen) for name, rows in aggregates.items() if name != "hours"}
    made = gold.make_hourly_tables(inputs, NS_PER_S)
    return {name: restore_increments(rows, chosen) for name, rows in made.items()}


def build_tables(parts: list[list[Row]], ordered: bool = True) -> dict[str, pa.Table]:
    """Return all tables of gold of parts, first of their hours and then of their runs, as a lake makes them."""
    whole = {}
    for name, rows in make_hours(*make_inputs(parts, ordered)).items():
        assert rows.schema == get_stored_columns(name)
        whole[name] = rows.select(gold.HOURLY_SCHEMAS[name].names)
    for name, rows in (totals := gold.make_run_tables(whole, NS_PER_S, CheckThresholds())).items():
        assert rows.schema == gold.RUN_SCHEMAS[name]
    return {name: rows for name, rows in (whole | totals).items() if not name.startswith("_")}


def test_record_changes_are_numbered_by_header_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_registered_kinds", {})
    header = (("count", "<u8"), ("index", "<u2"))
    kinds.register_kind(kinds.Kind(name="cells", package="", validate_name=str, change_header=header))
    values = [("cells", None, struct.pack("<QH", 7, 3)), ("cells", None, b"short"), ("cells", "k", b"")]
    values += [("records", None, struct.pack("<IQ", 5, 9)), ("topic", None, bytes(12))]
    rows = pa.Table.from_pylist(
        [{"kind": kind, "key": key, "data": data, "log_time": time} for time, (kind, key, data) in enumerate(values)]
    )
    for name, value in (("run", "r"), ("endpoint", "e"), ("epoch", 1), ("sequence", 4)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), len(rows)))
    found = partial_aggregates.compute_state_islands(rows).select(["index", "key", "base"]).to_pylist()
    assert {tuple(island.values()) for island in found} == {(3, None, 7), (5, None, 9), (None, "k", 4)}


@settings(max_examples=8)
@given(SEEDS)
def test_partial_aggregates_give_expected_tables(seed: int) -> None:
    rows = some_rows(random.Random(seed))
    found = build_tables([rows])
    counted = [name for name in TRAFFIC_WINDOWS_SCHEMA.names if name != "histogram"]
    assert sorted_rows(found["traffic_windows"], *counted) == in_order(plain.windows(rows))
    assert sorted_rows(found["sequence_gaps"]) == in_order(plain.gaps(rows))
    assert sum(found["throughput"].column("messages").to_pylist()) == len(rows)
    each = plain.by(rows, "run", "endpoint")
    totals = {(one["run"], one["endpoint"]): one for one in found["latency_summary"].to_pylist()}
    for one in found["endpoints"].to_pylist():
        mine = each.pop((one["run"], one["endpoint"]))
        times = [message["log_time"] for message in mine]
        assert (one["messages"], one["start_time"], one["end_time"]) == (len(mine), min(times), max(times))
        assert (one["size_bytes"], one["epochs"]) == (
            sum(len(m["data"]) for m in mine),
            len({m["epoch"] for m in mine}),
        )
        assert one["publishers"] == len({m["publisher"] for m in mine} - {None})
        known = [value for message in mine if (value := plain.late(message)) is not None]
        total = totals.pop((one["run"], one["endpoint"]), None)
        assert (total is None) == (not known)
        for name, rank in (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9)) if total else ():
            exact = np.percentile(known, rank, method="inverted_cdf")
            assert total[name] == pytest.approx(exact, rel=0.03, abs=0.6)
    assert not each
    assert not totals
    edges = {tuple(row[:3]): tuple(row[3:]) for row in sorted_rows(found["hops"], *HOP)}
    assert edges == plain.hops(rows)
    assert sorted_rows(found["queue_deliveries"]) == sorted_rows(
        compute_queue_deliveries(read_queue_events(batch(rows)))
    ), "hours put no message asunder"
    pictures = [(one["endpoint"], one["sequence"]) for one in rows if one["data"].startswith(b"\x89PNG")]
    assert sorted_rows(found["frames"], "endpoint", "sequence") == in_order(pictures)


@settings(max_examples=8)
@given(SEEDS, st.sampled_from((2, 3, 9)), st.booleans())
def test_partial_aggregates_of_pieces_equal_aggregates_of_whole_recording(seed: int, count: int, ordered: bool) -> None:
    """Pieces that overlap, in any order; rows that come in order or do not."""
    rng = random.Random(seed)
    rows = some_rows(rng)
    whole, parts = build_tables([rows]), build_tables(pieces(rng, rows, count), ordered)
    assert {name: sorted_rows(parts[name]) for name in whole} == {name: sorted_rows(whole[name]) for name in whole}


@settings(max_examples=5)
@given(SEEDS)
def test_hours_and_runs_computed_at_once_equal_those_computed_alone(seed: int) -> None:
    rng = random.Random(seed)
    aggregates, chosen = make_inputs(pieces(rng, some_rows(rng), 2))
    alone = [make_hours(aggregates, [increment]) for increment in chosen]
    hours = make_hours(aggregates, chosen)
    for name, rows in hours.items():
        assert sorted_rows(rows) == sorted_rows(pa.concat_tables([hour[name] for hour in alone])), name
    own = [{name: rows.filter(pc.equal(rows.column("run"), run)) for name, rows in hours.items()} for run in ("r", "s")]
    totals = [gold.make_run_tables(rows, NS_PER_S, CheckThresholds()) for rows in own]
    for name, rows in gold.make_run_tables(hours, NS_PER_S, CheckThresholds()).items():
        assert sorted_rows(rows) == sorted_rows(pa.concat_tables([total[name] for total in totals])), name


@settings(max_examples=5)
@given(SEEDS)
def test_dropouts_are_found_in_each_interval(seed: int) -> None:
    rng, rows = random.Random(seed), []
    for name, period in (("a", SECOND), ("b", 70 * SECOND), ("c", SECOND // 2)):
        time = MIDNIGHT - rng.randrange(300) * SECOND
        for number in range(rng.choice((1, 2, 40, 600))):
            time += int(period * rng.choice(MIXED))
            rows.append(row(RecordedMessage(name, number, time, b"")))
    found = find_dropouts(compute_message_intervals(compute_traffic_windows(batch(rows))))
    known = {one[:4] for one in plain.dropouts(rows)}
    near = {one[:4] for one in plain.dropouts(rows) if is_near(rows, one)}
    got = {one[:4] for one in sorted_rows(found)}
    assert got ^ known <= near, "but for what lies on the border, as periods are those of histograms"


def is_near(rows: list[Row], silence: tuple[Any, ...]) -> bool:
    times = sorted(one["log_time"] for one in rows if one["endpoint"] == silence[1])
    period = plain.period([b - a for a, b in itertools.pairwise(times)])
    return bool(abs(silence[4] / period - 5) < 0.3)


def endpoint(name: str, times: list[int]) -> list[Row]:
    return [row(RecordedMessage(name, number, time, b"")) for number, time in enumerate(times)]


def drop_bursts(rows: list[Row]) -> list[tuple[int, int]]:
    return [
        one[2:4] for one in sorted_rows(find_dropouts(compute_message_intervals(compute_traffic_windows(batch(rows)))))
    ]


def test_endpoint_with_jitter_has_no_dropout() -> None:
    rng = random.Random(1)
    for rate in (0.01, 0.2, 1, 3):
        times = [int((i / rate + rng.uniform(-0.4, 0.4) / rate) * SECOND) + MIDNIGHT for i in range(300)]
        assert not drop_bursts(endpoint("a", times))
        stopped = [
            time + (8 * SECOND if rate >= 1 else 10 * int(SECOND / rate)) * (i >= 150) for i, time in enumerate(times)
        ]
        assert drop_bursts(endpoint("a", stopped)) == [(stopped[149], stopped[150])]


def bursts(size: int, seconds: int, apart: int = SECOND // 1000) -> list[int]:
    """Return times of some messages at once, each second, but for 5 ms."""
    rng = random.Random(size)
    begun = [MIDNIGHT + i * SECOND + SECOND // 2 + rng.randrange(-5, 6) * 10**6 for i in range(seconds)]
    return [time + i * apart for time in begun for i in range(size)]


@pytest.mark.parametrize(("size", "apart"), [(2, 10**6), (3, 10**6), (3, 0), (30, 10**6), (2, 3 * 10**8)])
def test_burst_interval_is_not_typical_interval(size: int, apart: int) -> None:
    times = bursts(size, 60 if size < 30 else 600, apart)
    assert not drop_bursts(endpoint("a", times))
    middle = len(times) // 2
    stopped = times[:middle] + [time + 8 * SECOND for time in times[middle:]]
    assert drop_bursts(endpoint("a", stopped)) == [(stopped[middle - 1], stopped[middle])]


@pytest.mark.parametrize("stops", [[2], [60], [2, 20, 3], [1] * 9])
def test_long_dropouts_are_not_typical_interval(stops: list[int]) -> None:
    """An endpoint at 100 Hz for 3 s; seconds for which it stops."""
    times = [MIDNIGHT + i * SECOND // 100 for i in range(300)]
    places = [300 * (number + 1) // (len(stops) + 1) for number in range(len(stops))]
    for place, seconds in zip(places, stops, strict=True):
        times[place:] = [time + seconds * SECOND for time in times[place:]]
    assert drop_bursts(endpoint("a", times)) == [(times[place - 1], times[place]) for place in places]


def test_dropout_in_two_intervals_is_found() -> None:
    assert drop_bursts(endpoint("a", [MIDNIGHT, MIDNIGHT + SECOND, MIDNIGHT + 60 * SECOND]))
    assert not drop_bursts(endpoint("a", [MIDNIGHT, MIDNIGHT + 60 * SECOND]))


def test_endpoint_slower_for_one_hour_has_no_dropout() -> None:
    """Its period in that hour counts, too; what is longer than that explains is a silence there as well."""
    fast = [MIDNIGHT - HOUR // 2 + i * SECOND // 10 for i in range(9000)]
    slow = [MIDNIGHT + i * 2 * SECOND for i in range(1, 100)]
    slow += [slow[-1] + 8 * SECOND + i * 2 * SECOND for i in range(100)]
    rows = endpoint("a", [time for time in fast + slow if time < MIDNIGHT or time in slow])
    assert (slow[98], slow[99]) in drop_bursts(rows)
    assert len(drop_bursts(rows)) <= 2, "the other one is where the hours meet"


def test_dropout_across_hour_boundary_is_found() -> None:
    times = [MIDNIGHT - (50 - i) * SECOND for i in range(30)] + [MIDNIGHT + i * SECOND for i in range(30)]
    assert drop_bursts(endpoint("a", times)) == [(times[29], MIDNIGHT)]


def test_partial_aggregates_of_no_messages_are_empty() -> None:
    found = build_tables([[]])
    assert {name: rows.num_rows for name, rows in found.items()} == dict.fromkeys(found, 0)
