"""Times and durations at the borders of 64 bits: any bytes may say that a message is of such a time."""

from __future__ import annotations

import numpy as np

from msgq.lake.metrics.group_by import Integers

LEAST, MOST = -(1 << 63), (1 << 63) - 1


def begins(times: Integers, width: int | Integers) -> Integers:
    """Return when the window of each time begins, ns; `LEAST`, where that is before all times there are."""
    found = times - times % width
    return np.where(found > times, LEAST, found)


def since(times: Integers, before: Integers | int) -> Integers:
    """Return how long each time is after another one, ns; `LEAST` or `MOST`, where that is beyond these."""
    found = times - before
    beyond = ((times ^ before) & (times ^ found)) < 0
    return np.where(beyond, np.where(times < 0, LEAST, MOST), found) if beyond.any() else found
