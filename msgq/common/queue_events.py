"""Events of work queues: the messages that a queue with `events` publishes on its events channel.

An event is a head of 48 bytes. The payload of a sent message follows, if the queue publishes payloads.
"""

from __future__ import annotations

import json
from enum import IntEnum

from msgq.common.schema import Schema

#: Fields of an event's head, in this order and without padding; times are ns of the host's clock
#: (docs/internals/clock.md). `handle` is the number of the acting handle, `pid` its process. `number` is the message's
#: position in the order of the queue, and the same in all its events. `deliveries` is the number of takes until now.
#: `publish_time` is the time of the event, `taken_time` the time of the take; 0: not taken, or unknown.
EVENT_FIELDS = (
    ("event", "|u1"),
    ("handle", "|u1"),
    ("priority", "<u2"),
    ("deliveries", "<u4"),
    ("number", "<u8"),
    ("publish_time", "<i8"),
    ("sent_time", "<i8"),
    ("taken_time", "<i8"),
    ("size", "<u4"),
    ("pid", "<u4"),
)
EVENT_HEAD_FORMAT = "<BBHIQqqqII"  # format of the module `struct`
EVENT_HEAD_BYTES = 48
EVENT_ENCODING = "queue-event"
QUEUE_EVENT_SCHEMA = Schema("QueueEvent", EVENT_ENCODING, json.dumps(EVENT_FIELDS).encode())


class Event(IntEnum):
    """Event of a message. Decoded events have the lower-case names."""

    SENT = 1
    TAKEN = 2
    ACKNOWLEDGED = 3
    RETURNED = 4
    REFUSED = 5  # there was no room
    RECEIVED = 6  # taken and acknowledged in one
