"""Virtual time, which advances only while a call waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgq.common.units import NS_PER_S
from msgq.impl.base import clock as host
from msgq.impl.base.core import VirtualTime

#: Waits so many nanoseconds of virtual time: the bus knows who else may go on meanwhile.
SleepFunction = Callable[[int], None]


class VirtualClock(VirtualTime):
    """A virtual clock with the functions of `time`.

    The clock starts at 1 s, because a time of 0 means "never" or "unknown" in statistics, events and origins. A
    simulation sets the clock to 0, where its inputs begin, and to the time of a recording when the recording is played.
    All users of a bus share the clock.

    Attributes:
        now_ns: current time in ns.
        alarms: time in ns and function of each alarm, by its owner.
    """

    def __init__(self, sleep_ns: SleepFunction) -> None:
        self.now_ns = NS_PER_S
        self.alarms: dict[object, tuple[int, Callable[[], object]]] = {}
        self._sleep_ns = sleep_ns

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.now_ns / NS_PER_S

    #: There is one virtual time: what is monotonic is also the time of day.
    monotonic = time

    def time_ns(self) -> int:
        """Return the virtual time in nanoseconds."""
        return self.now_ns

    monotonic_ns = time_ns

    def sleep(self, seconds: float) -> None:
        """Advance the time by `seconds`. In a simulation, other nodes run during this time.

        Raises:
            ValueError: the time is negative, as in `time.sleep`.
        """
        if not seconds >= 0:
            raise ValueError(f"sleep length must be non-negative, not {seconds}")
        self._sleep_ns(round(seconds * NS_PER_S))

    def run_next_alarm(self, until_ns: int | None) -> bool:
        """Advance to the next alarm, and run it. Return False if no alarm is due up to `until_ns`; None: no limit."""
        if not self.alarms:
            return False
        next_alarm = min(self.alarms, key=lambda alarm: self.alarms[alarm][0])
        if until_ns is not None and self.alarms[next_alarm][0] > until_ns:
            return False
        time_ns, callback = self.alarms.pop(next_alarm)
        self.now_ns = max(self.now_ns, time_ns)
        callback()
        return True

    @contextmanager
    def patch_time(self) -> Iterator[None]:
        """Within the block, replace functions of the `time` module by those of this clock.

        The block affects ``time.time()``, ``time.monotonic()``, ``time.perf_counter()``, their ``_ns`` forms,
        ``time.sleep()``, and the timestamps of msgq. Names that were imported before (``from time import sleep``) are
        not replaced. The whole process is affected, so no other code should run. Existing threads still sleep in real
        time.
        """
        other_threads, real_sleep = {*threading.enumerate()} - {threading.current_thread()}, time.sleep

        def sleep(seconds: float) -> None:
            (real_sleep if threading.current_thread() in other_threads else self.sleep)(seconds)

        virtual_functions = {
            (time, "time"): self.time,
            (time, "monotonic"): self.time,
            (time, "perf_counter"): self.time,
            (time, "time_ns"): self.time_ns,
            (time, "monotonic_ns"): self.time_ns,
            (time, "perf_counter_ns"): self.time_ns,
            (time, "sleep"): sleep,
            (host, "time_ns"): self.time_ns,
            (host, "new_origin_time"): self.new_origin_time,
        }
        real_functions = {location: getattr(*location) for location in virtual_functions}
        try:
            for location, function in virtual_functions.items():
                setattr(*location, function)
            yield
        finally:
            for location, function in real_functions.items():
                setattr(*location, function)
