"""A loop at a steady rate with a stop signal."""

import time
from collections.abc import Iterator
from typing import Protocol


class StopSignal(Protocol):
    """Stop signal with a wait, such as a `threading.Event`."""

    def is_set(self) -> bool:
        """Return True if the loop should end."""

    def wait(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for the signal, and return `is_set`."""


def rate_loop(rate_hz: float, stop: StopSignal) -> Iterator[int]:
    """Yield 0, 1, 2, ... at a steady rate until `stop`. After a delay, the loop continues at the normal rate."""
    due, period = time.monotonic(), 1 / rate_hz
    tick = 0
    while not stop.is_set():
        yield tick
        tick += 1
        due = max(due + period, time.monotonic() - period)
        stop.wait(max(0.0, due - time.monotonic()))
