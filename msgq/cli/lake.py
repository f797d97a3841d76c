"""`msgq lake`: recordings as tables, on Spark."""

from importlib import import_module

import click

from msgq.cli import options

_COMMANDS = ("export", "ingest", "replay", "report", "sql", "stream")


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        found: click.Command = import_module(f"msgq.cli.lake_{cmd_name}").command
        return found


@click.group(cls=_Commands, epilog=options.EXIT_CODES)
def command() -> None:
    """Make tables of recordings, and ask them.

    A LAKE is a directory, or a URI that the cluster knows. Spark runs on this machine, or where --master says.
    """
