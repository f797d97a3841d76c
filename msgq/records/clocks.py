"""Clocks for timestamps: the host's clock, or the clock of the fake backend's bus."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Protocol

from msgq.impl.base import clock


class StampClock(Protocol):
    """A clock that returns times and unique origins."""

    def time_ns(self) -> int:
        """Return the time in nanoseconds."""

    def new_origin_time(self, count: int = 1) -> int:
        """Return the time as a unique origin, in nanoseconds. The next `count` - 1 nanoseconds are reserved, too."""


class HostStampClock:
    """Clock of the host. In a program that is played in virtual time, each call returns the virtual time."""

    def time_ns(self) -> int:
        """See `StampClock`."""
        return clock.time_ns()

    def new_origin_time(self, count: int = 1) -> int:
        """See `StampClock`."""
        return clock.new_origin_time(count)


def find_stamp_clock(backend: ModuleType) -> StampClock:
    """Return the clock of a backend for new connections."""
    if backend.__name__ != "msgq.impl.fake":
        return HostStampClock()
    made: StampClock = import_module("msgq.impl.fake.bus").current_bus().clock
    return made
