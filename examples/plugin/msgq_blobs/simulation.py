"""Blobs in virtual time: what is played is appended at its time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgq.common.message_source import MessageSource
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState
from msgq.kinds.simulation import KindSimulation, SentMessage
from msgq_blobs.names import KIND


def _describe_sent(time_ns: int, node: str, blob: EndpointState[Any], bus_message: BusMessage) -> Iterator[SentMessage]:
    yield SentMessage(time_ns, node, blob.endpoint, bus_message[1], MessageSource(KIND.name))


SIMULATION = KindSimulation(_describe_sent)
