"""`msgq schema`: compares schemas."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_SCHEMA_COMMANDS = {
    "diff": "Compare the schemas of recordings or endpoints.",
}


@click.group(cls=LazyCommandGroup, package=__name__, short_helps=_SCHEMA_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Compare the schemas of recordings and endpoints."""
