"""Groups of subcommands: `msgq bag info`, `msgq lake sql`."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click


class LazyCommandGroup(click.Group):
    """Imports a subcommand from `msgq.cli.VERB.NAME` at its first use. The object is named `command`."""

    def __init__(self, *arguments: Any, verb: str, names: Sequence[str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._verb, self._names = verb, names

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(self._names)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand; None: no subcommand has this name."""
        if cmd_name not in self._names:
            return None
        command: click.Command = import_module(f"msgq.cli.{self._verb}.{cmd_name}").command
        return command
