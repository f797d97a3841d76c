"""The pictures of the page, in SVG: percentile curves of single calls, and the range of the rounds.

The pictures have a background of their own, and follow the colour scheme of the reader.
"""

import math
import textwrap
from collections.abc import Iterable, Sequence
from html import escape

from tools.bench import numbers
from tools.bench.adapters import FLOOR, OTHER, OURS
from tools.bench.report import format_figure
from tools.bench.summary import Row

COLORS = {
    OURS: "#e8590c",
    OTHER: "#495057",
    FLOOR: "#868e96",
    "stock": "#5c940d",
    "kickmsg": "#1c7ed6",
    "iceoryx2": "#2f9e44",
    "zmq-ipc": "#ae3ec9",
    "zmq-tcp": "#7048e8",
    "pipe": "#b08800",
    "posix_ipc": "#0c8599",
    "mp-queue": "#a9714b",
    "msgq-zmq": "#e64980",
    "topic": "#e8590c",
    "channel": "#1c7ed6",
    "queue": "#2f9e44",
    "seqlock": "#ae3ec9",
    "board": "#b08800",
}
STYLE = """<style>
.back { fill: #ffffff } text { fill: #212529 } .grid { stroke: #dee2e6 }
.curve { fill: none; stroke-width: 1.5 } .own { stroke-width: 3 } .floor { stroke-dasharray: 4 3 }
@media (prefers-color-scheme: dark) { .back { fill: #1e2129 } text { fill: #e9ecef } .grid { stroke: #495057 } }
</style>"""
COLUMNS = 2
PANEL_WIDTH, TITLE_HEIGHT, GAP = 380, 34, 16
CURVE_HEIGHT, LINE_HEIGHT, AXIS_HEIGHT = 170, 16, 18
LEFT, RIGHT = 56, 12
NAME_WIDTH, FIGURE_WIDTH = 74, 72
TITLE_CHARACTERS = 62
PERCENTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
UNITS = ((1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s"))


def draw_latencies(rows: Sequence[Row], systems: Sequence[str], title: str) -> str:
    """Return a picture with a panel for each row: the percentile curves of the calls, on logarithmic axes."""
    panels = [(_draw_curves(row, systems), TITLE_HEIGHT + CURVE_HEIGHT + AXIS_HEIGHT) for row in rows]
    return _draw_picture(panels, title, [system for system in systems if any(system in row.curves for row in rows)])


def draw_rounds(rows: Sequence[Row], systems: Sequence[str], title: str) -> str:
    """Return a picture with a panel for each row: the smallest, median and largest figure of the rounds."""
    panels = []
    for row in rows:
        shown = [system for system in systems if system in row.medians]
        height = TITLE_HEIGHT + LINE_HEIGHT * len(shown) + AXIS_HEIGHT
        panels.append((_draw_ranges(row, shown), height))
    return _draw_picture(panels, title)


def _draw_picture(panels: Sequence[tuple[list[str], int]], title: str, legend: Sequence[str] = ()) -> str:
    """Place the panels in columns, each row of panels as high as its highest one."""
    lines, top = [], GAP
    for number, system in enumerate(legend):
        left = GAP + number * 86
        lines.append(_line(left, top, left + 18, top, system))
        lines.append(_text(left + 22, top + 4, system))
    top += GAP * bool(legend)
    for first in range(0, len(panels), COLUMNS):
        group = panels[first : first + COLUMNS]
        for column, (panel, _) in enumerate(group):
            left = GAP + column * (PANEL_WIDTH + GAP)
            lines += [f'<g transform="translate({left} {top})">', *panel, "</g>"]
        top += max(height for _, height in group) + GAP
    width = GAP + COLUMNS * (PANEL_WIDTH + GAP)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top}" role="img"'
        ' font-family="sans-serif" font-size="11">'
    )
    back = f'<rect class="back" width="{width}" height="{top}"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, back, *lines, "</svg>", ""])


