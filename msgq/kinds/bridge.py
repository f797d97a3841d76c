"""Forwarding of endpoints through a bridge to ZMQ, and back. Interface of the file bridge.py of each kind.

A bridge forwards endpoints of the kinds that have this part.
"""

from __future__ import annotations

import logging
import math
import os
import select
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from msgq.errors import InvalidValueError, IpcError, MessageSizeError
from msgq.impl import backend

FORWARDING_STATE = "forwarding"
BATCH_MESSAGES = 256  # messages; then the other endpoints have their turn. Well below what a ZMQ queue holds (1000)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FlowStats:
    """Counts of one topic or channel that crosses a bridge, since the construction of the bridge.

    Attributes:
        topic: endpoint of this host; channels have the prefix "channel/".
        direction: "out": from this host to ZMQ. "in": from ZMQ to this host.
        host: host of the publisher for "in"; "" for "out".
        messages: number of forwarded messages. For "out", also messages without a subscriber, or with a full queue of a
            subscriber.
        bytes: bytes of these messages.
        lost: number of messages that left the ring or the channel before the bridge read them. None: unknown. Always
            None for "in", because ZMQ does not report lost messages.
        dropped: number of received messages that the bridge could not forward. For "out": a subscriber's queue was full
            (as in `PublisherStats.dropped`), or the message exceeds MSGQ_ZMQ_MAX_BYTES. For "in": the message is too
            large for the ring or the channel's pool, the pool had no free slot, or the topic has another publisher on
            this host.
        state: "forwarding", or the reason for not forwarding.
    """

    topic: str
    direction: str
    host: str
    messages: int
    bytes: int
    lost: int | None
    dropped: int
    state: str


class BridgeLoop:
    """Waits for the descriptors of all subscribers of a bridge."""

    def __init__(self) -> None:
        self.stopped = False
        self._epoll, self._wake = select.epoll(), os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._links: dict[int, BridgeLink] = {}

    def add_link(self, fd: int, link: BridgeLink) -> None:
        """Add a descriptor and its link."""
        self._links[fd] = link
        self._epoll.register(fd, select.EPOLLIN)

    def remove_link(self, fd: int) -> None:
        """Remove a descriptor. No effect if the descriptor was not added."""
        if self._links.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def wait_for_links(self, seconds: float) -> list[BridgeLink]:
        """Wait up to `seconds`, and return the links with a readable descriptor."""
        events = self._epoll.poll(None if seconds == math.inf else max(seconds, 0))
        return [self._links[fd] for fd, _ in events if fd in self._links]

    def stop(self) -> None:
        """End the current wait and all later waits. Any thread and signal handlers may call this method."""
        self.stopped = True
        if self._wake >= 0:
            os.eventfd_write(self._wake, 1)

    def close(self) -> None:
        """Close the descriptors of the loop. A second close has no effect."""
        if self._wake >= 0:
            self._epoll.close()
            os.close(self._wake)
            self._wake = -1


class BridgeLink(ABC):
    """Forwards one endpoint from a subscriber to a publisher, and counts messages.

    Closed sockets are None. The sockets have the types of two backends, so type checkers see them as `Any`.

    A signal handler may raise an exception at any call. `_taken` then keeps the messages that the subscriber has given,
    but the publisher has not sent: the next `forward` sends them first. If the exception comes at the end of a send,
    this message is sent twice.
    """

    direction = ""
    name_prefix = ""  # name prefix of the kind

    def __init__(self, loop: BridgeLoop, topic: str, host: str) -> None:
        self._loop, self._topic, self._host = loop, topic, host
        self._sub: Any = None
        self._pub: Any = None
        self._taken: deque[bytes] = deque()
        self._messages = self._bytes = self._dropped = 0
        self._lost: int | None = 0
        self._state = ""
        self._fd = -1

    @abstractmethod
    def poll(self, state: Any) -> None:
        """Start or stop forwarding, according to a state from `find_endpoint_states`.

        None: the endpoint does not exist.

        The bridge calls this method once per second.
        """

    @abstractmethod
    def forward(self) -> None:
        """Forward waiting messages, up to the batch limit."""

    def forward_rest(self) -> None:
        """Forward what the exception of a signal handler left in an earlier call, and further waiting messages."""
        if self._taken:
            self.forward()

    def _take_batch(self) -> None:
        """Take waiting messages, up to the batch limit.

        No signal handler runs between the end of `receive_many` and the end of `extend`, because no Python code does.
        """
        self._taken.extend(chain.from_iterable(map(self._sub.receive_many, (BATCH_MESSAGES,))))

    @property
    def _zmq_endpoint(self) -> str:
        """Name on ZMQ: the name without the prefix of its kind."""
        return self._topic.removeprefix(self.name_prefix)

    def get_flow_stats(self) -> FlowStats:
        """Return the current counters."""
        counts = (self._messages, self._bytes, self._lost, self._dropped)
        return FlowStats(self._topic, self.direction, self._host, *counts, self._state)

    def _set_state(self, state: str) -> None:
        if state != self._state and state != FORWARDING_STATE:
            _logger.warning("%s: %s", self._topic, state)
        self._state = state

    def _register_subscriber(self) -> None:
        self._fd = self._sub.fileno()
        self._loop.add_link(self._fd, self)

    def _close_publisher(self) -> None:
        pub, self._pub = self._pub, None
        if pub is not None:
            pub.close()

    def _close_subscriber(self) -> None:
        fd, self._fd = self._fd, -1  # another link may get the same number
        self._loop.remove_link(fd)
        sub, self._sub = self._sub, None
        if sub is not None:
            sub.close()

    def close(self) -> None:
        """Close both sockets. The counters stay."""
        self._close_subscriber()
        self._close_publisher()


