"""`msgq bag`: looks into recordings, repairs them, and makes other files of them."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_BAG_COMMANDS = (
    *("info", "list", "cat", "doctor", "recover", "reindex"),
    *("merge", "filter", "split", "diff", "convert", "attachments"),
)


@click.group(cls=LazyCommandGroup, verb="bag", names=_BAG_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Look into recordings, repair them, and make other files of them.

    A LOG is an MCAP file, of msgq or of anybody, or a directory of segments. Truncated ones are read as they are.
    """
