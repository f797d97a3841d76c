"""`msgq check`: compares endpoints with what a file expects of them."""

import sys
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo_json, get_console, style_text
from msgq.common import settings
from msgq.errors import InvalidValueError
from msgq.monitor.endpoint_check import check_expectations, wait_for_expected_endpoints
from msgq.monitor.expectations import read_expectations

_HELP_EPILOG = (
    "Exit codes: 0 all is as expected; 1 something is not, in the lines marked so, or the check failed; "
    "2 wrong usage, or the file makes no sense."
)


@click.command(epilog=_HELP_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=0.0,
    show_default=True,
    help="Wait so long for endpoints that do not exist yet, before the measurement.",
)
@options.json_option
@options.prefix_option
def command(file: Path, timeout: float, as_json: bool, prefix: str | None) -> None:
    """Measure for some seconds, and compare with the endpoints, rates, sizes and losses that FILE (TOML) expects.

    \b
    seconds = 2.0             # to measure
    only = false              # true: no other endpoint may exist (but the channel of a queue's events)
    [endpoints.camera]        # a name, or a quoted pattern for whole names: ["wheel.*"]
    publisher = true          # a living one, which is the default
    subscribers = 1           # at least; [1, 3]: 1 to 3. The same with rate and size
    rate = [19, 21]           # messages/s
    size = [1000, 2000000]    # bytes of each message
    lost = 0                  # messages that its subscribers may lose meanwhile, noticed or not
    optional = false          # true: it need not exist

    Of "channel/NAME" and "queue/NAME" no size can be expected. Publishers of a queue are those that sent, subscribers
    those that received or wait for messages. Of "records/NAME" publishers are those that write, the rate is of
    elements, the size that of each element of a vector; nobody can tell who reads, so it has no subscribers and losses.

    Passive, as all that measures.
    """
    try:
        expected = read_expectations(file, prefix)
    except InvalidValueError as error:
        raise click.UsageError(str(error)) from None
    bad = False
    with settings.overrides(prefix):
        wait_for_expected_endpoints(expected, timeout)
        for finding in check_expectations(expected):
            bad |= not finding.ok
            if as_json:
                echo_json(finding)
            else:
                output = get_console()
                output.print(style_text("ok   ", "green") if finding.ok else style_text("wrong", "red"), end=" ")
                output.print(f"{finding.endpoint}: {finding.text}", soft_wrap=True)
    sys.exit(bad)
