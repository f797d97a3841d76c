"""Bus of the fake backend: endpoints inside this process, without shared memory, waiting or threads.

topic_state.py has the state of topics, channel_state.py the state of channels.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

from msgq.common import settings
from msgq.errors import DeadlockError, InvalidValueError, SegmentError
from msgq.impl.fake.clock import VirtualClock
from msgq.impl.fake.endpoint_state import BusMember, EndpointState, MessageHandler, combine_handlers
from msgq.impl.fake.topic_state import TopicState

DEFAULT_DATA_BYTES = 1 << 20
DATA_BYTES_MIN = 128
DATA_BYTES_MAX = 2**32 - 1


class InProcessBus:
    """Endpoints of a process. A send delivers its message before it returns.

    Virtual time advances only while a call waits.

    Attributes
    ----------
    channels, queues, records : by prefix and name; see channel_state.py, workqueue_store.py and records_store.py.
    frame_servers : frame servers by prefix and name; see visionipc/fake.py.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock(lambda ns: self.wait_until(lambda: False, ns, "its time"))
        self._topics: dict[tuple[str, str], TopicState] = {}
        self.channels: dict[tuple[str, str], EndpointState[Any]] = {}
        self.queues: dict[tuple[str, str], EndpointState[Any]] = {}
        self.records: dict[tuple[str, str], EndpointState[Any]] = {}
        self.frame_servers: dict[tuple[str, str], Any] = {}

    def open_topic(self, endpoint: str, segment_size: int, mode: int | None, prefix: str | None = None) -> TopicState:
        """Return an endpoint's topic. Creates it if necessary. Like the ring's files, it stays.

        Raises
        ------
        InvalidValueError : the size or mode is invalid.
        SegmentSizeError : the topic exists with another size.
        """
        if segment_size and not DATA_BYTES_MIN <= segment_size <= DATA_BYTES_MAX:
            allowed = f"{DATA_BYTES_MIN} to {DATA_BYTES_MAX}, or 0 for 1 MiB"
            raise InvalidValueError(f"segment_size is {segment_size} bytes; give {allowed}", endpoint)
        key = (settings.resolve_prefix(prefix), endpoint)
        topic = self._topics.get(key)
        if topic is None:
            settings.resolve_file_mode(mode, endpoint)
            topic = self._topics[key] = TopicState(endpoint, segment_size or DEFAULT_DATA_BYTES, self.choose_route)
            topic.size_is_requested = segment_size != 0
        elif segment_size:
            topic.request_size(segment_size)
        return topic

    def mark_inherited_by_fork(self) -> None:
        """In a forked child: mark all endpoints as belonging to the parent."""
        registries = self._topics, self.channels, self.queues, self.records
        for source in chain.from_iterable(registry.values() for registry in registries):
            source.mark_inherited_by_fork()
        for registry in (*registries, self.frame_servers, self.clock.alarms):
            registry.clear()

    def find_topic(self, endpoint: str, prefix: str | None = None) -> TopicState:
        """Return an endpoint's topic.

        Raises
        ------
        SegmentError : the topic does not exist.
        """
        topic = self._topics.get((settings.resolve_prefix(prefix), endpoint))
        if topic is None:
            raise SegmentError("topic not found; start its publisher first, or correct the name", endpoint)
        return topic

    def remove_topic(self, topic: TopicState) -> bool:
        """Remove the name of a topic, so that later sockets create another one.

        Return False if the name was removed before.
        """
        keys = [key for key, registered_topic in self._topics.items() if registered_topic is topic]
        for key in keys:
            del self._topics[key]
        return bool(keys)

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
