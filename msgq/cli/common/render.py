"""All output of the command: units for users, JSON for programs.

Names, schemas, payloads and texts come from other programs, and could contain control sequences of terminals. All
functions here apply `escape_terminal` to their output. A test checks that no subcommand prints in another way.
"""

import dataclasses
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from msgq.common.terminal import escape_terminal
from msgq.decoding.json_values import format_json_text

# Wide enough for every table: what a pipe or a file receives is not folded at 80 columns.
_PLAIN_WIDTH_COLUMNS = 160


def echo(text: str, err: bool = False) -> None:
    """Print one line. Line feeds within it are escaped, like other unprintable characters.

    Parameters
    ----------
    text : the line.
    err : True: print on the standard error.
    """
    click.echo(escape_terminal(text), err=err)


def echo_bytes(data: bytes) -> None:
    """Write bytes unchanged to the standard output, for programs. A terminal could interpret them.

    Raises
    ------
    click.UsageError : the standard output is a terminal.
    """
    require_no_terminal("raw bytes")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def require_no_terminal(name: str) -> TextIO:
    """Return the standard output, for output that programs read.

    Raises
    ------
    click.UsageError : the standard output is a terminal.
    """
    if sys.stdout.isatty():
        raise click.UsageError(
            f"{name} can contain control characters for the terminal; redirect the output to a file or a pipe"
        )
    return sys.stdout


def echo_error(error: click.ClickException) -> None:
    """Print an error in one line on the standard error. For wrong usage, the correct usage is printed before."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        for line in context.get_usage().splitlines():
            echo(line, err=True)
        echo(f"Try '{context.command_path} {context.help_option_names[-1]}' for help.", err=True)
        echo("", err=True)
    echo(f"Error: {' '.join(error.format_message().split())}", err=True)


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


def echo_json(value: Any) -> None:
    """Print a dataclass or a plain value as one line of JSON in ASCII.

    Bytes are in base64, NaN and infinities are texts, and halves of surrogate pairs are escaped.
    """
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    click.echo(format_json_text(plain))
