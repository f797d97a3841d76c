"""Events of work queues on the fake backend, published on the queue's events channel."""

from __future__ import annotations

import contextlib
import os
import struct

from msgq.common.naming import events_channel
from msgq.common.queue_events import EVENT_HEAD_FORMAT, QUEUE_EVENT_SCHEMA, Event
from msgq.errors import MsgqError
from msgq.impl.base.clock import origin_time as thread_origin
from msgq.impl.base.clock import set_origin
from msgq.impl.base.process import process_name
from msgq.impl.fake.channel import Publisher, open_channel_file
from msgq.impl.fake.workqueue_store import QueueItem, QueueState, find_queue
from msgq.impl.workqueue import options

_PAYLOAD_CHOICE = options.EVENTS_CHOICES.index("payload")
_POOL_BYTES_MAX = 1 << 42  # in effect no limit


class EventPublisher:
    """Publisher of one handle's events, opened with the first event. Errors count as lost events.

    Parameters
    ----------
    queue, prefix, handle_number : name, prefix and handle number of the queue with events.
    """

    def __init__(self, queue: QueueState, prefix: str, handle_number: int) -> None:
        self._queue, self._prefix, self._handle_number = queue, prefix, handle_number
        self._publisher: Publisher | None = None

    def publish_event(self, event: Event, item: QueueItem, taken_time: int = 0) -> None:
        """Publish an event of a message."""
        payload = item.data if event is Event.SENT and self._queue.events_choice == _PAYLOAD_CHOICE else b""
        times = self._queue.bus.clock.now_ns, item.sent_time, taken_time
        head = struct.pack(
            EVENT_HEAD_FORMAT,
            event,
            self._handle_number,
            item.priority,
            item.deliveries,
            item.send_number,
            *times,
            len(item.data),
            os.getpid(),
        )
        previous_origin = thread_origin()
        set_origin(0)  # the event has the origin of its message, or none
        try:
            with contextlib.suppress(MsgqError):
                self._send_event(head + payload, item.origin_time)
        finally:
            set_origin(previous_origin)

    def _send_event(self, message: bytes, origin_time: int) -> None:
        if self._publisher is None:
            if find_queue(self._queue.bus, self._prefix, self._queue.name) is not self._queue:
                return  # the queue was removed: the channel of that name belongs to another one, or to none
            self._publisher = self._open_publisher()
        self._publisher.send(message, origin_time=origin_time)

    def _open_publisher(self) -> Publisher:
        payload = self._queue.events_choice == _PAYLOAD_CHOICE
        channel_file = open_channel_file(
            events_channel(self._queue.name), self._prefix, None, writable=True, creator=process_name()
        )
        channel_file.apply_config(channel_file.config[0] or options.EVENTS_CAPACITY, publishes=True)
        channel_file.set_schema(QUEUE_EVENT_SCHEMA, False)
        pool = options.size_events_pool(self._queue.max_message_size, payload)
        return Publisher(channel_file, process_name(), *pool, _POOL_BYTES_MAX)

    def close(self) -> None:
        """Close the publisher."""
        if self._publisher is not None:
            with contextlib.suppress(MsgqError):
                self._publisher.close()


def remove_events(queue: str, prefix: str) -> None:
    """Remove a queue's events channel if it exists."""
    with contextlib.suppress(MsgqError):
        open_channel_file(events_channel(queue), prefix, writable=True).unlink()
