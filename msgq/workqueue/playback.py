"""Playback of work queues: sent messages are sent again with their priorities. Recordings contain them as events."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from msgq.common import queue_events
from msgq.common.queue_events import EVENT_HEAD_BYTES, Event
from msgq.common.schema import Schema
from msgq.errors import QueueMismatchError, SegmentError
from msgq.impl import backend as backends
from msgq.impl.workqueue.options import O_CREX
from msgq.kinds.playback import (
    ComparedMessage,
    EndpointSpec,
    EndpointWriter,
    KindPlayback,
    PlaybackMessage,
    PlaybackTarget,
    UnplayableError,
    make_mismatch_error,
)
from msgq.workqueue.names import KIND

if TYPE_CHECKING:
    from msgq.impl.workqueue import MessageQueue

_EVENT_STRUCT = struct.Struct(queue_events.EVENT_HEAD_FORMAT)
_FIELD_INDEXES = {name: target for target, (name, _) in enumerate(queue_events.EVENT_FIELDS)}
NO_PAYLOAD_TEXT = 'events have no payloads; create the queue with events="payload"'


def is_sent(data: bytes) -> bool:
    """Return True if an event is about sending a message."""
    return data[:1] == bytes([Event.SENT])


def has_payload(event: bytes) -> bool:
    """Return True if an event is about sending a message, and has its payload."""
    try:
        payload(event)
    except UnplayableError:
        return False
    return True


def encode_sent_event(data: bytes, priority: int, number: int, time_ns: int) -> bytes:
    """Return an event about sending a message, without a sender."""
    fields = {"event": Event.SENT, "priority": priority, "number": number, "size": len(data)}
    fields |= {"publish_time": time_ns, "sent_time": time_ns}
    return _EVENT_STRUCT.pack(*(fields.get(name, 0) for name in _FIELD_INDEXES)) + data


def payload(event: bytes) -> tuple[bytes, int]:
    """Return the payload and the priority of a sent message from its event.

    Raises:
        UnplayableError: the event is of another type, or has no payload.
    """
    if len(event) < EVENT_HEAD_BYTES or not is_sent(event):
        raise UnplayableError("event is not about a sent message")
    head = _EVENT_STRUCT.unpack_from(event)
    data = event[EVENT_HEAD_BYTES:]
    if len(data) != head[_FIELD_INDEXES["size"]]:
        raise UnplayableError(NO_PAYLOAD_TEXT)
    return data, head[_FIELD_INDEXES["priority"]]


class QueueWriter(EndpointWriter):
    """Sends into a queue, without waiting. See `EndpointWriter`."""

    def __init__(self, spec: EndpointSpec, target: PlaybackTarget) -> None:
        super().__init__(spec)
        self._target = target
        kind: type[MessageQueue] = backends.load_backend_class("MessageQueue", target.backend_module)
        sizes = spec.get_positive_option("max_messages"), spec.get_positive_option("max_message_size")
        # A new queue publishes events with payloads, as the recorded queue did. An existing queue keeps its choice.
        try:
            if spec.options:
                kind(
                    KIND.bare_name(spec.endpoint), O_CREX, None, *sizes, prefix=target.prefix, events="payload"
                ).close()
        except SegmentError as error:
            if error.errno != errno.EEXIST:
                raise
        try:
            self._queue = kind(KIND.bare_name(spec.endpoint), None, None, *sizes, read=False, prefix=target.prefix)
        except QueueMismatchError as error:
            raise make_mismatch_error(error, spec.endpoint) from None

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        data, priority = payload(message.data)
        self._queue.send(data, priority, timeout=0, origin_time=self._target.compute_origin_time(message.age_ns))

    def close(self) -> None:
        """See `EndpointWriter`."""
        self._queue.close()


class EventSample:
    """Checks whether a queue's events have payloads. See `MessageSample`."""

    def __init__(self) -> None:
        self.data, self.refusal_reason = b"", NO_PAYLOAD_TEXT

    def add(self, data: bytes) -> bool:
        """See `MessageSample`."""
        if not is_sent(data):
            return False
        if not has_payload(data):
            self.refusal_reason = NO_PAYLOAD_TEXT
            return True
        self.refusal_reason = ""
        return len(data) > EVENT_HEAD_BYTES  # events of empty messages are equal without payloads


class _QueuePlayback(KindPlayback):
    played_first_byte = Event.SENT

    def encode_sent(self, data: bytes, priority: int, number: int, time_ns: int) -> tuple[bytes, Schema]:
        return encode_sent_event(data, priority, number, time_ns), queue_events.QUEUE_EVENT_SCHEMA

    def extract_comparable(self, data: bytes, key: str) -> ComparedMessage | None:
        """Return a sent message and its priority for comparison; None: another event."""
        try:
            sent, priority = payload(data)
        except UnplayableError:
            return None
        return ComparedMessage(sent, ("priority", priority))


PLAYBACK = _QueuePlayback(QueueWriter, EventSample)