def _draw_curves(row: Row, systems: Sequence[str]) -> list[str]:
    curves = {system: row.curves[system] for system in systems if system in row.curves}
    times = [time for curve in curves.values() for time in curve.values()]
    low, high = _decades(times)
    bottom, width = TITLE_HEIGHT + CURVE_HEIGHT, PANEL_WIDTH - LEFT - RIGHT

    def across(share: float) -> float:
        return LEFT + width * -math.log10(1 - share) / 3

    def down(time: float) -> float:
        return bottom - CURVE_HEIGHT * (math.log10(time) - low) / (high - low)

    lines = _draw_title(row)
    for power in range(low, high + 1):
        lines.append(_grid(LEFT, down(10.0**power), LEFT + width, down(10.0**power)))
        lines.append(_text(LEFT - 6, down(10.0**power) + 4, _time_tick(10.0**power), "end"))
    for name, share in PERCENTILES.items():
        lines.append(_grid(across(share), TITLE_HEIGHT, across(share), bottom))
        lines.append(_text(across(share), bottom + 13, name, "middle"))
    for system, curve in reversed(curves.items()):  # msgq is drawn last, above the other curves
        points = " ".join(f"{across(share):.0f},{down(time):.1f}" for share, time in curve.items())
        lines.append(f'<polyline class="{_kind(system)}" stroke="{_color(system)}" points="{points}"/>')
    return lines


def _draw_ranges(row: Row, systems: Sequence[str]) -> list[str]:
    shown = [value for system in systems for value in row.rounds[system] if value > 0]
    low, high = _decades(shown)
    left, width = NAME_WIDTH, PANEL_WIDTH - NAME_WIDTH - FIGURE_WIDTH
    bottom = TITLE_HEIGHT + LINE_HEIGHT * len(systems)

    def across(value: float) -> float:
        return left + width * (math.log10(max(value, 10.0**low)) - low) / (high - low)

    lines = _draw_title(row)
    for power in range(low, high + 1):
        lines.append(_grid(across(10.0**power), TITLE_HEIGHT - 4, across(10.0**power), bottom))
        lines.append(_text(across(10.0**power), bottom + 10, _tick(row, 10.0**power), "middle"))
    for number, system in enumerate(systems):
        at, rounds, median = TITLE_HEIGHT + LINE_HEIGHT * number + 4, row.rounds[system], row.medians[system]
        lines.append(_text(left - 6, at + 4, system, "end"))
        lines.append(_line(across(min(rounds)), at, across(max(rounds)), at, system))
        lines.append(f'<circle cx="{across(median):.1f}" cy="{at}" r="4" fill="{_color(system)}"/>')
        lines.append(_text(PANEL_WIDTH, at + 4, format_figure(row.case, median), "end"))
    return lines


def _draw_title(row: Row) -> list[str]:
    parts = textwrap.wrap(row.case.title, TITLE_CHARACTERS)[:2]
    top = TITLE_HEIGHT - 11 - 13 * (len(parts) - 1)
    return [_text(0, top + 13 * number, part) for number, part in enumerate(parts)]


def _decades(values: Iterable[float]) -> tuple[int, int]:
    """Return two different powers of ten around the values, also without values."""
    positive = [value for value in values if value > 0] or [1.0]
    low = math.floor(math.log10(min(positive)))
    return low, max(math.ceil(math.log10(max(positive))), low + 1)


def _time_tick(value: float) -> str:
    scale, unit = next((each for each in reversed(UNITS) if value >= each[0]), UNITS[0])
    return f"{value / scale:g} {unit}"


def _tick(row: Row, value: float) -> str:
    if row.case.unit in ("ns", "worst", "cpu"):
        return _time_tick(value)
    return numbers.rate(value) if row.case.unit in ("rate", "cpu_rate") else f"{value:g}"


def _kind(system: str) -> str:
    return "curve" + {OURS: " own", FLOOR: " floor"}.get(system, "")


def _color(system: str) -> str:
    return COLORS.get(system, COLORS[OTHER])  # libraries of files have one colour


def _line(left: float, top: float, right: float, bottom: float, system: str) -> str:
    path = f"M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}"
    return f'<path class="{_kind(system)}" stroke="{_color(system)}" d="{path}"/>'


def _grid(left: float, top: float, right: float, bottom: float) -> str:
    return f'<path class="grid" d="M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}"/>'


def _text(left: float, top: float, text: str, anchor: str = "start") -> str:
    place = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{left:.1f}" y="{top:.1f}"{place}>{escape(text)}</text>'
