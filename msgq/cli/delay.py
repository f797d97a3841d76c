"""`msgq delay`: measures the age of messages on arrival."""

from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.meters import (
    LOST_COLUMN,
    RATE_COLUMN,
    MeasurementOptions,
    MeterColumn,
    add_measurement_options,
    busy_poll_option,
    make_distribution_columns,
    show_readings,
)
from msgq.common.formatting import format_count, format_microseconds
from msgq.decoding.time_fields import find_time_field_offset
from msgq.impl.backend import resolve_prefix
from msgq.impl.meter import EndpointMeter
from msgq.kinds import find_announced_kind, kind_of, list_stored_kinds
from msgq.kinds.opening import open_meter
from msgq.kinds.source import PayloadTime, TimeStamps
from msgq.monitor.endpoint_selection import EndpointLeftOutError, EndpointSelection

_DELAY_COLUMNS = (
    RATE_COLUMN,
    *make_distribution_columns(lambda reading: reading.delays_us, format_microseconds, "us"),
    MeterColumn("until", lambda reading: reading.measured_until),
    MeterColumn("early", lambda reading: format_count(reading.negative_delays)),
    LOST_COLUMN,
)
TIME_FIELD = "publish_time"


@click.command(epilog=options.EXIT_CODES_RUNNING)
@add_measurement_options(
    click.option(
        "--offset",
        type=click.IntRange(min=0),
        metavar="BYTE",
        help="Byte offset of the publish time in the payload of a topic or channel.  "
        f"[default: none for tracked endpoints, else the field {TIME_FIELD} of the struct schema]",
    ),
    click.option(
        "--clock",
        type=click.Choice(["host", "realtime", "monotonic"]),
        default="host",
        show_default=True,
        help="Clock of the publish time in the payload. Timestamps of msgq are times of the host clock.",
    ),
    busy_poll_option,
)
def command(endpoints: tuple[str, ...], prefix: str | None, offset: int | None, clock: str, **ending: Any) -> None:
    """Measure the age of messages on arrival, in microseconds.

    The age of a message begins at the publish time. For a tracked topic, a channel or records, the publish time is
    the timestamp of the message or write. Otherwise, the publish time is a little-endian u64 of nanoseconds in the
    payload. The command polls every 50 us, and this interval adds to the delay. With --spin, the command polls
    without pauses. `early` counts messages with a publish time in the future. A publish time in the future indicates
    a wrong clock or a wrong offset. If a pattern selects endpoints without a publish time, the command lists and
    skips these endpoints.

    For a queue, the delay is the waiting time of a message. If the queue has events, the waiting time ends when a
    receiver first takes the message. In a queue without events, the command measures only waiting messages, up to the
    current time. The field `measured_until` shows the end of the measured delay.
    """

    def make_meter(name: str) -> EndpointMeter:
        kind = kind_of(name)
        if kind.source.find_stamps is None:
            if offset is not None:
                supported_kinds = " and ".join(
                    stored_kind.plural_name
                    for stored_kind in list_stored_kinds("source")
                    if stored_kind.source.find_stamps is not None
                )
                raise click.UsageError(f"--offset cannot be used with {name}; use --offset for {supported_kinds}")
            return open_meter(name)
        stamps = kind.source.find_stamps(kind.bare_name(name), resolve_prefix())
        payload_offset = _resolve_time_offset(name, offset, stamps)
        return open_meter(name, None if payload_offset is None else PayloadTime(payload_offset, clock))

    show_readings(
        EndpointSelection(endpoints, prefix), make_meter, _DELAY_COLUMNS, MeasurementOptions.from_arguments(**ending)
    )


def _resolve_time_offset(name: str, argument: int | None, stamps: TimeStamps) -> int | None:
    """Return the byte offset of the publish time in payloads; None: the publish time is next to the payload."""
    if argument is not None or stamps.is_beside_payload:
        return argument
    offset = find_time_field_offset(stamps.schema, TIME_FIELD)
    if offset is None:
        text = f"{name} has no timestamps, and no struct schema with an 8-byte field {TIME_FIELD}; give --offset BYTE"
        if hint := find_announced_kind(name).delay_hint:
            text += f" ({hint})"
        raise EndpointLeftOutError(text)
    return offset
