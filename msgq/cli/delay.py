"""`msgq delay`: how old messages are when they come."""

from collections.abc import Callable
from typing import Any

import click

import msgq
from msgq.cli.common import options
from msgq.cli.common.endpoint_selection import EndpointSelection, LeftOutError
from msgq.cli.common.meters import Column, Wanted, measure, measuring, meter, spin, spread
from msgq.cli.common.render import in_rate, in_units, in_us
from msgq.common import naming
from msgq.common.schema import Schema
from msgq.decoding.stamps import time_offset
from msgq.impl.meter import ChannelMeter, Meter, TopicMeter
from msgq.kinds import CHANNEL, FRAMES, TOPIC, kind_name, kind_of
from msgq.stats import channel, topic

_COLUMNS = (
    Column("messages/s", lambda reading: in_rate(reading.rate), 11),
    *spread(lambda reading: reading.delays_us, in_us, "us"),
    Column("until", lambda reading: reading.until, 6),
    Column("early", lambda reading: in_units(reading.early), 7),
    Column("lost", lambda reading: in_units(reading.lost), 7),
)
FIELD = "publish_time"
_END_OF_FRAME = "--offset 32 --clock monotonic"  # docs/visionipc.md: where the message has it; since boot, by default


@click.command(epilog=options.EXIT_CODES_RUNNING)
@measuring
@click.option(
    "--offset",
    type=click.IntRange(min=0),
    metavar="BYTE",
    help="Where the payload of a topic or channel has its publish time.  [default: not there on a tracked topic, and "
    f"on a channel with stamps; else the field {FIELD} of the endpoint's struct schema]",
)
@click.option(
    "--clock",
    type=click.Choice(["host", "realtime", "monotonic"]),
    default="host",
    show_default=True,
    help="Which clock that time is from: the one that msgq stamps by, or the system's.",
)
@spin
def command(endpoints: tuple[str, ...], prefix: str | None, offset: int | None, clock: str, **ending: Any) -> None:
    """Measure how old messages are when they come: microseconds from their publish time until they are seen.

    The publish time is that of a tracked topic's stamps, of a channel's, or of a write in records; else a little-endian
    u64 of nanoseconds in the payload. We look each 50 us, which adds to the delay; with --spin each message is seen
    when it comes. `early` counts messages from the future: wrong clock, wrong offset.

    Endpoints without a publish time that a pattern selects are named and left out.

    Of queue/NAME it is how long messages waited: with events until they were taken first, without events until now, of
    those that still wait; `until` says which.
    """

    def make(name: str) -> Meter:
        kind = kind_of(name)
        if kind is TOPIC:
            where = _offset(name, offset, lambda: topic(name).tracked, lambda: topic(name).schema)
            return TopicMeter(msgq.context, name, where, clock if where is not None else "host")
        if kind is CHANNEL:
            plain = kind.plain(name)
            where = _offset(name, offset, lambda: channel(plain).stamps is not False, lambda: channel(plain).schema)
            return ChannelMeter(plain, naming.resolve_prefix(None), where, clock if where is not None else "host")
        if offset is not None:
            raise click.UsageError(f"--offset is for topics and channels, not for {name}")
        return meter(name)

    measure(EndpointSelection(endpoints, prefix), make, _COLUMNS, Wanted.of(**ending))


def _offset(
    name: str, asked_offset: int | None, stamped: Callable[[], bool], schema: Callable[[], Schema | None]
) -> int | None:
    """Return the byte at which payloads have their publish time; None: it is beside them."""
    if asked_offset is not None or stamped():
        return asked_offset
    where = time_offset(schema(), FIELD)
    if where is None:
        text = f"{name} has no stamps, and no struct schema with an 8-byte field {FIELD}; give --offset BYTE"
        if kind_name(name) == FRAMES:
            text += f" (of frames {_END_OF_FRAME}: from their timestamp_eof, where it is of the system's clock)"
        raise LeftOutError(text)
    return where
