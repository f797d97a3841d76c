"""Plots of the report: aggregated rows as plotly figures in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import plotly.graph_objects as go

from msgq.lake.report.anomalies import Anomaly
from msgq.lake.report.endpoint_windows import EndpointWindows
from msgq.lake.report.page_parts import format_duration

_PlotRows = Sequence[dict[str, Any]]
_PLOT_MARGIN = {"t": 30, "b": 60}
_SMALL_MARGIN = {"l": 50, "r": 60, "t": 30, "b": 40}
_PLOTLY_LINE_MODE = "lines+markers"  # a single window is seen, too


#: Colors of the marks of anomalies, by kind.
MARK_COLORS = {
    "loss": "#d1242f",
    "dropout": "#9a6700",
    "latency": "#8250df",
    "restart": "#0969da",
    "takeover": "#0a7ea4",
    "requeue": "#1a7f37",
    "clock": "#bf3989",
}


def plot_timeline(anomalies: Sequence[Anomaly]) -> str | None:
    """Plot the time of each anomaly. An endpoint has one line; the worst endpoint is at the top."""
    if not anomalies:
        return None
    names = list(dict.fromkeys(anomaly.endpoint for anomaly in anomalies))
    lines = []
    for kind, color in MARK_COLORS.items():
        chosen = [anomaly for anomaly in anomalies if anomaly.kind == kind]
        times = [(anomaly.from_time, anomaly.to_time, None) for anomaly in chosen]
        lines.append(
            go.Scatter(
                x=[None if time is None else _convert_to_utc_datetime(time) for part in times for time in part],
                y=[name for anomaly in chosen for name in (anomaly.endpoint, anomaly.endpoint, None)],
                name=kind,
                mode=_PLOTLY_LINE_MODE,
                line={"width": 8, "color": color},
                marker={"size": 8},
            )
        )
    axis = {"type": "category", "categoryorder": "array", "categoryarray": names[::-1], "title": "endpoint"}
    return _serialize_figure([line for line in lines if line.x], yaxis=axis, height=120 + 18 * len(names))


def plot_latency_map(windows: EndpointWindows) -> str | None:
    """Plot the 90th percentile of the latency of each endpoint over time. The first endpoint is at the top."""
    has_latency = ~np.isnan(windows.latencies)
    if not has_latency.any():
        return None
    powers = np.log10(np.maximum(np.where(has_latency, windows.latencies, 1) / 1e3, 1e-3)).round(2)
    values = powers.astype(object)
    values[~has_latency] = None
    decades = range(int(np.floor(powers[has_latency].min())), int(np.ceil(powers[has_latency].max())) + 1)
    ticks = [step * 10.0**decade for decade in decades for step in ((1, 2, 5) if len(decades) < 4 else (1,))]
    texts = [format_duration(tick * 1e3) for tick in ticks]
    bar = {"title": {"text": "latency p90"}, "tickvals": [float(np.log10(tick)) for tick in ticks], "ticktext": texts}
    return _plot_heat_map(
        windows, values.tolist(), bar, meta="log_us", hovertemplate="%{y}<br>%{x}<br>%{text}<extra></extra>"
    )


def plot_rate_map(windows: EndpointWindows) -> str | None:
    """Plot the messages/s of each endpoint over time, as a multiple of the mean. The first endpoint is at the top."""
    means = windows.rates.mean(axis=1, keepdims=True)
    if not means.any():
        return None
    values = (windows.rates / np.where(means, means, 1)).round(2)
    bar = {"title": {"text": "rate / mean"}}
    hover = "%{y}<br>%{x}<br>%{z} times the mean<extra></extra>"
    scale = [[0, "#d1242f"], [0.4, "#d8dee4"], [0.6, "#d8dee4"], [1, "#0969da"]]
    return _plot_heat_map(
        windows, values.tolist(), bar, hovertemplate=hover, zmin=0, zmax=2, colorscale=scale, zauto=False
    )


def _plot_heat_map(windows: EndpointWindows, values: list[list[Any]], bar: dict[str, Any], **options: Any) -> str:
    """Return a heat map. The figure is not validated by plotly, which takes 10 us for each cell."""
    times = [_convert_to_utc_datetime(time).isoformat() for time in windows.starts.tolist()]
    heat = {"type": "heatmap", "x": times, "y": windows.names, "z": values, "colorbar": bar, "colorscale": "Viridis"}
    axis = {"type": "category", "autorange": "reversed", "title": {"text": "endpoint"}}
    layout = {"yaxis": axis, "height": min(900, 160 + 14 * len(windows.names)), "margin": _PLOT_MARGIN}
    return json.dumps({"data": [heat | options], "layout": layout}, separators=(",", ":"))


def plot_endpoint(windows: EndpointWindows, row: int) -> str:
    """Plot messages/s and latency of one endpoint over time."""
    times = [_convert_to_utc_datetime(time) for time in windows.starts.tolist()]
    rates, latencies = windows.rates[row].round(3).tolist(), windows.latencies[row]
    lines = [go.Scatter(x=times, y=rates, name="messages/s", fill="tozeroy", line={"shape": "hv", "width": 1})]
    layout: dict[str, Any] = {"yaxis": {"title": "messages/s", "rangemode": "tozero"}}
    if not np.isnan(latencies).all():
        values = [None if np.isnan(value) else value / 1e3 for value in latencies.tolist()]
        lines.append(go.Scatter(x=times, y=values, name="latency p90", yaxis="y2", line={"shape": "hv", "width": 2}))
        powers = np.log10(np.maximum([np.nanmin(latencies) / 1e3, np.nanmax(latencies) / 1e3], 1e-3))
        axis = {"title": "latency p90 (us)", "type": "log", "overlaying": "y", "side": "right", "showgrid": False}
        layout["yaxis2"] = axis | {"range": [np.floor(powers[0]), np.ceil(powers[1])], "dtick": 1, "tickformat": "~s"}
    title = {"text": windows.names[row], "font": {"size": 14}}
    return _serialize_figure(lines, title=title, height=240, showlegend=False, margin=_SMALL_MARGIN, **layout)


def plot_throughput(rows: _PlotRows) -> str | None:
    """Plot messages per second. Columns: endpoint, window_start in ns, rate."""
    return _plot_by_endpoint(rows, "rate", "messages/s", "log", lambda x, y, name: go.Scatter(x=x, y=y, name=name))


def plot_losses(rows: _PlotRows) -> str | None:
    """Plot lost messages. Columns: endpoint, window_start in ns, lost."""
    return _plot_by_endpoint(
        rows, "lost", "lost messages", "linear", lambda x, y, name: go.Bar(x=x, y=y, name=name), barmode="stack"
    )


def plot_latency(rows: _PlotRows) -> str | None:
    """Plot percentiles over time. Columns: window_start in ns, p50, p90, p99, max in ns."""
    if not rows:
        return None
    times = [_convert_to_utc_datetime(row["window_start"]) for row in rows]
    names = ("p50", "p90", "p99", "max")
    lines = [go.Scatter(x=times, y=[row[name] / 1e3 for row in rows], name=name) for name in names]
    return _serialize_figure(lines, yaxis={"title": "latency, published to recorded (us)", "type": "log"})


def plot_distribution(rows: _PlotRows) -> str | None:
    """Plot the latency distribution of each endpoint. Columns: endpoint, min, p50, p90, p99, p999, max in ns."""
    if not rows:
        return None
    names = ("min", "p50", "p90", "p99", "p999", "max")
    share = [0.0, 50.0, 90.0, 99.0, 99.9, 100.0]
    lines = [go.Scatter(x=[row[name] / 1e3 for name in names], y=share, name=row["endpoint"]) for row in rows]
    return _serialize_figure(
        lines,
        xaxis={"title": "latency, published to recorded (us)", "type": "log"},
        yaxis={"title": "messages within (%)"},
    )


def plot_hops(rows: _PlotRows) -> str | None:
    """Plot the tree of hops. Columns: parent (None at the root), endpoint, messages, share, p50 and p99 in ns."""
    edges = [row for row in rows if row["parent"] is not None]
    if not edges:
        return None
    names = list(dict.fromkeys(name for row in edges for name in (row["parent"], row["endpoint"])))
    link = {
        "source": [names.index(row["parent"]) for row in edges],
        "target": [names.index(row["endpoint"]) for row in edges],
        "value": [row["messages"] for row in edges],
        "label": [_describe_hop(row) for row in edges],
    }
    return _serialize_figure([go.Sankey(node={"label": names}, link=link)])


def _describe_hop(row: dict[str, Any]) -> str:
    times = f"p50 {row['p50'] / 1e3:,.0f} us, p99 {row['p99'] / 1e3:,.0f} us"
    return f"{times}, {row['share']:.0%} of the messages of {row['endpoint']}"


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
    return _serialize_figure(bars, yaxis={"title": "duration (us)", "type": "log"})


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
    return _serialize_figure(lines, yaxis={"title": "duration (us)", "type": "log"})


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
    return _serialize_figure(lines, yaxis={"title": "waiting messages", "rangemode": "tozero"})


def _group_by_queue(rows: _PlotRows) -> Iterator[tuple[str, _PlotRows, list[datetime]]]:
    for queue in dict.fromkeys(row["queue"] for row in rows):
        windows = [row for row in rows if row["queue"] == queue]
        yield queue, windows, [_convert_to_utc_datetime(row["step"]) for row in windows]


def _convert_to_microseconds(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / 1e3


def _plot_by_endpoint(rows: _PlotRows, value: str, title: str, scale: str, trace: Any, **layout: Any) -> str | None:
    if not rows:
        return None
    traces: dict[str, tuple[list[datetime], list[float]]] = {}
    for row in rows:
        times, values = traces.setdefault(row["endpoint"], ([], []))
        times.append(_convert_to_utc_datetime(row["window_start"]))
        values.append(row[value])
    return _serialize_figure(
        [trace(*columns, name) for name, columns in traces.items()], yaxis={"title": title, "type": scale}, **layout
    )


def _convert_to_utc_datetime(time: int) -> datetime:
    return datetime.fromtimestamp(time / 1e9, UTC)


def _serialize_figure(traces: Sequence[Any], **layout: Any) -> str:
    text: str = go.Figure(
        traces, {"template": "none", "height": 420, "showlegend": True, "margin": _PLOT_MARGIN, **layout}
    ).to_json()
    return text
