"""`msgq frames`: lists frame servers of this machine, shows and saves their pictures, and measures their rates."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_FRAMES_COMMANDS = {
    "bench": "Measure the transfer of NV12 frames between two processes.",
    "list": "List the frame servers in /tmp and their streams.",
    "save": "Save the next frames of a server to files.",
    "view": "Show the newest frames of a server in the terminal.",
}


@click.group(cls=LazyCommandGroup, package=__name__, short_helps=_FRAMES_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """List, view, save and measure shared frames (visionipc)."""
