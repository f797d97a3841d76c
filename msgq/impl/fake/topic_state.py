"""A topic on the fake bus: its publisher, how far the ring would be, and what each subscriber has not read.

A topic does the ring's arithmetic (positions, chunks, limit; see docs/internals/topic-protocol.md) on a ring that holds
nothing, so a slow subscriber is lapped by the same message as on the real one. The messages are in the subscribers'
queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from msgq.common.schema import Schema
from msgq.errors import MessageTooLargeError
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, Inbox, MessageHandler

GRANT_CHUNK_BYTES_MAX = 65536
STAMPS_BYTES = 16  # on a tracked topic, before each payload
TOPIC_PUBLISHERS_MAX = 16
LAP_STRIDE = 1 << 32  # a position is a lap, and below it the offset
OFFSET_MASK = LAP_STRIDE - 1


def frame_bytes(size: int) -> int:
    """Return the bytes that a message takes in the ring: its size word, itself, and padding to 8."""
    return size + 15 & ~7


class PublisherClaim:
    """A publisher's claim on a topic, and what it counted when it lost or left it (None: it has it still)."""

    __slots__ = ("final_counts", "has_reservation")

    def __init__(self) -> None:
        self.has_reservation = False
        self.final_counts: tuple[int, int] | None = None


class TopicState(EndpointState["TopicInbox"]):
    """One endpoint: who publishes, who subscribes, and how far the ring would be.

    Attributes
    ----------
    write_position : where the next message goes.
    granted_position : the publisher needs no `extend_grant` up to here.
    write_limit : everything older than a lap before this is overwritten.
    published_bytes : published so far.
    stamp_bytes : bytes of the ring that each message takes besides: 0, unless the topic is tracked.
    schema : what the messages are, as the publisher said that said it last.
    extract_picture : of a stream of frames: what a simulation says of a message.
    """

    def __init__(
        self, endpoint: str, data_bytes: int, choose_route: Callable[[EndpointState[Any]], MessageHandler]
    ) -> None:
        super().__init__(endpoint, choose_route)
        self.data_bytes = data_bytes
        self._lap_end_offset = data_bytes - 9 & ~7
        self._grant_chunk_bytes = min(data_bytes // 16 & ~7, GRANT_CHUNK_BYTES_MAX)
        self.frame_bytes_max = data_bytes // 3 & ~7
        self.write_position = self.granted_position = self.write_limit = 0
        self.published_bytes = self.stamp_bytes = 0
        self.current_claim: PublisherClaim | None = None
        self.open_publishers = 0
        self.schema: Schema | None = None
        self.extract_picture: Callable[[bytes], bytes] | None = None

    def set_publisher(self, claim: PublisherClaim) -> None:
        """Make this the publisher; who had the topic finds out at its next send."""
        self.clear_publisher()
        self.current_claim = claim
        self.granted_position = self.write_position

    def clear_publisher(self) -> None:
        """Have no publisher."""
        if self.current_claim is not None:
            self.current_claim.final_counts = (self.published_count, self.published_bytes)
            self.current_claim = None

    def extend_grant(self, size: int) -> int:
        """Return the position behind a message of `size` bytes that does not fit into what was granted.

        Raises
        ------
        MessageTooLargeError : three messages of its size do not fit.
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
        """Return the position of the message that a reader at `cursor` finds: there, or in the next lap."""
        wraps = (cursor & OFFSET_MASK) + frame_bytes(size + self.stamp_bytes) > self._lap_end_offset
        return (cursor & ~OFFSET_MASK) + LAP_STRIDE if wraps else cursor

    def check_message_size(self, size: int) -> int:
        """Return what a message of `size` bytes needs, if it may be sent at all."""
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
        """Return how many subscribers are attached, and how many of them have read everything; not the passive ones."""
        attached = [inbox for inbox in self.inboxes if not inbox.passive]
        return len(attached), sum(inbox.has_read_all() for inbox in attached)


class TopicInbox(Inbox):
    """What one subscriber has not read yet.

    Attributes
    ----------
    unread_messages : delivered, not read.
    lost, received, resets : as in `SubscriberStats`.
    """

    def __init__(self, topic: TopicState, conflate: bool, passive: bool) -> None:
        self.topic, self.conflate, self.passive = topic, conflate, passive
        self.unread_messages: deque[BusMessage] = deque()
        super().__init__(self.unread_messages.append)
        self.received = self.lost = self.resets = 0
        self._skipped_count = 0  # not read and not in the queue either; added to `lost` at the next look
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
        """The publisher overwrites what is at the cursor: it goes. What comes does so too, until the next look."""
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
        """Pass over what the publisher overwrites."""
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
        """Count what was overwritten; return whether that was found just now, and messages are left."""
        return self.resumes_at_oldest and self._is_lapped and self.can_receive()

    def can_receive(self) -> bool:
        """Return whether there is a message, the first in the queue. After a lap: at the newest position."""
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
        """Return the message that `take_message` takes; there must be one."""
        if self.conflate:
            self._skip_to_newest()
            self._add_skipped_to_lost()
        return self.unread_messages[0][1]

    def take_message(self) -> bytes:
        """Take the first message of the queue, or the newest if this conflates; there must be one."""
        data = self.peek_message()
        self.unread_messages.popleft()
        self.received += 1
        return data

    def has_read_all(self) -> bool:
        """Return whether everything sent to this subscriber was read."""
        return not (self.unread_messages or self.undelivered or self._is_lapped)

    def close(self) -> None:
        """Leave the topic, for good."""
        self.closed = True
        self.undelivered.clear()
        self.topic.remove_inbox(self)
