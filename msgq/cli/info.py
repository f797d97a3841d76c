"""`msgq info`: all that is known of an endpoint, of whatever kind."""

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.kinds import kind_of
from msgq.kinds.stats import read_file_access
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints


@click.command(epilog=options.EXIT_CODES)
@options.required_endpoints_argument
@options.interval_option(0.5, "For how long rates are measured.")
@options.json_option
@options.prefix_option
def command(endpoints: tuple[str, ...], interval: float, as_json: bool, prefix: str | None) -> None:
    """Show all that is known of these: files, publishers, schema, and each subscriber with its lag and losses.

    A channel is called channel/NAME, a work queue queue/NAME, a vector or board records/NAME. Only looks, as
    `msgq list` does.
    """
    names = EndpointSelection(endpoints, prefix)
    for row in LiveEndpoints(names).measure(interval):
        if as_json:
            echo_json({**row.to_json_fields(), **read_file_access(row.stats.path)._asdict()})
        else:
            echo(row.endpoint)
            for line in kind_of(row.endpoint).stats.describe_row(row):
                echo(line)
    names.require_matched()
