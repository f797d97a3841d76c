"""`msgq delay`: how old messages are when they come."""

from typing import Any

import click

import msgq
from msgq.cli.common import options
from msgq.cli.common.meters import Column, Wanted, measure, measuring, spin, spread
from msgq.cli.common.names import Names
from msgq.cli.common.render import in_rate, in_units, in_us
from msgq.impl.ring.meter import Meter
from msgq.recording.reader.decoders import time_offset
from msgq.stats import topic

_COLUMNS = (
    Column("messages/s", lambda reading: in_rate(reading.rate), 11),
    *spread(lambda reading: reading.delays_us, in_us, "us"),
    Column("early", lambda reading: in_units(reading.early), 7),
    Column("lost", lambda reading: in_units(reading.lost), 7),
)
FIELD = "publish_time"


@click.command(epilog=options.EXIT_CODES_RUNNING)
@measuring
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="BYTE",
    help=f"Where the payload has its publish time.  [default: not there on a tracked topic, else the field {FIELD} of "
    "the endpoint's struct schema]",
)
@click.option(
    "--clock",
    type=click.Choice(["host", "realtime", "monotonic"]),
    default="host",
    show_default=True,
    help="Which clock that time is from: the one that msgq stamps by, or the system's.",
)
@spin
def command(endpoints: tuple[str, ...], prefix: str | None, offset: int | None, clock: str, **given: Any) -> None:
    """Measure how old messages are when they come: microseconds from their publish time until they are seen.

    The publish time is a little-endian u64 of nanoseconds in the payload, or that of a tracked topic's stamps. We look
    each 50 us, which adds to the delay; with --spin each message is seen when it comes. `early` counts messages from
    the future: wrong clock, wrong offset.
    """

    def make(name: str) -> Meter:
        found = topic(name)
        if offset is None and found.tracked:
            return Meter(msgq.context, name)  # by its stamps, which are of the host's clock
        where = time_offset(found.schema, FIELD) if offset is None else offset
        if where is None:
            text = f"{name} is not tracked, and has no struct schema with an 8-byte field {FIELD}; give --offset BYTE"
            raise click.ClickException(text)
        return Meter(msgq.context, name, where, clock)

    measure(Names(endpoints, prefix), make, _COLUMNS, Wanted.of(**given))
