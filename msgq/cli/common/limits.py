"""End of a command after a number of messages or lines, or after a duration."""

import math
import time


class RunLimit:
    """Limits of a run. The duration begins with the construction.

    Args:
        count: number of messages or lines; None: no limit.
        duration_s: seconds; None: no limit.
    """

    def __init__(self, count: int | None, duration_s: float | None = None) -> None:
        self._count = count
        self._end_s = math.inf if duration_s is None else time.monotonic() + duration_s

    def is_reached(self, count: int) -> bool:
        """Return True if the run is over after `count` messages or lines."""
        return (self._count is not None and count >= self._count) or self.remaining_s <= 0

    def count_remaining(self, count: int) -> int | None:
        """Return the number of messages or lines after the first `count`; None: no limit."""
        return None if self._count is None else self._count - count

    @property
    def remaining_s(self) -> float:
        """Seconds until the end; infinite without a limit."""
        return self._end_s - time.monotonic()
