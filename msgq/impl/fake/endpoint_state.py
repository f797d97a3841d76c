"""Endpoints of a simulation, and the inboxes of their receivers, for all kinds.

Only a simulation has them. Without a simulation, the endpoints of a bus are the real ones and nothing more.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from msgq.impl.fake.bus import InProcessBus

#: A message on its way, as its kind describes it.
BusMessage = Any
#: Endpoint of a message, and its number on the endpoint, from 1.
MessageId = tuple[str, int]


class PendingDelivery(NamedTuple):
    """A message on its way to one subscriber.

    Attributes:
        due_ns: earliest arrival in virtual time, ns.
        runs_last: True: all other events of that time come first.
    """

    due_ns: int
    runs_last: bool
    message: BusMessage
    message_id: MessageId


class Inbox:
    """Messages on their way to one receiver.

    Attributes:
        receiver: name of the node that receives; name of the endpoint if all its handles share the messages.
        undelivered: sent messages that have not arrived yet.
    """

    def __init__(self, receiver: str) -> None:
        self.receiver = receiver
        self.undelivered: deque[PendingDelivery] = deque()

    def deliver(self, message: BusMessage) -> None:
        """Let the message arrive."""
        raise NotImplementedError

    def add_undelivered(self, message: BusMessage) -> None:
        """Called once for each message that is added to `undelivered`."""

    def drop_message(self, message: BusMessage) -> None:
        """Lose a message, which will never arrive."""
        raise NotImplementedError

    def overwrite_unread(self) -> None:
        """Overwrite all messages that the receiver has not read."""
        raise NotImplementedError


InboxT = TypeVar("InboxT", bound=Inbox)
StateT = TypeVar("StateT", bound="EndpointState[Any]")


class EndpointState(Generic[InboxT]):
    """An endpoint in a simulation: a topic, a channel, a work queue, or records (whose messages are writes).

    Attributes:
        endpoint: name with the prefix of the kind.
        is_shared: True: each message changes memory that all handles share. False: each subscriber has an inbox.
        restarts_consumer: True: a restart affects the node that takes a message, else the node that sends it.
        reports_queue_events: True: the messages are events of a queue. Random faults do not affect them.
        published_count: number of published messages.
        inboxes: inboxes of the subscribers, or the inbox of all handles.
    """

    is_shared = restarts_consumer = reports_queue_events = False

    def __init__(self, endpoint: str, bus: SimulationBus) -> None:
        self.endpoint, self._bus = endpoint, bus
        self.published_count = 0
        self.inboxes: list[InboxT] = []
        self._last_sender: weakref.ref[Any] | None = None

    @property
    def last_sender(self) -> Any:
        """The handle that sent the newest message; None: no message, or the handle no longer exists."""
        return None if self._last_sender is None else self._last_sender()

    def publish(self, sender: Any, message: BusMessage) -> None:
        """Pass a message of a handle to the simulation."""
        self.published_count += 1
        self._last_sender = weakref.ref(sender)
        self._bus.deliver_message(self, message)

    def find_inbox(self, _message: BusMessage) -> InboxT:
        """Return the inbox for a message, if `is_shared`."""
        (inbox,) = self.inboxes
        return inbox


class SubscriberInbox(Inbox):
    """Messages on their way to one subscriber, whose view of the real endpoint shows what has arrived."""

    def __init__(self, state: EndpointState[Any], subscriber: Any, receiver: str) -> None:
        super().__init__(receiver)
        self._state, self._view = state, subscriber._open_view()
        self._subscriber = weakref.ref(subscriber, lambda _: self.close())
        state.inboxes.append(self)

    def close(self) -> None:
        """Leave the endpoint for good. A second call has no effect."""
        self.undelivered.clear()
        if self in self._state.inboxes:
            self._state.inboxes.remove(self)


class SimulationBus(InProcessBus):
    """A bus that decides when each message arrives, and which node runs. `msgq.simulation` has the subclass."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[int, EndpointState[Any]] = {}  # states by the number of the endpoint's file

    def forget_parent(self) -> None:
        """See `InProcessBus`."""
        super().forget_parent()
        self._states.clear()

    def find_state(self, file_number: int, make: Callable[[], StateT]) -> StateT:
        """Return the state of an endpoint. Makes it if it is new."""
        state: Any = self._states.get(file_number)
        if state is None:
            self.pin_file(file_number)
            state = self._states[file_number] = make()
        found: StateT = state
        return found

    @property
    def node_name(self) -> str:
        """Name of the node that runs now."""
        raise NotImplementedError

    def can_wait(self) -> bool:
        """Return True if the node that runs now can wait in a call. Otherwise, a call that would wait raises."""
        raise NotImplementedError

    def deliver_message(self, state: EndpointState[Any], message: BusMessage) -> None:
        """Deliver a message of an endpoint to its receivers, now or later."""
        raise NotImplementedError

    def on_message_taken(self, state: EndpointState[Any], number: int) -> None:
        """Called when a consumer has taken a message of a queue, with its number from 1."""
        raise NotImplementedError
