"""What came in the last so many seconds, in bounded memory, and how figures are spread."""

import math
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np

RowArray = np.ndarray[Any, np.dtype[Any]]
WINDOW_ROWS_MAX = 1 << 20  # rows that a window keeps; where more come it is shorter, and says so


@dataclass(frozen=True)
class _WindowSample:
    time_s: float
    rows: list[RowArray]
    count: int
    lost: int | None
    left_out: int


class SlidingWindow:
    """Rows of the last seconds, look by look; the oldest leave.

    Parameters
    ----------
    seconds : how long it is.
    began_s : since when we look, by the monotonic clock.
    most : rows that it keeps.
    """

    def __init__(self, seconds: float, began_s: float, most: int = WINDOW_ROWS_MAX) -> None:
        self._seconds, self._since_s, self._most = seconds, began_s, most
        self._samples: deque[_WindowSample] = deque()
        self._count = 0

    def add_sample(self, now_s: float, rows: list[RowArray], lost: int | None = 0, left_out: int = 0) -> None:
        """Add what a look found: rows, how many messages were lost meanwhile, and how many made no sense."""
        count = sum(map(len, rows))
        if count or lost != 0 or left_out:
            self._samples.append(_WindowSample(now_s, rows, count, lost, left_out))
            self._count += count
        self.drop_old_samples(now_s)

    def drop_old_samples(self, now_s: float) -> None:
        """Let go of what is too old, or too much; the newest look stays."""
        while self._samples and (
            self._samples[0].time_s < now_s - self._seconds or (self._count > self._most and len(self._samples) > 1)
        ):
            sample = self._samples.popleft()
            self._count -= sample.count
            self._since_s = max(self._since_s, sample.time_s)

    def compute_duration_s(self, now_s: float) -> float:
        """Return how long it is by now: less than was wanted at the beginning, and where too much comes."""
        return min(self._seconds, now_s - self._since_s)

    def concatenate_rows(self, like: np.dtype[Any]) -> RowArray:
        """Return all rows, oldest first. like : their type, for when there are none."""
        return np.concatenate([np.empty(0, like), *(rows for sample in self._samples for rows in sample.rows)])

    @property
    def is_empty(self) -> bool:
        """Whether nothing came."""
        return not self._samples

    @property
    def lost(self) -> int | None:
        """Messages that were lost; None: nobody knows how many."""
        known = [sample.lost for sample in self._samples if sample.lost is not None]
        return sum(known) if len(known) == len(self._samples) else None

    @property
    def left_out(self) -> int:
        """Messages that made no sense."""
        return sum(sample.left_out for sample in self._samples)


@dataclass(frozen=True)
class DurationSpread:
    """How durations are spread, ns: how many there are, and None for all else where that is 0."""

    count: int
    p50: int | None = None
    p99: int | None = None
    max: int | None = None


def compute_spread(durations: RowArray) -> DurationSpread:
    """Return how durations are spread."""
    if not len(durations):
        return DurationSpread(0)
    ordered = np.sort(durations)
    return DurationSpread(len(ordered), pick_percentile(ordered, 0.5), pick_percentile(ordered, 0.99), int(ordered[-1]))


def pick_percentile(ordered: RowArray, share: float) -> int:
    """Return the one of some sorted figures that Spark's percentile_approx gives, which is exact up to 5000 of them.

    It is one of the figures, none between two; Spark keeps them as doubles.
    """
    return int(float(ordered[math.ceil(share * len(ordered)) - 1]))
