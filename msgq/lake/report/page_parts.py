"""Pieces of the page: sections, plots, tables, numbers and times as HTML."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from msgq.common.units import NS_PER_MS, NS_PER_S

_DURATION_UNITS = ((NS_PER_S, "s"), (NS_PER_MS, "ms"), (1000, "us"), (1, "ns"))


def format_html_section(title: str, *parts: str) -> str:
    """Return a section. `parts` are HTML."""
    return f"<section><h2>{html.escape(title)}</h2>{''.join(parts)}</section>"


def format_html_plot(figure: str | None, endpoint: str | None = None, is_over_time: bool = True) -> str:
    """Return a plot.

    Args:
        figure: plotly figure as JSON; None: there is nothing to show.
        endpoint: the plot shows only this endpoint, so only marks of this endpoint are added.
        is_over_time: the horizontal axis is time. Such plots have marks, and are zoomed together.
    """
    if figure is None:
        return "<p>There is nothing to show.</p>"
    time = (" data-time" if is_over_time else "") + (f' data-endpoint="{html.escape(endpoint)}"' if endpoint else "")
    return f'<div class="plot"{time}>{format_json_script(figure)}</div>'


def format_json_script(json_text: str, name: str = "") -> str:
    """Return a script element with data. `name`: id of the element."""
    text = json_text.replace("</", "<\\/")
    return f'<script type="application/json"{f" id={name}" if name else ""}>{text}</script>'


def format_html_table(
    rows: Sequence[dict[str, Any]], titles: Mapping[str, str] | None = None, options: str = ""
) -> str:
    """Return a table. `titles`: headings by key; other headings are the keys. `options`: attributes of the table."""
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape((titles or {}).get(name, name))}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{format_number(value)}</td>" for value in row.values()) + "</tr>" for row in rows
    )
    table = f"<table{options}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class="table" tabindex="0">{table}</div>'


def format_number(value: Any) -> str:
    """Return a number or text as HTML; "-" for None."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if value < 1000 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else html.escape(str(value))


def format_time(time: int | None) -> str:
    """Return a date and time in UTC, with seconds; "-" for None."""
    if time is None:
        return "-"
    return f"{datetime.fromtimestamp(time // NS_PER_S, UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_clock_time(time: int, span: tuple[int, int]) -> str:
    """Return a time in UTC with tenths of a second. If the span has several days, return the date, too."""
    days = {datetime.fromtimestamp(edge // NS_PER_S, UTC).date() for edge in span}
    shown = datetime.fromtimestamp(time // NS_PER_S, UTC)
    clock = f"{shown:%H:%M:%S}.{time % NS_PER_S // (NS_PER_S // 10)}"
    return clock if len(days) == 1 else f"{shown:%Y-%m-%d} {clock}"


def format_iso_time(time_ms: int) -> str:
    """Return a time in UTC with milliseconds, as commands and plots read it."""
    time = datetime.fromtimestamp(time_ms // 1000, UTC)
    return f"{time:%Y-%m-%dT%H:%M:%S}.{time_ms % 1000:03}Z"


def format_duration(duration_ns: float) -> str:
    """Return a duration with three digits and a unit: "50.1 ms", "1,200 s"."""
    unit, name = next((unit for unit in _DURATION_UNITS if abs(duration_ns) >= unit[0]), _DURATION_UNITS[-1])
    value = duration_ns / unit
    return f"{value:,.0f} {name}" if abs(value) >= 100 or unit == 1 else f"{value:.3g} {name}"
