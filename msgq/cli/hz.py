"""`msgq hz`: how often messages come."""

from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.endpoint_selection import EndpointSelection
from msgq.cli.common.meters import Column, Wanted, measure, measuring, spin, spread
from msgq.common.formatting import in_rate, in_units, in_us
from msgq.kinds.opening import open_meter

_COLUMNS = (
    Column("messages/s", lambda reading: in_rate(reading.rate), 11),
    *spread(lambda reading: reading.periods_us, in_us, "us"),
    Column("lost", lambda reading: in_units(reading.lost), 7),
)


@click.command(epilog=options.EXIT_CODES_RUNNING)
@measuring
@spin
def command(endpoints: tuple[str, ...], prefix: str | None, **ending: Any) -> None:
    """Measure how often messages come, and how evenly: the time between two, in microseconds.

    Counts below Python, as a passive subscriber. Rates are exact also when the publisher laps us: `lost` is what was
    overwritten before we looked. We look each 50 us, and messages found by one look share the time evenly; with --spin
    each one is seen when it comes.
    """
    measure(EndpointSelection(endpoints, prefix), open_meter, _COLUMNS, Wanted.of(**ending))
