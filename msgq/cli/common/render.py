"""Lines of text for users, and JSON for programs. `console.py` has the output that changes on the screen.

Names, schemas, payloads and texts come from other programs, and could contain control sequences of terminals. All
functions here apply `escape_terminal` to their output. A test checks that no subcommand prints in another way.

This module does not import rich. The import of rich takes as long as the start of Python and the import of msgq.
"""

import dataclasses
import os
import sys
from typing import Any, TextIO

import click

from msgq.common.terminal import escape_terminal
from msgq.decoding.json_values import format_json_text


def echo(text: str, err: bool = False) -> None:
    """Print one line. Line feeds within it are escaped, like other unprintable characters.

    Args:
        text: the line.
        err: True: print on the standard error.
    """
    click.echo(escape_terminal(text), err=err)


def echo_status(status: str, style: str, text: str) -> None:
    """Print a status in a style, then a text, in one line.

    Args:
        style: name of a colour, such as "green".
    """
    click.echo(f"{click.style(escape_terminal(status), style)} {escape_terminal(text)}", color=_shows_styles())


def echo_title(text: str) -> None:
    """Print one line in bold."""
    click.echo(click.style(escape_terminal(text), bold=True), color=_shows_styles())


def is_terminal_output() -> bool:
    """Return True if the standard output is a terminal, or the user's environment demands output for terminals.

    The console of rich has the same rules.
    """
    if (compatible := os.environ.get("TTY_COMPATIBLE")) in ("0", "1"):
        return compatible == "1"
    force_color = os.environ.get("FORCE_COLOR")
    return sys.stdout.isatty() if force_color is None else force_color != ""


def _shows_styles() -> bool:
    is_plain = os.environ.get("TERM") in ("dumb", "unknown") or bool(os.environ.get("NO_COLOR"))
    return is_terminal_output() and not is_plain


def echo_bytes(data: bytes) -> None:
    """Write bytes unchanged to the standard output, for programs. A terminal could interpret them.

    Raises:
        click.UsageError: the standard output is a terminal.
    """
    require_no_terminal("raw bytes")
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def require_no_terminal(name: str) -> TextIO:
    """Return the standard output, for output that programs read.

    Raises:
        click.UsageError: the standard output is a terminal.
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


def echo_json(value: Any) -> None:
    """Print a dataclass or a plain value as one line of JSON in ASCII.

    Bytes are in base64, NaN and infinities are texts, and halves of surrogate pairs are escaped.
    """
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
    click.echo(format_json_text(plain))
