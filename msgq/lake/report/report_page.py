"""The report: one HTML page about a lake, which needs no network.

The data is aggregated to the size of the page, so the memory does not grow with the lake.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgq.common.storage.store_errors import translate_store_errors
from msgq.common.units import NS_PER_MS
from msgq.lake.report import report_data as data
from msgq.lake.report import report_plots as plots
from msgq.lake.report.anomalies import Anomaly, examine_recording
from msgq.lake.report.anomaly_section import describe_marks, format_anomaly_section
from msgq.lake.report.endpoint_windows import read_endpoint_windows
from msgq.lake.report.gold_reader import GoldReader, TableOpener
from msgq.lake.report.late_periods import LATE_MESSAGES_MIN, LATE_SHARE_MIN
from msgq.lake.report.late_stages import AGE_RATIO_MIN, LISTED_PERIODS_MAX, find_late_stages
from msgq.lake.report.page_parts import (
    format_clock_time,
    format_duration,
    format_html_plot,
    format_html_section,
    format_html_table,
    format_iso_time,
    format_json_script,
    format_number,
    format_time,
)
from msgq.lake.report.thumbnails import choose_pictures

_PLOTTED_QUEUES_MAX = 10  # maximum queues with lines of their own, four each
_LISTED_CHECKS_MAX = 200  # maximum number of failed checks on the page
_TIMELINE_ANOMALIES_MAX = 40
_MULTIPLES_MAX = 12  # endpoints with a plot of their own
_MAP_ENDPOINTS_MAX = 1000
_MAP_CELLS_MAX = 100_000
_TimeSpan = tuple[int, int]


@translate_store_errors()
def write_report(
    tables: TableOpener, path: Path, runs: Sequence[str] = (), replay_command: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the page, and return its totals: runs, endpoints, messages, lost, checks, failed, begin and end (ns).

    Args:
        tables: tables of a lake, from `open_lake_tables`.
        path: path of the page. An existing page is replaced.
        runs: runs to include; empty: all.
        replay_command: command that plays the recording or lake, for example ("msgq", "play", "/data/drive"). The page
            shows this command with the endpoint and times of each anomaly. Empty: the page shows no commands.

    Raises:
        InvalidValueError: the lake has no messages of one of the runs.
        StorageError: the object store cannot be used.
    """
    data.require_runs(GoldReader(tables), runs)
    gold = GoldReader(tables, runs)
    summary = data.read_report_summary(gold)
    span = summary["begin"] or 0, summary["end"] or 0
    found = examine_recording(gold)
    parts = [
        _format_page_header(summary),
        format_anomaly_section(found, replay_command, span),
        *_format_late_stages(gold, span),
        _format_zoom_controls(span),
        *_format_time_sections(gold, found.anomalies, span),
        *_format_total_sections(gold, found.anomalies),
        *_format_kind_sections(gold, data.choose_page_window_ns(*span)),
        _format_page_data(found.anomalies, span),
    ]
    path.write_text(_fill_page_template("\n".join(parts)), encoding="utf-8")
    return summary


def _fill_page_template(body: str) -> str:
    folder = files("msgq.lake.report")
    plotly = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    style, script, template = (
        (folder / f"report.{ending}").read_text(encoding="utf-8") for ending in ("css", "js", "html")
    )
    for name, text in {"style": style, "script": script, "plotly": plotly, "body": body}.items():
        template = template.replace(f"{{{{{name}}}}}", text, 1)
    return template


def _format_page_header(summary: dict[str, Any]) -> str:
    items = {
        "run" if summary["runs"] == 1 else "runs": summary["runs"],
        "endpoint" if summary["endpoints"] == 1 else "endpoints": summary["endpoints"],
        "message" if summary["messages"] == 1 else "messages": summary["messages"],
        "lost": summary["lost"],
        "checks failed": f"{summary['failed']} of {summary['checks']}",
    }
    facts = "".join(f"<span><b>{format_number(value)}</b> {name}</span>" for name, value in items.items())
    span = f"<span>{format_time(summary['begin'])} to {format_time(summary['end'])}</span>"
    return f'<header><h1>msgq</h1><p class="facts">{span}{facts}</p></header>'


