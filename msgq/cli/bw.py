"""`msgq bw`: measures bandwidth."""

from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.columns import RATE_RANK
from msgq.cli.common.meters import (
    LOST_COLUMN,
    RATE_COLUMN,
    MeasurementOptions,
    MeterColumn,
    add_measurement_options,
    make_distribution_columns,
    show_readings,
)
from msgq.common.formatting import format_bytes
from msgq.kinds.opening import open_meter
from msgq.monitor.endpoint_selection import EndpointSelection

_BANDWIDTH_COLUMNS = (
    MeterColumn("bytes/s", lambda reading: format_bytes(reading.byte_rate), RATE_RANK, 10),
    RATE_COLUMN,
    *make_distribution_columns(lambda reading: reading.sizes, format_bytes, "size"),
    LOST_COLUMN,
)


@click.command(epilog=options.EXIT_CODES_RUNNING)
@add_measurement_options()
def command(endpoints: tuple[str, ...], prefix: str | None, **ending: Any) -> None:
    """Measure bandwidth in bytes/s, and message sizes.

    The command is a passive subscriber. Lost messages (`lost`) were overwritten before the command read them. For the
    bandwidth, each lost message counts as a message of the mean size.
    """
    show_readings(
        EndpointSelection(endpoints, prefix),
        open_meter,
        _BANDWIDTH_COLUMNS,
        MeasurementOptions.from_arguments(**ending),
    )
