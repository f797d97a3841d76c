"""Anomalies of a recording: losses, dropouts and late messages, compared with the usual values of each endpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.common.units import NS_PER_S
from msgq.kinds import list_kinds_without_senders, list_state_kinds
from msgq.lake.metrics.group_by import RowGroups, get_column, get_integer_column
from msgq.lake.metrics.histograms import estimate_typical_intervals, merge_histograms
from msgq.lake.metrics.queues import make_queue_endpoint
from msgq.lake.metrics.saturating_time import MAX_TIME, subtract_saturating
from msgq.lake.report.gold_reader import GoldReader, aggregate_by_keys
from msgq.lake.report.late_periods import LATENCY_EXCESS_MIN_NS, LatePeriod, find_late_periods
from msgq.lake.report.short_dropouts import find_short_dropouts

DROPOUT_PERIODS_MIN = 20
DROPOUT_MIN_NS = NS_PER_S
LATENCY_MESSAGES_MIN = 20  # minimum messages with a known latency; with fewer, no latency is usual
_DROPOUTS_MAX = 100_000  # the longest
_ENDPOINT_KEY = ["run", "endpoint"]


@dataclass(frozen=True, slots=True)
class Anomaly:
    """An anomaly of an endpoint in a run.

    Attributes:
        kind: "loss", "dropout", "latency", "restart", "takeover", "requeue" or "clock".
        from_time: begin of the worst time, ns. For losses, the begin of all losses.
        to_time: end of the worst time, ns. For losses, the end of all losses.
        value: worst value of the endpoint. loss: number of messages. dropout, restart: time between two messages, ns.
            latency: median latency, ns. takeover: number of publishers that replaced a living publisher. clock: longest
            time from the recording of a message to its publishing, ns. requeue: number of messages that a receiver
            returned to the queue, or did not acknowledge before its end.
        usual: usual value of the endpoint.
        share: affected messages (loss, latency; takeover: messages of the new publishers) or time (dropout) of all
            messages or the whole time, 0 to 1. The list is sorted by this value.
        times: number of dropouts, late periods, restarts, or gaps between messages.
        is_at_end: the endpoint was silent until the end.
    """

    kind: str
    run: str
    endpoint: str
    from_time: int
    to_time: int
    value: int
    usual: int
    share: float
    times: int
    is_at_end: bool = False


@dataclass(frozen=True, slots=True)
class Examination:
    """The anomalies, the largest share first, and the number of endpoints of each examination.

    Attributes:
        endpoints: number of all endpoints of all runs.
        latency: number of endpoints with examined latency, which needs 20 messages with a known publish time.
        dropout: number of endpoints with examined dropouts, which need 3 messages.
        loss: number of endpoints with examined losses.
    """

    anomalies: list[Anomaly]
    endpoints: int
    latency: int
    dropout: int
    loss: int


def examine_recording(gold: GoldReader) -> Examination:
    """Compare each endpoint with its usual values, and return the anomalies."""
    columns = [*_ENDPOINT_KEY, "messages", "lost", "start_time", "end_time", "rate", "epochs", "publishers", "kind"]
    endpoints = gold.read_rows("endpoints", columns)
    latency = gold.read_rows("latency_summary", [*_ENDPOINT_KEY, "messages"])
    anomalies = [*_find_losses(gold, endpoints), *_find_dropouts(gold, endpoints), *_find_latencies(gold)]
    anomalies += [*_find_restarts(gold, endpoints), *_find_takeovers(gold, endpoints)]
    anomalies += [*_find_requeued_jobs(gold), *_find_clock_errors(gold)]
    if len(endpoints):  # windows of gold can begin before the recording, and end after it
        begin, end = pc.min(endpoints["start_time"]).as_py(), pc.max(endpoints["end_time"]).as_py()
        anomalies = [_clip_anomaly(anomaly, begin, end) for anomaly in anomalies]
    anomalies.sort(key=lambda anomaly: (-anomaly.share, anomaly.endpoint, anomaly.run, anomaly.kind))
    return Examination(
        anomalies,
        endpoints=len(endpoints),
        latency=int((get_integer_column(latency, "messages") >= LATENCY_MESSAGES_MIN).sum()),
        dropout=int((get_integer_column(endpoints, "messages") > 2).sum()),
        loss=int(endpoints["lost"].is_valid().to_numpy().sum()),
    )


def _clip_anomaly(anomaly: Anomaly, begin: int, end: int) -> Anomaly:
    from_time, to_time = (min(max(time, begin), end) for time in (anomaly.from_time, anomaly.to_time))
    return replace(anomaly, from_time=from_time, to_time=to_time)


def _find_losses(gold: GoldReader, endpoints: pa.Table) -> Iterator[Anomaly]:
    def prepare_piece(piece: pa.Table) -> pa.Table:
        return piece.append_column("times", pa.array(np.ones(len(piece), np.int64)))

    aggregations = {"lost": "sum", "from_time": "min", "to_time": "max", "times": "sum"}
    columns = [*_ENDPOINT_KEY, "lost", "from_time", "to_time"]
    gaps = gold.aggregate_rows("sequence_gaps", columns, _ENDPOINT_KEY, aggregations, prepare_piece)
    messages = {(row["run"], row["endpoint"]): row["messages"] for row in endpoints.to_pylist()}
    for gap in gaps.to_pylist():
        lost = gap["lost"]
        total = lost + messages.get((gap["run"], gap["endpoint"]), 0)
        values = (gap["from_time"], gap["to_time"], lost, 0, lost / total, gap["times"])
        yield Anomaly("loss", gap["run"], gap["endpoint"], *values)


def _find_dropouts(gold: GoldReader, endpoints: pa.Table) -> Iterator[Anomaly]:
    """Yield one anomaly for each endpoint with long times without a message, also at the end of the recording."""
    ends = _find_run_ends(endpoints)
    begins = {row["run"]: row["start_time"] for row in _aggregate_by_run(endpoints, "start_time", "min").to_pylist()}
    dropouts = defaultdict(list)
    where = ds.field("period_ns") <= ds.field("duration_ns") / DROPOUT_PERIODS_MIN  # a product could overflow
    columns = [*_ENDPOINT_KEY, "from_time", "to_time", "duration_ns", "period_ns"]
    inside = gold.read_rows("dropouts", columns, where).sort_by([("duration_ns", "descending")])[:_DROPOUTS_MAX]
    short = find_short_dropouts(gold, endpoints, DROPOUT_PERIODS_MIN)
    for row in [*inside.to_pylist(), *short, *_find_end_dropouts(gold, endpoints, ends)]:
        dropouts[row["run"], row["endpoint"]].append(row)
    for (run, endpoint), rows in dropouts.items():
        worst = max(rows, key=lambda row: row["duration_ns"])
        share = sum(row["duration_ns"] for row in rows) / max(1, ends[run] - begins[run])
        times = worst["from_time"], worst["to_time"]
        values = (worst["duration_ns"], worst["period_ns"], min(1.0, share), len(rows))
        yield Anomaly("dropout", run, endpoint, *times, *values, is_at_end="is_at_end" in worst)


def _find_run_ends(endpoints: pa.Table) -> dict[str, int]:
    """Return for each run the time at which half of the endpoints had sent their last message.

    Programs stop one after the other. An early stop in a shutdown is therefore not a dropout.
    """
    ends: dict[str, list[int]] = defaultdict(list)
    for run, end in zip(endpoints["run"].to_pylist(), endpoints["end_time"].to_pylist(), strict=True):
        ends[run].append(end)
    return {run: sorted(times)[len(times) // 2] for run, times in ends.items()}


def _find_end_dropouts(gold: GoldReader, endpoints: pa.Table, ends: dict[str, int]) -> Iterator[dict[str, object]]:
    run_ends = np.array([ends[run] for run in endpoints["run"].to_pylist()], np.int64)
    quiet_ns = subtract_saturating(run_ends, get_integer_column(endpoints, "end_time"))
    silent = endpoints.filter(pa.array(quiet_ns >= DROPOUT_MIN_NS))
    if not len(silent):
        return
    last = {(row["run"], row["endpoint"]): row["end_time"] for row in silent.to_pylist()}
    where = ds.field("endpoint").isin(pc.unique(silent["endpoint"]))
    hours = gold.read_rows("_intervals", [*_ENDPOINT_KEY, "histogram"], where)
    if not len(hours):
        return
    groups = RowGroups(*(get_column(hours, name) for name in _ENDPOINT_KEY))
    periods = estimate_typical_intervals(merge_histograms(groups, get_column(hours, "histogram"))).tolist()
    keys = hours.select(_ENDPOINT_KEY).take(pa.array(groups.first_rows)).to_pylist()
    for key, period in zip(keys, periods, strict=True):
        from_time = last.get((key["run"], key["endpoint"]))
        if from_time is not None and period and ends[key["run"]] - from_time >= DROPOUT_PERIODS_MIN * period:
            duration = ends[key["run"]] - from_time
            times = {"from_time": from_time, "to_time": from_time + duration, "duration_ns": duration}
            yield key | times | {"period_ns": period, "is_at_end": True}


def _find_latencies(gold: GoldReader) -> Iterator[Anomaly]:
    """Yield one anomaly for each endpoint with late periods."""
    periods: dict[tuple[str, str], list[LatePeriod]] = defaultdict(list)
    for period in find_late_periods(gold):
        if period.run_messages >= LATENCY_MESSAGES_MIN:
            periods[period.run, period.endpoint].append(period)
    for (run, endpoint), late in periods.items():
        worst = max(late, key=lambda period: (period.late_messages, -period.from_time))
        share = sum(period.late_messages for period in late) / worst.run_messages
        values = (worst.latency_ns, worst.usual_ns, share, len(late))
        yield Anomaly("latency", run, endpoint, worst.from_time, worst.to_time, *values)


def _find_restarts(gold: GoldReader, endpoints: pa.Table) -> Iterator[Anomaly]:
    """Yield one anomaly for each endpoint whose numbers began again. State has numbers of its own for each key."""
    is_state = pc.is_in(endpoints["kind"], value_set=pa.array(list_state_kinds(), pa.string()))
    several = endpoints.filter(pc.and_(pc.greater(endpoints["epochs"], 1), pc.invert(is_state)))
    if not len(several):
        return
    spans = {(row["run"], row["endpoint"]): row for row in several.to_pylist()}
    where = ds.field("endpoint").isin(pc.unique(several["endpoint"]))
    keys, aggregations = [*_ENDPOINT_KEY, "epoch"], {"start_time": "min", "end_time": "max"}
    epochs = defaultdict(list)
    for row in (
        gold.read_rows("traffic_windows", [*keys, *aggregations], where)
        .group_by(keys)
        .aggregate([*aggregations.items()])
        .to_pylist()
    ):
        epochs[row["run"], row["endpoint"]].append((row["start_time_min"], row["end_time_max"]))
    for key, times in epochs.items():
        if key in spans and len(times) > 1:
            pauses = [(begin - end, end, begin) for (_, end), (begin, _) in pairwise(sorted(times))]
            pause, end, begin = max(pauses)
            whole = max(1, spans[key]["end_time"] - spans[key]["start_time"])
            yield Anomaly("restart", *key, end, max(end, begin), max(0, pause), 0, max(0, pause) / whole, len(pauses))


def _find_takeovers(gold: GoldReader, endpoints: pa.Table) -> Iterator[Anomaly]:
    """Yield one anomaly for each endpoint with takeovers. After a takeover, messages name the new publisher."""
    is_unnamed = pc.is_in(endpoints["kind"], value_set=pa.array(list_kinds_without_senders(), pa.string()))
    taken_over = endpoints.filter(pc.and_(pc.greater(endpoints["publishers"], 0), is_unnamed))
    if not len(taken_over):
        return
    totals = {(row["run"], row["endpoint"]): row["messages"] for row in taken_over.to_pylist()}
    where = ds.field("endpoint").isin(pc.unique(taken_over["endpoint"])) & ds.field("publisher").is_valid()
    keys, aggregations = [*_ENDPOINT_KEY, "publisher"], {"start_time": "min", "messages": "sum"}
    publishers = defaultdict(list)
    windows = gold.read_rows("traffic_windows", [*keys, *aggregations], where)
    for row in windows.group_by(keys).aggregate([*aggregations.items()]).to_pylist():
        publishers[row["run"], row["endpoint"]].append((row["start_time_min"], row["messages_sum"]))
    for key, found in publishers.items():
        if key in totals:
            (begin, _), (end, _) = min(found), max(found)
            share = sum(messages for _, messages in found) / totals[key]
            yield Anomaly("takeover", *key, begin, end, len(found), 0, share, len(found))


def _find_requeued_jobs(gold: GoldReader) -> Iterator[Anomaly]:
    """Yield one anomaly for each queue with messages that came back from a receiver."""
    columns = ["run", "queue", "delivered_time", "ended_time"]
    aggregations = {"times": "sum", "delivered_time": "min", "ended_time": "max"}
    summary = gold.read_rows("queue_summary", ["run", "queue", "delivered"])
    delivered = {(row["run"], row["queue"]): row["delivered"] for row in summary.to_pylist()}
    rows = gold.read_rows("queue_deliveries", columns, ds.field("outcome") == "requeued")
    if not len(rows):
        return
    counted = rows.append_column("times", pa.array(np.ones(len(rows), np.int64)))
    for row in aggregate_by_keys(counted, ["run", "queue"], aggregations).to_pylist():
        share = row["times"] / max(row["times"], delivered.get((row["run"], row["queue"]), 0))
        times = row["delivered_time"], row["ended_time"]
        endpoint = make_queue_endpoint(row["queue"])
        yield Anomaly("requeue", row["run"], endpoint, *times, row["times"], 0, share, row["times"])


def _find_clock_errors(gold: GoldReader) -> Iterator[Anomaly]:
    """Yield one anomaly for each endpoint with messages that were published after their recording."""
    where = ds.field("min") <= -LATENCY_EXCESS_MIN_NS
    rows = gold.read_rows("latency_summary", [*_ENDPOINT_KEY, "messages", "min", "histogram"], where)
    if not len(rows):
        return
    names = ds.field("endpoint").isin(pc.unique(rows["endpoint"]))
    windows = gold.read_rows("latency", [*_ENDPOINT_KEY, "window_start", "window_ns"], where & names)
    times = defaultdict(list)
    for window in windows.to_pylist():
        times[window["run"], window["endpoint"]].append((window["window_start"], window["window_ns"]))
    for row in rows.to_pylist():
        spans = times[row["run"], row["endpoint"]]
        early = sum(bucket["count"] for bucket in row["histogram"] if bucket["bucket"] < 0)
        begin, end = min(start for start, _ in spans), min(MAX_TIME, max(start + width for start, width in spans))
        share = early / row["messages"]
        yield Anomaly("clock", row["run"], row["endpoint"], begin, end, -row["min"], 0, share, len(spans))


def _aggregate_by_run(table: pa.Table, name: str, function: str) -> pa.Table:
    groups = table.group_by(["run"]).aggregate([(name, function)])
    return groups.rename_columns(["run", name])
