"""State of an endpoint on the fake bus, and the inboxes of its receivers, for all kinds."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgq.errors import ForkedSocketError

#: A message on its way, as its kind describes it.
BusMessage = Any
#: Endpoint of a message, and its number on the endpoint, from 1.
MessageId = tuple[str, int]
#: Takes each message that is sent.
MessageHandler = Callable[[BusMessage], object]


class PendingDelivery(NamedTuple):
    """A message on its way to one subscriber.

    Attributes
    ----------
    due_ns : earliest arrival in virtual time, ns.
    runs_last : True: all other events of that time come first.
    """

    due_ns: int
    runs_last: bool
    message: BusMessage
    message_id: MessageId


class BusMember(Protocol):
    """A socket or handle that a node of a simulation has created, and that may still be open."""

    def close(self) -> None:
        """Close the socket or handle."""

    def _abandon(self) -> None:
        """End it as the death of its process does."""

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """Return True if this member sent the newest message."""


class Inbox:
    """Delivered and pending messages of one subscriber.

    Attributes
    ----------
    undelivered : sent messages that are not delivered yet; only in a simulation.
    message_handler : function for delivered messages.
    closed : True if the subscriber is closed.
    receiver : in a simulation: name of the node that opened it; name of the endpoint if all its handles share it.
    """

    receiver = ""

    def __init__(self, message_handler: MessageHandler) -> None:
        self.undelivered: deque[PendingDelivery] = deque()
        self.message_handler = message_handler
        self.closed = False

    def can_receive(self) -> bool:
        """Return True if a receive would return or raise at once."""
        raise NotImplementedError

    def has_pending_messages(self) -> bool:
        """Return True if a delivered message or loss has not been handled yet."""
        raise NotImplementedError

    def add_undelivered(self, message: BusMessage) -> None:
        """Called once for each message that is added to `undelivered`."""

    def drop_message(self, message: BusMessage) -> None:
        """Count a message as lost, because it will never arrive."""
        raise NotImplementedError

    def overwrite_unread(self) -> None:
        """Overwrite all unread messages."""
        raise NotImplementedError

    def set_arrival_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each arriving message, and now if a message is available."""
        raise NotImplementedError


class SharedInbox(Inbox):
    """State of a handle with which several calls may wait at once. Messages arrive at the endpoint, not at its handles.

    Attributes
    ----------
    event_fd : an eventfd that is readable while a receive would return; -1: none was requested.
    """

    def __init__(self) -> None:
        super().__init__(lambda _message: None)
        self.event_fd = -1

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return self.can_receive()

    def update_descriptor(self) -> None:
        """Update the readability of the descriptor."""
        if self.event_fd < 0:
            return
        if self.can_receive():
            os.eventfd_write(self.event_fd, 1)
        else:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.event_fd)


InboxT = TypeVar("InboxT", bound=Inbox)


class EndpointState(Generic[InboxT]):
    """Source of messages: a topic, a channel, a work queue, or records (whose messages are writes).

    Attributes
    ----------
    endpoint : name in a simulation.
    delivers_exactly_once : True: one receiver takes each message. No message is lost, and no subscriber is lapped.
    is_shared_state : True: each message changes state that all handles share.
    reports_queue_events : True: the messages are events of a queue. Random faults do not affect them.
    published_count : number of published messages.
    inherited_by_fork : True in a forked child: the endpoint belongs to the parent, and no socket here gets its
        messages.
    inboxes : inboxes of its subscribers.
    deliver_message : function for each message, chosen by the bus: delivers to the subscribers, or to a simulation.
    """

    delivers_exactly_once = is_shared_state = reports_queue_events = False

    def __init__(self, endpoint: str, choose_route: Callable[[EndpointState[Any]], MessageHandler]) -> None:
        self.endpoint = endpoint
        self._choose_route = choose_route
        self.published_count = 0
        self.inherited_by_fork = False
        self.inboxes: list[InboxT] = []
        self.deliver_message = choose_route(self)

    def add_inbox(self, inbox: InboxT) -> None:
        """Add an inbox for delivery."""
        self.inboxes.append(inbox)
        self.update_route()

    def find_inbox(self, _message: BusMessage) -> InboxT:
        """Return the inbox through which a message goes, if it is delivered exactly once or changes shared state."""
        (inbox,) = self.inboxes
        return inbox

    def remove_inbox(self, inbox: InboxT) -> None:
        """Remove an inbox from delivery."""
        self.inboxes.remove(inbox)
        self.update_route()

    def update_route(self) -> None:
        """Choose `deliver_message` again, after a subscriber joined, left, or was lapped."""
        self.deliver_message = self._choose_route(self)

    def mark_inherited_by_fork(self) -> None:
        """In a forked child: mark the endpoint as the parent's. Each use then raises an error."""
        self.inherited_by_fork = True


def _discard_message(_message: BusMessage) -> None:
    """Discard a message without subscribers."""


def combine_handlers(handlers: list[MessageHandler]) -> MessageHandler:
    """Return a handler that passes a message to all handlers."""
    if len(handlers) < 2:
        return handlers[0] if handlers else _discard_message

    def handle_by_all(message: BusMessage) -> None:
        for message_handler in handlers:
            message_handler(message)

    return handle_by_all


def fork_error(endpoint: str) -> ForkedSocketError:
    """Return the error for a socket inherited through a fork."""
    text = "was connected before a fork, on the bus of the parent process; close it and connect again"
    return ForkedSocketError(text, endpoint)
