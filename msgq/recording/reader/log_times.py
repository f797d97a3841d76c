"""Times that users give to select messages of a log."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from msgq.errors import InvalidTypeError, InvalidValueError

if TYPE_CHECKING:
    import numpy as np

#: Accepted types for a time of a log.
LogTime: TypeAlias = "int | str | datetime | np.datetime64"
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
        return int(time.astype("datetime64[ns]").astype(np.int64))
    if isinstance(time, str):
        try:
            time = datetime.fromisoformat(time.strip())
        except ValueError:
            hint = "give a time such as '2026-05-01T12:00:00+02:00', or ns since the epoch as an int"
            raise InvalidValueError(f"{time!r} is not a time; {hint}") from None
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return (aware - _UNIX_EPOCH) // timedelta(microseconds=1) * 1000 + getattr(time, "nanosecond", 0)
    try:
        return operator.index(time)
    except TypeError:
        text = (
            f"time is {time!r}, of type {type(time).__name__}; give ns since the epoch as an int, a text or a datetime"
        )
        raise InvalidTypeError(text) from None


def parse_time_range(start: LogTime | None, end: LogTime | None) -> tuple[int | None, int | None]:
    """Return both limits in ns since the epoch, as `parse_log_time`. Equal limits form an empty range.

    Raises:
        InvalidValueError: also if `start` is later than `end`.
    """
    start_ns, end_ns = parse_log_time(start), parse_log_time(end)
    if start_ns is not None and end_ns is not None and start_ns > end_ns:
        raise InvalidValueError(f"start {start!r} is later than end {end!r}; swap start and end")
    return start_ns, end_ns