def _format_late_stages(gold: GoldReader, span: _TimeSpan) -> Iterator[str]:
    """Yield the section about late stages, if the lake has stages."""
    if not len(gold.read_rows("stage_summary", ["stage"])):
        return
    rows = [
        {
            "stage": late.stage,
            "endpoint": late.endpoint,
            "from (UTC)": format_clock_time(late.from_time, span),
            "to (UTC)": format_clock_time(late.to_time, span),
            "late messages": late.late_messages,
            "age": format_duration(late.age_ns),
            "usual age": format_duration(late.usual_ns),
            "most likely cause": late.cause.text,
        }
        for late in find_late_stages(gold)
    ]
    note = (
        f'<p class="note">Over 1 s or more, {LATE_MESSAGES_MIN} messages and an unusual share of at least '
        f"{LATE_SHARE_MIN:.0%} were {AGE_RATIO_MIN} times as old as usual at the end of the stage, and 1 ms more. The "
        f"list has at most {LISTED_PERIODS_MAX} periods, those with most late messages. Threads are sampled every "
        "0.1 s, so the parts of a shorter message are estimates.</p>"
    )
    yield format_html_section("Late stages", format_html_table(rows) or "<p><b>No late stages.</b></p>", note)


def _format_zoom_controls(span: _TimeSpan) -> str:
    """Return the inputs that set the time range of all plots over time."""
    seconds = (span[1] - span[0]) / 1e9
    fields = "".join(
        f'<label>{name} <input type="number" min="0" max="{seconds:.1f}" step="any" value="{value:.1f}"> s</label>'
        for name, value in (("from", 0), ("to", seconds))
    )
    whole = '<button type="button" id="whole">Whole recording</button>'
    return f'<div class="zoom">Time range of all plots: {fields}{whole}</div>'


