"""`msgq check`: compares endpoints with the expectations in a file."""

import sys
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo_json, echo_status
from msgq.common import settings
from msgq.errors import InvalidValueError
from msgq.monitor.endpoint_check import check_expectations, wait_for_expected_endpoints
from msgq.monitor.expectations import read_expectations

_HELP_EPILOG = (
    "Exit codes: 0 as expected; 1 differences (lines marked `wrong`), or failure (message on stderr); "
    "2 wrong usage, or an invalid FILE."
)


@click.command(epilog=_HELP_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--timeout",
    type=options.NumberRange(min=0),
    metavar="SECONDS",
    default=0.0,
    show_default=True,
    help="Longest wait for missing endpoints before the measurement, in seconds.",
)
@options.json_option
@options.prefix_option
def command(file: Path, timeout: float, as_json: bool, prefix: str | None) -> None:
    """Compare endpoints with the expectations in a TOML file.

    The command measures rates, sizes and losses passively. FILE has these entries:

    \b
    duration = 2.0           # duration of the measurement
    only = false             # true: other endpoints are a failure
    [endpoints.camera]       # a name, or a quoted pattern for whole names
    publisher = true         # a living publisher must exist (default)
    subscribers = 1          # minimum, or a range: [1, 3]; so for rate and size
    rate = [19, 21]          # messages/s
    size = [1000, 2000000]   # bytes per message
    lost = 0                 # most messages lost during the measurement
    optional = false         # true: the endpoint may be missing

    A pattern is quoted: ["wheel.*"]. With `only`, the channels of queue events are allowed.

    Write the names of other endpoints as "channel/NAME", "queue/NAME" and "records/NAME". For channels and queues,
    the entry `size` is not allowed. For a queue, publishers are senders, and subscribers are receivers.

    For records, publishers are writers, and the rate counts written elements. For a vector, the size is the size of
    one element. For records, the entries `subscribers` and `lost` are not allowed, because readers leave no trace.

    \b
    Example: wait up to five seconds for the endpoints, then compare them
      msgq check robot.toml --timeout 5
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
                status, colour = ("ok   ", "green") if finding.ok else ("wrong", "red")
                echo_status(status, colour, f"{finding.endpoint}: {finding.text}")
    sys.exit(bad)
