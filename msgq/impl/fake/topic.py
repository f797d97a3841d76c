"""Topics on the bus: the sockets of the ring, and what a simulation does between them.

A simulation delivers each message to each subscriber at a time of its own. The ring has the message as soon as it is
sent; a subscriber sees only what has arrived (`ArrivalView`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgq.common.schema import Schema
from msgq.impl.base.core import Poller as CorePoller
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, SubscriberInbox
from msgq.impl.fake.handle import PublisherOnBus, SubscriberOnBus
from msgq.impl.ring import core as ring
from msgq.impl.sockets.polling import PyzmqPoller

if TYPE_CHECKING:
    from msgq.impl.fake.endpoint_state import SimulationBus
    from msgq.impl.ring.core import ArrivalView


class TopicState(EndpointState["TopicInbox"]):
    """A topic in a simulation.

    Attributes:
        schema: schema of the messages, set by the last publisher that gave one.
        extract_picture: for a frame stream: converts a message for `Simulation.sent_messages`.
    """

    def __init__(self, endpoint: str, bus: SimulationBus) -> None:
        super().__init__(endpoint, bus)
        self.schema: Schema | None = None
        self.extract_picture: Callable[[bytes], bytes] | None = None

    def publish(self, sender: PubSocket, message: BusMessage) -> None:
        """See `EndpointState`."""
        for inbox in self.inboxes:
            inbox.forget_overwritten(message[0])
        super().publish(sender, message)


class TopicInbox(SubscriberInbox):
    """The messages on their way to one subscriber of a topic."""

    _view: ArrivalView

    def __init__(self, topic: TopicState, subscriber: SubSocket, receiver: str) -> None:
        #: Sent messages, and whether they were dropped, up to the newest one that is still on its way.
        self._in_flight: deque[tuple[BusMessage, bool]] = deque()
        super().__init__(topic, subscriber, receiver)

    def add_undelivered(self, message: BusMessage) -> None:
        """See `Inbox`."""
        self._in_flight.append((message, False))

    def drop_message(self, message: BusMessage) -> None:
        """See `Inbox`. The subscriber loses the message in its turn: after those that were sent before it."""
        self._in_flight.append((message, True))
        self._drop_next()

    def _drop_next(self) -> None:
        while self._in_flight and self._in_flight[0][1]:
            start, _, end, *_ = self._in_flight.popleft()[0]
            self._view.add_drop(start, end)

    def deliver(self, message: BusMessage) -> None:
        """See `Inbox`."""
        start, _, end, *_ = message
        if self._in_flight and self._in_flight[0][0] is message:
            self._in_flight.popleft()
            self._view.add_arrival(start, end)
        else:
            self._view.add_repeat(start, end)
        if not (self.undelivered and self.undelivered[0].message is message):
            self._drop_next()  # after the last copy of the message

    def overwrite_unread(self) -> None:
        """See `Inbox`. A subscriber that conflates, or whose messages have one size, reads what a lap leaves."""
        subscriber = self._subscriber()
        if subscriber is None or subscriber._survives_laps():
            return
        while self._in_flight:
            start, _, end, *_ = self._in_flight.popleft()[0]
            self._view.add_arrival(start, end)
        self.undelivered.clear()
        self._view.lap()

    def forget_overwritten(self, newest_start: int) -> None:
        """Forget the messages on their way that the publisher has overwritten. The subscriber counts their loss."""
        while self._in_flight and self._view.is_overwritten(self._in_flight[0][0][0]):
            message, _ = self._in_flight.popleft()
            while self.undelivered and self.undelivered[0].message is message:
                self.undelivered.popleft()
        self._view.skip_overwritten(self._in_flight[0][0][0] if self._in_flight else newest_start)


def _find_topic(bus: SimulationBus, socket: PubSocket | SubSocket) -> TopicState:
    return bus.find_state(socket._ring.inode, lambda: TopicState(socket.endpoint, bus))


class PubSocket(PublisherOnBus, ring.PubSocket):
    """Publishes messages on one endpoint of a bus. The ring's core.pyi documents the methods."""

    __slots__ = ("_extract_picture", "_state")

    def __init__(self) -> None:
        super().__init__()
        #: Converter of a frame stream's messages for `Simulation.sent_messages`. Set it before `connect`.
        self._extract_picture: Callable[[bytes], bytes] | None = None

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """See `OnBus`."""
        self._state = topic = _find_topic(bus, self)
        topic.schema = self._requested_schema or topic.schema
        topic.extract_picture = self._extract_picture
        self._observe()


class SubSocket(SubscriberOnBus, ring.SubSocket):
    """Receives the messages of one endpoint of a bus. The ring's core.pyi documents the methods."""

    __slots__ = ("_inbox",)

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """See `OnBus`."""
        self._inbox = TopicInbox(_find_topic(bus, self), self, bus.node_name)


class Poller(PyzmqPoller[SubSocket], CorePoller):
    """Waits for several subscribers, and descriptors, at once. See the ring's core.pyi."""
