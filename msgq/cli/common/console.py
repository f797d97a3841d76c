"""Output that changes on the screen, and tables of rich. All functions escape texts of other programs.

The functions here import rich. To print lines, use `render.py`, which is imported faster.
"""

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from msgq.common.terminal import escape_terminal

# Wide enough for every table: what a pipe or a file receives is not folded at 80 columns.
_PLAIN_WIDTH_COLUMNS = 160


class _EscapingConsole(Console):
    """A console that escapes all control characters except its own, and does not interpret markup.

    If the reader of the output closes the pipe, the command ends as it does with plain output.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Return the displayed form of a string. Tables also measure it."""
        return super().render_str(escape_terminal(text), **options | {"markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return the segments of a line, and the console's own control sequences. All other text is escaped."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                text = "\n".join(map(escape_terminal, segment.text.split("\n")))
                segment = Segment(text, segment.style)
            yield segment

    def on_broken_pipe(self) -> None:
        """End the command as click does."""
        raise BrokenPipeError


class _CursorConsole(_EscapingConsole):
    """A console that never hides the cursor, because a killed process cannot show the cursor again."""

    def show_cursor(self, show: bool = True) -> bool:
        """Do nothing, and return False."""
        return False


def get_console() -> Console:
    """Return the console of the standard output: as wide as the terminal, or without line wrapping."""
    terminal = _EscapingConsole(highlight=False)
    return terminal if terminal.is_terminal else _EscapingConsole(width=_PLAIN_WIDTH_COLUMNS, highlight=False)


def get_progress_console() -> Console:
    """Return a console of the standard error for a line that changes."""
    return _CursorConsole(highlight=False, stderr=True)


def style_text(text: str, style: str) -> Text:
    """Return a text of one line in a style, such as "green"."""
    return Text(escape_terminal(text), style)


def join_display_lines(lines: Iterable[str]) -> Text:
    """Return the lines as one text for the console."""
    return Text("\n".join(map(escape_terminal, lines)))