class OutgoingLink(BridgeLink):
    """Forwards from this host to ZMQ. Subclasses define the subscriber.

    `_previous_lost` and `_previous_dropped` are the counts of earlier sockets.
    """

    direction = "out"

    def __init__(self, loop: BridgeLoop, topic: str, zmq_names: dict[str, str]) -> None:
        """Start without sockets. `zmq_names`: for the whole bridge, the endpoint that each ZMQ name forwards."""
        super().__init__(loop, topic, "")
        self._zmq_names = zmq_names
        self._previous_lost: int | None = 0
        self._previous_dropped = 0

    @abstractmethod
    def _open_subscriber(self) -> Any:
        """Return a subscriber of the endpoint. While no message waits, its descriptor is not readable."""

    def _open_sockets(self) -> None:
        other = self._zmq_names.setdefault(self._zmq_endpoint, self._topic)
        if other != self._topic:
            text = f"{other} is published as {self._zmq_endpoint!r} already; give --out only one of them"
            self._set_state(f"not published on ZMQ: {text}")
            return
        try:
            self._sub = self._open_subscriber()
            self._pub = open_socket("zmq", "PubSocket", self._zmq_endpoint)
            self._register_subscriber()
        except InvalidValueError:
            raise
        except IpcError as error:
            self.close()
            self._set_state(f"not published on ZMQ: {error}")
            return
        self._previous_lost, self._previous_dropped = self._lost, self._dropped
        self._set_state(FORWARDING_STATE)

    def _send_taken(self) -> None:
        while self._taken:
            size = len(self._taken[0])
            try:
                self._pub.send(self._taken[0])
            except MessageSizeError as error:
                del self._taken[0]
                self._previous_dropped += 1
                _logger.warning("dropped: %s", error)
            else:
                del self._taken[0]  # no call follows, so no signal handler comes between the message and its counts
                self._messages += 1
                self._bytes += size
        self._dropped = self._previous_dropped + self._pub.stats().dropped

    def _update_lost_count(self) -> None:
        self._lost = _add_if_known(self._previous_lost, self._sub.lost)

    def close(self) -> None:
        """Close both sockets, and free the name on ZMQ. The counters stay, and taken messages count as dropped."""
        super().close()
        self._dropped += len(self._taken)
        self._taken.clear()
        if self._zmq_names.get(self._zmq_endpoint) == self._topic:
            del self._zmq_names[self._zmq_endpoint]


class IncomingLink(BridgeLink):
    """Forwards from ZMQ to this host. Subclasses define the publisher."""

    direction = "in"

    def __init__(self, loop: BridgeLoop, topic: str, host: str) -> None:
        super().__init__(loop, topic, host)
        self._lost = None
        self._sub = open_socket("zmq", "SubSocket", self._zmq_endpoint, host)
        self._register_subscriber()

    @abstractmethod
    def _publish_message(self, message: bytes) -> bool:
        """Publish a message on this host. Return False if that is impossible."""

    def forward(self) -> None:
        """Forward waiting messages, up to the batch limit."""
        self._take_batch()
        while self._taken:
            size = len(self._taken[0])
            is_published = self._pub is not None and self._publish_message(self._taken[0])
            del self._taken[0]
            if is_published:
                self._messages += 1
                self._bytes += size
            else:
                self._dropped += 1


@dataclass(frozen=True, slots=True)
class KindBridge:
    """Functions that forward endpoints of a kind. The thread of the bridge makes all calls.

    Attributes:
        find_endpoint_states: returns the state of each endpoint of this host in the current prefix, by full name.
        open_outgoing_link: takes the loop, an endpoint, and the bridge's endpoints by ZMQ name; returns the link.
        open_incoming_link: takes the loop, an endpoint, the host of its publisher, and the bytes of a new ring; returns
            the link.
    """

    find_endpoint_states: Callable[[], dict[str, Any]]
    open_outgoing_link: Callable[[BridgeLoop, str, dict[str, str]], BridgeLink]
    open_incoming_link: Callable[[BridgeLoop, str, str, int], BridgeLink]


def open_socket(backend_name: str, kind: str, topic: str, *arguments: Any) -> Any:
    """Return a connected socket of a backend. A ring's socket registers as a socket of a bridge."""
    module = backend.load_backend(backend_name)
    socket = getattr(module, kind)()
    if backend_name == "msgq":
        socket._for_bridge = True
    socket.connect(module.Context(), topic, *arguments)
    return socket


def _add_if_known(before: int | None, now: int | None) -> int | None:
    return None if before is None or now is None else before + now
