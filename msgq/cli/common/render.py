"""How the verbs show things: all that the command prints goes through here. Units for people, JSON for programs.

Names, schemas, payloads and texts come from anybody, and a terminal obeys what is in them. `escape_terminal` stands
between. It is applied where things are printed, so that no verb has to think of it; a test sees to it that no verb
prints in another way.
"""

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
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
    """Print one line. A line feed within it is not ours, and escaped as all else that is not printable.

    Parameters
    ----------
    text : the line.
    err : whether it goes to the standard error.
    """
    click.echo(escape_terminal(text), err=err)


def echo_bytes(data: bytes) -> None:
    """Write bytes as they are to the standard output, for programs: a terminal would obey them.

    Raises
    ------
    click.UsageError : there is a terminal.
    """
    require_no_terminal("raw bytes")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_awaited_endpoints(texts: Sequence[str]) -> None:
    """Print the names and patterns that no endpoint matches yet to the standard error."""
    if texts:
        echo(f"msgq: no endpoint matches {', '.join(texts)} yet; waiting", err=True)


def print_left_out(text: str) -> None:
    """Print the reason why an endpoint is not shown to the standard error."""
    echo(f"msgq: left out: {text}", err=True)


def require_no_terminal(name: str) -> TextIO:
    """Return the standard output, for what programs read.

    Raises
    ------
    click.UsageError : there is a terminal.
    """
    if sys.stdout.isatty():
        raise click.UsageError(
            f"{name} can contain control characters for the terminal; redirect the output to a file or a pipe"
        )
    return sys.stdout


def echo_error(error: click.ClickException) -> None:
    """Say on the standard error what went wrong, in one line; above it how the verb is used, if that was wrong."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is not None:
        for line in context.get_usage().splitlines():
            echo(line, err=True)
        echo(f"Try '{context.command_path} {context.help_option_names[-1]}' for help.", err=True)
        echo("", err=True)
    echo(f"Error: {' '.join(error.format_message().split())}", err=True)


class _EscapingConsole(Console):
    """Prints no control characters but its own, and takes no text for markup.

    Its reader may go away: the command ends then as it does with plain output.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        """Return what a string looks like; tables measure it, too."""
        return super().render_str(escape_terminal(text), **options | {"markup": False, "emoji": False})

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Return pieces of a line, and the console's own commands; whatever had another way here is escaped, too."""
        for segment in super().render(renderable, options):
            if segment.control is None and not segment.text.isprintable():
                text = "\n".join(map(escape_terminal, segment.text.split("\n")))
                segment = Segment(text, segment.style)
            yield segment

    def on_broken_pipe(self) -> None:
        """End as click does."""
        raise BrokenPipeError


def get_console() -> Console:
    """The standard output: as wide as the terminal, or unfolded where there is none."""
    terminal = _EscapingConsole(highlight=False)
    return terminal if terminal.is_terminal else _EscapingConsole(width=_PLAIN_WIDTH_COLUMNS, highlight=False)


@contextmanager
def show_byte_progress(total: int) -> Iterator[Callable[[int], object]]:
    """Give a function that takes how many more bytes of `total` were read; a terminal shows it, as standard error."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

    terminal = _EscapingConsole(highlight=False, stderr=True)
    if not terminal.is_terminal:
        yield lambda _: None
        return
    columns = (BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=terminal, transient=True) as bar:
        task = bar.add_task("", total=total)
        yield partial(bar.advance, task)


def style_text(text: str, style: str) -> Text:
    """Return a text of one line with a colour for the console, as "green"."""
    return Text(escape_terminal(text), style)


def join_display_lines(lines: Iterable[str]) -> Text:
    """Return lines, one below the other, for the console."""
    return Text("\n".join(map(escape_terminal, lines)))


def echo_json(value: Any) -> None:
    """Print a dataclass or a plain value as one line of JSON, all ASCII; bytes as base64, NaN and infinities as text.

    Halves of surrogate pairs are escaped, as all that is not ASCII.
    """
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    click.echo(format_json_text(plain))
