"""Times that users give to select messages of a log."""

from __future__ import annotations

import operator
import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from msgq.common.units import NS_PER_DAY, NS_PER_S
from msgq.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    import numpy as np

#: Accepted types for a time of a log.
LogTime: TypeAlias = "int | str | datetime | np.datetime64"
_CYCLE_MONTHS, _CYCLE_DAYS = 4800, 146_097  # length of 400 years, after which the calendar repeats
_UNIT_NS = {"W": 7 * NS_PER_DAY, "D": NS_PER_DAY, "h": 3600 * NS_PER_S, "m": 60 * NS_PER_S, "s": NS_PER_S}
_UNIT_NS |= {"ms": 1_000_000, "us": 1000, "ns": 1}
_UNITS_PER_NS = {"ps": 1000, "fs": 1_000_000, "as": NS_PER_S}
_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_log_time(time: LogTime | None) -> int | None:
    """Return a time in ns since the epoch; None: no limit.

    Args:
        time: ns since the epoch; an ISO 8601 text, such as "2026-05-01T12:00" or "2026-05-01T12:00:00+02:00"; a
            datetime; or a datetime64. A text or a datetime without a UTC offset is in UTC, as in the command line.

    Raises:
        InvalidValueError: a text is not a time, or the time is not a time (NaT).
        InvalidTypeError: another type.
    """
    if time is None:
        return None
    import numpy as np  # imported late: most logs are opened without a time

    if isinstance(time, np.datetime64):
        if np.isnat(time):
            raise InvalidValueError("time is NaT (not a time); give another time, or None for no limit")
        return _convert_datetime64(time)
    if isinstance(time, str):
        try:
            return parse_time_text(time)
        except ValueError:
            hint = "give a time such as '2026-05-01T12:00:00+02:00', or ns since the epoch as an int"
            raise InvalidValueError(f"{time!r} is not a time; {hint}") from None
    if isinstance(time, datetime):
        return _convert_datetime(time) + getattr(time, "nanosecond", 0)
    try:
        return operator.index(time)
    except TypeError:
        text = (
            f"time is {time!r}, of type {type(time).__name__}; give ns since the epoch as an int, a text or a datetime"
        )
        raise InvalidTypeError(text) from None


def parse_time_text(text: str) -> int:
    """Return an ISO 8601 time in ns since the epoch, also of a text with nine digits of a second.

    Raises:
        ValueError: the text is not a time.
    """
    time = datetime.fromisoformat(text.strip())  # leaves out digits after the sixth
    digits = re.search(r"[.,]\d{6}(\d{1,3})", text)
    return _convert_datetime(time) + (int(digits[1].ljust(3, "0")) if digits else 0)


def _convert_datetime(time: datetime) -> int:
    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return (aware - _UNIX_EPOCH) // timedelta(microseconds=1) * 1000


def _convert_datetime64(time: np.datetime64) -> int:
    """Return a time in ns since the epoch, also if 64 bits are too few, as they are before 1678 and after 2262."""
    import numpy as np

    unit, unit_count = np.datetime_data(time)
    count = int(time.astype(np.int64)) * unit_count
    if unit in ("Y", "M"):
        cycles, months = divmod(count * (12 if unit == "Y" else 1), _CYCLE_MONTHS)
        days = int(np.datetime64(months, "M").astype("datetime64[D]").astype(np.int64))
        return (cycles * _CYCLE_DAYS + days) * _UNIT_NS["D"]
    return count * _UNIT_NS[unit] if unit in _UNIT_NS else count // _UNITS_PER_NS[unit]


def parse_time_range(start: LogTime | None, end: LogTime | None) -> tuple[int | None, int | None]:
    """Return both limits in ns since the epoch, as `parse_log_time`. Equal limits form an empty range.

    Raises:
        InvalidValueError: also if `start` is later than `end`.
    """
    start_ns, end_ns = parse_log_time(start), parse_log_time(end)
    if start_ns is not None and end_ns is not None and start_ns > end_ns:
        raise InvalidValueError(f"start {start!r} is later than end {end!r}; swap start and end")
    return start_ns, end_ns
