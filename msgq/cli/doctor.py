"""`msgq doctor`: checks the machine, tries a round trip, and finds what dead processes left."""

import sys

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo_json, get_console, style_text
from msgq.monitor.doctor import run_checks

_HELP_EPILOG = "Exit codes: 0 no errors (warnings do not count); 1 errors, in the lines marked so; 2 wrong usage."
_STATUS_COLOURS = {"ok": "green", "warning": "yellow", "error": "red"}


@click.command(epilog=_HELP_EPILOG)
@click.option("--fix", is_flag=True, help="First remove what only the dead left. The rest stays.")
@options.json_option
@options.prefix_option
def command(fix: bool, as_json: bool, prefix: str | None) -> None:
    """Check that msgq works on this machine, and look for participants that died.

    A line per check: "ok", "warning" (works, but slower or with little room) or "error". --fix removes side segments
    that lost their ring, topics and channels that only the dead use, each under its lock, and pools of channels that
    lead nowhere; it brings messages back that the dead had taken from queues, and removes no queue. It reports this.
    """
    wrong = False
    output = get_console()
    for check in run_checks(prefix, fix):
        wrong |= check.status == "error"
        if as_json:
            echo_json(check)
        else:
            output.print(style_text(f"{check.status:5}", _STATUS_COLOURS[check.status]), f"{check.check:13}", end=" ")
            output.print(check.text, soft_wrap=True)
    sys.exit(wrong)
