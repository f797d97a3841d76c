"""Expectations of endpoints from a TOML file, and their comparison with measurements."""

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgq.common.formatting import format_bytes, format_rate
from msgq.common.texts import format_count_noun
from msgq.errors import InvalidValueError
from msgq.kinds import kind_of
from msgq.kinds.stats import AnyEndpointRow
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.stats import MeterReading

ValueRange = tuple[float | None, float | None]  # minimum and maximum

_ANY_RANGE: ValueRange = (None, None)
_FILE_KEYS = {"duration", "only", "endpoints"}
_TYPE_NAMES = {dict: "table", bool: "boolean (true or false)", int: "whole number", (int, float): "number"}
_ENDPOINT_KEYS = {"publisher", "subscribers", "rate", "size", "lost", "optional"}


@dataclass(frozen=True)
class Expectation:
    """Expectation of an endpoint, or of all endpoints whose whole names match a pattern.

    Attributes:
        selection: selected endpoints.
        has_publisher: True: a living publisher must exist; False: must not exist; None: no expectation.
        subscriber_range: number of living subscribers.
        rate_range: messages per second.
        size_range: bytes of each message.
        lost_limit: maximum number of messages lost by all subscribers during the measurement.
        is_optional: True: the endpoint may be missing.
    """

    selection: EndpointSelection
    has_publisher: bool | None
    subscriber_range: ValueRange
    rate_range: ValueRange
    size_range: ValueRange
    lost_limit: float | None
    is_optional: bool


@dataclass(frozen=True)
class Expectations:
    """Content of a file. `duration_s`: seconds to measure. `is_exclusive`: no other endpoint may exist."""

    duration_s: float
    is_exclusive: bool
    endpoints: tuple[Expectation, ...]


@dataclass(frozen=True)
class CheckFinding:
    """Result of one comparison: the expectation, and whether the endpoint satisfies it."""

    endpoint: str
    condition: str
    ok: bool
    text: str


def read_expectations(path: Path, prefix: str | None) -> Expectations:
    """Return the expectations of a file.

    Raises:
        InvalidValueError: the file is unreadable, is not TOML, or has unknown keys or invalid values.
    """
    try:
        table = tomllib.loads(path.read_text())
        _reject_unknown_keys(table, _FILE_KEYS, "the file")
        endpoints = _read_typed_value(table, "endpoints", dict, {})
        each = tuple(_parse_expectation(name, table, prefix) for name, table in endpoints.items())
        duration_s = float(_read_typed_value(table, "duration", (int, float), 2.0))
        if not 0 < duration_s <= 86400:
            raise ValueError(f"duration is {duration_s:g}; give more than 0, and at most 86400 (a day)")
        if not each:
            raise ValueError("no expectations; add a table [endpoints.NAME]")
        return Expectations(duration_s, _read_typed_value(table, "only", bool, False), each)
    except OSError as error:
        raise InvalidValueError(f"{path}: {error.strerror}") from None
    except ValueError as error:  # also what TOML and UTF-8 raise
        raise InvalidValueError(f"{path}: {error}") from None


def _parse_expectation(name: str, table: Any, prefix: str | None) -> Expectation:
    where = f"endpoints.{name}"
    if not isinstance(table, dict):
        raise ValueError(f"{where} is not a table; write [endpoints.NAME]")
    _reject_unknown_keys(table, _ENDPOINT_KEYS, where)
    names = EndpointSelection([name], prefix)
    for plain in names.exact_names:
        if unknown := [
            reason for key, reason in kind_of(plain).stats.row_class.unmeasured_reasons.items() if key in table
        ]:
            raise ValueError(f"{where} cannot be checked: {'; '.join(unknown)}")
    lost = _read_typed_value(table, "lost", int, None)
    publisher = _read_typed_value(table, "publisher", bool, True)
    return Expectation(
        selection=names,
        has_publisher=publisher,
        subscriber_range=_parse_range(table, "subscribers"),
        rate_range=_parse_range(table, "rate"),
        size_range=_parse_range(table, "size"),
        lost_limit=lost,
        is_optional=_read_typed_value(table, "optional", bool, False),
    )


