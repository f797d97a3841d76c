"""`msgq info`: shows all properties of an endpoint of any kind."""

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.kinds.stats import read_file_access
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints


@click.command(epilog=options.EXIT_CODES)
@options.required_endpoints_argument
@options.measured_duration_option(0.5)
@options.json_option
@options.prefix_option
def command(endpoints: tuple[str, ...], duration: float, as_json: bool, prefix: str | None) -> None:
    """Show files, schema, publishers and subscribers of endpoints.

    Each subscriber is shown with its lag and losses. An endpoint is a topic (NAME), a channel (channel/NAME), a work
    queue (queue/NAME), or a vector or board (records/NAME). The command is passive, like `msgq list`.
    """
    names = EndpointSelection(endpoints, prefix)
    for row in LiveEndpoints(names).measure(duration):
        if as_json:
            echo_json({**row.to_json_fields(), **read_file_access(row.stats.path)._asdict()})
        else:
            echo(row.endpoint)
            for line in row.describe():
                echo(line)
    names.require_matched()
