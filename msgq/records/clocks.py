"""Whose time stamps are made by: the host's clock, or that of the fake's bus."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Protocol

from msgq.impl.base import clock, origin


class StampClock(Protocol):
    """Tells the time, and makes origins."""

    def time_ns(self) -> int:
        """Return the time, ns."""

    def new_origin_time(self, count: int = 1) -> int:
        """Return the time as an origin that nobody else has, ns; so many follow."""


class HostStampClock:
    """The host's. In a program that is played into virtual time it is that time, so each call looks anew."""

    def time_ns(self) -> int:
        """See `StampClock`."""
        return clock.time_ns()

    def new_origin_time(self, count: int = 1) -> int:
        """See `StampClock`."""
        return origin.new_origin_time(count)


def find_stamp_clock(backend: ModuleType) -> StampClock:
    """Return the clock of a backend, for what is connected now."""
    if backend.__name__ != "msgq.impl.fake":
        return HostStampClock()
    made: StampClock = import_module("msgq.impl.fake.bus").current_bus().clock
    return made
