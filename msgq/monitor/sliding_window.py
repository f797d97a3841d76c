"""Rows of the last seconds in limited memory, and the distribution of durations."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

RowArray = np.ndarray[Any, np.dtype[Any]]
WINDOW_ROWS_MAX = 1 << 20  # maximum rows. With more rows, the window is shorter, and reports that


@dataclass(frozen=True)
class _WindowSample:
    time_s: float
    rows: list[RowArray]
    count: int
    lost: int | None
    left_out: int


class SlidingWindow:
    """Rows of the last seconds, grouped by sample. Old samples are removed.

    Args:
        seconds: length of the window.
        began_s: start of the measurement, in seconds of the monotonic clock.
        most: maximum number of rows.
    """

    def __init__(self, seconds: float, began_s: float, most: int = WINDOW_ROWS_MAX) -> None:
        self._seconds, self._since_s, self._most = seconds, began_s, most
        self._samples: deque[_WindowSample] = deque()
        self._count = 0

    def add_sample(self, now_s: float, rows: list[RowArray], lost: int | None = 0, left_out: int = 0) -> None:
        """Add a sample: its rows, the messages lost since the previous sample, and the number of invalid messages."""
        count = sum(map(len, rows))
        if count or lost != 0 or left_out:
            self._samples.append(_WindowSample(now_s, rows, count, lost, left_out))
            self._count += count
        self.drop_old_samples(now_s)

    def drop_old_samples(self, now_s: float) -> None:
        """Remove old and excess samples. The newest sample stays."""
        while self._samples and (
            self._samples[0].time_s < now_s - self._seconds or (self._count > self._most and len(self._samples) > 1)
        ):
            sample = self._samples.popleft()
            self._count -= sample.count
            self._since_s = sample.time_s

    def compute_duration_s(self, now_s: float) -> float:
        """Return the current length of the window.

        The window is shorter after the start, and if too many rows arrive.
        """
        return min(self._seconds, now_s - self._since_s)

    def concatenate_rows(self, like: np.dtype[Any]) -> RowArray:
        """Return all rows, oldest first. `like`: dtype of the result."""
        return np.concatenate([np.empty(0, like), *(rows for sample in self._samples for rows in sample.rows)])

    @property
    def is_empty(self) -> bool:
        """True if the window has no samples."""
        return not self._samples

    @property
    def lost(self) -> int | None:
        """Number of lost messages; None: unknown."""
        counts = [sample.lost for sample in self._samples if sample.lost is not None]
        return sum(counts) if len(counts) == len(self._samples) else None

    @property
    def left_out(self) -> int:
        """Number of invalid messages."""
        return sum(sample.left_out for sample in self._samples)


@dataclass(frozen=True)
class DurationSpread:
    """Distribution of durations in ns. If the count is 0, the other values are None."""

    count: int
    p50: int | None = None
    p99: int | None = None
    max: int | None = None


def compute_spread(durations: RowArray) -> DurationSpread:
    """Return the distribution of durations."""
    if not len(durations):
        return DurationSpread(0)
    ordered = np.sort(durations)
    return DurationSpread(len(ordered), pick_percentile(ordered, 0.5), pick_percentile(ordered, 0.99), int(ordered[-1]))


def pick_percentile(ordered: RowArray, share: float) -> int:
    """Return the percentile of sorted values as Spark's percentile_approx does, which is exact for up to 5000 values.

    The result is one of the values, without interpolation. Spark stores the values as doubles.
    """
    return int(float(ordered[math.ceil(share * len(ordered)) - 1]))
