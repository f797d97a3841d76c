"""The subcommands of `msgq`, with lazy imports, one-line errors and quiet exits."""

import os
import signal
import sys
from functools import cached_property
from io import TextIOWrapper
from typing import Any, NoReturn, TextIO

import click

from msgq import __version__
from msgq.cli.common.groups import LazyCommandGroup
from msgq.cli.common.interruption import forget_signals, get_interruption_exit_code
from msgq.cli.common.options import EXIT_CODES
from msgq.cli.common.other_names import describe_unknown_option
from msgq.common.optional import is_extra_installed
from msgq.common.plugins import Plugin, find_plugins
from msgq.common.selection import InvalidPatternError
from msgq.errors import MsgqError, PluginError

#: Verbs, with the first sentences of their help texts. The help page shows them without an import of each verb.
VERBS = {
    "bag": "Inspect, repair, compare and convert recordings.",
    "bench": "Measure latency and throughput of the ring on this machine.",
    "bridge": "Forward topics and channels between hosts through ZMQ.",
    "bw": "Measure bandwidth in bytes/s, and message sizes.",
    "check": "Compare endpoints with the expectations in a TOML file.",
    "clean": "Remove unused files of topics and channels.",
    "delay": "Measure the age of messages on arrival, in microseconds.",
    "demo": "Demonstrate msgq with the telemetry of this machine.",
    "doctor": "Check msgq on this machine, and find dead participants.",
    "echo": "Print new messages, decoded by the schema of the endpoint.",
    "frames": "List, view, save and measure shared frames (visionipc).",
    "hz": "Measure message rates, and the time between messages.",
    "info": "Show files, schema, publishers and subscribers of endpoints.",
    "lake": "Create tables from recordings, and query the tables.",
    "list": "List the endpoints of this machine.",
    "play": "Play recordings with the original timing.",
    "pub": "Publish MESSAGE, a file, or lines of the standard input.",
    "record": "Record endpoints into MCAP files.",
    "schema": "Compare the schemas of recordings and endpoints.",
    "serve": "Show the bus live in a browser, Foxglove or Lichtblick.",
    "stages": "Show waiting times, processing times and ages of stages.",
    "stat": "Print totals of all endpoints, one line per second.",
    "top": "Show a live table of endpoints with rates and losses.",
    "version": "Show the versions of msgq, Python and the system.",
}
#: Extras without which a verb cannot run. All verbs also need the extra `cli`. Lists of verbs name a missing extra.
_NEEDED_EXTRAS = {"bag": "record", "play": "record", "record": "record"}


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning in one line, without the place in the code. For `warnings.showwarning`."""
    from msgq.cli.common.render import echo  # rich, which not all verbs need

    echo(f"msgq: {message}", err=True)


class _VerbGroup(LazyCommandGroup):
    """The verbs, and those of plug-ins (entry points "msgq.commands"). Errors are printed in one line."""

    @cached_property
    def _verb_plugins(self) -> dict[str, Plugin]:
        """Verbs of other distributions by name. The library's own verbs have priority."""
        return {plugin.name: plugin for plugin in find_plugins("msgq.commands") if plugin.name not in VERBS}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the verbs."""
        return [*super().list_commands(ctx), *self._verb_plugins]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a verb; None: no verb has this name."""
        command = super().get_command(ctx, cmd_name)
        if command is not None or cmd_name not in self._verb_plugins:
            return command
        try:
            return self._load_verb(self._verb_plugins[cmd_name])
        except PluginError:
            if ctx.resilient_parsing:  # shell completion, which knows no options of this verb
                return click.Command(cmd_name)
            raise

    def _load_verb(self, plugin: Plugin) -> click.Command:
        loaded = plugin.load()
        if not isinstance(loaded, click.Command):
            raise plugin.make_error(f"object is of type {type(loaded).__name__}, not click.Command")
        return loaded

    def describe_command(self, name: str) -> str:
        """Return the text of a verb in lists. The text of an unusable verb names the missing extra."""
        if name not in VERBS:
            return f"From {self._verb_plugins[name].distribution}."
        extra = _NEEDED_EXTRAS.get(name)
        if extra is None or is_extra_installed(extra):
            return super().describe_command(name)
        return f"Not installed: needs msgq-bus[{extra}]."

    def main(self, *arguments: Any, **options: Any) -> NoReturn:
        """Run a subcommand, and end the process. Errors are printed in one line."""
        forget_signals()
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
            sys.exit(get_interruption_exit_code())

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except InvalidPatternError as error:
            raise click.UsageError(str(error)) from error
        except MsgqError as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            code = get_interruption_exit_code()
            signal.signal(signal.SIGINT, lambda *_: os._exit(code))  # a second Ctrl-C during the end
            ctx.exit(code)
        except BrokenPipeError:  # the reader of the output has ended, as `head` does
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except OSError as error:  # a file that the user named, a full disk
            raise click.ClickException(str(error)) from error


@click.group(
    cls=_VerbGroup,
    package="msgq.cli",
    short_helps=VERBS,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="msgq")
def app() -> None:
    """Inspect, record and test the message bus of this machine.

    An endpoint is a topic (NAME), a channel (channel/NAME), a work queue (queue/NAME), or a vector or board
    (records/NAME). A PATTERN is a regular expression that matches whole names.
    """
