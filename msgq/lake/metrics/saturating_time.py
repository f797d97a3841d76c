"""Times and durations at the limits of 64 bits. Messages may contain any 64-bit number as a time."""

from __future__ import annotations

import numpy as np

from msgq.lake.metrics.group_by import IntegerArray

MIN_TIME, MAX_TIME = -(1 << 63), (1 << 63) - 1


def limit_time(time: int) -> int:
    """Return the time, or the nearest one of 64 bits."""
    return min(max(time, MIN_TIME), MAX_TIME)


def compute_window_start(times: IntegerArray, width: int | IntegerArray) -> IntegerArray:
    """Return the start of each time's window, ns; `MIN_TIME` if the start is below the range."""
    begin = times - times % width
    return np.where(begin > times, MIN_TIME, begin)


def subtract_saturating(times: IntegerArray, before: IntegerArray | int) -> IntegerArray:
    """Return the time differences in ns, limited to `MIN_TIME` and `MAX_TIME`."""
    difference = times - before
    beyond = ((times ^ before) & (times ^ difference)) < 0
    return np.where(beyond, np.where(times < 0, MIN_TIME, MAX_TIME), difference) if beyond.any() else difference
