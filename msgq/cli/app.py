"""The subcommands of `msgq`, with lazy imports, one-line errors and quiet exits."""

import os
import signal
import sys
from importlib import import_module
from io import TextIOWrapper
from typing import Any, NoReturn

import click

from msgq import __version__
from msgq.cli.common.groups import CommandGroup
from msgq.cli.common.options import EXIT_CODES
from msgq.cli.common.other_names import describe_unknown_option
from msgq.common.optional import find_extra_of_package
from msgq.common.selection import InvalidPatternError
from msgq.errors import MsgqError

VERBS = (
    "bag",
    "bench",
    "bridge",
    "bw",
    "check",
    "clean",
    "delay",
    "demo",
    "doctor",
    "echo",
    "frames",
    "hz",
    "info",
    "lake",
    "list",
    "play",
    "pub",
    "record",
    "schema",
    "serve",
    "stages",
    "stat",
    "top",
    "version",
)
_SIGINT_EXIT_CODE = 130  # as a shell says it of what SIGINT ended


class _MissingExtraCommand(click.Command):
    """Placeholder of a subcommand whose extra is not installed. Other subcommands stay usable."""

    def __init__(self, name: str, missing: ImportError, extra: str) -> None:
        super().__init__(name, short_help=f"Not installed: needs msgq-bus[{extra}].")
        self._missing = missing

    def make_context(self, *_: Any, **__: Any) -> NoReturn:
        raise self._missing


class _VerbGroup(CommandGroup):
    """Imports a subcommand at its first use, so that `msgq version` does not load tables and telemetry."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        try:
            command: click.Command = import_module(f"msgq.cli.{cmd_name}").command
        except ImportError as missing:
            extra = find_extra_of_package(missing)
            if extra is None:
                raise
            return _MissingExtraCommand(cmd_name, missing, extra)
        return command

    def main(self, *arguments: Any, **options: Any) -> NoReturn:
        """Run a subcommand, and end the process. Errors are printed in one line."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")  # names that the locale has no letters for
        try:
            sys.exit(super().main(*arguments, **options | {"standalone_mode": False}))
        except click.ClickException as error:
            from msgq.cli.common.render import echo_error  # rich, which not all verbs need

            if isinstance(error, click.NoSuchOption):
                error = click.UsageError(describe_unknown_option(error), error.ctx)
            echo_error(error)
            sys.exit(error.exit_code)
        except click.Abort:  # Ctrl-C before there was a verb to notice it
            sys.exit(_SIGINT_EXIT_CODE)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except InvalidPatternError as error:
            raise click.UsageError(str(error)) from error
        except MsgqError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, lambda *_: os._exit(_SIGINT_EXIT_CODE))  # again, while all ends
            ctx.exit(_SIGINT_EXIT_CODE)
        except BrokenPipeError:  # who read our output has seen enough, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:  # a file that the user named, a full disk
            raise click.ClickException(str(error)) from error


@click.group(cls=_VerbGroup, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="msgq")
def app() -> None:
    """Inspect, record and test the message bus of this machine.

    An endpoint is a topic (NAME), a channel (channel/NAME), a work queue (queue/NAME), or a vector or board
    (records/NAME). A PATTERN is a regular expression that matches whole names.
    """
