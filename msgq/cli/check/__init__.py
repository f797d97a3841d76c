"""`msgq check`: compares endpoints with what a file expects of them."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click

from msgq.cli.check.expectations import CheckFinding, Expectations, check_endpoint, read_expectations
from msgq.cli.common import options
from msgq.cli.common.endpoint_selection import EndpointFollower, EndpointSelection, is_shown_by_subject
from msgq.cli.common.live_endpoints import LiveEndpoint
from msgq.cli.common.render import console, echo_json, style_text
from msgq.common import settings
from msgq.impl.meter import run_meters
from msgq.kinds import carrier_of, kind_of
from msgq.kinds.opening import open_meter
from msgq.stats import endpoint_inodes

_HELP_EPILOG = (
    "Exit codes: 0 all is as expected; 1 something is not, in the lines marked so, or the check failed; "
    "2 wrong usage, or the file makes no sense."
)
_POLL_PERIOD_S = 0.05


class _CheckedEndpoint:
    """An endpoint that is measured from now on. It has a meter if a meter knows more than the counters."""

    def __init__(self, name: str) -> None:
        self.live = LiveEndpoint(name, settings.get_prefix())
        self.meter = open_meter(name) if kind_of(name).source.has_better_meter else None
        self.live.poll()


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
    expected = read_expectations(file, prefix)
    bad = False
    with settings.overrides(prefix):
        _wait_for_expected_endpoints(expected, timeout)
        for finding in _check_expectations(expected):
            bad |= not finding.ok
            if as_json:
                echo_json(finding)
            else:
                output = console()
                output.print(style_text("ok   ", "green") if finding.ok else style_text("wrong", "red"), end=" ")
                output.print(f"{finding.endpoint}: {finding.text}", soft_wrap=True)
    sys.exit(bad)


def _wait_for_expected_endpoints(expected: Expectations, timeout: float) -> None:
    """Wait until each endpoint exists that must, but not for ever."""
    until_s = time.monotonic() + timeout
    needed = [endpoint.names for endpoint in expected.endpoints if not endpoint.optional]
    while time.monotonic() < until_s and not all(names.find_existing() for names in needed):
        time.sleep(0.02)


def _check_expectations(expected: Expectations) -> Iterator[CheckFinding]:
    measured = _measure_endpoints(expected)
    readings = {name: endpoint.meter.take_reading() for name, endpoint in measured.items() if endpoint.meter}
    rows = {name: endpoint.live.poll(fresh=True) for name, endpoint in measured.items()}
    claimed: set[str] = set()
    for expectation in expected.endpoints:
        matching = [name for name in measured if name in expectation.names]
        claimed.update(matching)
        if not matching and not expectation.optional:
            yield CheckFinding(str(expectation.names), "exists", False, "no endpoint matches")
        for name in matching:
            yield from check_endpoint(expectation, rows[name], readings.get(name))
    if expected.only:
        # The channel of a queue's events is part of the queue: it comes and goes with it.
        claimed |= set(map(carrier_of, claimed))
        for name in endpoint_inodes():
            if name not in claimed and not is_shown_by_subject(name, claimed):
                yield CheckFinding(name, "only", False, "exists, but is not expected")


def _measure_endpoints(expected: Expectations) -> dict[str, _CheckedEndpoint]:
    """Count on all endpoints that are expected, also those that come while it goes on."""
    names = EndpointSelection([str(endpoint.names) for endpoint in expected.endpoints], None)
    followed: EndpointFollower[_CheckedEndpoint] = EndpointFollower(names, _CheckedEndpoint)
    until_s = time.monotonic() + expected.seconds
    while (left_s := until_s - time.monotonic()) > 0:
        followed.refresh()
        run_meters(
            [endpoint.meter for endpoint in followed.by_name.values() if endpoint.meter], min(left_s, _POLL_PERIOD_S)
        )
    return dict(sorted(followed.by_name.items()))
