"""Options and texts that several verbs share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from msgq.cli.names import complete
from msgq.naming import endpoint_name

EXIT_CODES = "Exit codes: 0 all went well; 1 something failed, said in one line; 2 wrong usage."
EXIT_CODES_RUNNING = (
    "Ends by Ctrl-C or SIGTERM, quietly. Exit codes: 0 all went well; 1 something failed, said in one line; "
    "2 wrong usage; 3 nothing came within --timeout."
)
EXIT_TIMEOUT = 3

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _checked(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A prefix becomes the name of a directory: it must not lead out of /dev/shm."""
    return endpoint_name(value, "prefix") if value else value


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of a table.")
prefix = click.option(
    "--prefix", metavar="NAME", callback=_checked, help="The prefix to look under.  [default: $OPENPILOT_PREFIX]"
)
endpoint = click.argument("endpoint", shell_complete=complete)
endpoints = click.argument("endpoints", nargs=-1, metavar="[NAME|REGEX]...", shell_complete=complete)
some_endpoints = click.argument(
    "endpoints", nargs=-1, required=True, metavar="NAME|REGEX...", shell_complete=complete
)
count = click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many.")
once = click.option("--once", is_flag=True, help="The same as -n 1.")
timeout = click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS",
    help="Give up when nothing comes for so long.  [default: wait for ever]",
)  # fmt: skip


def interval(default: float, text: str = "Seconds between two lines.") -> Callable[[_Command], _Command]:
    """The option for how long a measurement takes."""
    kind = click.FloatRange(0.01, 86400.0)
    return click.option("--interval", type=kind, default=default, show_default=True, metavar="SECONDS", help=text)
