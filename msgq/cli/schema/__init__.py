"""`msgq schema`: compares schemas."""

import click

from msgq.cli.common import options
from msgq.cli.common.groups import LazyCommandGroup

_SCHEMA_COMMANDS = ("diff",)


@click.group(cls=LazyCommandGroup, verb="schema", names=_SCHEMA_COMMANDS, epilog=options.EXIT_CODES)
def command() -> None:
    """Compare the schemas of recordings and endpoints."""
