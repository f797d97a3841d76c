"""A subscriber's place in a channel's order, and what it missed: msgq/impl/channel/subscriber.h, step by step.

Each position that the cursor passes is received, lost, or one's own message that was left out. In a simulation it sees
no further than what was delivered to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgq.errors import LostMessagesError
from msgq.impl.fake import bus
from msgq.impl.fake.channel_order import ChannelFile, ChannelState, Entry, Pool


class Cursor(bus.Inbox):
    """Where a subscriber is.

    Attributes
    ----------
    position : of the next message to read; 0 before the order begins.
    arrived : what is before this position was delivered; in the order, at the tail, but for a simulation.
    lost, received, resets : as in `Subscriber`.
    lost_reported : what was lost when that was raised last.
    conflate, newest, raises : wants the newest message only; goes to the present when lapped; an error for each loss.
    """

    def __init__(
        self,
        channel: ChannelState,
        history: int,
        conflate: bool,
        newest: bool,
        raises: bool,
        without: ChannelFile | None,
    ) -> None:
        super().__init__(self._arrive)
        self.channel, self.conflate, self.newest, self.raises = channel, conflate, newest, raises
        self._without = without  # whose messages are left out
        self._history = history
        self.position = self.arrived = self.lost = self.received = self.resets = self.lost_reported = 0
        self._margin = self._received_at_lap = 0  # where it went on when it was lapped, and what was received then
        self._joined_at = 0  # what is gone before this position is not lost: we joined later
        self._overwritten = 0  # by a fault, before this position
        self._dropped: set[int] = set()  # by faults; as if they were retracted
        self._repeats: deque[int] = deque()  # positions that arrived once more, by faults
        self._mapped: dict[int, Pool] = {}  # by row: pools that are found even when their channel was removed
        self.closed = True  # so far

    def join(self) -> None:
        """Take part from now on, at the present less the history; or when the order begins."""
        self.begin(True)
        self.closed = False
        self.channel.join(self)

    def begin(self, present: bool = False) -> bool:
        """Take the place that was asked for. False: the order has not begun."""
        order = self.channel.order
        if self.position or not order.tail:
            return bool(self.position)
        back = min(self._history, order.capacity)
        far = present and order.tail - order.capacity >= back
        self.position = order.tail - back if far else order.capacity
        self._joined_at = order.tail if present else order.capacity
        if present:
            self.arrived = order.tail
        return True

    def close(self) -> None:
        """Leave, for good."""
        self.closed = True
        self.coming.clear()
        self.channel.leave(self)

    def unmap(self) -> None:
        """Forget which pools were found."""
        self._mapped.clear()

    # ---- what comes ----

    def _arrive(self, entry: bus.Entry) -> None:
        if entry[0] < self.arrived:
            self._repeats.append(entry[0])
        else:
            self.arrived = entry[0] + 1

    def on_arrival(self, callback: Callable[[], object]) -> None:
        """See `Inbox`."""

        def arrive(entry: bus.Entry) -> None:
            self._arrive(entry)
            callback()

        if self.has_pending():
            callback()
        self.sink = arrive
        self.channel.rewire()

    def has_pending(self) -> bool:
        """See `Inbox`."""
        seen = max(self.arrived, self._overwritten)
        return seen > self.position or bool(self._repeats) or self.position in self._dropped

    def drop(self, entry: bus.Entry) -> None:
        """See `Inbox`."""
        self._dropped.add(entry[0])

    def overwrite_unread(self) -> None:
        """See `Inbox`. Who conflates is at the newest message, which is never overwritten."""
        if not self.conflate:
            self.arrived = self._overwritten = self.channel.order.tail
            self.coming.clear()

    # ---- finding ----

    def is_ready(self) -> bool:
        """See `Inbox`."""
        return self._next() is not None or (self.raises and self.lost != self.lost_reported)

    def find(self) -> Entry | None:
        """Return the message at the cursor, passing over what is lost, and one's own. None: there is none.

        Raises
        ------
        LostMessagesError : messages were lost since it was raised last, and this was to be an error.
        """
        entry = self._next()
        if self.raises and self.lost != self.lost_reported:
            lost, self.lost_reported = self.lost - self.lost_reported, self.lost
            error = LostMessagesError(
                f"{lost} messages were lost; the next call goes on behind them", self.channel.name
            )
            error.lost = lost
            raise error
        return entry

    def _next(self) -> Entry | None:
        if not self.begin():
            return None
        if self._overwritten > self.position:
            self.resets += 1
            self._lose(self._overwritten)
        if self.conflate:
            self._skip_to_newest()
        order = self.channel.order
        while True:
            repeat = self._repeat()
            if repeat is not None:
                return repeat
            if self.position in self._dropped:
                self._lose(self.position + 1)
                continue
            if self.position >= self.arrived:
                return None
            entry = order.at(self.position)
            if entry.position != self.position:  # lapped
                self.resets += 1
                self._lose(order.tail if self.newest else order.oldest() + self._next_margin())
            elif entry.pool is not None and entry.pool.file is self._without:
                self.position += 1
            elif entry.pool is None:
                self._lose(self.position + 1)
            elif self._mapped.get(entry.pool.row) is entry.pool:
                return entry
            elif self.raises and self.lost != self.lost_reported:
                return None  # that is lost_reported before the pool is looked for
            elif entry.pool.removed:
                self._lose(self.position + 1)
            else:
                self._mapped[entry.pool.row] = entry.pool
                return entry

    def _next_margin(self) -> int:
        """Return how far behind the oldest message to go on: further, if it was lapped a moment ago."""
        capacity = self.channel.order.capacity
        least = max(capacity // 16, 1)
        again = self.resets > 1 and self.received - self._received_at_lap < least
        self._margin = min(2 * self._margin or least, capacity // 2) if again else 0
        self._received_at_lap = self.received
        return self._margin

    def _repeat(self) -> Entry | None:
        while self._repeats and self._repeats[0] < self.position:
            entry = self.channel.order.at(self._repeats[0])
            if entry.position == self._repeats[0] and entry.pool is not None and entry.pool.file is not self._without:
                return entry
            self._repeats.popleft()
        return None

    def _skip_to_newest(self) -> None:
        """Go to the newest message that is wanted; what is passed over is lost."""
        order, tail = self.channel.order, self.arrived
        if tail > self.position:
            self._repeats.clear()
        for position in range(tail - 1, max(self.position, tail - order.capacity - 1), -1):
            entry = order.at(position)
            if entry.position != position:
                return
            if entry.pool is not None and entry.pool.file is not self._without and position not in self._dropped:
                self._lose(position)
                return

    def _lose(self, cursor: int) -> None:
        """Pass over positions up to `cursor`, which are lost but for what was gone before we joined."""
        self.lost += max(cursor - max(self.position, self._joined_at), 0)
        self.position = cursor
        self._dropped = {position for position in self._dropped if position >= cursor}
        self._repeats = deque(position for position in self._repeats if position >= cursor)

    def count_unread(self) -> tuple[int, int]:
        """Return how many messages are there for it, and how many it has lost without having noticed it."""
        order = self.channel.order
        at = max(self.position, order.capacity)
        lost = max(order.oldest() - max(at, self._joined_at), 0) if order.tail - at > order.capacity else 0
        at = order.oldest() if order.tail - at > order.capacity else at
        retracted = sum(order.at(position).pool is None for position in range(max(at, self._joined_at), order.tail))
        unread = sum(order.at(position).pool is not None for position in range(at, order.tail))
        return unread, lost + retracted

    def accept(self, entry: Entry) -> None:
        """The message that was found is received."""
        if entry.position < self.position:
            self._repeats.popleft()
        else:
            self.position += 1
        self.received += 1
