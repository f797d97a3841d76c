"""Tables with one line per row. On a terminal, the columns are chosen so that each line fits.

A terminal that is too narrow for all columns shows the columns with the lowest ranks. Text is shortened in the middle,
because most names differ at the beginning or at the end. A pipe or a file receives all columns and the whole text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rich.cells import cell_len

from msgq.cli.common.render import echo, echo_title, is_terminal_output
from msgq.cli.common.shortening import shorten_text, shorten_texts
from msgq.common.terminal import escape_terminal
from msgq.common.texts import format_count_noun

#: Text, or a sequence of names. A narrow column shows the first name and the number of other names.
CellContent = str | Sequence[str]
RowType = TypeVar("RowType")

# Ranks of columns, from the last to the first that a narrow terminal hides.
NAME_RANK, SORT_RANK, LOST_RANK, RATE_RANK, OTHER_RANK = range(5)

_COLUMN_SEPARATOR = "  "
_HEADER_PERIOD_LINES = 20  # lines


@dataclass(frozen=True)
class TableColumn(Generic[RowType]):
    """A column of a table.

    Attributes:
        title: title of the column.
        format_cell: takes a row; returns the content of the cell.
        rank: a narrow terminal hides the columns with the highest ranks. Of equal ranks, the right column is hidden
            first.
        width: smallest width, in characters of the terminal.
        text_width: None: numbers, on the right of the column, never shortened. Otherwise text, on the left, shortened
            to `text_width` characters before a column is hidden.
    """

    title: str
    format_cell: Callable[[RowType], CellContent]
    rank: int = OTHER_RANK
    width: int = 0
    text_width: int | None = None


@dataclass(frozen=True)
class TableLayout(Generic[RowType]):
    """The columns of a table that fit, with their widths.

    Attributes:
        columns: the columns.
        widths: their widths.
        hidden_titles: titles of the columns that do not fit.
        width: characters of a line; None: no limit.
        short_texts: for each column, the shortened texts of the rows by whole text. Other texts lose their middle.
    """

    columns: Sequence[TableColumn[RowType]]
    widths: Sequence[int]
    hidden_titles: Sequence[str] = ()
    width: int | None = None
    short_texts: Sequence[Mapping[str, str]] | None = None

    @property
    def title_line(self) -> str:
        """Line with the titles."""
        return self._join_cells([column.title for column in self.columns])

    @property
    def hidden_line(self) -> str:
        """Line that names the hidden columns; "": none is hidden."""
        if not self.hidden_titles or self.width is None:
            return ""
        count = format_count_noun(len(self.hidden_titles), "column")
        text = f"{count} {'does' if len(self.hidden_titles) == 1 else 'do'} not fit: {', '.join(self.hidden_titles)}"
        return text if len(text) <= self.width else f"{text[: self.width - 1]}…"

    def format_row(self, row: RowType) -> str:
        """Return the line of a row."""
        return self._join_cells([column.format_cell(row) for column in self.columns])

    def _join_cells(self, cells: Sequence[CellContent]) -> str:
        texts = []
        short_texts = self.short_texts or [{}] * len(cells)
        for column, width, cell, short in zip(self.columns, self.widths, cells, short_texts, strict=True):
            is_text = column.text_width is not None
            text = _fit_cell(cell, width, short) if is_text else escape_terminal(_join_names(cell))
            padding = " " * (width - cell_len(text))
            texts.append(text + padding if is_text else padding + text)
        return _COLUMN_SEPARATOR.join(texts).rstrip()


def choose_columns(
    columns: Sequence[TableColumn[RowType]], rows: Iterable[RowType], width: int | None
) -> TableLayout[RowType]:
    """Return the layout of a table.

    Args:
        columns: all columns.
        rows: rows whose content determines the widths.
        width: characters of a line; None: no limit.
    """
    every = [*rows]
    natural = [_measure_column(column, every) for column in columns]
    if width is None:
        return TableLayout(columns, natural)
    widths: dict[int, int] = {}
    remaining = width + len(_COLUMN_SEPARATOR)
    for index in sorted(range(len(columns)), key=lambda index: columns[index].rank):
        text_width = columns[index].text_width
        least = min(natural[index], width if text_width is None else text_width)
        if least + len(_COLUMN_SEPARATOR) <= remaining:
            widths[index] = least
            remaining -= least + len(_COLUMN_SEPARATOR)
    for index in widths:  # texts share the remaining width, the most important column first
        added = min(natural[index] - widths[index], remaining)
        widths[index] += added
        remaining -= added
    shown = sorted(widths)
    hidden = [column.title for index, column in enumerate(columns) if index not in widths]
    short_texts = [_shorten_column(columns[index], every, widths[index]) for index in shown]
    return TableLayout(
        [columns[index] for index in shown], [widths[index] for index in shown], hidden, width, short_texts
    )


def _shorten_column(column: TableColumn[RowType], rows: Sequence[RowType], width: int) -> dict[str, str]:
    """Return the shortened texts of a column by whole text."""
    if column.text_width is None:
        return {}
    texts = (escape_terminal(_join_names(column.format_cell(row))) for row in rows)
    return shorten_texts((text for text in texts if cell_len(text) > width), width)


def raise_sort_rank(columns: Sequence[TableColumn[RowType]], title: str) -> list[TableColumn[RowType]]:
    """Return the columns. A narrow terminal hides the column with this title only after all others, except the name."""
    return [
        replace(column, rank=min(column.rank, SORT_RANK)) if column.title == title else column for column in columns
    ]


def get_table_width() -> int | None:
    """Return the width of the terminal; None: the standard output is a pipe or a file."""
    if not is_terminal_output():
        return None
    from shutil import get_terminal_size  # pipes and files need no width

    return get_terminal_size().columns


def format_table(columns: Sequence[TableColumn[RowType]], rows: Sequence[RowType]) -> list[str]:
    """Return the lines of a table: titles, rows, and the titles of the columns that do not fit."""
    layout = choose_columns(columns, rows, get_table_width())
    return [layout.title_line, *map(layout.format_row, rows), *([layout.hidden_line] if layout.hidden_titles else [])]


def print_table(columns: Sequence[TableColumn[RowType]], rows: Sequence[RowType]) -> None:
    """Print a table, and the titles of the columns that do not fit."""
    title, *lines = format_table(columns, rows)
    echo_title(title)
    for line in lines:
        echo(line)


class StreamingTable(Generic[RowType]):
    """A table for rows that arrive one by one. The titles are repeated every 20 lines."""

    def __init__(self, columns: Sequence[TableColumn[RowType]]) -> None:
        self._columns = columns
        self._layout: TableLayout[RowType] | None = None
        self._width: int | None = None
        self._line_count = 0

    def print_rows(self, rows: Sequence[RowType]) -> None:
        """Print rows. If the width of the terminal has changed, the columns are chosen again."""
        width = get_table_width()
        for row in rows:
            if self._layout is None or self._line_count % _HEADER_PERIOD_LINES == 0 or width != self._width:
                self._print_header(rows, width)
            assert self._layout is not None
            echo(self._layout.format_row(row))
            self._line_count += 1

    def _print_header(self, rows: Sequence[RowType], width: int | None) -> None:
        before = self._layout.hidden_titles if self._layout is not None else ()
        self._layout, self._width = choose_columns(self._columns, rows, width), width
        echo_title(self._layout.title_line)
        if self._layout.hidden_titles and self._layout.hidden_titles != before:
            echo(self._layout.hidden_line)


def _measure_column(column: TableColumn[RowType], rows: Sequence[RowType]) -> int:
    cells = (cell_len(escape_terminal(_join_names(column.format_cell(row)))) for row in rows)
    return max(column.width, cell_len(column.title), *cells, 0)


def _join_names(cell: CellContent) -> str:
    return cell if isinstance(cell, str) else ", ".join(cell)


def _fit_cell(cell: CellContent, width: int, short_texts: Mapping[str, str]) -> str:
    """Return the content in at most `width` characters."""
    joined = escape_terminal(_join_names(cell))
    if isinstance(cell, str) or len(cell) == 1 or cell_len(joined) <= width:
        return short_texts.get(joined) or shorten_text(joined, width)
    others = f" +{len(cell) - 1}"
    return shorten_text(escape_terminal(cell[0]), max(1, width - len(others))) + others
