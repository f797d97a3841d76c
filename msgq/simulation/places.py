"""Where messages go in a simulation: a topic has its endpoint's name, a channel "channel/" before its own, a work queue
"queue/".
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from msgq.channel import Channel
from msgq.impl.fake.channel import Publisher, Subscriber
from msgq.impl.fake.publisher import PubSocket
from msgq.impl.fake.subscriber import SubSocket
from msgq.impl.fake.workqueue import MessageQueue
from msgq.impl.ground.context import Context
from msgq.naming import CHANNEL_MARK, QUEUE_MARK


def subscribe(place: str, node: str) -> SubSocket | Subscriber:
    """Return a subscriber there."""
    if place.startswith(CHANNEL_MARK):
        listening: Any = _channel(place, node).subscriber()
        return cast("Subscriber", listening)
    socket = SubSocket()
    socket.connect(Context(), place)
    return socket


def consume(place: str, function: Callable[[bytes], object]) -> Generator[MessageQueue, Any, None]:
    """Give what comes to a queue to a function, beside others that take from it."""
    queue = MessageQueue(place.removeprefix(QUEUE_MARK))
    while True:
        received = yield queue
        function(received.data)


def publish(place: str, node: str) -> PubSocket | Publisher | MessageQueue:
    """Return what sends there."""
    if place.startswith(QUEUE_MARK):
        queue = MessageQueue(place.removeprefix(QUEUE_MARK))
        queue.block = False  # a recording does not wait
        return queue
    if place.startswith(CHANNEL_MARK):
        sending: Any = _channel(place, node).publisher()
        return cast("Publisher", sending)
    socket = PubSocket()
    socket.connect(Context(), place)
    return socket


def _channel(place: str, node: str) -> Channel:
    return Channel(place.removeprefix(CHANNEL_MARK), node=node)
