"""Channels on the bus: the real channels, and what a simulation does between publishers and subscribers.

A simulation delivers each message to each subscriber at a time of its own. The channel has the message as soon as it is
published; a subscriber sees only what has arrived (`ArrivalView`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgq.common.naming import CHANNEL_NAME_PREFIX, EVENTS_SUFFIX
from msgq.impl.base.core import require_own_prefix
from msgq.impl.channel import core as channel
from msgq.impl.channel.core import ChannelFile, Loan, Sample
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, Inbox
from msgq.impl.fake.handle import OnBus

if TYPE_CHECKING:
    from msgq.impl.channel.core import ArrivalView
    from msgq.impl.fake.bus import InProcessBus

__all__ = [
    "ChannelFile",
    "Loan",
    "Publisher",
    "Sample",
    "Subscriber",
    "open_channel_file",
    "open_publisher",
    "open_subscriber",
]


class ChannelState(EndpointState["ChannelInbox"]):
    """A channel in a simulation.

    Attributes
    ----------
    file : the channel as an observer sees it.
    last_sender : the publisher of the newest message.
    end : position after the newest message.
    """

    def __init__(self, name: str, prefix: str, choose_route: Callable[[EndpointState[Any]], Any]) -> None:
        super().__init__(f"{CHANNEL_NAME_PREFIX}{name}", choose_route)
        self.file = channel.open_channel_file(name, prefix)
        self.reports_queue_events = name.endswith(EVENTS_SUFFIX)
        self.last_sender: weakref.ref[Publisher] | None = None
        self.end = 0

    def publish(self, publisher: Publisher) -> None:
        """Send what the publisher has published to the simulation."""
        self.last_sender = weakref.ref(publisher)
        for message in publisher._read_published():
            self.published_count += 1
            self.end = message[2]
            self.deliver_message(message)


class ChannelInbox(Inbox):
    """The messages on their way to one subscriber of a simulation."""

    def __init__(self, channel: ChannelState, subscriber: Subscriber, view: ArrivalView) -> None:
        super().__init__(lambda message: view.add_arrival(message[0]))
        self.channel = channel
        self._view = view
        self._subscriber = weakref.ref(subscriber, lambda _: self.close())
        channel.add_inbox(self)

    def can_receive(self) -> bool:
        """See `Inbox`."""
        subscriber = self._subscriber()
        return subscriber is None or subscriber._would_receive_return()

    def drop_message(self, message: BusMessage) -> None:
        """See `Inbox`. The subscriber loses the message in its turn: after those that were published before it."""
        self._view.add_drop(message[0])

    def overwrite_unread(self) -> None:
        """See `Inbox`. A subscriber that conflates is at the newest message, which is never overwritten."""
        if not self._view.conflates:
            self.undelivered.clear()
            self._view.lap(self.channel.end)

    def close(self) -> None:
        """Leave the channel for good."""
        if not self.closed:
            self.closed = True
            self.undelivered.clear()
            self.channel.remove_inbox(self)


def _find_channel(bus: InProcessBus, file: ChannelFile) -> ChannelState:
    state: ChannelState = bus.find_source(file.inode, lambda route: ChannelState(file.name, file.prefix, route))
    return state


class Publisher(OnBus, channel.Publisher):
    """Publishes on a channel of a bus. The stub msgq/impl/channel/core.pyi documents the methods."""

    __slots__ = ("_channel",)

    def _enter_simulation(self, bus: InProcessBus) -> None:
        """See `OnBus`."""
        self._channel = _find_channel(bus, self._file)
        self._observe()

    def _publish_in_simulation(self) -> None:
        """See `OnBus`."""
        self._channel.publish(self)

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        sender = source.last_sender if isinstance(source, ChannelState) else None
        return sender is not None and sender() is self and not self.closed


class Subscriber(OnBus, channel.Subscriber):
    """Receives the messages of a channel of a bus. The stub msgq/impl/channel/core.pyi documents the methods."""

    __slots__ = ("_inbox",)

    def _enter_simulation(self, bus: InProcessBus) -> None:
        """See `OnBus`."""
        self._inbox = ChannelInbox(_find_channel(bus, self._file), self, self._open_view())

    def _leave_simulation(self) -> None:
        """See `OnBus`."""
        self._inbox.close()


open_publisher, open_subscriber = Publisher, Subscriber


def open_channel_file(
    name: str,
    in_prefix: str,
    create: bool | None = False,
    mode: int | None = None,
    trust: str | None = None,
    writable: bool = False,
    creator: str = "",
) -> ChannelFile:
    """Open a channel of the current bus. See the stub msgq/impl/channel/core.pyi."""
    prefix = require_own_prefix(current_bus(), in_prefix, name)
    return channel.open_channel_file(name, prefix, create, mode, trust, writable, creator)
