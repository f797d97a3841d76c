"""Groups of subcommands: `msgq bag info`, `msgq lake sql`."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from msgq.cli.common.other_names import describe_unknown_command

_WRONG_USAGE_EXIT_CODE = 2


class CommandGroup(click.Group):
    """A group whose error for an unknown command names the right command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without arguments, print the help on the standard error, and end with exit code 2."""
        if not args and not ctx.resilient_parsing:  # click raises the help as an error: echo_error prints one line
            from msgq.cli.common.render import echo  # imported late: rich takes longer than all other imports

            for line in ctx.get_help().splitlines():
                echo(line, err=True)
            ctx.exit(_WRONG_USAGE_EXIT_CODE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name."""
        is_word = args[0][:1].isalnum()  # an option's error is click's
        if is_word and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            words = [] if ctx.parent is None else [ctx.info_name or ""]
            raise click.UsageError(describe_unknown_command(words, args, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


class LazyCommandGroup(CommandGroup):
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
