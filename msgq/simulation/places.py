"""Where messages go in a simulation: a topic has its endpoint's name, a channel "channel/" before its own."""

from __future__ import annotations

from typing import Any, cast

from msgq.channel import Channel
from msgq.impl.fake.channel import Publisher, Subscriber
from msgq.impl.fake.publisher import PubSocket
from msgq.impl.fake.subscriber import SubSocket
from msgq.impl.ground.context import Context
from msgq.naming import CHANNEL_MARK


def subscribe(place: str, node: str) -> SubSocket | Subscriber:
    """Return a subscriber there."""
    if place.startswith(CHANNEL_MARK):
        listening: Any = _channel(place, node).subscriber()
        return cast("Subscriber", listening)
    socket = SubSocket()
    socket.connect(Context(), place)
    return socket


def publish(place: str, node: str) -> PubSocket | Publisher:
    """Return a publisher there."""
    if place.startswith(CHANNEL_MARK):
        sending: Any = _channel(place, node).publisher()
        return cast("Publisher", sending)
    socket = PubSocket()
    socket.connect(Context(), place)
    return socket


def _channel(place: str, node: str) -> Channel:
    return Channel(place.removeprefix(CHANNEL_MARK), node=node)
