"""Where messages go in a simulation: a topic has its endpoint's name, all else the mark of its kind before its own
("channel/", "records/", "queue/").
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

from msgq.channel import Channel
from msgq.channel.names import KIND as CHANNEL
from msgq.common import naming
from msgq.common.message_source import MessageSource
from msgq.impl.base.core import Context
from msgq.impl.fake.bus import Bus
from msgq.impl.fake.channel import Subscriber
from msgq.impl.fake.records import Board, SeqlockVector
from msgq.impl.fake.records_store import BoardStore
from msgq.impl.fake.subscriber import SubSocket
from msgq.impl.fake.workqueue import MessageQueue
from msgq.kinds import kind_of
from msgq.kinds.playback import PlaybackMessage
from msgq.records.names import KIND as RECORDS
from msgq.workqueue.names import KIND as QUEUE
from msgq.workqueue.playback import sent_event


def subscribe(endpoint: str, node: str) -> SubSocket | Subscriber:
    """Return a subscriber there."""
    if kind_of(endpoint) is CHANNEL:
        listening: Any = Channel(CHANNEL.bare_name(endpoint), node=node).subscriber()
        return cast("Subscriber", listening)
    socket = SubSocket()
    socket.connect(Context(), endpoint)
    return socket


def consume(endpoint: str, function: Callable[[bytes], object]) -> Generator[MessageQueue, Any, None]:
    """Give what comes to a queue to a function, beside others that take from it."""
    queue = MessageQueue(QUEUE.bare_name(endpoint))
    while True:
        received = yield queue
        function(received.data)


def observe(endpoint: str, bus: Bus, function: Callable[[Any], object]) -> Generator[Board | SeqlockVector, Any, None]:
    """Give what changed in a vector or board to a function: `Changes`, or a dict of `Value` by key.

    Raises
    ------
    SegmentError : it is not there.
    """
    name = RECORDS.bare_name(endpoint)
    handle = Board(name, create=False) if is_board(bus, name) else SeqlockVector(name)
    while True:
        changes = yield handle
        function(changes)


def is_board(bus: Bus, name: str) -> bool:
    """Return whether there is a board of this name."""
    return isinstance(bus.records.get((naming.prefix(), name)), BoardStore)


def to_playback(time_ns: int, endpoint: str, data: bytes, bus: Bus) -> PlaybackMessage:
    """Return a message that somebody gave as three things as a recording has it; see `Simulation.play`."""
    kind = kind_of(endpoint)
    if kind is QUEUE:
        return PlaybackMessage(time_ns, endpoint, sent_event(data, 0, 0, time_ns), source=MessageSource(QUEUE.name))
    if kind is RECORDS and is_board(bus, kind.bare_name(endpoint)):
        key, _, value = data.partition(b"\0")
        return PlaybackMessage(time_ns, endpoint, value, source=MessageSource(RECORDS.name, key=key.decode()))
    return PlaybackMessage(time_ns, endpoint, data, source=MessageSource(kind.name))
