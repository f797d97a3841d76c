"""Topics in virtual time."""

from __future__ import annotations

from typing import Any

from msgq.common.message_source import TOPIC_SOURCE, MessageSource
from msgq.impl.base.core import Context
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.impl.fake.topic import SubSocket, TopicState
from msgq.kinds import find_recorded_kind
from msgq.kinds.simulation import KindSimulation, SentMessage


def _subscribe(name: str, _node: str) -> SubSocket:
    socket = SubSocket()
    socket.connect(Context(), name)
    return socket


def _describe_sent(time_ns: int, node: str, topic: EndpointState[Any], bus_message: BusMessage) -> list[SentMessage]:
    if not isinstance(topic, TopicState):
        return []
    if topic.extract_picture is None:
        return [SentMessage(time_ns, node, topic.endpoint, bus_message[1], TOPIC_SOURCE, topic.schema)]
    image = f"{topic.endpoint}/image"  # the message announces a frame
    source = MessageSource(find_recorded_kind(image).name)
    return [SentMessage(time_ns, node, image, topic.extract_picture(bus_message[1]), source, topic.schema)]


SIMULATION = KindSimulation(_describe_sent, open_subscriber=_subscribe)
