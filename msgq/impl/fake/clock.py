"""Time that moves only when somebody waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

NS = 1_000_000_000

#: Waits so many nanoseconds of virtual time: the bus knows who else may go on meanwhile.
Sleep = Callable[[int], None]


class Clock:
    """A virtual clock: all of `time`, without time passing.

    It starts at 0, and goes to the time of a recording as soon as one is played. All of a bus read the same clock.
    """

    def __init__(self, sleep: Sleep) -> None:
        self.now_ns = 0
        self._sleep = sleep

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_ns / NS

    #: There is one virtual time: what is monotonic is also the time of day.
    monotonic = time

    def time_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return self.now_ns

    monotonic_ns = time_ns

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; in a simulation the other nodes go on meanwhile.

        Raises
        ------
        ValueError : a negative time, as `time.sleep`.
        """
        if not seconds >= 0:
            raise ValueError(f"sleep length must be non-negative, not {seconds}")
        self._sleep(round(seconds * NS))

    @contextmanager
    def patched(self) -> Iterator[None]:
        """Make the functions of the `time` module those of this clock while the block runs.

        For code that calls ``time.time()``, ``time.monotonic()``, ``time.perf_counter()``, their ``_ns`` forms, or
        ``time.sleep()`` through the module. A name that was imported out of it (``from time import sleep``) stays real.
        The whole process sees it, so nothing else should be running.
        """
        virtual = {
            "time": self.time, "monotonic": self.time, "perf_counter": self.time,
            "time_ns": self.time_ns, "monotonic_ns": self.time_ns, "perf_counter_ns": self.time_ns,
            "sleep": self.sleep,
        }  # fmt: skip
        real = {name: getattr(time, name) for name in virtual}
        try:
            for name, function in virtual.items():
                setattr(time, name, function)
            yield
        finally:
            for name, function in real.items():
                setattr(time, name, function)
