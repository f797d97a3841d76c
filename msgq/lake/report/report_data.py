"""Data of the report in few rows: page windows, the most important endpoints, and all other endpoints combined.

A time of the page is the start of one of its windows, ns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.common.texts import join_first_texts
from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError
from msgq.lake.metrics.group_by import IntegerArray, get_integer_column
from msgq.lake.metrics.queues import QUEUE_COUNT_COLUMNS as QUEUE_COUNTS
from msgq.lake.metrics.queues import QUEUE_DURATION_NAMES as QUEUE_DURATIONS
from msgq.lake.metrics.saturating_time import compute_window_start, subtract_saturating
from msgq.lake.metrics.stages import STAGE_DURATION_NAMES
from msgq.lake.report.gold_reader import GoldReader, aggregate_by_keys
from msgq.lake.report.histogram_percentiles import (
    PercentilesByKey,
    aggregate_bucket_counts,
    compute_count_percentiles,
    compute_key_percentiles,
)

ReportRows = list[dict[str, Any]]

PLOTTED_ENDPOINTS_MAX = 40  # endpoints with a line of their own
LISTED_ENDPOINTS_MAX = 1000  # endpoints in the table
_LISTED_RUNS_MAX = 10  # maximum runs in an error
PAGE_WINDOWS_MAX = 240
HOP_SHARE_MIN = 0.05  # minimum share of an endpoint's messages that follow from another endpoint
HOP_MESSAGES_MIN = 5
_OTHER_ENDPOINTS_LABEL = "(others)"
_COUNT_SCALE = 1000  # parts of a message of a long window that several of the page's windows share
_LATENCY_COLUMNS = ("p50", "p99", "max")
#: Headings of `read_endpoints`.
ENDPOINT_TITLES = {
    "rate": "messages/s",
    "size_bytes": "bytes",
    "max_size_bytes": "largest message (bytes)",
    "p50": "latency p50 (us)",
    "p99": "latency p99 (us)",
    "max": "latency max (us)",
}
#: Seconds of the page's windows: the windows of gold (1, 10, 60, 600, 3600 s) are parts of these, or these of them.
_PAGE_WINDOW_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600)


def read_report_summary(gold: GoldReader) -> dict[str, Any]:
    """Return the totals of the page: runs, endpoints, messages, lost, begin and end (ns, or None), checks, failed."""
    endpoints = gold.read_rows("endpoints", ["run", "endpoint", "messages", "lost", "start_time", "end_time"])
    passed = gold.read_rows("checks", ["passed"])["passed"].to_pylist()
    return {
        "runs": pc.count_distinct(endpoints["run"]).as_py(),
        "endpoints": pc.count_distinct(endpoints["endpoint"]).as_py(),
        "messages": pc.sum(endpoints["messages"]).as_py() or 0,
        "lost": pc.sum(endpoints["lost"]).as_py() or 0,
        "begin": pc.min(endpoints["start_time"]).as_py(),
        "end": pc.max(endpoints["end_time"]).as_py(),
        "checks": len(passed),
        "failed": passed.count(False),
    }


def require_runs(gold: GoldReader, runs: Sequence[str]) -> None:
    """Check that runs have messages. Raises InvalidValueError with the existing runs."""
    existing = pc.unique(gold.read_rows("endpoints", ["run"])["run"]).to_pylist() if runs else []
    if missing := [run for run in runs if run not in existing]:
        listed_runs = join_first_texts(sorted(existing), _LISTED_RUNS_MAX)
        raise InvalidValueError(f"run {missing[0]!r} not found in the lake; runs: {listed_runs or 'none'}")


def choose_endpoints(gold: GoldReader, first: Sequence[str] = (), most: int = PLOTTED_ENDPOINTS_MAX) -> list[str]:
    """Return the endpoints to show: those of `first`, then those with most losses, then those with most messages."""
    endpoints = gold.aggregate_rows(
        "endpoints", ["endpoint", "lost", "messages"], ["endpoint"], {"lost": "sum", "messages": "sum"}
    )
    by_volume = _select_first_rows(endpoints, len(endpoints), "-lost", "-messages", "endpoint")["endpoint"].to_pylist()
    return list(dict.fromkeys([*first, *by_volume]))[:most]


def choose_page_window_ns(begin: int | None, end: int | None, most: int = PAGE_WINDOWS_MAX) -> int:
    """Return the length of the page's windows in ns, so that there are at most `most` windows."""
    seconds = -(-((end or 0) - (begin or 0)) // (most * NS_PER_S))
    hours = -(-seconds // _PAGE_WINDOW_SECONDS[-1])
    return (
        next((width for width in _PAGE_WINDOW_SECONDS if width >= seconds), hours * _PAGE_WINDOW_SECONDS[-1]) * NS_PER_S
    )


def read_throughput(gold: GoldReader, names: Sequence[str], step: int, begin: int, end: int) -> ReportRows:
    """Return messages per second: endpoint, time, rate.

    A longer window is spread over its time within `begin` and `end`.
    """

    def prepare_piece(piece: pa.Table) -> pa.Table:
        return _align_to_page_windows(_merge_other_endpoints(piece, names), "window_start", step)

    keys = ["endpoint", "window_start", "window_ns"]
    windows = gold.aggregate_rows("throughput", [*keys, "messages"], keys, {"messages": "sum"}, prepare_piece)
    rows, starts, parts = split_windows(windows, step, begin, end)
    spread = pa.table(
        {
            "endpoint": windows["endpoint"].take(pa.array(rows)),
            "window_start": starts,
            "rate": windows["messages"].to_numpy()[rows] / parts[rows] * (NS_PER_S / step),
        }
    )
    return _sort_to_rows(
        aggregate_by_keys(spread, ["endpoint", "window_start"], {"rate": "sum"}), "endpoint", "window_start"
    )


def drop_partial_windows(rows: ReportRows, step: int, begin: int, end: int) -> ReportRows:
    """Return the rows of windows that the recording covers, if there are any. Rates of other windows are too low."""
    whole = [row for row in rows if row["window_start"] % step == 0 and begin <= row["window_start"] <= end - step]
    return whole or rows


def split_windows(
    windows: pa.Table, step: int, begin: int, end: int
) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
    """Return the page's windows that each window covers within `begin` and `end`.

    Returns the row and the start of each page window, and the number of page windows of each row. The first page window
    starts at `begin`.
    """
    time, width = get_integer_column(windows, "window_start"), get_integer_column(windows, "window_ns")
    first = np.maximum(time, begin) // step
    last = np.maximum(np.minimum(subtract_saturating(time, 1 - np.maximum(width, 1)), end) // step, first)
    last = np.where(width > step, last, first)
    parts = last - first + 1
    rows = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(rows)) - np.repeat(np.cumsum(parts) - parts, parts)
    starts = compute_window_start(np.maximum(time, begin), step)[rows] + part * step
    return rows, np.maximum(starts, begin), parts


def read_losses(gold: GoldReader, names: Sequence[str], step: int) -> ReportRows:
    """Return lost messages: endpoint, time, lost. The time is that of the first message after the gap."""

    def prepare_piece(piece: pa.Table) -> pa.Table:
        return _align_to_page_windows(_merge_other_endpoints(piece, names), "to_time", step)

    gaps = gold.aggregate_rows(
        "sequence_gaps", ["endpoint", "to_time", "lost"], ["endpoint", "to_time"], {"lost": "sum"}, prepare_piece
    )
    return _sort_to_rows(gaps.rename_columns(["endpoint", "window_start", "lost"]), "endpoint", "window_start")


def read_latency(gold: GoldReader, step: int, begin: int, end: int) -> ReportRows:
    """Return the latency of all endpoints together: window_start, p50 ... in ns, max.

    A longer window counts in each of the page's windows that it covers within `begin` and `end`.
    """

    def prepare_piece(piece: pa.Table) -> pa.Table:
        width = get_integer_column(piece, "window_ns")
        start = get_integer_column(piece, "window_start")
        aligned = np.where(width > step, start, compute_window_start(start, step))
        return piece.set_column(piece.schema.get_field_index("window_start"), "window_start", pa.array(aligned))

    keys = ["window_start", "window_ns"]
    longest = gold.aggregate_rows("latency", [*keys, "max"], keys, {"max": "max"}, prepare_piece)
    counts = aggregate_bucket_counts(gold, "latency", keys, keys, prepare=prepare_piece)
    if not len(counts):
        return []
    rows, starts, _ = split_windows(longest, step, begin, end)
    maxima = pa.table({"window_start": starts, "max": get_integer_column(longest, "max")[rows]})
    rows, starts, parts = split_windows(counts, step, begin, end)
    shares = get_integer_column(counts, "count")[rows] * _COUNT_SCALE // parts[rows]
    spread = {"window_start": starts, "bucket": get_integer_column(counts, "bucket")[rows], "count": shares}
    percentiles = compute_count_percentiles(
        aggregate_by_keys(pa.table(spread), ["window_start", "bucket"], {"count": "sum"}), ["window_start"]
    )
    windows = aggregate_by_keys(maxima, ["window_start"], {"max": "max"})
    return [
        row | _cap_percentiles(percentiles[row["window_start"],], row["max"])
        for row in _sort_to_rows(windows, "window_start")
    ]


def read_endpoint_latency(gold: GoldReader, names: Sequence[str]) -> ReportRows:
    """Return the latency of some endpoints: endpoint, min, p50, p90, p99, p999, max, ns."""

    def prepare_piece(piece: pa.Table) -> pa.Table:
        return piece.filter(_is_name_selected(piece["endpoint"], names))

    aggregations = {"min": "min", "max": "max"}
    totals = gold.aggregate_rows(
        "latency_summary", ["endpoint", *aggregations], ["endpoint"], aggregations, prepare_piece
    )
    percentiles = compute_key_percentiles(gold, "latency_summary", ["endpoint"], ["endpoint"], prepare=prepare_piece)
    return [
        row | _cap_percentiles(percentiles[row["endpoint"],], row["max"]) for row in _sort_to_rows(totals, "endpoint")
    ]


def read_hops(gold: GoldReader) -> ReportRows:
    """Return the edges with most messages: parent, endpoint, messages, share, p50, p99 (of the worst run), ns.

    `share` is the part of the endpoint's messages that follow from the parent, 0 to 1. Edges with less than 5 % or
    5 messages are omitted: unrelated messages can have the same origin_time by chance.
    """
    aggregations = {"messages": "sum", "p50": "max", "p99": "max"}
    edges = gold.aggregate_rows(
        "hops", ["parent", "endpoint", *aggregations], ["parent", "endpoint"], aggregations
    ).to_pylist()
    totals: Counter[str] = Counter()
    for edge in edges:
        totals[edge["endpoint"]] += edge["messages"]
    shared = [
        {"parent": edge["parent"], "endpoint": edge["endpoint"], "messages": edge["messages"]}
        | {"share": edge["messages"] / totals[edge["endpoint"]], "p50": edge["p50"], "p99": edge["p99"]}
        for edge in edges
        if edge["parent"] is not None
        and edge["messages"] >= max(HOP_MESSAGES_MIN, HOP_SHARE_MIN * totals[edge["endpoint"]])
    ]
    return sorted(shared, key=lambda edge: (-edge["messages"], edge["parent"], edge["endpoint"]))[
        :PLOTTED_ENDPOINTS_MAX
    ]


def read_stages(gold: GoldReader) -> ReportRows:
    """Return the stages with the longest processing times over all runs: stage, endpoint, counts, queue_time_p50 ..."""
    keys = ["stage", "endpoint"]
    aggregations = {"messages": "sum", "malformed": "sum"} | {f"{name}_max": "max" for name in STAGE_DURATION_NAMES}
    rows = gold.aggregate_rows("stage_summary", [*keys, *aggregations], keys, aggregations).to_pylist()
    percentiles = {
        name: compute_key_percentiles(gold, "stage_summary", keys, keys, f"{name}_histogram")
        for name in STAGE_DURATION_NAMES
    }
    stage_rows = [
        _add_row_percentiles(row, keys, ("stage", "endpoint", "messages", "malformed"), percentiles) for row in rows
    ]
    stage_rows.sort(
        key=lambda row: (-(row["processing_time_p50"] or 0) * row["messages"], row["stage"], row["endpoint"])
    )
    return stage_rows[:PLOTTED_ENDPOINTS_MAX]


def read_queues(gold: GoldReader) -> ReportRows:
    """Return the queues with most messages, over all runs: queue, counts, backlog, queue_time_p50 ..."""
    rows = _sum_queue_windows(gold, ["queue"])
    return sorted(rows, key=lambda row: (-row["sent"], row["queue"]))[:PLOTTED_ENDPOINTS_MAX]


def read_queue_timelines(gold: GoldReader, names: Sequence[str], step: int) -> ReportRows:
    """Return the events of some queues in the page's windows: queue, step, and the columns of `read_queues`."""

    def prepare_piece(piece: pa.Table) -> pa.Table:
        chosen = piece.filter(_is_name_selected(piece["queue"], names))
        return _align_to_page_windows(chosen.append_column("step", chosen["window_start"]), "step", step)

    return sorted(
        _sum_queue_windows(gold, ["queue", "step"], prepare_piece), key=lambda row: (row["queue"], row["step"])
    )


def _sum_queue_windows(
    gold: GoldReader, keys: list[str], prepare: Callable[[pa.Table], pa.Table] = lambda piece: piece
) -> ReportRows:
    """Return sums of queue windows by some keys. The backlog is that of the last window."""
    columns = ["queue", "window_start", "epoch"]
    aggregations = dict.fromkeys(QUEUE_COUNTS, "sum") | {f"{name}_max": "max" for name in QUEUE_DURATIONS}
    rows = gold.aggregate_rows("queue_windows", [*columns, *aggregations], keys, aggregations, prepare).to_pylist()
    percentiles = {
        name: compute_key_percentiles(gold, "queue_windows", columns, keys, f"{name}_histogram", prepare=prepare)
        for name in QUEUE_DURATIONS
    }
    aggregations = dict.fromkeys(("window_start", "epoch", "backlog"), "last")
    last = gold.aggregate_rows(
        "queue_windows", [*columns, "backlog"], keys, aggregations, prepare, order=("window_start", "epoch")
    ).to_pylist()
    backlogs = {tuple(row[key] for key in keys): row["backlog"] for row in last}
    shown = (*keys, *QUEUE_COUNTS, "backlog")
    full = [row | {"backlog": backlogs[tuple(row[key] for key in keys)]} for row in rows]
    return [_add_row_percentiles(row, keys, shown, percentiles) for row in full]


def _add_row_percentiles(
    row: dict[str, Any], keys: Sequence[str], shown: Sequence[str], percentiles: dict[str, PercentilesByKey]
) -> dict[str, Any]:
    """Return some columns of a row, then p50, p99 and maximum of each duration; None: no duration."""
    key = tuple(row[name] for name in keys)
    shown_values = {name: row[name] for name in shown}
    for name, ranks_by_key in percentiles.items():
        most = row[f"{name}_max"]
        ranks = _cap_percentiles(ranks_by_key.get(key, {}), most)
        shown_values |= {f"{name}_p50": ranks.get("p50"), f"{name}_p99": ranks.get("p99"), f"{name}_max": most}
    return shown_values


def _cap_percentiles(ranks: dict[str, int], most: int) -> dict[str, int]:
    """Return percentiles of at most the longest duration. As centers of buckets, they could be longer."""
    return {title: min(value, most) for title, value in ranks.items()}


def read_checks(gold: GoldReader, most: int) -> tuple[ReportRows, ReportRows]:
    """Return the number of endpoints and of failures of each check, and the worst failures."""
    checks = gold.read_rows("checks", ["check_name", "endpoint", "value", "threshold", "run", "passed"])
    if not checks.num_rows:
        return [], []
    failed = pc.invert(checks["passed"])
    counted = checks.append_column("endpoints", pa.array(np.ones(len(checks), np.int64))).append_column(
        "failed", pc.cast(failed, pa.int64())
    )
    kinds = aggregate_by_keys(counted, ["check_name"], {"endpoints": "sum", "failed": "sum"})
    worst = _select_first_rows(checks.filter(failed).drop_columns("passed"), most, "-value", "endpoint")
    return _sort_to_rows(kinds, "check_name"), worst.to_pylist()


def read_endpoints(gold: GoldReader, first: Sequence[str] = ()) -> ReportRows:
    """Return the endpoints of each run: those of `first`, then those with most losses. The latency is in us."""
    counts = ("messages", "lost", "overwritten", "rate", "size_bytes", "max_size_bytes", "epochs", "publishers")
    endpoints = gold.read_rows("endpoints", ("endpoint", "kind", *counts, "schema", "encoding", "run"))
    names = pa.array(list(dict.fromkeys(first)), pa.string())
    place = pc.fill_null(pc.index_in(endpoints["endpoint"], value_set=names), len(names))
    order = ("place", "-lost", "-messages", "endpoint", "run")
    rows = _select_first_rows(endpoints.append_column("place", place), LISTED_ENDPOINTS_MAX, *order)
    where = ds.field("endpoint").isin(pc.unique(rows["endpoint"]))
    latency = gold.read_rows("latency_summary", ("run", "endpoint", *_LATENCY_COLUMNS), where)
    latency_rows = {(row["run"], row["endpoint"]): row for row in latency.to_pylist()}
    shown = []
    for row in rows.drop_columns("place").to_pylist():
        summary = latency_rows.get((row["run"], row["endpoint"]), {})
        durations = {name: _convert_to_microseconds(summary.get(name)) for name in _LATENCY_COLUMNS}
        texts = {name: row.pop(name) for name in ("schema", "encoding", "run")}
        shown.append(row | durations | texts)
    return shown


def title_duration_rows(rows: ReportRows) -> tuple[ReportRows, dict[str, str]]:
    """Return rows with durations in us instead of ns, and the headings of the columns."""
    names = [name for name in rows[0] if name.rpartition("_")[2] in ("p50", "p99", "max")]
    titles = {name: name.replace("_", " ") + (" (us)" if name in names else "") for name in rows[0]}
    return [row | {name: _convert_to_microseconds(row[name]) for name in names} for row in rows], titles | {
        "rate": "messages/s",
        "size_bytes": "bytes",
        "max_size_bytes": "largest message (bytes)",
    }


def list_hop_rows(edges: ReportRows) -> ReportRows:
    """Return the hops with headings and units, for a table."""
    return [
        {"from": edge["parent"], "to": edge["endpoint"], "messages": edge["messages"]}
        | {"share of the messages (%)": round(100 * edge["share"], 1)}
        | {f"{name} (us)": _convert_to_microseconds(edge[name]) for name in ("p50", "p99")}
        for edge in edges
    ]


def _convert_to_microseconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e3


def read_publishers(gold: GoldReader) -> ReportRows:
    """Return the publishers of endpoints with several publishers, for each run."""
    columns = ("endpoint", "publisher", "messages", "rate", "size_bytes", "max_size_bytes", "p50", "p99", "max", "run")
    return _convert_to_rows(
        _select_first_rows(
            gold.read_rows("publishers", columns), LISTED_ENDPOINTS_MAX, "-messages", "endpoint", "publisher"
        )
    )


def _is_name_selected(column: pa.ChunkedArray, names: Sequence[str]) -> Any:
    return pc.is_in(column, value_set=pa.array(names, column.type))


def _merge_other_endpoints(piece: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return rows in which endpoints without a line of their own are combined as others."""
    column = piece["endpoint"]
    return piece.set_column(
        piece.schema.get_field_index("endpoint"),
        "endpoint",
        pc.if_else(_is_name_selected(column, names), column, _OTHER_ENDPOINTS_LABEL),
    )


def _align_to_page_windows(piece: pa.Table, time: str, step: int) -> pa.Table:
    """Return rows with times of the page."""
    column = piece[time].to_numpy()
    return piece.set_column(piece.schema.get_field_index(time), time, pa.array(compute_window_start(column, step)))


def _sort_to_rows(table: pa.Table, *by: str) -> ReportRows:
    return _convert_to_rows(_select_first_rows(table, len(table), *by))


def _convert_to_rows(table: pa.Table) -> ReportRows:
    rows: ReportRows = table.to_pylist()
    return rows


def _select_first_rows(table: pa.Table, most: int, *by: str) -> pa.Table:
    """Return the first rows in an order. "-" before a column: the largest first."""
    order = [(name.removeprefix("-"), "descending" if name.startswith("-") else "ascending") for name in by]
    return table.sort_by(order)[:most]
