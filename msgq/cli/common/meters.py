"""What hz, bw and delay have in common: meters on endpoints that come and go, and a line for each a second."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Self

import click

from msgq.cli.common import options
from msgq.cli.common.endpoint_selection import EndpointFollower, EndpointSelection, print_waiting
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.signals import until_interrupted
from msgq.common import naming
from msgq.impl.base import clock
from msgq.impl.meter import Meter, watch
from msgq.stats import Distribution, MeterReading

_HEAD_PERIOD = 20  # lines
_LOOK_S = 0.25  # how late an endpoint may be noticed that has just come

spin = click.option(
    "--spin", is_flag=True, help="Look all the time: exact to a fraction of a microsecond, but takes a whole core."
)


def measuring(command: Callable[..., None]) -> Callable[..., None]:
    """Add what all measurements may be is_redundant; `Wanted.of` takes it, apart from the endpoints and the prefix."""
    for option in (
        options.prefix,
        options.as_json,
        options.timeout,
        options.once,
        options.count,
        options.interval(1.0),
        options.some_endpoints,
    ):
        command = option(command)
    return command


@dataclass(frozen=True)
class Column:
    """A figure of a line."""

    title: str
    text: Callable[[MeterReading], str]
    width: int = 9


@dataclass(frozen=True)
class Wanted:
    """How a measurement goes: seconds a line, lines, and seconds without any message after which it gives up."""

    interval: float
    lines: int | None
    timeout: float | None
    spin: bool
    as_json: bool

    @classmethod
    def of(
        cls, interval: float, count: int | None, once: bool, timeout: float | None, as_json: bool, spin: bool = False
    ) -> Self:
        """Return what the options say."""
        return cls(interval, 1 if once else count, timeout, spin, as_json)


def measure(names: EndpointSelection, make: Callable[[str], Meter], columns: Sequence[Column], wanted: Wanted) -> None:
    """Show a line for each endpoint and interval, until it is interrupted.

    Exits with `EXIT_TIMEOUT` when nothing came in time.
    """
    with naming.overrides(names.prefix), until_interrupted():
        _measure(EndpointFollower(names, make), names, columns, wanted)


def _measure(
    meters: EndpointFollower[Meter], names: EndpointSelection, columns: Sequence[Column], wanted: Wanted
) -> None:
    _await(meters, names, wanted.timeout)
    head, lines, heard_s = 0, 0, time.monotonic()
    while wanted.lines is None or lines < wanted.lines:
        _watch(meters, wanted)
        readings = [meter.reading() for _, meter in sorted(meters.by_name.items())]
        for meter in meters.by_name.values():
            meter.clear()
        for reading in readings:
            if not wanted.as_json and head % _HEAD_PERIOD == 0:
                echo(_line("endpoint", [f"{column.title:>{column.width}}" for column in columns]))
            _show(reading, columns, wanted.as_json)
            head += 1
        lines += 1
        now_s = time.monotonic()
        if any(reading.messages for reading in readings):
            heard_s = now_s
        elif wanted.timeout is not None and now_s - heard_s >= wanted.timeout:
            give_up(names, wanted.timeout)
    names.require_matched()


def _watch(meters: EndpointFollower[Meter], wanted: Wanted) -> None:
    """Count for one interval."""
    until_s = time.monotonic() + wanted.interval
    while (left_s := until_s - time.monotonic()) > 0:
        meters.refresh()
        watch(list(meters.by_name.values()), min(left_s, _LOOK_S), wanted.spin)


def _await(meters: EndpointFollower[Meter], names: EndpointSelection, timeout: float | None) -> None:
    """Wait until there is an endpoint."""
    meters.refresh()
    print_waiting(names.unmatched)
    began_s = time.monotonic()
    while not meters.by_name:
        if timeout is not None and time.monotonic() - began_s >= timeout:
            give_up(names, timeout)
        time.sleep(0.02)
        meters.refresh()


def give_up(names: EndpointSelection, timeout: float) -> None:
    """End because nothing came in time."""
    echo(f"msgq: nothing came within {timeout:g} s: {names}", err=True)
    raise SystemExit(options.EXIT_TIMEOUT)


def _show(reading: MeterReading, columns: Sequence[Column], as_json: bool) -> None:
    if as_json:
        rates = {"rate": reading.rate, "byte_rate": reading.byte_rate}
        echo_json({"time_ns": clock.time_ns(), **asdict(reading), **rates})
    else:
        echo(_line(reading.endpoint, [f"{column.text(reading):>{column.width}}" for column in columns]))


def _line(name: str, cells: Sequence[str]) -> str:
    return f"{name:<24} {' '.join(cells)}"


def spread(
    distribution_of: Callable[[MeterReading], Distribution | None],
    text: Callable[[float | None], str],
    unit: str,
    width: int = 9,
) -> list[Column]:
    """Return the columns of a distribution: mean, extremes and percentiles."""

    def column(title: str, field: str) -> Column:
        return Column(title, lambda reading: text(getattr(distribution_of(reading), field, None)), width)

    titles = {"mean": f"mean {unit}".strip(), "min": "min", "p50": "p50", "p90": "p90", "p99": "p99", "p999": "p99.9"}
    return [column(title, field) for field, title in {**titles, "max": "max"}.items()]
