"""Work queues: what was sent is sent again, with its priority. A recording has it as events that have a payload."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from msgq import backend as backends
from msgq import queue_events
from msgq.errors import QueueMismatchError, SegmentError
from msgq.impl.workqueue.options import O_CREX
from msgq.outlets.base import Outlet, Place, Played, UnplayableError, Wanted, as_recorded_error
from msgq.queue_events import HEAD_BYTES, Event

if TYPE_CHECKING:
    from msgq.impl.workqueue import MessageQueue

_HEAD = struct.Struct(queue_events.FORMAT)
_PLACES = {name: place for place, (name, _) in enumerate(queue_events.FIELDS)}
NO_PAYLOAD = 'its events have no payloads; queues made with events="payload" say them'


def is_sent(data: bytes) -> bool:
    """Return whether an event says that a message was sent."""
    return data[:1] == bytes([Event.SENT])


def has_payload(event: bytes) -> bool:
    """Return whether an event says that a message was sent, and which."""
    try:
        payload(event)
    except UnplayableError:
        return False
    return True


def sent_event(data: bytes, priority: int, number: int, time_ns: int) -> bytes:
    """Return the event that says that a message was sent, by nobody in particular."""
    told = {"event": Event.SENT, "priority": priority, "number": number, "size": len(data)}
    told |= {"publish_time": time_ns, "sent_time": time_ns}
    return _HEAD.pack(*(told.get(name, 0) for name in _PLACES)) + data


def payload(event: bytes) -> tuple[bytes, int]:
    """Return the message that an event says was sent, and its priority.

    Raises
    ------
    UnplayableError : it says something else, or has no payload.
    """
    if len(event) < HEAD_BYTES or not is_sent(event):
        raise UnplayableError("it says nothing of a message that was sent")
    head = _HEAD.unpack_from(event)
    data = event[HEAD_BYTES:]
    if len(data) != head[_PLACES["size"]]:
        raise UnplayableError(NO_PAYLOAD)
    return data, head[_PLACES["priority"]]


class QueueOutlet(Outlet):
    """A sender of a queue. It never waits. See `Outlet`."""

    def __init__(self, wanted: Wanted, place: Place) -> None:
        super().__init__(wanted)
        self._place = place
        kind: type[MessageQueue] = backends.piece("MessageQueue", place.module)
        sizes = wanted.number("max_messages"), wanted.number("max_message_size")
        # Of a new one a recorder shall see what one saw of the recorded one. Who made one that is there has decided.
        try:
            if wanted.options:
                kind(wanted.name, O_CREX, None, *sizes, prefix=place.prefix, events="payload").close()
        except SegmentError as error:
            if error.errno != errno.EEXIST:
                raise
        try:
            self._queue = kind(wanted.name, None, None, *sizes, read=False, prefix=place.prefix)
        except QueueMismatchError as error:
            raise as_recorded_error(error, wanted.endpoint) from None

    def send(self, message: Played) -> None:
        """See `Outlet`."""
        data, priority = payload(message.data)
        self._queue.send(data, priority, timeout=0, origin_time=self._place.origin(message.age_ns))

    def close(self) -> None:
        """See `Outlet`."""
        self._queue.close()
