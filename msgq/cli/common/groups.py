"""Groups of subcommands: `msgq bag info`, `msgq lake sql`."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from msgq.cli.common.other_names import describe_unknown_command

_WRONG_USAGE_EXIT_CODE = 2


class LazyCommandGroup(click.Group):
    """Imports a subcommand from `PACKAGE.NAME` at its first use. The object is named `command`.

    The help page and shell completion list the subcommands without their import. The error for an unknown command
    names the right command.
    """

    def __init__(self, *arguments: Any, package: str, short_helps: Mapping[str, str], **options: Any) -> None:
        """Create the group.

        Args:
            package: import name of the package with a module for each subcommand.
            short_helps: first sentence of the help text of each subcommand, by name.
        """
        super().__init__(*arguments, **options)
        self.package, self.short_helps = package, short_helps

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the subcommands."""
        return list(self.short_helps)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand, with its name; None: no subcommand has this name."""
        if cmd_name not in self.short_helps:
            return None
        command: click.Command = import_module(f"{self.package}.{cmd_name}").command
        command.name = cmd_name
        return command

    def describe_command(self, name: str) -> str:
        """Return the text of a subcommand in lists."""
        return self.short_helps[name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of subcommands of the help page."""
        commands = self._make_listed_commands(ctx)
        limit = formatter.width - 6 - max(len(str(command.name)) for command in commands)  # 6: two indents, as in click
        with formatter.section("Commands"):
            formatter.write_dl([(str(command.name), command.get_short_help_str(limit)) for command in commands])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the subcommands and options that begin with `incomplete`."""
        listed = (command for command in self._make_listed_commands(ctx) if str(command.name).startswith(incomplete))
        items = [CompletionItem(command.name, help=command.get_short_help_str()) for command in listed]
        return items + click.Command.shell_complete(self, ctx, incomplete)

    def _make_listed_commands(self, ctx: click.Context) -> list[click.Command]:
        """Return commands with the names and texts of the subcommands. The commands do nothing."""
        return [click.Command(name, help=self.describe_command(name)) for name in self.list_commands(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. Without arguments, print the help on the standard error, and end with exit code 2."""
        if not args and not ctx.resilient_parsing:  # click raises the help as an error: echo_error prints one line
            from msgq.cli.common.render import echo  # only this error and the verbs print

            for line in ctx.get_help().splitlines():
                echo(line, err=True)
            ctx.exit(_WRONG_USAGE_EXIT_CODE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name."""
        is_word = args[0][:1].isalnum()  # an option's error is click's
        is_known = args[0] in self.short_helps or args[0] in self.list_commands(ctx)
        if is_word and not ctx.resilient_parsing and not is_known:
            words = [] if ctx.parent is None else [ctx.info_name or ""]
            raise click.UsageError(describe_unknown_command(words, args, self.list_commands(ctx)))
        return super().resolve_command(ctx, args)
