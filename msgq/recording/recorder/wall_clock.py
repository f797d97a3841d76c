"""Difference of the wall clock and the host's clock during a recording."""

from __future__ import annotations

from typing import NamedTuple

from msgq.impl.base import clock

_CLOCK_STEP_MIN_NS = 10_000  # a smaller one is how exactly two clocks can be read at once
_READINGS_MAX = 1000


class ClockReading(NamedTuple):
    """A reading of the wall clock.

    A reading has the offset of the wall clock from CLOCK_MONOTONIC in ns, and the host's time since which this offset
    is valid; 0: since the start.
    """

    since_ns: int
    offset_ns: int


class WallClock:
    """Detects settings of the wall clock, by a user or by a suspend. One thread samples, another thread reads."""

    def __init__(self) -> None:
        self._readings = [ClockReading(0, clock.wall_offset_ns())]

    def sample_offset(self) -> None:
        """Read the wall clock.

        If its offset changed since the last sample, store the new offset with the current time.
        """
        offset = clock.wall_offset_ns()
        if abs(offset - self._readings[-1].offset_ns) > _CLOCK_STEP_MIN_NS:
            self._readings = [*self._readings[1 - _READINGS_MAX :], ClockReading(clock.time_ns(), offset)]

    def find_reading(self, time_ns: int) -> ClockReading:
        """Return the reading that was valid at a time."""
        return next((reading for reading in reversed(self._readings) if reading.since_ns <= time_ns), self._readings[0])

    def list_readings(self, since_ns: int, until_ns: int) -> list[ClockReading]:
        """Return the readings after one time, up to another time."""
        return [reading for reading in self._readings if since_ns < reading.since_ns <= until_ns]
