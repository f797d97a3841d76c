"""Times and durations at the borders of 64 bits: any bytes may say that a message is of such a time."""

from __future__ import annotations

import numpy as np

from msgq.lake.metrics.group_by import IntegerArray

MIN_TIME, MAX_TIME = -(1 << 63), (1 << 63) - 1


def compute_window_start(times: IntegerArray, width: int | IntegerArray) -> IntegerArray:
    """Return when the window of each time begins, ns; `MIN_TIME`, where that is before all times there are."""
    begin = times - times % width
    return np.where(begin > times, MIN_TIME, begin)


def subtract_saturating(times: IntegerArray, before: IntegerArray | int) -> IntegerArray:
    """Return how long each time is after another one, ns; `MIN_TIME` or `MAX_TIME`, where that is beyond these."""
    difference = times - before
    beyond = ((times ^ before) & (times ^ difference)) < 0
    return np.where(beyond, np.where(times < 0, MIN_TIME, MAX_TIME), difference) if beyond.any() else difference
