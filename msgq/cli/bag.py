"""`msgq bag`: looks into recordings, repairs them, and makes other files of them."""

from importlib import import_module

import click

from msgq.cli import options

_MODULES = {"info": "bag_info", "recover": "bag_recover", "merge": "bag_merge", "filter": "bag_filter",
            "cut": "bag_cut", "diff": "bag_diff", "convert": "bag_convert"}  # fmt: skip


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        found: click.Command = import_module(f"msgq.cli.{_MODULES[cmd_name]}").command
        return found


@click.group(cls=_Commands, epilog=options.EXIT_CODES)
def command() -> None:
    """Look into recordings, repair them, and make other files of them.

    A LOG is an MCAP file, of msgq or of anybody, or a directory of segments. Truncated ones are read as they are.
    """
