"""Events of a work queue, written from docs/internals/queue-protocol.md ("Events", "The head of an event") alone."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tests.independent.channel import Subscriber

HEAD = struct.Struct("<BBHIQqqqII")
KINDS = {1: "sent", 2: "taken", 3: "acknowledged", 4: "returned", 5: "refused", 6: "received"}


@dataclass(frozen=True)
class Event:
    """What happened to a message, and the payload of one that was sent if the queue publishes payloads."""

    kind: str
    handle: int
    priority: int
    deliveries: int
    number: int
    publish_time: int
    sent_time: int
    taken_time: int
    size: int
    pid: int
    payload: bytes


def subscribe_events(queue: str) -> Subscriber:
    return Subscriber(f"{queue}:events")


def receive_events(subscriber: Subscriber) -> list[Event]:
    """Return the events that are there, in the order in which they happened."""
    events = []
    while message := subscriber.receive():
        head: tuple[int, ...] = HEAD.unpack_from(message.data)
        kind, handle, priority, deliveries, number, publish_time, sent_time, taken_time, size, pid = head
        about = (number, publish_time, sent_time, taken_time, size, pid, message.data[HEAD.size :])
        events.append(Event(KINDS[kind], handle, priority, deliveries, *about))
    return sorted(events, key=lambda event: event.publish_time)
