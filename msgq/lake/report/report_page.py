"""The report: one HTML page about a lake, which needs no network.

The data is aggregated to the size of the page, so the memory does not grow with the lake.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from msgq.common.units import NS_PER_S
from msgq.lake.report import report_data as data
from msgq.lake.report import report_plots as plots
from msgq.lake.report.anomalies import examine_recording
from msgq.lake.report.anomaly_section import format_anomaly_section
from msgq.lake.report.gold_reader import GoldReader, TableOpener
from msgq.lake.report.thumbnails import choose_pictures

_PLOTTED_QUEUES_MAX = 10  # with lines of their own, four each
_LISTED_CHECKS_MAX = 200  # that failed


def write_report(
    tables: TableOpener, path: Path, runs: Sequence[str] = (), replay_command: Sequence[str] = ()
) -> dict[str, Any]:
    """Write the page, and return its totals: runs, endpoints, messages, lost, checks, failed, begin and end (ns).

    Parameters
    ----------
    tables : tables of a lake, from `open_lake_tables`.
    path : path of the page. An existing page is replaced.
    runs : runs to include; empty: all.
    replay_command : command that plays the recording or lake, for example ("msgq", "play", "/data/drive"). The page
        shows this command with the endpoint and times of each anomaly. Empty: the page shows no commands.
    """
    gold = GoldReader(tables, runs)
    summary = data.read_report_summary(gold)
    span = summary["begin"] or 0, summary["end"] or 0
    shown, step = data.choose_endpoints(gold), data.choose_page_window_ns(*span)
    drawn = [
        ("Messages/s", plots.plot_throughput(data.read_throughput(gold, shown, step, *span))),
        ("Losses", plots.plot_losses(data.read_losses(gold, shown, step))),
        ("Latency over time", plots.plot_latency(data.read_latency(gold, step))),
        ("Latency of each endpoint", plots.plot_distribution(data.read_endpoint_latency(gold, shown))),
        ("Hops", plots.plot_hops(data.read_hops(gold))),
    ]
    anomalies = format_anomaly_section(examine_recording(gold), replay_command, span)
    parts = [_format_page_header(summary), anomalies, _format_checks_section(gold)]
    parts += [_format_html_section(title, _format_html_plot(figure)) for title, figure in drawn]
    parts += [_format_stages_section(gold), _format_queues_section(gold, step), _format_pictures_section(gold)]
    parts += [
        _format_publishers_section(gold),
        _format_html_section("Endpoints", _format_html_table(data.read_endpoints(gold))),
    ]
    path.write_text(_fill_page_template("\n".join(parts)), encoding="utf-8")
    return summary


def _fill_page_template(body: str) -> str:
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    template = (files("msgq.lake.report") / "report.html").read_text(encoding="utf-8")
    return template.replace("{{plotly}}", script).replace("{{body}}", body)


def _format_html_section(title: str, *parts: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def _format_html_plot(figure: str | None) -> str:
    if figure is None:
        return "<p>There is nothing to show.</p>"
    script = figure.replace("</", "<\\/")
    return f'<div class="plot"><script type="application/json">{script}</script></div>'


def _format_stages_section(gold: GoldReader) -> str:
    """Return the section about stages; "": none."""
    rows = data.read_stages(gold)
    return (
        _format_html_section("Stages", _format_html_plot(plots.plot_stages(rows)), _format_html_table(rows))
        if rows
        else ""
    )


def _format_queues_section(gold: GoldReader, step: int) -> str:
    """Return the section about work queues; "": none."""
    rows = data.read_queues(gold)
    if not rows:
        return ""
    steps = data.read_queue_timelines(gold, [row["queue"] for row in rows[:_PLOTTED_QUEUES_MAX]], step)
    return _format_html_section(
        "Queues",
        _format_html_plot(plots.plot_queue_times(steps)),
        _format_html_plot(plots.plot_backlogs(steps)),
        _format_html_table(rows),
    )


def _format_publishers_section(gold: GoldReader) -> str:
    """Return the section about publishers of endpoints with several publishers; "": none."""
    rows = data.read_publishers(gold)
    return _format_html_section("Publishers", _format_html_table(rows)) if rows else ""


def _format_page_header(summary: dict[str, Any]) -> str:
    items = {
        "runs": summary["runs"],
        "endpoints": summary["endpoints"],
        "messages": summary["messages"],
        "lost": summary["lost"],
        "checks failed": f"{summary['failed']} of {summary['checks']}",
    }
    facts = "".join(f"<span><b>{_format_number(value)}</b> {name}</span>" for name, value in items.items())
    span = f"<span>{_format_time(summary['begin'])} to {_format_time(summary['end'])}</span>"
    return f'<header><h1>msgq</h1><p class="facts">{span}{facts}</p></header>'


def _format_checks_section(gold: GoldReader) -> str:
    kinds, failed = data.read_checks(gold, _LISTED_CHECKS_MAX)
    sums = [{**row, "": "failed" if row["failed"] else "passed"} for row in kinds]
    return f"<section><h2>Checks</h2>{_format_html_table(sums)}{_format_html_table(failed)}</section>"


def _format_pictures_section(gold: GoldReader) -> str:
    """Return the section with pictures; "": none."""
    try:
        images = choose_pictures(gold)
    except ModuleNotFoundError:
        return _format_html_section("Pictures", "<p>They need OpenCV to be shown: pip install 'msgq-bus[frames]'</p>")
    shown = [
        f'<figure><img alt="" src="data:image/jpeg;base64,{base64.b64encode(row["picture"]).decode()}">'
        f"<figcaption>{html.escape(row['endpoint'])}<br>{_format_time(row['log_time'])}</figcaption></figure>"
        for row in images
    ]
    return f'<section><h2>Pictures</h2><div class="pictures">{"".join(shown)}</div></section>' if shown else ""


def _format_html_table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{_format_number(value)}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _format_number(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))


def _format_time(time: int | None) -> str:
    if time is None:
        return "-"
    return f"{datetime.fromtimestamp(time // NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"
