"""`msgq lake`: recordings as tables, on Spark."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import Group

_COMMANDS = ("export", "ingest", "replay", "report", "sql", "stream")


@click.group(cls=Group, verb="lake", names=_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Make tables of recordings, and ask them.

    A LAKE is a directory, or a URI that the cluster knows. Spark runs on this machine, or where --master says.
    """
