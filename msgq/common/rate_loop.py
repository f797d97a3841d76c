"""Doing something at a steady rate until told to end."""

import time
from collections.abc import Iterator
from typing import Protocol


class StopSignal(Protocol):
    """What is waited with between two looks: a `threading.Event`, or one of virtual time."""

    def is_set(self) -> bool:
        """Whether the role shall come to its end."""

    def wait(self, timeout: float) -> bool:
        """Wait so many seconds, or until `is_set`, which is returned."""


def rate_loop(rate_hz: float, stop: StopSignal) -> Iterator[int]:
    """Count at a steady rate until `stop`; what comes too late is not made up for by a flood."""
    due, period = time.monotonic(), 1 / rate_hz
    tick = 0
    while not stop.is_set():
        yield tick
        tick += 1
        due = max(due + period, time.monotonic() - period)
        stop.wait(max(0.0, due - time.monotonic()))
