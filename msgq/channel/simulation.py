"""Channels in virtual time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from msgq.channel.channel import Channel
from msgq.channel.names import KIND
from msgq.common.message_source import MessageSource
from msgq.impl.base.process import process_name
from msgq.impl.fake.channel import ChannelState, Subscriber
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.kinds.simulation import KindSimulation, SentMessage


def _open_subscriber(name: str, node: str) -> Subscriber:
    return cast("Subscriber", Channel(name, node=node).subscriber())


def _describe_sent_message(
    time_ns: int, node: str, channel: EndpointState[Any], bus_message: BusMessage
) -> Iterator[SentMessage]:
    if isinstance(channel, ChannelState):
        source = _make_message_source(channel, node)
        yield SentMessage(time_ns, node, channel.endpoint, bus_message[1], source, channel.file.schema)


def _make_message_source(channel: ChannelState, node: str) -> MessageSource:
    """Return the source of the newest message."""
    publisher = channel.last_sender
    capacity, _, _, stamps = channel.file.config
    options = {"capacity": capacity, "slot_bytes": 0 if publisher is None else publisher.slot_bytes, "stamps": stamps}
    name = "" if publisher is None else publisher.name
    # A publisher without a name has the name of its process, which differs from process to process.
    return MessageSource(KIND.name, node if name in ("", process_name()) else name, options=json.dumps(options))


SIMULATION = KindSimulation(_describe_sent_message, open_subscriber=_open_subscriber)
