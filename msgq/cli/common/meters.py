"""Common code of hz, bw and delay: meters on endpoints that appear and disappear, and one line per interval."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import click

from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, OTHER_RANK, RATE_RANK, StreamingTable, TableColumn
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.selections import print_left_out, print_selection
from msgq.cli.common.signals import end_on_interrupt
from msgq.common import settings
from msgq.common.formatting import format_count, format_rate
from msgq.common.texts import format_count_noun
from msgq.impl.base import clock
from msgq.impl.meter import EndpointMeter, run_meters
from msgq.monitor.endpoint_selection import EndpointFollower, EndpointLeftOutError, EndpointSelection
from msgq.stats import Distribution, MeterReading

_DISTRIBUTION_ORDER = ("mean", "p50", "p99", "max", "min", "p90", "p999")  # hidden from last to first
_REFRESH_PERIOD_S = 0.25  # maximum delay until a new endpoint is found

busy_poll_option = click.option(
    "--spin",
    is_flag=True,
    help="Poll without pauses. Times are exact to less than a microsecond, but a whole core is busy.",
)


_CommandDecorator = Callable[[Callable[..., None]], Callable[..., None]]


def add_measurement_options(*special_options: _CommandDecorator) -> _CommandDecorator:
    """Return a decorator that adds the options of all measurements, and special options of one command.

    `MeasurementOptions.from_arguments` takes all common options except endpoints and prefix.
    """

    return options.combine_options(
        options.required_endpoints_argument,
        options.interval_option(1.0),
        options.count_option,
        options.once_option,
        options.duration_option,
        *special_options,
        options.timeout_option,
        options.json_option,
        options.prefix_option,
    )


MeterColumn = TableColumn[MeterReading]
_NAME_COLUMN = MeterColumn("endpoint", lambda reading: reading.endpoint, NAME_RANK, 24, text_width=24)
RATE_COLUMN = MeterColumn("messages/s", lambda reading: format_rate(reading.rate), RATE_RANK, 11)
LOST_COLUMN = MeterColumn("lost", lambda reading: format_count(reading.lost), LOST_RANK, 6)


@dataclass(frozen=True)
class MeasurementOptions:
    """Options of a measurement: seconds per line, end, and seconds without messages until the command gives up."""

    interval_s: float
    limit: RunLimit
    timeout_s: float | None
    busy_polls: bool
    as_json: bool

    @classmethod
    def from_arguments(
        cls,
        interval: float,
        count: int | None,
        once: bool,
        duration: float | None,
        timeout: float | None,
        as_json: bool,
        spin: bool = False,
    ) -> Self:
        """Return the options from the command's arguments."""
        return cls(interval, RunLimit(1 if once else count, duration), timeout, spin, as_json)


def show_readings(
    names: EndpointSelection,
    make: Callable[[str], EndpointMeter],
    columns: Sequence[MeterColumn],
    options: MeasurementOptions,
) -> None:
    """Print one line for each endpoint and interval, until an interrupt.

    If no message arrives before the timeout, the command exits with `options.TIMEOUT_EXIT_CODE`.
    """
    with settings.overrides(names.prefix), end_on_interrupt():
        reasons: list[str] = []
        report: Callable[[str], object] = reasons.append
        meters = EndpointFollower(names, make, lambda reason: report(reason))
        meters.refresh()
        _report_left_out(reasons, bool(meters.by_name or meters.refused or names.unmatched))
        report = print_left_out  # reasons of endpoints that appear later
        _show_intervals(meters, names, columns, options)


def _report_left_out(reasons: Sequence[str], has_others: bool) -> None:
    """Print the reasons why endpoints cannot be measured.

    Raises:
        EndpointLeftOutError: the selection has no other endpoints.
    """
    if reasons and not has_others:
        more = f"; {format_count_noun(len(reasons) - 1, 'other endpoint')} left out likewise" if reasons[1:] else ""
        raise EndpointLeftOutError(f"nothing to measure: {reasons[0]}{more}")
    for reason in reasons:
        print_left_out(reason)


def _show_intervals(
    meters: EndpointFollower[EndpointMeter],
    names: EndpointSelection,
    columns: Sequence[MeterColumn],
    options: MeasurementOptions,
) -> None:
    _wait_for_endpoint(meters, names, options)
    table, lines, heard_s = StreamingTable([_NAME_COLUMN, *columns]), 0, time.monotonic()
    while not options.limit.is_reached(lines):
        _measure_interval(meters, options)
        readings = [meter.take_reading() for _, meter in sorted(meters.by_name.items())]
        for meter in meters.by_name.values():
            meter.reset_counts()
        if options.as_json:
            for reading in readings:
                _print_json_reading(reading)
        else:
            table.print_rows(readings)
        lines += 1
        now_s = time.monotonic()
        if any(reading.messages for reading in readings):
            heard_s = now_s
        elif options.timeout_s is not None and now_s - heard_s >= options.timeout_s:
            exit_after_timeout(names, options.timeout_s)
    names.require_matched()


def _measure_interval(meters: EndpointFollower[EndpointMeter], options: MeasurementOptions) -> None:
    """Measure one interval."""
    until_s = time.monotonic() + min(options.interval_s, options.limit.remaining_s)
    while (left_s := until_s - time.monotonic()) > 0:
        meters.refresh()
        run_meters(list(meters.by_name.values()), min(left_s, _REFRESH_PERIOD_S), options.busy_polls)


def _wait_for_endpoint(
    meters: EndpointFollower[EndpointMeter], names: EndpointSelection, options: MeasurementOptions
) -> None:
    """Wait until an endpoint exists, or until the end of the duration."""
    timeout = options.timeout_s
    print_selection(names)
    began_s = time.monotonic()
    while not meters.by_name and not options.limit.is_reached(0):
        if timeout is not None and time.monotonic() - began_s >= timeout:
            exit_after_timeout(names, timeout)
        time.sleep(0.02)
        meters.refresh()


def exit_after_timeout(names: EndpointSelection, timeout: float) -> None:
    """Exit after a timeout without messages."""
    echo(f"msgq: no message within {timeout:g} s: {names}", err=True)
    raise SystemExit(options.TIMEOUT_EXIT_CODE)


def _print_json_reading(reading: MeterReading) -> None:
    rates = {"rate": reading.rate, "byte_rate": reading.byte_rate}
    echo_json({"time_ns": clock.time_ns(), **asdict(reading), **rates})


def make_distribution_columns(
    distribution_of: Callable[[MeterReading], Distribution | None],
    format_value: Callable[[float | None], str],
    unit: str,
) -> list[MeterColumn]:
    """Return the columns of a distribution: mean, extremes and percentiles."""

    def make_column(title: str, field: str) -> MeterColumn:
        rank = OTHER_RANK + _DISTRIBUTION_ORDER.index(field)
        return MeterColumn(title, lambda reading: format_value(getattr(distribution_of(reading), field, None)), rank, 8)

    titles = {"mean": f"mean {unit}".strip(), "min": "min", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9"}
    return [make_column(title, field) for field, title in {**titles, "max": "max"}.items()]
