"""Topic on the fake bus: its publisher, the positions in a ring, and the unread messages of each subscriber.

A topic computes positions, chunks and limits like the ring (docs/internals/topic-protocol.md), but stores no bytes. A
slow subscriber is therefore lapped by the same message as on a real ring. The subscribers' queues contain the messages.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any

from msgq.common.schema import Schema
from msgq.errors import MessageTooLargeError, SegmentSizeError
from msgq.impl.base.process import process_name
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, Inbox, MessageHandler

GRANT_CHUNK_BYTES_MAX = 65536
STAMPS_BYTES = 16  # on a tracked topic, before each payload
TOPIC_PUBLISHERS_MAX = 16
LAP_STRIDE = 1 << 32  # a position is a lap, and below it the offset
OFFSET_MASK = LAP_STRIDE - 1


def frame_bytes(size: int) -> int:
    """Return the bytes of a message in the ring: its size word, its payload, and padding to 8 bytes."""
    return size + 15 & ~7


class PublisherClaim:
    """A publisher's claim on a topic, and its counters at the end of the claim (None: still valid)."""

    __slots__ = ("final_counts", "has_reservation")

    def __init__(self) -> None:
        self.has_reservation = False
        self.final_counts: tuple[int, int] | None = None


class TopicState(EndpointState["TopicInbox"]):
    """One topic: publisher, subscribers, and positions in a ring.

    Attributes
    ----------
    size_is_requested : False: the topic has the default size, and nobody has requested a size.
    write_position : position of the next message.
    granted_position : up to this position, the publisher needs no `extend_grant`.
    write_limit : messages more than a lap before this position are overwritten.
    published_bytes : number of published bytes.
    stamp_bytes : additional bytes of each message in the ring; 0 unless the topic is tracked.
    last_message : the message that was sent last, for subscribers with `latest`; None: no message yet.
    schema : schema of the messages, set by the last publisher that gave one.
    extract_picture : for a frame stream: converts a message for a simulation.
    """

    def __init__(
        self, endpoint: str, data_bytes: int, choose_route: Callable[[EndpointState[Any]], MessageHandler]
    ) -> None:
        super().__init__(endpoint, choose_route)
        self._set_size(data_bytes)
        self.size_is_requested = False
        self.write_position = self.granted_position = self.write_limit = 0
        self.published_bytes = self.stamp_bytes = 0
        self.current_claim: PublisherClaim | None = None
        self.open_publishers = 0
        self.last_message: BusMessage | None = None
        self.schema: Schema | None = None
        self.extract_picture: Callable[[bytes], bytes] | None = None

    def _set_size(self, data_bytes: int) -> None:
        self.data_bytes = data_bytes
        self._lap_end_offset = data_bytes - 9 & ~7
        self._grant_chunk_bytes = min(data_bytes // 16 & ~7, GRANT_CHUNK_BYTES_MAX)
        self.frame_bytes_max = data_bytes // 3 & ~7

    def request_size(self, data_bytes: int) -> None:
        """Give the topic this size, as docs/internals/topic-protocol.md says in "A size without a request".

        Raises
        ------
        SegmentSizeError : the topic keeps another size.
        """
        if data_bytes != self.data_bytes:
            is_unused = not self.write_position and self.current_claim is None
            shrinks_under_subscriber = data_bytes < self.data_bytes and self.count_readers()[0] > 0
            if self.size_is_requested or not is_unused or shrinks_under_subscriber:
                raise self._size_mismatch_error(data_bytes)
            self._set_size(data_bytes)
        self.size_is_requested = True

    def _size_mismatch_error(self, data_bytes: int) -> SegmentSizeError:
        origin = "requested by" if self.size_is_requested else "default of"
        text = (
            f"exists with segment_size {self.data_bytes} ({origin} process {os.getpid()}, {process_name()}), but "
            f"{data_bytes} was requested; give 0 to use the existing size"
        )
        if not self.size_is_requested:
            text += (
                ". A default size changes only before the first message, and without a publisher. It decreases only "
                "without subscribers"
            )
        return SegmentSizeError(text, self.endpoint)

    def set_publisher(self, claim: PublisherClaim) -> None:
        """Set the publisher. The previous publisher gets an error at its next send."""
        self.clear_publisher()
        self.current_claim = claim
        self.granted_position = self.write_position

    def clear_publisher(self) -> None:
        """Remove the publisher."""
        if self.current_claim is not None:
            self.current_claim.final_counts = (self.published_count, self.published_bytes)
            self.current_claim = None

    def extend_grant(self, size: int) -> int:
        """Return the position after a message of `size` bytes that exceeds the granted position.

        Raises
        ------
        MessageTooLargeError : the message exceeds a third of the ring.
        """
        needed_bytes = self.check_message_size(size)
        lap, start = self.write_position & ~OFFSET_MASK, self.write_position & OFFSET_MASK
        if start + needed_bytes > self._lap_end_offset:
            lap, start = lap + LAP_STRIDE, 0
        self.granted_position = lap + min(start + max(needed_bytes, self._grant_chunk_bytes), self._lap_end_offset)
        self.write_limit = max(self.write_limit, self.granted_position)
        for inbox in self.inboxes:
            if inbox.find_cursor() < self.write_limit - LAP_STRIDE:
                inbox.overwrite_unread()
        return lap + start + needed_bytes

    def find_message_start(self, cursor: int, size: int) -> int:
        """Return the start of the message for a reader at `cursor`: there, or at the start of the next lap."""
        wraps = (cursor & OFFSET_MASK) + frame_bytes(size + self.stamp_bytes) > self._lap_end_offset
        return (cursor & ~OFFSET_MASK) + LAP_STRIDE if wraps else cursor

    def check_message_size(self, size: int) -> int:
        """Return the bytes of a message in the ring. Raises an error if the message is too large."""
        needed_bytes = frame_bytes(size + self.stamp_bytes)
        if needed_bytes > self.frame_bytes_max:
            text = (
                f"a message of {size} bytes does not fit: at most {self.frame_bytes_max - 8 - self.stamp_bytes} with "
                f"segment_size {self.data_bytes}; this one needs {3 * needed_bytes}"
            )
            raise MessageTooLargeError(text, self.endpoint)
        return needed_bytes

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        self.current_claim = None
        for inbox in self.inboxes:
            inbox.unread_messages.clear()

    def count_readers(self) -> tuple[int, int]:
        """Return the number of subscribers, and of those that have read all messages, without passive ones."""
        attached = [inbox for inbox in self.inboxes if not inbox.passive]
        return len(attached), sum(inbox.has_read_all() for inbox in attached)


class TopicInbox(Inbox):
    """Unread messages of one subscriber.

    Attributes
    ----------
    unread_messages : delivered messages that are not read.
    lost, received, resets : as in `SubscriberStats`.
    """

    def __init__(self, topic: TopicState, conflate: bool, passive: bool) -> None:
        self.topic, self.conflate, self.passive = topic, conflate, passive
        self.unread_messages: deque[BusMessage] = deque()
        super().__init__(self.unread_messages.append)
        self.received = self.lost = self.resets = 0
        self._skipped_count = 0  # messages that were neither read nor queued; the next update adds them to `lost`
        self._is_lapped = False
        self.resumes_at_oldest = False  # after a lap, continue at the oldest message that is left, as for records
        self._arrival_handler: MessageHandler = self.message_handler
        topic.add_inbox(self)

    def set_arrival_callback(self, callback: Callable[[], object]) -> None:
        """See `Inbox`."""

        def receive_and_notify(message: BusMessage) -> None:
            self.unread_messages.append(message)
            callback()

        if self.unread_messages:
            callback()
        self.message_handler = self._arrival_handler = receive_and_notify
        self.topic.update_route()

    def deliver_last_message(self) -> None:
        """Add the last message sent before the subscriber joined, if a message was sent."""
        if self.topic.last_message is not None:
            self.unread_messages.append(self.topic.last_message)

    def find_cursor(self) -> int:
        """Return the position of the next message to read."""
        if self.unread_messages:
            return self.unread_messages[0][0]
        return self.undelivered[0].message[0] if self.undelivered else self.topic.write_position

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return bool(self.unread_messages)

    def drop_message(self, _message: BusMessage) -> None:
        """See `Inbox`."""
        self.lost += 1

    def overwrite_unread(self) -> None:
        """Discard unread messages, because the publisher overwrites the cursor's position.

        New ones follow until the next check.
        """
        if self.conflate:  # its message is the newest, which is never overwritten
            self._skip_to_newest()
            return
        if self.resumes_at_oldest:
            self._skip_to_oldest()
            return
        self._skipped_count += len(self.unread_messages) + len(self.undelivered)
        self.unread_messages.clear()
        self.undelivered.clear()
        if not self._is_lapped:
            self._is_lapped = True
            self.message_handler = self._count_skipped_message
            self.topic.update_route()

    def _skip_to_oldest(self) -> None:
        """Skip the messages that the publisher overwrites."""
        oldest = self.topic.write_limit - LAP_STRIDE
        while self.unread_messages:
            cursor, data = self.unread_messages[0][:2]
            if self.topic.find_message_start(cursor, len(data)) >= oldest:
                return
            self.unread_messages.popleft()
            self._skipped_count += 1
            self._is_lapped = True

    def _count_skipped_message(self, _message: BusMessage) -> None:
        self._skipped_count += 1

    def _skip_to_newest(self) -> None:
        while len(self.unread_messages) > 1:
            self.unread_messages.popleft()
            self._skipped_count += 1

    def is_newly_lapped(self) -> bool:
        """Count overwritten messages. Return True if a new lap was found and messages are left."""
        return self.resumes_at_oldest and self._is_lapped and self.can_receive()

    def can_receive(self) -> bool:
        """Return True if a message is available. After a lap, continue at the newest position."""
        if self._is_lapped:
            self._is_lapped = False
            self.resets += 1
            self._add_skipped_to_lost()
            self.message_handler = self._arrival_handler
            self.topic.update_route()
        if self.unread_messages:
            cursor, data, *times = self.unread_messages[0]
            self.unread_messages[0] = (self.topic.find_message_start(cursor, len(data)), data, *times)  # type: ignore[assignment]
        else:
            self._add_skipped_to_lost()
        return bool(self.unread_messages)

    def _add_skipped_to_lost(self) -> None:
        self.lost += self._skipped_count
        self._skipped_count = 0

    def peek_message(self) -> bytes:
        """Return the message that `take_message` takes. A message must be available."""
        if self.conflate:
            self._skip_to_newest()
            self._add_skipped_to_lost()
        return self.unread_messages[0][1]

    def take_message(self) -> bytes:
        """Take the first message, or the newest if the subscriber conflates. A message must be available."""
        data = self.peek_message()
        self.unread_messages.popleft()
        self.received += 1
        return data

    def has_read_all(self) -> bool:
        """Return True if the subscriber has read all sent messages."""
        return not (self.unread_messages or self.undelivered or self._is_lapped)

    def close(self) -> None:
        """Leave the topic for good."""
        self.closed = True
        self.undelivered.clear()
        self.topic.remove_inbox(self)
