"""The display of `msgq top`: a sorted table of endpoints that scrolls and filters."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from msgq.cli.common.columns import (
    LOST_RANK,
    NAME_RANK,
    OTHER_RANK,
    RATE_RANK,
    TableColumn,
    choose_columns,
    raise_sort_rank,
)
from msgq.cli.common.keyboard import BACKSPACE, DOWN, END, ENTER, ESCAPE, HOME, PAGE_DOWN, PAGE_UP, UP
from msgq.cli.common.shortening import shorten_text
from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.texts import format_count_noun
from msgq.kinds.stats import AnyEndpointRow, sum_known_values

_SPARKLINE_BARS = "▁▂▃▄▅▆▇█"
_SPARKLINE_POLLS = 16  # polls that a sparkline shows
_HEAD_LINES = 2  # above the rows
_RowColumn = TableColumn[AnyEndpointRow]


@dataclass(frozen=True)
class SortOrder:
    """An order of the endpoints: its name, its key, and the title of its column."""

    name: str
    get_key: Callable[[AnyEndpointRow], float | str]
    title: str


#: Functions by the keys of the keyboard.
SORT_KEYS = {
    "n": SortOrder("name", lambda row: row.endpoint, "endpoint"),
    "k": SortOrder("kind", lambda row: row.kind, "kind"),
    "r": SortOrder("rate", lambda row: -(row.rate or 0), "messages/s"),
    "b": SortOrder("bytes", lambda row: -(row.byte_rate or 0), "bytes/s"),
    "l": SortOrder("lost", lambda row: -(row.lost_rate or 0), "lost/s"),
    "s": SortOrder("subscribers", lambda row: -(row.live_subscriber_count or 0), "subs"),
    "m": SortOrder("memory", lambda row: -row.memory, "memory"),
}
_SORT_ORDERS = {order.name: order for order in SORT_KEYS.values()}


class EndpointDisplay:
    """Rows of endpoints, with an order, a filter, and a position in the list.

    Attributes:
        rows: the sorted rows that match the filter.
        is_filter_open: True while the user writes the filter.
    """

    def __init__(self, sort: str) -> None:
        self._order = _SORT_ORDERS[sort]
        self._all_rows: Sequence[AnyEndpointRow] = ()
        self._history: dict[str, deque[float]] = {}
        self._filter_text = ""
        self._first_row = 0
        self.is_filter_open = False
        self.rows: list[AnyEndpointRow] = []

    def set_rows(self, rows: Sequence[AnyEndpointRow]) -> None:
        """Replace the rows by those of a new poll."""
        self._all_rows = rows
        former = self._history
        self._history = {}
        for row in rows:
            values = former.get(row.endpoint) or deque(maxlen=_SPARKLINE_POLLS)
            values.append(row.byte_rate or row.rate or 0)
            self._history[row.endpoint] = values
        self._select_rows()

    def handle_key(self, key: str, height: int) -> bool:
        """Apply a key of the keyboard. Return True if the display has changed.

        `height`: lines of the terminal.
        """
        if self.is_filter_open:
            return self._edit_filter(key)
        steps = {UP: -1, DOWN: 1, PAGE_UP: -self._page_rows(height), PAGE_DOWN: self._page_rows(height)}
        ends = {HOME: 0, END: len(self.rows)}
        if key in steps or key in ends:
            self._first_row = ends.get(key, self._first_row + steps.get(key, 0))
        elif key in SORT_KEYS:
            self._order, self._first_row = SORT_KEYS[key], 0
        elif key == "/":
            self.is_filter_open = True
        elif key == ESCAPE:
            self._filter_text = ""
        else:
            return False
        self._select_rows()
        return True

    def format_screen(self, width: int, height: int) -> list[str]:
        """Return the lines that fit on a terminal."""
        most = self._page_rows(height)
        self._first_row = max(0, min(self._first_row, len(self.rows) - most))
        last_row = self._first_row + most
        head, titles, *lines, foot = self._format_table(self.rows[self._first_row : last_row], width)
        places = f"; {self._first_row + 1} to {min(last_row, len(self.rows))}" if len(self.rows) > most else ""
        heads = [f"{head}{places}, scroll with the arrow keys" if places else head, f"{head}{places}", head]
        head = next((text for text in heads if cell_len(text) <= width), shorten_text(head, width))
        return [head, titles, *lines, *([foot] if foot else [])]

    def format_lines(self, width: int | None) -> list[str]:
        """Return the lines of all rows."""
        *lines, foot = self._format_table(self.rows, width)
        return [*lines, *([foot] if foot else [])]

    def _format_table(self, rows: Sequence[AnyEndpointRow], width: int | None) -> list[str]:
        """Return the totals, the titles, the rows, and the titles of the hidden columns."""
        columns = raise_sort_rank([*_DISPLAY_COLUMNS, *self._list_live_columns()], self._order.title)
        layout = choose_columns(columns, self.rows, width)
        return [self._format_totals(), layout.title_line, *map(layout.format_row, rows), layout.hidden_line]

    def _format_totals(self) -> str:
        rate = sum_known_values(row.rate for row in self.rows)
        byte_rate = sum_known_values(row.byte_rate for row in self.rows)
        count = format_count_noun(len(self.rows), "endpoint")
        if self.is_filter_open or self._filter_text:
            count = f"/{self._filter_text}{'_' if self.is_filter_open else ''}: {count} of {len(self._all_rows)}"
        return f"{count}, {format_rate(rate)} messages/s, {format_bytes(byte_rate)}/s; by {self._order.name}"

    def _list_live_columns(self) -> list[_RowColumn]:
        if not any(len(values) > 1 for values in self._history.values()):
            return []
        return [_RowColumn("activity", lambda row: draw_sparkline(self._history.get(row.endpoint, ())))]

    def _page_rows(self, height: int) -> int:
        """Return the number of rows on a terminal: all lines except the head, the foot and one free line."""
        return max(1, height - _HEAD_LINES - 2)

    def _edit_filter(self, key: str) -> bool:
        if key in (ENTER, ESCAPE):
            self.is_filter_open = False
            self._filter_text = self._filter_text if key == ENTER else ""
        elif key == BACKSPACE:
            self._filter_text = self._filter_text[:-1]
        elif key.isprintable():
            self._filter_text += key
        else:
            return False
        self._select_rows()
        return True

    def _select_rows(self) -> None:
        text = self._filter_text.casefold()
        self.rows = [row for row in self._all_rows if text in row.endpoint.casefold()]
        self.rows.sort(key=self._order.get_key)


_DISPLAY_COLUMNS = (
    _RowColumn("endpoint", lambda row: row.endpoint, NAME_RANK, text_width=24),
    _RowColumn("kind", lambda row: row.kind, width=7, text_width=7),
    _RowColumn("publisher", lambda row: row.publishers or "-", OTHER_RANK + 1, text_width=22),
    _RowColumn("subs", lambda row: format_count(row.live_subscriber_count)),
    _RowColumn("messages", lambda row: format_count(row.messages), width=9),
    _RowColumn("messages/s", lambda row: format_rate(row.rate), RATE_RANK),
    _RowColumn("bytes/s", lambda row: format_bytes(row.byte_rate), width=8),
    _RowColumn("lost/s", lambda row: format_rate(row.lost_rate), width=6),
    _RowColumn("lost", lambda row: format_count(row.lost), LOST_RANK, width=6),
    _RowColumn("memory", lambda row: format_bytes(row.memory), width=8),
    _RowColumn("note", lambda row: row.note_text, OTHER_RANK + 1, text_width=12),
)


def draw_sparkline(values: Sequence[float]) -> str:
    """Return the values as bars, scaled to the largest value."""
    most = max(values, default=0)
    return "".join(
        _SPARKLINE_BARS[int(value / most * (len(_SPARKLINE_BARS) - 1))] if most else _SPARKLINE_BARS[0]
        for value in values
    )
