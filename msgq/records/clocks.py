"""Clocks for timestamps: the host's clock, or the clock of the fake backend's bus."""

from __future__ import annotations

from types import ModuleType
from typing import Protocol

from msgq.impl import backend as backends
from msgq.impl.base import clock as host_clock


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
        return host_clock.time_ns()

    def new_origin_time(self, count: int = 1) -> int:
        """See `StampClock`."""
        return host_clock.new_origin_time(count)


def find_stamp_clock(backend: ModuleType) -> StampClock:
    """Return the clock of a backend for new connections."""
    return backends.find_clock(backend) if backends.is_fake_backend(backend) else HostStampClock()


def time_ns() -> int:
    """Return the current time of the host's clock, in nanoseconds since 1970.

    All processes of the host have this clock, and origins and publishing times are its times (docs/internals/clock.md).
    In a simulation, the result is the virtual time.
    """
    return backends.time_ns()


def to_host_time(time_ns: int, clock: int) -> int:
    """Return a time of another clock as a time of the host's clock, in nanoseconds.

    ::

        pub.send(data, origin_time=msgq.to_host_time(sensor_time, time.CLOCK_BOOTTIME))

    All processes get the same result for the same time, unless the machine slept or a clock was set in between. The
    error is at most 0.5 ms, and 0 for CLOCK_BOOTTIME of a machine that never slept. In a simulation, all clocks are the
    virtual one, so the result is `time_ns`.

    Args:
        time_ns: nanoseconds of the other clock.
        clock: number of the clock, for example `time.CLOCK_BOOTTIME` or `time.CLOCK_MONOTONIC`.

    Raises:
        InvalidValueError: the system has no such clock.
    """
    return time_ns if backends.is_fake_backend() else host_clock.to_host_time(time_ns, clock)
