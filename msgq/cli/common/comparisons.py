"""Common code of the subcommands that compare: tolerances, and printing of differences."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.common.handler_errors import raise_handler_error
from msgq.decoding.json_values import convert_to_json
from msgq.decoding.payload_decoder import Undecoded
from msgq.recording import Comparison, Tolerance

COMPARISON_EXIT_CODES = "Exit codes: 0 equal; 1 different, or failure (message on stderr); 2 wrong usage."
_DIFFERENCE_FIELDS = ("endpoint", "index", "field", "time_a", "time_b", "a", "b")
_TOLERANCE_FORM = "ENDPOINT[:FIELD]=0.001, =0.1%, both as =0.001,0.1%, or =any"


def _parse_tolerances(
    _context: click.Context, _parameter: click.Parameter, values: Sequence[str]
) -> dict[str | tuple[str, str], Tolerance]:
    by_place: dict[str | tuple[str, str], Tolerance] = {}
    for value in values:
        target, _, numbers = value.rpartition("=")
        endpoint, colon, field = target.partition(":")
        by_place[(endpoint, field) if colon else endpoint] = _parse_tolerance(numbers, value)
        if not endpoint or (colon and not field):
            raise click.BadParameter(f"{value!r} has no endpoint or field; give {_TOLERANCE_FORM}")
    return by_place


def _parse_tolerance(numbers: str, value: str) -> Tolerance:
    if numbers == "any":
        return Tolerance(math.inf)
    parts = re.fullmatch(r"([^,%]+)?,?(?:([^,%]+)%)?", numbers)
    try:
        if parts is None or not any(parts.groups()):
            raise ValueError
        return Tolerance(float(parts[1] or 0), float(parts[2] or 0) / 100)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a tolerance; give {_TOLERANCE_FORM}") from None


#: Adds the options for tolerances.
add_tolerance_options = options.combine_options(
    click.option(
        "-t",
        "--tolerance",
        "tolerances",
        multiple=True,
        callback=_parse_tolerances,
        metavar="ENDPOINT[:FIELD]=NUMBER",
        help="Allowed difference between numbers. NUMBER% is a relative difference. The value 'any' ignores the field. "
        "If ENDPOINT is *, all endpoints match. Repeatable.",
    ),
    click.option(
        "--time-tolerance",
        type=options.NumberRange(min=0),
        metavar="SECONDS",
        help="Allowed difference between times, in seconds. Times count from the first message.  "
        "[default: ignore times]",
    ),
)


def show_comparison(comparison: Comparison, as_json: bool, **totals: Any) -> None:
    """Print the result, and exit with 1 if the sides differ."""
    if as_json:
        endpoints = {name: asdict(tally) for name, tally in comparison.endpoints.items()}
        first = comparison.first
        shown = first and {name: _to_json_value(getattr(first, name)) for name in _DIFFERENCE_FIELDS}
        echo_json({**totals, "same": bool(comparison), "endpoints": endpoints, "first": shown})
    else:
        for line in str(comparison).splitlines():
            echo(line)
    if not comparison:
        click.get_current_context().exit(1)


def _to_json_value(value: Any) -> Any:
    """Return the JSON form of a value."""
    if isinstance(value, Undecoded):
        return {"data": value.data, "reason": value.reason}
    try:
        return convert_to_json(value)
    except Exception as error:  # messages may be objects of any library
        raise_handler_error(error)
        return f"value cannot be shown: {error or type(error).__name__}"
