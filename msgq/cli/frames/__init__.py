"""`msgq frames`: lists frame servers of this machine, shows and saves their pictures, and measures their rates."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_FRAMES_COMMANDS = ("bench", "list", "save", "view")


@click.group(cls=LazyCommandGroup, verb="frames", names=_FRAMES_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """List, view, save and measure shared frames (visionipc)."""
