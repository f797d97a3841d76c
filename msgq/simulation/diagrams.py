"""Sequence diagrams of simulations: Mermaid text, SVG pictures, and an HTML page with both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from msgq.simulation.trace import EVENT_VERBS, EventWindow, SimulationEvent

_LANE_WIDTH, _ROW_HEIGHT, _TIME_WIDTH = 220, 30, 70  # pixels
_HEADER_HEIGHT, _MARGIN, _RIGHT_MARGIN = 92, 16, 110
_CHARACTER_WIDTH = 6.7  # width of a character of the monospace font at 11 px
_ARRIVAL_KINDS = ("arrive", "take")
_SVG_STYLE = """<style>
svg { background: #ffffff } text { font: 11px monospace; fill: #212529 } .title { font-weight: bold }
.lane { stroke: #ced4da } .arrow { stroke: #1c7ed6; fill: #1c7ed6 } .fault { stroke: #e03131; fill: #e03131 }
line.fault { stroke-dasharray: 4 3 } .marked { fill: #ffe3e3 } .dot { fill: #868e96 }
</style>"""
_PAGE_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Simulation</title>
<style>body {{ font-family: sans-serif; margin: 2em }} pre {{ overflow-x: auto }}</style>
</head>
<body>
<h1>Simulation: failing and passing run</h1>
<pre>{text}</pre>
{svg}
<h2>Mermaid</h2>
<pre>{mermaid}</pre>
</body>
</html>
"""


def draw_mermaid(window: EventWindow, marked: int | None, difference: str) -> str:
    """Return a sequence diagram in the language of Mermaid.

    Args:
        window: events to show.
        marked: place of the event with a coloured background; None: no event.
        difference: text above the marked event.
    """
    lanes = _find_lanes([window])
    names = {lane: f"p{number}" for number, lane in enumerate(lanes)}
    ends = f"{names[lanes[0]]},{names[lanes[-1]]}" if lanes else ""
    lines = ["sequenceDiagram", *(f"    participant {name} as {_quote_mermaid(lane)}" for lane, name in names.items())]
    time_ns = None
    for place, event in enumerate(window.events):
        if event.time_ns != time_ns:
            lines.append(f"    Note over {ends}: {event.seconds} s")
            time_ns = event.time_ns
        if place == marked:
            lines += ["    rect rgb(255, 227, 227)", f"    Note over {ends}: {_quote_mermaid(difference)}"]
        source, target = (names[lane] for lane in _find_ends(event))
        arrow = "->>" if event.kind in _ARRIVAL_KINDS else "--x"
        start = f"    Note over {target}" if source == target else f"    {source}{arrow}{target}"
        lines.append(f"{start}: {_quote_mermaid(_make_label(event))}")
        if place == marked:
            lines.append("    end")
    return "\n".join(lines) + "\n"


def _quote_mermaid(text: str) -> str:
    """Return a text with Mermaid's codes for the characters that have a meaning there."""
    return re.sub(r"[#;<>&]", lambda found: f"#{ord(found[0])};", text)


def draw_svg(windows: Sequence[EventWindow], titles: Sequence[str], marked: int | None, difference: str) -> str:
    """Return sequence diagrams side by side as an SVG picture. See `draw_mermaid`."""
    lanes = _find_lanes(windows)
    width = _TIME_WIDTH + _LANE_WIDTH * max(len(lanes), 1) + _RIGHT_MARGIN
    rows = max(len(window.events) for window in windows)
    height = _HEADER_HEIGHT + _ROW_HEIGHT * rows + _MARGIN
    size = f"{width * len(windows)} {height}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width * len(windows)}">',
        _SVG_STYLE,
    ]
    if marked is not None:
        y = _HEADER_HEIGHT + _ROW_HEIGHT * marked
        parts.append(f'<rect class="marked" x="0" y="{y}" width="100%" height="{_ROW_HEIGHT}"/>')
    parts.append(_draw_text(_MARGIN, 18, difference, "title"))
    for number, (window, title) in enumerate(zip(windows, titles, strict=True)):
        parts.append(f'<g transform="translate({width * number} 0)">')
        parts.append(_draw_text(_MARGIN, 42, title, "title", (width - _MARGIN) // _CHARACTER_WIDTH))
        parts += _draw_lanes(lanes, height)
        parts += _draw_events(window, lanes)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_lanes(lanes: Sequence[str], height: int) -> Iterable[str]:
    for lane in lanes:
        x = _find_x(lanes, lane)
        yield f'<line class="lane" x1="{x}" y1="{_HEADER_HEIGHT - 12}" x2="{x}" y2="{height - _MARGIN}"/>'
        yield _draw_text(x, _HEADER_HEIGHT - 20, lane, "title", _LANE_WIDTH // _CHARACTER_WIDTH, "middle")


def _draw_events(window: EventWindow, lanes: Sequence[str]) -> Iterable[str]:
    time_ns = None
    for row, event in enumerate(window.events):
        y = _HEADER_HEIGHT + _ROW_HEIGHT * row + 22
        yield f"<g><title>{escape(str(event))}</title>"
        if event.time_ns != time_ns:
            yield _draw_text(4, y, f"{event.seconds} s", "", _TIME_WIDTH // _CHARACTER_WIDTH)
            time_ns = event.time_ns
        source, target = (_find_x(lanes, lane) for lane in _find_ends(event))
        if source == target:
            yield f'<circle class="dot" cx="{source}" cy="{y - 8}" r="4"/>'
        else:
            yield _draw_arrow("arrow" if event.kind in _ARRIVAL_KINDS else "fault", source, target, y)
        left = min(source, target) + 8
        room = max(abs(target - source), _LANE_WIDTH) - 20
        yield _draw_text(left, y - 5, _make_label(event), "", room // _CHARACTER_WIDTH)
        yield "</g>"


def _draw_arrow(style: str, source: int, target: int, y: int) -> str:
    back = -7 if target > source else 7
    return (
        f'<line class="{style}" x1="{source}" y1="{y}" x2="{target}" y2="{y}"/>'
        f'<path class="{style}" d="M{target} {y} l{back} -4 v8 z"/>'
    )


def _draw_text(x: float, y: float, text: str, style: str, most: float = 1000, anchor: str = "start") -> str:
    shown = text if len(text) <= most else text[: max(int(most) - 3, 1)] + "..."
    return f'<text class="{style}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(shown)}</text>'


def _find_x(lanes: Sequence[str], lane: str) -> int:
    return _TIME_WIDTH + _LANE_WIDTH // 2 + _LANE_WIDTH * lanes.index(lane)


def _find_lanes(windows: Iterable[EventWindow]) -> list[str]:
    """Return the nodes and shared endpoints, in the order of their first event."""
    return list(dict.fromkeys(lane for window in windows for event in window.events for lane in _find_ends(event)))


def _find_ends(event: SimulationEvent) -> tuple[str, str]:
    """Return where the arrow of an event starts and ends. Both are equal if the event has no arrow."""
    if event.kind == "take":
        return event.endpoint, event.node
    return event.sender or event.node, event.node


def _make_label(event: SimulationEvent) -> str:
    payload = f": {event.payload}" if event.payload else ""
    if event.kind in _ARRIVAL_KINDS:
        return event.message + payload
    return f"{event.message} {EVENT_VERBS[event.kind][0]}{payload}".lstrip()


def format_page(text: str, svg: str, mermaid: str) -> str:
    """Return an HTML page with a text, a picture and the text of a diagram."""
    return _PAGE_TEMPLATE.format(text=escape(text), svg=svg, mermaid=escape(mermaid))
