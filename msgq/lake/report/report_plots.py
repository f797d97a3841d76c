"""Plots of the report: aggregated rows as plotly figures in JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import plotly.graph_objects as go

_PlotRows = Sequence[dict[str, Any]]
_PLOTLY_LINE_MODE = "lines+markers"  # a single window is seen, too


def plot_throughput(rows: _PlotRows) -> str | None:
    """Plot messages per second. Columns: endpoint, window_start in ns, rate."""
    return _plot_by_endpoint(rows, "rate", "messages/s", lambda x, y, name: go.Scatter(x=x, y=y, name=name))


def plot_losses(rows: _PlotRows) -> str | None:
    """Plot lost messages. Columns: endpoint, window_start in ns, lost."""
    return _plot_by_endpoint(
        rows, "lost", "lost messages", lambda x, y, name: go.Bar(x=x, y=y, name=name), barmode="stack"
    )


def plot_latency(rows: _PlotRows) -> str | None:
    """Plot percentiles over time. Columns: window_start in ns, p50, p90, p99, max in ns."""
    if not rows:
        return None
    times = [_convert_to_utc_datetime(row["window_start"]) for row in rows]
    names = ("p50", "p90", "p99", "max")
    lines = [go.Scatter(x=times, y=[row[name] / 1e3 for row in rows], name=name) for name in names]
    return _serialize_figure(lines, yaxis={"title": "us from published to recorded", "type": "log"})


def plot_distribution(rows: _PlotRows) -> str | None:
    """Plot the latency distribution of each endpoint. Columns: endpoint, min, p50, p90, p99, p999, max in ns."""
    if not rows:
        return None
    names = ("min", "p50", "p90", "p99", "p999", "max")
    share = [0.0, 50.0, 90.0, 99.0, 99.9, 100.0]
    lines = [go.Scatter(x=[row[name] / 1e3 for name in names], y=share, name=row["endpoint"]) for row in rows]
    return _serialize_figure(
        lines, xaxis={"title": "us from published to recorded", "type": "log"}, yaxis={"title": "% of messages within"}
    )


def plot_hops(rows: _PlotRows) -> str | None:
    """Plot the tree of hops. Columns: parent (None at the root), endpoint, messages, p50 and p99 in ns."""
    edges = [row for row in rows if row["parent"] is not None]
    if not edges:
        return None
    names = list(dict.fromkeys(name for row in edges for name in (row["parent"], row["endpoint"])))
    link = {
        "source": [names.index(row["parent"]) for row in edges],
        "target": [names.index(row["endpoint"]) for row in edges],
        "value": [row["messages"] for row in edges],
        "label": [f"p50 {row['p50'] / 1e3:,.0f} us, p99 {row['p99'] / 1e3:,.0f} us" for row in edges],
    }
    return _serialize_figure([go.Sankey(node={"label": names}, link=link)])


def plot_stages(rows: _PlotRows) -> str | None:
    """Plot the queueing, processing and end-to-end times of stages.

    Columns: stage, endpoint, queue_time_p50 ... in ns.
    """
    if not rows:
        return None
    names = [f"{row['stage']}: {row['endpoint']}" for row in rows]
    bars = [
        go.Bar(
            x=names,
            y=[_convert_to_microseconds(row[f"{name}_{title}"]) for row in rows],
            name=f"{name.replace('_', ' ')} {title}",
        )
        for name in ("queue_time", "processing_time", "e2e_latency")
        for title in ("p50", "p99")
    ]
    return _serialize_figure(bars, yaxis={"title": "us", "type": "log"})


def plot_queue_times(rows: _PlotRows) -> str | None:
    """Plot the queueing and processing times of queues. Columns: queue, step in ns, queue_time_p50 ... in ns."""
    if not rows:
        return None
    lines = [
        go.Scatter(
            x=times,
            y=[_convert_to_microseconds(row[name]) for row in windows],
            name=f"{queue} {name.replace('_', ' ')}",
            mode=_PLOTLY_LINE_MODE,
        )
        for queue, windows, times in _group_by_queue(rows)
        for name in ("queue_time_p50", "queue_time_p99", "processing_time_p50", "processing_time_p99")
    ]
    return _serialize_figure(lines, yaxis={"title": "us", "type": "log"})


def plot_backlogs(rows: _PlotRows) -> str | None:
    """Plot the number of pending messages of queues. Columns: queue, step in ns, backlog."""
    if not rows:
        return None
    lines = [
        go.Scatter(
            x=times, y=[row["backlog"] for row in windows], name=queue, mode=_PLOTLY_LINE_MODE, line={"shape": "hv"}
        )
        for queue, windows, times in _group_by_queue(rows)
    ]
    return _serialize_figure(lines, yaxis={"title": "messages that wait", "rangemode": "tozero"})


def _group_by_queue(rows: _PlotRows) -> Iterator[tuple[str, _PlotRows, list[datetime]]]:
    for queue in dict.fromkeys(row["queue"] for row in rows):
        windows = [row for row in rows if row["queue"] == queue]
        yield queue, windows, [_convert_to_utc_datetime(row["step"]) for row in windows]


def _convert_to_microseconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e3


def _plot_by_endpoint(rows: _PlotRows, value: str, title: str, trace: Any, **layout: Any) -> str | None:
    if not rows:
        return None
    traces: dict[str, tuple[list[datetime], list[float]]] = {}
    for row in rows:
        times, values = traces.setdefault(row["endpoint"], ([], []))
        times.append(_convert_to_utc_datetime(row["window_start"]))
        values.append(row[value])
    return _serialize_figure(
        [trace(*columns, name) for name, columns in traces.items()], yaxis={"title": title}, **layout
    )


def _convert_to_utc_datetime(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1e9, UTC)


def _serialize_figure(traces: Sequence[Any], **layout: Any) -> str:
    text: str = go.Figure(traces, {"template": "none", "height": 420, "showlegend": True, **layout}).to_json()
    return text
