"""How far the wall clock is from the host's, over the time of a recording."""

from __future__ import annotations

from typing import NamedTuple

from msgq.impl.base import clock

_CLOCK_STEP_MIN_NS = 10_000  # a smaller one is how exactly two clocks can be read at once
_READINGS_MAX = 1000


class ClockReading(NamedTuple):
    """What the wall clock added to CLOCK_MONOTONIC, and since when, by the host's clock; 0: since the beginning."""

    since_ns: int
    offset_ns: int


class WallClock:
    """Notices that the wall clock was set, by somebody, or by a suspend. One thread looks, another asks."""

    def __init__(self) -> None:
        self._readings = [ClockReading(0, clock.wall_offset_ns())]

    def sample_offset(self) -> None:
        """Look at it: what it was set since the last look, it was just now."""
        offset = clock.wall_offset_ns()
        if abs(offset - self._readings[-1].offset_ns) > _CLOCK_STEP_MIN_NS:
            self._readings = [*self._readings[1 - _READINGS_MAX :], ClockReading(clock.time_ns(), offset)]

    def find_reading(self, time_ns: int) -> ClockReading:
        """Return what it was at a time."""
        return next((reading for reading in reversed(self._readings) if reading.since_ns <= time_ns), self._readings[0])

    def list_readings(self, since_ns: int, until_ns: int) -> list[ClockReading]:
        """Return what it was set to after a time, up to another."""
        return [reading for reading in self._readings if since_ns < reading.since_ns <= until_ns]
