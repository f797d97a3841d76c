"""Names of the additional timestamp columns of tables for SQL."""

from __future__ import annotations

from collections.abc import Iterable

_TIME_COLUMNS = (
    *("publish_time", "log_time", "origin_time", "window_start", "start_time", "end_time", "from_time", "to_time"),
    *("sent_time", "delivered_time", "ended_time"),
)


def list_timestamp_columns(columns: Iterable[str], times: Iterable[str] = ()) -> dict[str, str]:
    """Return the time column of each timestamp column. `times`: time columns to use; empty: all in `columns`."""
    present = set(columns)
    names = [name for name in times or _TIME_COLUMNS if name in present]
    return {"window_timestamp" if name == "window_start" else f"{name}stamp": name for name in names}
