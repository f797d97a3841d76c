"""Events of work queues: the messages that a queue with `events` publishes on its events channel.

An event is a head of 48 bytes. The payload of a sent message follows, if the queue publishes payloads.
"""

from __future__ import annotations

import json
from enum import IntEnum

from msgq.common.schema import Schema

#: Of a head, in its order, without padding; times are ns of the host's clock (docs/internals/clock.md).
#: `handle` is the number of the handle that did it, `pid` its process. `number` is the message's in the order of the
#: queue: the same in all its events. `deliveries` is how often it was taken so far, `publish_time` when this happened,
#: `taken_time` when it was taken; 0: it was not, or nobody knows.
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
