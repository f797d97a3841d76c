"""The state of an endpoint on the fake bus, and the inboxes of its receivers: what all kinds have in common."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from msgq.errors import ForkedSocketError

#: A message under way: the cursor of who reads it next, its bytes; on a tracked topic, its publish and origin time.
BusMessage = tuple[int, bytes] | tuple[int, bytes, int, int]
#: Takes each message that is sent.
MessageHandler = Callable[[BusMessage], object]


class PendingDelivery(NamedTuple):
    """A message under way to one subscriber.

    Attributes
    ----------
    due_ns : when it may arrive, in virtual time.
    runs_last : it lets everything else that can happen at that time pass.
    """

    due_ns: int
    runs_last: bool
    message: BusMessage


class BusMember(Protocol):
    """What a node of a simulation has made, and leaves open perhaps."""

    def close(self) -> None:
        """Leave."""

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """Tell whether the newest message there is from this one."""


class Inbox:
    """What comes to one subscriber.

    Attributes
    ----------
    undelivered : sent, not delivered; only in a simulation.
    message_handler : takes a message that is delivered.
    closed : its subscriber is.
    """

    def __init__(self, message_handler: MessageHandler) -> None:
        self.undelivered: deque[PendingDelivery] = deque()
        self.message_handler = message_handler
        self.closed = False

    def can_receive(self) -> bool:
        """Return whether a receive would return, or raise, at once."""
        raise NotImplementedError

    def has_pending_messages(self) -> bool:
        """Return whether anything was delivered that was not looked at, be it lost."""
        raise NotImplementedError

    def drop_message(self, message: BusMessage) -> None:
        """A message will never come: it is lost."""
        raise NotImplementedError

    def overwrite_unread(self) -> None:
        """All that was sent so far and not read is overwritten."""
        raise NotImplementedError

    def set_arrival_callback(self, callback: Callable[[], object]) -> None:
        """Call `callback` for each message that arrives, and now if one is there."""
        raise NotImplementedError


InboxT = TypeVar("InboxT", bound=Inbox)


class EndpointState(Generic[InboxT]):
    """What messages come from: a topic, a channel, a work queue, or records (whose messages are writes).

    Attributes
    ----------
    endpoint : its name in a simulation.
    delivers_exactly_once : one receiver takes each message. Nothing is lost, and no subscriber is lapped.
    is_shared_state : each message changes what all see.
    reports_queue_events : its messages report events of a queue. Random faults spare them.
    published_count : published so far.
    inherited_by_fork : it is the parent's, and this a forked child: nobody here gets what is sent there.
    inboxes : of its subscribers.
    deliver_message : what each message is given to. The bus chooses it: the subscribers, or a simulation.
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
        """Deliver to this one, too."""
        self.inboxes.append(inbox)
        self.update_route()

    def remove_inbox(self, inbox: InboxT) -> None:
        """Deliver nothing more to this one."""
        self.inboxes.remove(inbox)
        self.update_route()

    def update_route(self) -> None:
        """Choose `deliver_message` anew: a subscriber came, went, or was lapped."""
        self.deliver_message = self._choose_route(self)

    def mark_inherited_by_fork(self) -> None:
        """In a forked child: let each use find out whose this is."""
        self.inherited_by_fork = True


def _discard_message(_message: BusMessage) -> None:
    """Take a message that has no subscriber."""


def combine_handlers(handlers: list[MessageHandler]) -> MessageHandler:
    """Return what gives a message to all of them."""
    if len(handlers) < 2:
        return handlers[0] if handlers else _discard_message

    def handle_by_all(message: BusMessage) -> None:
        for message_handler in handlers:
            message_handler(message)

    return handle_by_all


def fork_error(endpoint: str) -> ForkedSocketError:
    """Return the error for a socket that came through a fork."""
    text = "was connected before a fork, on the bus of the parent process; close it and connect again"
    return ForkedSocketError(text, endpoint)
