"""`msgq hz`: how often messages come."""

import click

from msgq.cli import options
from msgq.cli.meters import Column, Wanted, measure, meter, spin, spread
from msgq.cli.names import Names
from msgq.cli.render import in_rate, in_units, in_us

_COLUMNS = (
    Column("messages/s", lambda reading: in_rate(reading.rate), 11),
    *spread(lambda reading: reading.periods_us, in_us, "us"),
    Column("lost", lambda reading: in_units(reading.lost), 7),
)


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.some_endpoints
@options.interval(1.0)
@options.count
@options.once
@options.timeout
@spin
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...], interval: float, count: int | None, once: bool, timeout: float | None, spin: bool,
    as_json: bool, prefix: str | None,
) -> None:
    """Measure how often messages come, and how evenly: the time between two, in microseconds.

    Counts below Python, as a passive subscriber. Rates are exact also when the publisher laps us: `lost` is what was
    overwritten before we looked. We look each 50 us, and messages found by one look share the time evenly; with --spin
    each one is seen when it comes.
    """  # fmt: skip
    measure(Names(endpoints, prefix), meter, _COLUMNS, Wanted(interval, 1 if once else count, timeout, spin, as_json))
