"""`msgq hz`: measures message rates."""

from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.meters import (
    LOST_COLUMN,
    RATE_COLUMN,
    MeasurementOptions,
    add_measurement_options,
    busy_poll_option,
    make_distribution_columns,
    show_readings,
)
from msgq.common.formatting import format_microseconds
from msgq.kinds.opening import open_meter
from msgq.monitor.endpoint_selection import EndpointSelection

_RATE_COLUMNS = (
    RATE_COLUMN,
    *make_distribution_columns(lambda reading: reading.periods_us, format_microseconds, "us"),
    LOST_COLUMN,
)


@click.command(epilog=options.EXIT_CODES_RUNNING)
@add_measurement_options(busy_poll_option)
def command(endpoints: tuple[str, ...], prefix: str | None, **ending: Any) -> None:
    """Measure message rates, and the time between messages.

    Rates are in messages/s, times in microseconds. The command is a passive subscriber. Lost messages (`lost`) were
    overwritten before the command read them. Rates include lost messages. The command polls every 50 us. If one poll
    finds several messages, the command divides the time since the previous poll evenly between the messages. With
    --spin, the command polls without pauses, and measures the time of each message.
    """
    show_readings(
        EndpointSelection(endpoints, prefix), open_meter, _RATE_COLUMNS, MeasurementOptions.from_arguments(**ending)
    )
