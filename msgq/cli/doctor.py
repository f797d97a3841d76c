"""`msgq doctor`: checks the machine and a round trip, and finds leftovers of dead processes."""

import sys

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo_json, echo_status
from msgq.monitor.doctor import run_checks

_HELP_EPILOG = "Exit codes: 0 no errors (warnings do not count); 1 errors (lines marked `error`); 2 wrong usage."
_STATUS_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command(epilog=_HELP_EPILOG)
@click.option("--fix", is_flag=True, help="Remove leftovers of dead processes before the checks.")
@options.json_option
@options.prefix_option
def command(fix: bool, as_json: bool, prefix: str | None) -> None:
    """Check msgq on this machine, and find dead participants.

    The command prints one line for each check: "ok", "warning" or "error". A warning means that msgq works, but can
    be slower or have little free space.

    With --fix, the command removes topics and channels that only dead processes use. With --fix, the command also
    removes side segments without a ring, and unreachable pools of channels. Messages that dead processes had taken
    from a queue return to the queue. No queue is removed. Each change is printed.
    """
    wrong = False
    for check in run_checks(prefix, fix):
        wrong |= check.status == "error"
        if as_json:
            echo_json(check)
        else:
            echo_status(f"{check.status:7}", _STATUS_COLOURS[check.status], f"{check.check:13} {check.text}")
    sys.exit(wrong)