def _format_page_data(anomalies: Sequence[Anomaly], span: _TimeSpan) -> str:
    """Return data for the script: begin and end of the time axes, and marks."""
    edges = [format_iso_time(span[0] // NS_PER_MS), format_iso_time(span[1] // NS_PER_MS + 1)]
    named = {"span": edges, "marks": describe_marks(anomalies), "mark-colors": plots.MARK_COLORS}
    return "".join(format_json_script(json.dumps(value), name) for name, value in named.items())


def _format_time_sections(gold: GoldReader, anomalies: Sequence[Anomaly], span: _TimeSpan) -> Iterator[str]:
    """Yield the sections with plots over time. Endpoints with anomalies come first."""
    worst = [anomaly.endpoint for anomaly in anomalies]
    step = data.choose_page_window_ns(*span)
    if anomalies:
        yield format_html_section(
            "Timeline", format_html_plot(plots.plot_timeline(anomalies[:_TIMELINE_ANOMALIES_MAX]))
        )
    names = data.choose_endpoints(gold, worst, _MULTIPLES_MAX)
    windows = read_endpoint_windows(gold, names, step, *span)
    multiples = [format_html_plot(plots.plot_endpoint(windows, row), name) for row, name in enumerate(names)]
    title = "Worst endpoints: messages/s, and 90th percentile of the latency"
    yield format_html_section(title, f'<div class="multiples">{"".join(multiples)}</div>')
    yield from _format_map_sections(gold, worst, span)
    yield format_html_section(
        "Latency over time, all endpoints", format_html_plot(plots.plot_latency(data.read_latency(gold, step, *span)))
    )
    shown = data.choose_endpoints(gold, worst)
    rates = data.drop_partial_windows(data.read_throughput(gold, shown, step, *span), step, *span)
    yield format_html_section("Messages/s", format_html_plot(plots.plot_throughput(_sort_by_name(rates, shown))))
    losses = _sort_by_name(data.read_losses(gold, shown, step), shown)
    yield format_html_section("Losses", format_html_plot(plots.plot_losses(losses)))


def _sort_by_name(rows: data.ReportRows, names: Sequence[str]) -> data.ReportRows:
    """Return rows in the order of their endpoints in `names`. Other endpoints are last."""
    places = {name: place for place, name in enumerate(names)}
    return sorted(rows, key=lambda row: places.get(row["endpoint"], len(places)))


def _format_map_sections(gold: GoldReader, worst: Sequence[str], span: _TimeSpan) -> Iterator[str]:
    """Yield the heat maps of up to 1,000 endpoints."""
    names = data.choose_endpoints(gold, worst, _MAP_ENDPOINTS_MAX)
    most = min(data.PAGE_WINDOWS_MAX, _MAP_CELLS_MAX // max(1, len(names)))
    windows = read_endpoint_windows(gold, names, data.choose_page_window_ns(*span, most), *span)
    note = f'<p class="note">{len(names):,} endpoints, the worst at the top. Drag to zoom in both directions.</p>'
    latency = plots.plot_latency_map(windows)
    yield format_html_section("Latency of each endpoint over time", note if latency else "", format_html_plot(latency))
    rates = plots.plot_rate_map(windows)
    yield format_html_section("Messages/s of each endpoint over time", note if rates else "", format_html_plot(rates))


def _format_total_sections(gold: GoldReader, anomalies: Sequence[Anomaly]) -> Iterator[str]:
    """Yield the sections with totals of endpoints."""
    worst = [anomaly.endpoint for anomaly in anomalies]
    search = '<p><label>Search <input type="search"></label> <output class="note"></output></p>'
    table = format_html_table(data.read_endpoints(gold, worst), data.ENDPOINT_TITLES, ' class="sortable"')
    yield format_html_section("Endpoints", search, table)
    shown = data.choose_endpoints(gold, worst)
    latency = _sort_by_name(data.read_endpoint_latency(gold, shown), shown)
    yield format_html_section(
        "Latency of each endpoint", format_html_plot(plots.plot_distribution(latency), is_over_time=False)
    )
    yield _format_checks_section(gold)
    edges = data.read_hops(gold)
    note = f"<p class=note>Hops with less than {data.HOP_SHARE_MIN:.0%} of the endpoint's messages are not shown.</p>"
    hops = format_html_plot(plots.plot_hops(edges), is_over_time=False)
    yield format_html_section("Hops", hops, note, format_html_table(data.list_hop_rows(edges)))


def _format_kind_sections(gold: GoldReader, step: int) -> Iterator[str]:
    """Yield the sections that only some recordings have."""
    if stages := data.read_stages(gold):
        plot = format_html_plot(plots.plot_stages(stages), is_over_time=False)
        yield format_html_section("Stages", plot, format_html_table(*data.title_duration_rows(stages)))
    if queues := data.read_queues(gold):
        steps = data.read_queue_timelines(gold, [row["queue"] for row in queues[:_PLOTTED_QUEUES_MAX]], step)
        drawn = (plots.plot_queue_times(steps), plots.plot_backlogs(steps))
        yield format_html_section(
            "Queues", *map(format_html_plot, drawn), format_html_table(*data.title_duration_rows(queues))
        )
    if publishers := data.read_publishers(gold):
        yield format_html_section("Publishers", format_html_table(*data.title_duration_rows(publishers)))
    if pictures := _format_pictures(gold):
        yield format_html_section("Pictures", pictures)


def _format_checks_section(gold: GoldReader) -> str:
    kinds, failed = data.read_checks(gold, _LISTED_CHECKS_MAX)
    sums = [{**row, "result": "failed" if row["failed"] else "passed"} for row in kinds]
    titles = {"check_name": "check", "value": "value (messages or ns)", "threshold": "limit (messages or ns)"}
    return format_html_section("Checks", format_html_table(sums, titles), format_html_table(failed, titles))


def _format_pictures(gold: GoldReader) -> str:
    """Return the pictures as HTML; "": none."""
    try:
        images = choose_pictures(gold)
    except ModuleNotFoundError:
        return "<p>They need OpenCV to be shown: pip install 'msgq-bus[frames]'</p>"
    shown = [
        f'<figure><img alt="" src="data:image/jpeg;base64,{base64.b64encode(row["picture"]).decode()}">'
        f"<figcaption>{html.escape(row['endpoint'])}<br>{format_time(row['log_time'])}</figcaption></figure>"
        for row in images
    ]
    return f'<div class="pictures">{"".join(shown)}</div>' if shown else ""
