"""`msgq frames`: the servers of frames on this machine, their pictures, and how fast they go."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import Group

_COMMANDS = ("bench", "list", "save", "view")


@click.group(cls=Group, verb="frames", names=_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Look at the frames that processes of this machine share (visionipc)."""
