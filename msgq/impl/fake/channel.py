"""Channels on the bus: the real channels, and what a simulation does between publishers and subscribers.

A simulation delivers each message to each subscriber at a time of its own. The channel has the message as soon as it is
published; a subscriber sees only what has arrived (`ArrivalView`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgq.common.naming import CHANNEL_NAME_PREFIX, EVENTS_SUFFIX
from msgq.impl.base.core import require_own_prefix
from msgq.impl.channel import core as channel
from msgq.impl.channel.core import ChannelFile, Loan, Sample
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, SubscriberInbox
from msgq.impl.fake.handle import PublisherOnBus, SubscriberOnBus

if TYPE_CHECKING:
    from msgq.impl.channel.core import ArrivalView
    from msgq.impl.fake.endpoint_state import SimulationBus

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

    Attributes:
        file: the channel as an observer sees it.
        end: position after the newest message.
    """

    def __init__(self, name: str, prefix: str, bus: SimulationBus) -> None:
        super().__init__(f"{CHANNEL_NAME_PREFIX}{name}", bus)
        self.file = channel.open_channel_file(name, prefix)
        self.reports_queue_events = name.endswith(EVENTS_SUFFIX)
        self.end = 0

    def publish(self, sender: Publisher, message: BusMessage) -> None:
        """See `EndpointState`."""
        self.end = message[2]
        super().publish(sender, message)


class ChannelInbox(SubscriberInbox):
    """The messages on their way to one subscriber of a channel."""

    _state: ChannelState
    _view: ArrivalView

    def deliver(self, message: BusMessage) -> None:
        """See `Inbox`."""
        self._view.add_arrival(message[0])

    def drop_message(self, message: BusMessage) -> None:
        """See `Inbox`. The subscriber loses the message in its turn: after those that were published before it."""
        self._view.add_drop(message[0])

    def overwrite_unread(self) -> None:
        """See `Inbox`. A subscriber that conflates is at the newest message, which is never overwritten."""
        if not self._view.conflates:
            self.undelivered.clear()
            self._view.lap(self._state.end)


def _find_channel(bus: SimulationBus, file: ChannelFile) -> ChannelState:
    return bus.find_state(file.inode, lambda: ChannelState(file.name, file.prefix, bus))


class Publisher(PublisherOnBus, channel.Publisher):
    """Publishes on a channel of a bus. The stub msgq/impl/channel/core.pyi documents the methods."""

    __slots__ = ("_state",)

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """See `OnBus`."""
        self._state = _find_channel(bus, self._file)
        self._observe()


class Subscriber(SubscriberOnBus, channel.Subscriber):
    """Receives the messages of a channel of a bus. The stub msgq/impl/channel/core.pyi documents the methods."""

    __slots__ = ("_inbox",)

    def _enter_simulation(self, bus: SimulationBus) -> None:
        """See `OnBus`."""
        self._inbox = ChannelInbox(_find_channel(bus, self._file), self, bus.node_name)


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
