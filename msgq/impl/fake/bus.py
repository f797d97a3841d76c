"""Bus of the fake backend: endpoints inside this process, without shared memory, waiting or threads.

topic.py and channel.py have what a simulation does between the handles of topics and channels.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgq.errors import DeadlockError
from msgq.impl.base.core import Bus
from msgq.impl.fake.clock import VirtualClock


class InProcessBus(Bus):
    """The bus of a process, or of a simulation. A message has arrived when its send returns.

    Virtual time advances only while a call waits.

    Attributes:
        frame_servers: frame servers by prefix and name; see visionipc/fake.py.
    """

    if TYPE_CHECKING:
        clock: VirtualClock

    def __init__(self) -> None:
        super().__init__(VirtualClock(lambda ns: self.wait_until(lambda: False, ns, "its time")))
        self.frame_servers: dict[tuple[str, str], Any] = {}

    def forget_parent(self) -> None:
        """In a forked child: forget what belongs to the parent."""
        self.frame_servers.clear()
        self.clock.alarms.clear()

    def run_notification(self, _handle: Any, call: Callable[[], object]) -> None:
        """Call the notification function of a queue's handle. Its exceptions do not reach the sender."""
        try:
            call()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def wait_until(self, ready: Callable[[], bool], timeout_ns: int | None, subject: str) -> None:
        """Wait as `Bus` describes; without a simulation, only the virtual time advances."""
        end_ns = None if timeout_ns is None else self.clock.now_ns + timeout_ns
        while self.clock.run_next_alarm(end_ns):
            if ready():
                return
        if end_ns is None:
            text = (
                f"wait for {subject} would never end: no other code runs on this bus; use the nodes of msgq.simulation"
            )
            raise DeadlockError(text)
        self.clock.now_ns = end_ns


_bus_stack = [InProcessBus()]


def _forget_parent() -> None:
    for bus in _bus_stack:
        bus.forget_parent()


os.register_at_fork(after_in_child=_forget_parent)


def current_bus() -> InProcessBus:
    """Return the bus for new sockets: that of the active simulation, or of the process."""
    return _bus_stack[-1]


def activate_bus(bus: InProcessBus) -> None:
    """Connect new sockets to this bus, until `restore_previous_bus`."""
    _bus_stack.append(bus)


def restore_previous_bus(bus: InProcessBus) -> None:
    """Connect new sockets to the bus before `activate_bus`."""
    _bus_stack.remove(bus)
