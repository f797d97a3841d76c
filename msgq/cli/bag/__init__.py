"""`msgq bag`: inspects, repairs, compares and converts recordings."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_BAG_COMMANDS = (
    *("info", "list", "cat", "doctor", "recover", "reindex"),
    *("merge", "filter", "split", "diff", "convert", "attachments"),
)


@click.group(cls=LazyCommandGroup, verb="bag", names=_BAG_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Inspect, repair, compare and convert recordings.

    A LOG is an MCAP file from any program, or a directory of segments. Several LOGS form one log. Truncated files are
    readable.
    """
