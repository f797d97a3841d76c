"""Options and texts that several verbs share."""

import click

from msgq.naming import endpoint_name

EXIT_CODES = "Exit codes: 0 all went well; 1 something failed, said in one line; 2 wrong usage."


def _checked(_context: click.Context, _parameter: click.Parameter, value: str | None) -> str | None:
    """A prefix becomes the name of a directory: it must not lead out of /dev/shm."""
    return endpoint_name(value, "prefix") if value else value


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object a line instead of a table.")
prefix = click.option(
    "--prefix", metavar="NAME", callback=_checked, help="The prefix to look under.  [default: $OPENPILOT_PREFIX]"
)
