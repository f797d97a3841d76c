"""Comparison of a failing run of a simulation with a passing run: the first difference, a text and pictures."""

from __future__ import annotations

from itertools import zip_longest
from pathlib import Path

from msgq.simulation.diagrams import draw_mermaid, draw_svg, format_page
from msgq.simulation.trace import EventWindow, SimulationEvent, Trace

_EVENTS_BEFORE = 5  # shown equal events before the first difference
_EVENTS_AFTER = 15  # shown events from the first difference on
_COLUMN_CHARACTERS = 58


class TraceComparison:
    """Events of a failing run beside events of a passing run.

    `str` returns both lists near the first difference as text. Without a passing run, it returns the last events.

    Args:
        failing: trace of a failing run of the program.
        passing: trace of a passing run of the same program; None: no run has passed.

    Attributes:
        first_difference: the first difference as a sentence: "1.0 s: withdraw arrives at ledger before deposit". "":
            there is no passing run, or a trace no longer has its first events.
    """

    def __init__(self, failing: Trace, passing: Trace | None = None) -> None:
        self._place: int | None = None  # number of equal events before the first difference
        if passing is not None and not (failing.left_out or passing.left_out):
            self._place = failing.count_common_events(passing)
        self._windows = [self._select_events(trace) for trace in (failing, passing) if trace is not None]
        self.first_difference: str = ""
        if passing is not None and self._place is not None:
            self.first_difference = _describe_difference(failing.events, passing.events, self._place)

    def _select_events(self, trace: Trace) -> EventWindow:
        """Return the events near the first difference; the last events if it is not known."""
        events = trace.events
        place = len(events) - _EVENTS_AFTER if self._place is None else self._place
        first, stop = max(place - _EVENTS_BEFORE, 0), place + _EVENTS_AFTER
        return EventWindow(
            trace.simulation, trace.left_out + first, events[first:stop], max(len(events) - max(stop, 0), 0)
        )

    def __str__(self) -> str:
        columns = [
            [title, *window.format_lines()] for title, window in zip(self._column_titles, self._windows, strict=True)
        ]
        if len(columns) == 1:
            return "\n".join(columns[0])
        marked = self._find_marked_event()
        marked_row = None if marked is None else marked + 1 + bool(self._windows[0].earlier)
        rows = [
            ("> " if row == marked_row else "  ") + "  ".join(map(_fit_cell, cells))
            for row, cells in enumerate(zip_longest(*columns, fillvalue=""))
        ]
        return "\n".join([*([self.first_difference] if self.first_difference else []), *map(str.rstrip, rows)])

    @property
    def _column_titles(self) -> list[str]:
        words = ("failing", "passing")
        return [f"{word}: {window.simulation}" for word, window in zip(words, self._windows, strict=False)]

    def _find_marked_event(self) -> int | None:
        """Return the place of the first difference in the shown events; None: it is not known."""
        return None if self._place is None else self._place - self._windows[0].earlier

    def to_mermaid(self) -> str:
        """Return the failing run near the first difference as a sequence diagram, in the language of Mermaid."""
        return draw_mermaid(self._windows[0], self._find_marked_event(), self.first_difference)

    def to_svg(self) -> str:
        """Return the sequence diagrams of both runs near the first difference, side by side, as an SVG picture."""
        return draw_svg(self._windows, self._column_titles, self._find_marked_event(), self.first_difference)

    def write_report(self, path: str | Path) -> None:
        """Write an HTML page with the lists and both diagrams. The page needs no other file, and no network."""
        Path(path).write_text(format_page(str(self), self.to_svg(), self.to_mermaid()), encoding="utf-8")


def _fit_cell(text: str) -> str:
    text = text if len(text) <= _COLUMN_CHARACTERS else text[: _COLUMN_CHARACTERS - 3] + "..."
    return text.ljust(_COLUMN_CHARACTERS)


def _describe_difference(failing: list[SimulationEvent], passing: list[SimulationEvent], place: int) -> str:
    """Return a sentence about the first difference, which is at this place."""
    repeated = {event.endpoint for event in (*failing, *passing) if event.number > 1}

    def subject(event: SimulationEvent) -> str:
        """Return the event's message or node. The number is useful only if the endpoint has several messages."""
        return event.message if event.endpoint in repeated else event.endpoint or event.node

    def sentence(event: SimulationEvent) -> str:
        return f"{event.seconds} s: {subject(event)} {event.predicate}"

    if place == len(failing) == len(passing):
        return "both runs have the same events, so their order is not the cause"
    if place == len(failing):
        return f"the failing run ends, and in the passing run, {sentence(passing[place])}"
    if place == len(passing):
        return f"{sentence(failing[place])}, after the end of the passing run"
    early, expected = failing[place], passing[place]
    if not (_contains_event(passing[place:], early) or _contains_event(failing[place:], expected)):
        return f"{sentence(early)}. In the passing run, {sentence(expected)}"
    follower = (
        subject(expected) if early.predicate == expected.predicate else f"{subject(expected)} {expected.predicate}"
    )
    return f"{sentence(early)} before {follower}"


def _contains_event(events: list[SimulationEvent], expected: SimulationEvent) -> bool:
    """Return True if the events contain the wanted one, at any time."""
    return any(event.identity == expected.identity for event in events)