def _reject_unknown_keys(table: dict[str, Any], allowed_keys: set[str], where: str) -> None:
    if unknown := table.keys() - allowed_keys:
        raise ValueError(
            f"{where} has unknown keys {', '.join(sorted(unknown))}; known keys are {', '.join(sorted(allowed_keys))}"
        )


def _read_typed_value(table: dict[str, Any], key: str, kind: Any, default: Any) -> Any:
    value = table.get(key, default)
    if value is not default and (not isinstance(value, kind) or (kind is not bool and isinstance(value, bool))):
        raise ValueError(f"{key} is {value!r}, which has the wrong type; give a {_TYPE_NAMES[kind]}")
    return value


def _parse_range(table: dict[str, Any], key: str) -> ValueRange:
    """Return a range. A number is the minimum. A list has the minimum and the maximum."""
    value = table.get(key)
    if value is None:
        return _ANY_RANGE
    low, high = value if isinstance(value, list) and len(value) == 2 else (value, None)
    for bound in (low, high):
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float))):
            raise ValueError(f"{key} is {value!r}; give a minimum, or [minimum, maximum]")
    if high is not None and high < low:
        raise ValueError(f"{key} is {value!r}: the maximum is below the minimum; swap the numbers")
    return low, high


def check_endpoint(expected: Expectation, row: AnyEndpointRow, reading: MeterReading | None) -> Iterator[CheckFinding]:
    """Compare an existing endpoint with its expectation. `reading`: result of its meter; None: no meter."""

    def make_finding(condition: str, ok: bool, text: str) -> CheckFinding:
        return CheckFinding(row.endpoint, condition, ok, text)

    unknown = row.unmeasured_reasons
    if expected.has_publisher is not None:
        lives = row.live_publisher_count > 0
        yield make_finding(
            "publisher", lives == expected.has_publisher, "living publisher" if lives else "no living publisher"
        )
    if expected.subscriber_range != _ANY_RANGE:
        living = row.live_subscriber_count
        text = unknown.get(
            "subscribers", "unknown subscribers" if living is None else format_count_noun(living, "subscriber")
        )
        yield make_finding("subscribers", living is not None and _is_in_range(living, expected.subscriber_range), text)
    if expected.rate_range != _ANY_RANGE:
        rate = _read_message_rate(row, reading)
        text = f"{format_rate(rate)} messages/s, expected {_format_range(expected.rate_range)}"
        yield make_finding("rate", rate is not None and _is_in_range(rate, expected.rate_range), text)
    if expected.size_range != _ANY_RANGE:
        yield make_finding("size", *_check_message_size(expected.size_range, row, reading))
    if expected.lost_limit is not None:
        lost = (
            None
            if row.previous_counts is None or row.lost is None or row.previous_counts.lost is None
            else row.lost - row.previous_counts.lost
        )
        text = (
            unknown.get("lost", "unknown losses")
            if lost is None
            else f"{format_count_noun(max(0, lost), 'message')} lost by subscribers"
        )
        yield make_finding("lost", lost is not None and lost <= expected.lost_limit, text)


def _read_message_rate(row: AnyEndpointRow, reading: MeterReading | None) -> float | None:
    if reading is None:
        return row.rate
    return reading.rate if reading.rate is not None else reading.messages / reading.seconds


def _check_message_size(size_range: ValueRange, row: AnyEndpointRow, reading: MeterReading | None) -> tuple[bool, str]:
    if reading is not None:
        least, most = (reading.sizes.min, reading.sizes.max) if reading.sizes else (None, None)
    elif row.message_sizes is not None:
        least, most = row.message_sizes
    else:
        return False, row.unmeasured_reasons.get("size", "sizes of messages differ")
    if least is None or most is None:
        return False, "no message received"
    text = f"{format_bytes(least)} to {format_bytes(most)}, expected {_format_range(size_range)}"
    return _is_in_range(least, size_range) and _is_in_range(most, size_range), text


def _is_in_range(value: float, value_range: ValueRange) -> bool:
    low, high = value_range
    return (low is None or value >= low) and (high is None or value <= high)


def _format_range(value_range: ValueRange) -> str:
    low, high = value_range
    return f"at least {low:g}" if high is None else f"{low:g} to {high:g}"
