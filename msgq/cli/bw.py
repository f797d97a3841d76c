"""`msgq bw`: how much comes."""

from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.endpoint_selection import EndpointSelection
from msgq.cli.common.meters import Column, Wanted, measure, measuring, spread
from msgq.common.formatting import in_bytes, in_rate, in_units
from msgq.kinds.opening import open_meter

_COLUMNS = (
    Column("bytes/s", lambda reading: in_bytes(reading.byte_rate), 11),
    Column("messages/s", lambda reading: in_rate(reading.rate), 11),
    *spread(lambda reading: reading.sizes, in_bytes, "size"),
    Column("lost", lambda reading: in_units(reading.lost), 7),
)


@click.command(epilog=options.EXIT_CODES_RUNNING)
@measuring
def command(endpoints: tuple[str, ...], prefix: str | None, **ending: Any) -> None:
    """Measure how many payload bytes come a second, and how large messages are.

    Counts below Python, as a passive subscriber. Messages that were overwritten before we looked (`lost`) count as if
    they had the mean size.
    """
    measure(EndpointSelection(endpoints, prefix), open_meter, _COLUMNS, Wanted.of(**ending))
