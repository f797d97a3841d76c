"""Endpoints of a kind in virtual time. Interface of the file simulation.py of each kind."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.common.schema import Schema
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.kinds.playback import PlaybackMessage

if TYPE_CHECKING:
    from msgq.impl.fake.channel import Subscriber
    from msgq.impl.fake.topic import SubSocket

FaultKind = Literal["drop", "delay", "duplicate", "reorder", "lap", "restart"]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)


class SentMessage(NamedTuple):
    """A sent message of a simulation.

    Attributes:
        time_ns: virtual time in ns.
        node: name of the sending node. "main": the test itself. "play": a recording.
        endpoint: name of the endpoint with the prefix of its kind.
        data: payload. For a vector, a change of one element (see `msgq.common.record_changes`); a call that writes
            several elements gives several messages. For a board, the value. For a work queue, the message.
        source: kind, publisher, key and options of the message.
        schema: description of the data; for a work queue, of its messages.
        priority: priority of a work queue's message.
    """

    time_ns: int
    node: str
    endpoint: str
    data: bytes
    source: MessageSource = TOPIC_SOURCE
    schema: Schema | None = None
    priority: int = 0

    @property
    def kind(self) -> str:
        """Kind of the endpoint: "topic", "frames", "channel", "records" or "queue"."""
        return self.source.kind

    @property
    def publisher(self) -> str:
        """Name of the publisher: for a channel, the name of its node, by default the simulation's node."""
        return self.source.publisher

    @property
    def key(self) -> str:
        """Key of a board; else ""."""
        return self.source.key


@dataclass(frozen=True, slots=True)
class KindSimulation:
    """Functions for endpoints of a kind in a simulation. The simulation's thread makes all calls.

    Attributes:
        open_subscriber: takes a bare name and the name of a node; returns a subscriber to which the simulation delivers
            messages one by one. None: the simulation uses `follow_endpoint`.
        follow_endpoint: takes a bare name and a function; returns a generator, like a program's, that calls the
            function for each message.
        list_sent_messages: takes a time, the name of a node, the state of an endpoint on the bus and a sent entry;
            returns the messages of `Simulation.sent_messages`.
        fault_kinds: kinds of possible faults.
    """

    list_sent_messages: Callable[[int, str, EndpointState[Any], BusMessage], Iterable[SentMessage]]
    open_subscriber: Callable[[str, str], SubSocket | Subscriber] | None = None
    follow_endpoint: Callable[[str, Callable[[Any], object]], Generator[Any, Any, None]] | None = None
    fault_kinds: tuple[FaultKind, ...] = FAULT_KINDS

    def encode_playback(self, message: PlaybackMessage) -> PlaybackMessage:
        """Return the recorded form of a message of `Simulation.play` that was given as bytes."""
        return message
