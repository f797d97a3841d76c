"""Cursor of a subscriber in a channel, and its losses, in the same steps as msgq/impl/channel/subscriber.h.

Each position that the cursor passes is received, lost, or an excluded own message. In a simulation the cursor stops
after the last delivered message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgq.errors import LostMessagesError
from msgq.impl.fake.channel_state import ChannelFile, ChannelState, IndexEntry, PublisherPool
from msgq.impl.fake.endpoint_state import BusMessage, Inbox


class ChannelCursor(Inbox):
    """Cursor of a subscriber.

    Attributes
    ----------
    position : position of the next message to read; 0 before the channel has a capacity.
    arrived_position : position after the last delivered message. Without a simulation: the tail of the channel.
    lost, received, resets : as in `Subscriber`.
    reported_lost : value of `lost` at the last LostMessagesError.
    conflate : receive the newest message only.
    resumes_at_newest : continue at the newest message after a lap.
    raises_on_loss : raise an error for each loss.
    """

    def __init__(
        self,
        channel: ChannelState,
        history: int,
        conflate: bool,
        resumes_at_newest: bool,
        raises_on_loss: bool,
        excluded_file: ChannelFile | None,
    ) -> None:
        super().__init__(self._record_arrival)
        self.channel, self.conflate = channel, conflate
        self.resumes_at_newest, self.raises_on_loss = resumes_at_newest, raises_on_loss
        self._excluded_file = excluded_file  # whose messages are left out
        self._history_count = history
        self.position = self.arrived_position = self.lost = self.received = self.resets = self.reported_lost = 0
        self._resume_margin = 0  # entries after the oldest one, at which a lapped cursor continues
        self._received_at_lap = 0
        self._joined_position = 0  # earlier messages do not count as lost
        self._overwritten_position = 0  # a fault has overwritten the messages before this position
        self._dropped_positions: set[int] = set()  # by faults; as if they were retracted
        self._repeated_positions: deque[int] = deque()  # positions that arrived once more, by faults
        self._mapped_pools: dict[int, PublisherPool] = {}  # by row; they are found even in a removed channel
        self.closed = True  # until join_channel

    def join_channel(self) -> None:
        """Join at the newest position minus the history; or when the channel gets its capacity."""
        self.set_start_position(True)
        self.closed = False
        self.channel.add_inbox(self)

    def set_start_position(self, at_newest: bool = False) -> bool:
        """Set the start position. Return False if the channel has no capacity yet."""
        index_ring = self.channel.index_ring
        if self.position or not index_ring.tail:
            return bool(self.position)
        history_count = min(self._history_count, index_ring.capacity)
        has_history = at_newest and index_ring.tail - index_ring.capacity >= history_count
        self.position = index_ring.tail - history_count if has_history else index_ring.capacity
        self._joined_position = index_ring.tail if at_newest else index_ring.capacity
        if at_newest:
            self.arrived_position = index_ring.tail
        return True

    def close(self) -> None:
        """Leave the channel for good."""
        self.closed = True
        self.undelivered.clear()
        self.channel.remove_inbox(self)

    def forget_mapped_pools(self) -> None:
        """Forget the pools that were found."""
        self._mapped_pools.clear()

    # ---- what comes ----

    def _record_arrival(self, message: BusMessage) -> None:
        if message[0] < self.arrived_position:
            self._repeated_positions.append(message[0])
        else:
            self.arrived_position = message[0] + 1

    def set_arrival_callback(self, callback: Callable[[], object]) -> None:
        """See `Inbox`."""

        def receive_and_notify(message: BusMessage) -> None:
            self._record_arrival(message)
            callback()

        if self.has_pending_messages():
            callback()
        self.message_handler = receive_and_notify
        self.channel.update_route()

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        delivered_position = max(self.arrived_position, self._overwritten_position)
        return (
            delivered_position > self.position
            or bool(self._repeated_positions)
            or self.position in self._dropped_positions
        )

    def drop_message(self, message: BusMessage) -> None:
        """See `Inbox`."""
        self._dropped_positions.add(message[0])

    def overwrite_unread(self) -> None:
        """See `Inbox`. A conflating subscriber is at the newest message, which is never overwritten."""
        if not self.conflate:
            self.arrived_position = self._overwritten_position = self.channel.index_ring.tail
            self.undelivered.clear()

    # ---- finding ----

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return self._seek_next_entry() is not None or (self.raises_on_loss and self.lost != self.reported_lost)

    def find_message(self) -> IndexEntry | None:
        """Return the message at the cursor, after lost and excluded own messages; None: no message.

        Raises
        ------
        LostMessagesError : messages were lost since the last error, and losses must raise.
        """
        entry = self._seek_next_entry()
        if self.raises_on_loss and self.lost != self.reported_lost:
            lost, self.reported_lost = self.lost - self.reported_lost, self.lost
            error = LostMessagesError(f"{lost} messages lost; the next call continues after them", self.channel.name)
            error.lost = lost
            raise error
        return entry

    def find_following_message(self) -> IndexEntry | None:
        """Return the message that follows the received ones; None: before a loss, or if the subscriber conflates."""
        return None if self.conflate else self._seek_next_entry(passes_losses=False)

    def _seek_next_entry(self, passes_losses: bool = True) -> IndexEntry | None:
        """Return the next message. `passes_losses`: skip lost messages; False: return None at a lost message."""
        if not self.set_start_position():
            return None
        if self._overwritten_position > self.position and passes_losses:
            self.resets += 1
            self._skip_as_lost(self._overwritten_position)
        if self.conflate:
            self._skip_to_newest()
        index_ring = self.channel.index_ring
        while True:
            repeated_entry = self._find_repeated_entry()
            if repeated_entry is not None:
                return repeated_entry
            if not passes_losses and self._is_at_loss():
                return None
            if self.position in self._dropped_positions:
                self._skip_as_lost(self.position + 1)
                continue
            if self.position >= self.arrived_position:
                return None
            entry = index_ring.read_entry(self.position)
            if entry.position != self.position:  # lapped
                self.resets += 1
                oldest = index_ring.oldest_position()
                self._skip_as_lost(index_ring.tail if self.resumes_at_newest else oldest + self._update_resume_margin())
            elif entry.pool is not None and entry.pool.file is self._excluded_file:
                self.position += 1
            elif entry.pool is None:
                self._skip_as_lost(self.position + 1)
            elif self._mapped_pools.get(entry.pool.row) is entry.pool:
                return entry
            elif self.raises_on_loss and self.lost != self.reported_lost:
                return None  # report the losses before the search for the pool
            elif entry.pool.is_removed:
                self._skip_as_lost(self.position + 1)
            else:
                self._mapped_pools[entry.pool.row] = entry.pool
                return entry

    def _is_at_loss(self) -> bool:
        """Return True if the message at the cursor is lost."""
        if self.position in self._dropped_positions or self._overwritten_position > self.position:
            return True
        if self.position >= self.arrived_position:
            return False
        entry = self.channel.index_ring.read_entry(self.position)
        if entry.position != self.position or entry.pool is None:
            return True
        is_known = self._mapped_pools.get(entry.pool.row) is entry.pool or entry.pool.file is self._excluded_file
        return entry.pool.is_removed and not is_known

    def _update_resume_margin(self) -> int:
        """Return the distance from the oldest message at which to continue after a lap.

        The distance grows if laps repeat quickly.
        """
        capacity = self.channel.index_ring.capacity
        min_received = max(capacity // 16, 1)
        lapped_again = self.resets > 1 and self.received - self._received_at_lap < min_received
        self._resume_margin = min(2 * self._resume_margin or min_received, capacity // 2) if lapped_again else 0
        self._received_at_lap = self.received
        return self._resume_margin

    def _find_repeated_entry(self) -> IndexEntry | None:
        while self._repeated_positions and self._repeated_positions[0] < self.position:
            entry = self.channel.index_ring.read_entry(self._repeated_positions[0])
            if (
                entry.position == self._repeated_positions[0]
                and entry.pool is not None
                and entry.pool.file is not self._excluded_file
            ):
                return entry
            self._repeated_positions.popleft()
        return None

    def _skip_to_newest(self) -> None:
        """Move to the newest wanted message. Skipped messages count as lost."""
        index_ring, tail = self.channel.index_ring, self.arrived_position
        if tail > self.position:
            self._repeated_positions.clear()
        for position in range(tail - 1, max(self.position, tail - index_ring.capacity - 1), -1):
            entry = index_ring.read_entry(position)
            if entry.position != position:
                return
            if (
                entry.pool is not None
                and entry.pool.file is not self._excluded_file
                and position not in self._dropped_positions
            ):
                self._skip_as_lost(position)
                return

    def _skip_as_lost(self, cursor: int) -> None:
        """Move the cursor to a position. Skipped messages count as lost, except for messages before the join."""
        self.lost += max(cursor - max(self.position, self._joined_position), 0)
        self.position = cursor
        self._dropped_positions = {position for position in self._dropped_positions if position >= cursor}
        self._repeated_positions = deque(position for position in self._repeated_positions if position >= cursor)

    def count_unread(self) -> tuple[int, int]:
        """Return the number of unread messages, and the number of losses not counted yet."""
        index_ring = self.channel.index_ring
        start, oldest, lost = max(self.position, index_ring.capacity), index_ring.oldest_position(), 0
        if oldest > start:
            lost, start = max(oldest - max(start, self._joined_position), 0), oldest
        counted_from = max(start, self._joined_position)
        retracted = sum(
            index_ring.read_entry(position).pool is None for position in range(counted_from, index_ring.tail)
        )
        unread = sum(index_ring.read_entry(position).pool is not None for position in range(start, index_ring.tail))
        return unread, lost + retracted

    def accept_message(self, entry: IndexEntry) -> None:
        """Count the found message as received, and advance."""
        if entry.position < self.position:
            self._repeated_positions.popleft()
        else:
            self.position += 1
        self.received += 1
