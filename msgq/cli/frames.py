"""`msgq frames`: the servers of frames on this machine, their pictures, and how fast they go."""

import click

from msgq.cli import options
from msgq.cli.frames_bench import bench
from msgq.cli.frames_list import list_streams
from msgq.cli.frames_save import save
from msgq.cli.frames_view import view


@click.group(epilog=options.EXIT_CODES)
def command() -> None:
    """Look at the frames that processes of this machine share (visionipc)."""


for verb in (bench, list_streams, save, view):
    command.add_command(verb)
