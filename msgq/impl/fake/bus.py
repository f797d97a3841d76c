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
from msgq.impl.fake.endpoint_state import BusMember, EndpointState, MessageHandler, combine_handlers


class InProcessBus(Bus):
    """Endpoints of a process. A send delivers its message before it returns.

    Virtual time advances only while a call waits.

    Attributes
    ----------
    frame_servers : frame servers by prefix and name; see visionipc/fake.py.
    """

    if TYPE_CHECKING:
        clock: VirtualClock

    def __init__(self) -> None:
        self._sources: dict[int, EndpointState[Any]] = {}
        super().__init__(VirtualClock(lambda ns: self.wait_until(lambda: False, ns, "its time")))
        self.frame_servers: dict[tuple[str, str], Any] = {}

    def mark_inherited_by_fork(self) -> None:
        """In a forked child: forget the parent's endpoints."""
        for registry in (self._sources, self.frame_servers, self.clock.alarms):
            registry.clear()

    def find_source(self, number: int, make: Callable[[Callable[..., Any]], EndpointState[Any]]) -> Any:
        """Return the endpoint with this number of its file. Makes it if it is new."""
        source = self._sources.get(number)
        if source is None:
            self.pin_file(number)
            source = self._sources[number] = make(self.choose_route)
        return source

    def choose_route(self, source: EndpointState[Any]) -> MessageHandler:
        """Return the handler for messages of an endpoint."""
        return combine_handlers([inbox.message_handler for inbox in source.inboxes])

    def on_member_opened(self, socket: BusMember) -> None:
        """Called when a socket, a channel participant, or a handle of a queue or of records is opened."""

    def on_message_taken(self, source: EndpointState[Any], number: int) -> None:
        """Called when a consumer has taken a message of a queue, with its number from 1."""

    def run_notification(self, _handle: BusMember, call: Callable[[], object]) -> None:
        """Call the notification function of a queue's handle. Its exceptions do not reach the sender."""
        try:
            call()
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def can_wait(self) -> bool:
        """Return True if the current code can wait in a call. Otherwise, a call that would wait raises an error."""
        return True

    def check_descriptor_allowed(self, endpoint: str) -> None:
        """Raise an error if a wait for a descriptor would never end.

        On this bus, other code may send during the wait.
        """

    def wait_until(self, ready: Callable[[], bool], timeout_ns: int | None, subject: str) -> None:
        """Wait until `ready` returns True, or until the timeout in virtual time.

        Without a simulation, only the time advances.

        Parameters
        ----------
        ready : called after each event.
        timeout_ns : timeout in ns; None: forever.
        subject : awaited object, for error texts.

        Raises
        ------
        DeadlockError : the wait would never end.
        """
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


def _mark_inherited_by_fork() -> None:
    for bus in _bus_stack:
        bus.mark_inherited_by_fork()


os.register_at_fork(after_in_child=_mark_inherited_by_fork)


def current_bus() -> InProcessBus:
    """Return the bus for new sockets: that of the active simulation, or of the process."""
    return _bus_stack[-1]


def activate_bus(bus: InProcessBus) -> None:
    """Connect new sockets to this bus, until `restore_previous_bus`."""
    _bus_stack.append(bus)


def restore_previous_bus(bus: InProcessBus) -> None:
    """Connect new sockets to the bus before `activate_bus`."""
    _bus_stack.remove(bus)
