"""`msgq bw`: how much comes."""

import click

from msgq.cli import options
from msgq.cli.meters import Column, Wanted, measure, meter, spread
from msgq.cli.names import Names
from msgq.cli.render import in_bytes, in_rate, in_units

_COLUMNS = (
    Column("bytes/s", lambda reading: in_bytes(reading.byte_rate), 11),
    Column("messages/s", lambda reading: in_rate(reading.rate), 11),
    *spread(lambda reading: reading.sizes, in_bytes, "size"),
    Column("lost", lambda reading: in_units(reading.lost), 7),
)


@click.command(epilog=options.EXIT_CODES_RUNNING)
@options.some_endpoints
@options.interval(1.0)
@options.count
@options.once
@options.timeout
@options.as_json
@options.prefix
def command(
    endpoints: tuple[str, ...], interval: float, count: int | None, once: bool, timeout: float | None, as_json: bool,
    prefix: str | None,
) -> None:
    """Measure how many payload bytes come a second, and how large messages are.

    Counts below Python, as a passive subscriber. Messages that were overwritten before we looked (`lost`) count as if
    they had the mean size.
    """  # fmt: skip
    measure(Names(endpoints, prefix), meter, _COLUMNS, Wanted(interval, 1 if once else count, timeout, False, as_json))
