"""A channel's subscriber. See the ring's core.pyi of msgq/impl/channel for the contract of each method."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self, cast

from msgq.common import naming
from msgq.common.stats.channel import ChannelMessage, ChannelSubscriber, PublisherInfo
from msgq.errors import (
    EndpointClosedError,
    InvalidValueError,
    LostMessagesError,
    MessageSizeError,
    MessageTooLargeError,
    StateError,
    TooManyViewsError,
)
from msgq.impl.base.argument_checks import not_connected_error, timeout_ns
from msgq.impl.fake.bus import fork_error
from msgq.impl.fake.channel_counters import subscriber_stats
from msgq.impl.fake.channel_cursor import Cursor
from msgq.impl.fake.channel_order import ChannelFile, Entry, Pool, Slot
from msgq.impl.fake.memory import Memory
from msgq.impl.fake.subscriber import fill
from msgq.impl.fake.waiting import Waitable, wait_ready

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import WriteableBuffer


class SubscriberRows:
    """The rows of a subscriber; they stay until its last view is let go."""

    def __init__(self, file: ChannelFile, node: str, cursor: Cursor) -> None:
        file.lock()
        self._file, self.node, self.cursor = file, node, cursor
        self._row = file.channel.listen(self)
        self.viewer = -1  # it takes no views so far
        self.views_held = 0
        self._closed = False

    def become_viewer(self) -> None:
        """Take a viewer's row."""
        self._file.lock()
        self.viewer = self._file.channel.view(f"{self.node} {os.getpid()}")

    def pin(self, slot: Slot) -> None:
        """Keep the slot's publisher from writing it."""
        slot.holders.append(self.viewer)
        self.views_held += 1

    def unpin(self, slot: Slot) -> None:
        """End a pin."""
        slot.holders.remove(self.viewer)
        self.views_held -= 1
        if self._closed:
            self.leave()

    def leave(self) -> None:
        """Give the rows back, now or when the last view is let go."""
        self._closed = True
        if self.views_held:
            return
        channel = self._file.channel
        if self._row is not None:
            channel.subscribers[self._row] = None
            self._row = None
        if self.viewer >= 0:
            channel.viewers[self.viewer] = None
            self.viewer = -1


class Subscriber(Waitable):
    """Receives the messages of a channel."""

    __slots__ = ("_cursor", "_file", "_last", "_rows", "max_views", "name")

    def __init__(
        self,
        file: ChannelFile,
        name: str,
        history: int,
        max_views: int,
        conflate: bool,
        newest: bool,
        raises: bool,
        own: bool,
        spin_us: int | None,
    ) -> None:
        super().__init__()
        self._bus, self._endpoint, self.name = file.channel.bus, file.name, name
        self._file, self.max_views = file, max_views
        self._last: ChannelMessage | None = None
        self._cursor = Cursor(file.channel, history, conflate, newest, raises, None if own else file)
        naming.spin_us(spin_us, file.name)
        self._rows = SubscriberRows(file, name, self._cursor) if file.writable else None
        self._cursor.join()
        self._bus.on_open(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.received} messages received"
        return f"<msgq fake channel Subscriber {self._endpoint!r}, {state}>"

    # ---- what it counts ----

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._cursor.closed

    @property
    def lost(self) -> int:
        """Messages that were passed over."""
        return self._cursor.lost

    @property
    def received(self) -> int:
        """Messages that were received."""
        return self._cursor.received

    @property
    def resets(self) -> int:
        """How often publishers lapped it."""
        return self._cursor.resets

    @property
    def position(self) -> int:
        """Position of the next message; 0 while the capacity is not set."""
        return self._cursor.position

    @property
    def views_held(self) -> int:
        """Views that are not released."""
        return 0 if self._rows is None else self._rows.views_held

    @property
    def passive(self) -> bool:
        """Whether it leaves no trace."""
        return self._rows is None

    @property
    def last(self) -> ChannelMessage | None:
        """What is known of the message that was received last."""
        return self._last

    def stats(self) -> ChannelSubscriber:
        """Return its counters."""
        return subscriber_stats(self.name, self._cursor, self.views_held)

    def close(self) -> None:
        """Leave. Views stay valid."""
        if not self.closed:
            self._cursor.close()
            if self._rows is not None:
                self._rows.leave()
            self._end_waits()

    # ---- finding ----

    def _check_usable(self) -> Cursor:
        if self.closed:
            raise not_connected_error(self._endpoint)
        if self._file.channel.inherited:
            raise fork_error(self._endpoint)
        self._check_not_in_use()
        return self._cursor

    def _find(self, timeout: float | None) -> Entry | None:
        """Return the message at the cursor, waiting for it for so many seconds."""
        cursor = self._check_usable()
        timeout_ns(timeout, self._endpoint)
        entry = cursor.find()
        if entry is not None or timeout == 0:
            return entry
        limit = timeout_ns(timeout, self._endpoint)
        wait_ready([self], None if limit < 0 else limit)
        return cursor.find()

    def _take(self, entry: Entry) -> Slot:
        """Receive the message that was found."""
        slot, pool = slot_of(entry), cast("Pool", entry.pool)
        self._cursor.accept(entry)
        self._last = ChannelMessage(entry.position, slot.publish_time, slot.origin_time, publisher_of(pool))
        return slot

    # ---- receiving copies ----

    def receive(self, timeout: float | None = None) -> bytes | None:
        """Take the next message."""
        entry = self._find(timeout)
        data = None if entry is None else self._take(entry).data
        self._rearm_fd()
        return data

    def _receive_now(self) -> bytes | None:
        return self.receive(0)

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: float | None = None) -> int | None:
        """Take the next message into memory of the caller's."""
        fill(buffer, b"")  # refuses what is not writable or not contiguous
        room = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        try:
            entry = self._find(timeout)
            if entry is None:
                return None
            size = len(slot_of(entry).data)
            if size > room:
                text = f"the message has {size} bytes, the buffer {room}; it stays for the next call"
                raise MessageTooLargeError(text, self._endpoint)
            return fill(buffer, self._take(entry).data)
        finally:
            self._rearm_fd()

    def _most(self, limit: int | None) -> int:
        """Return how many messages to take at most: as asked, and no more than are there now."""
        if limit is not None and limit < 0:
            raise InvalidValueError(f"limit is {limit}; give 0 or more, or None for all", self._endpoint)
        cursor = self._check_usable()
        if not cursor.begin():
            return 0
        available = max(cursor.arrived - cursor.position, 0)
        return available if limit is None else min(available, limit)

    def receive_many(self, limit: int | None = None) -> list[bytes]:
        """Take the messages that are there."""
        messages: list[bytes] = []
        cursor, end = self._cursor, self._most(limit)
        end += cursor.position
        while cursor.position < end:
            entry = self._find_more(bool(messages))
            if entry is None:
                break
            messages.append(self._take(entry).data)
        self._rearm_fd()
        return messages

    def _find_more(self, after_others: bool) -> Entry | None:
        """Return the next message. A loss after others ends the call, which the next call reports."""
        lost_reported = self._cursor.lost_reported
        try:
            return self._cursor.find()
        except LostMessagesError:
            if not after_others:
                raise
            self._cursor.lost_reported = lost_reported
            return None

    def receive_array(
        self,
        dtype: npt.DTypeLike,
        limit: int | None = None,
        *,
        timeout: float | None = 0.0,
        publishers: list[PublisherInfo] | None = None,
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the messages that are there, each of which is one element, as an array. It ends before a loss."""
        import numpy  # the only method that needs it

        timeout_ns(timeout, self._endpoint)
        element = numpy.dtype(dtype)
        if element.itemsize == 0 or element.hasobject:
            text = f"dtype {element} has no bytes of its own; give one of a fixed size"
            raise InvalidValueError(text, self._endpoint)
        most = self._most(limit)
        if not most and limit != 0 and timeout != 0 and self._find(timeout) is not None:
            most = self._most(limit)
        lost = self.lost
        messages: list[bytes] = []
        while len(messages) < most and (entry := self._find_more(bool(messages))) is not None:
            if messages and self.lost != lost:
                break
            lost = self.lost
            size = len(slot_of(entry).data)
            if size != element.itemsize:
                if messages:
                    break
                text = f"the next message has {size} bytes, the dtype {element.itemsize}; receive() takes it as it is"
                raise MessageSizeError(text, self._endpoint)
            messages.append(self._take(entry).data)
            if publishers is not None and self._last is not None:
                publishers.append(self._last.publisher)
        self._rearm_fd()
        array = numpy.empty(len(messages), element)
        fill(array, b"".join(messages))
        return array

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return cast("bytes", self.receive())  # which waits for ever

    def arecv(self) -> Coroutine[Any, Any, bytes]:
        """Return the next message, in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        return event_loop.receive(self, 0.0)

    __anext__ = arecv

    # ---- views ----

    def receive_view(self, timeout: float | None = None) -> Sample | None:
        """Take the next message without a copy of it: its slot is not written again before the view is released."""
        cursor = self._check_usable()
        rows = self._rows
        if rows is None:
            raise StateError("is passive, and leaves no trace: it cannot hold views, only copy", self._endpoint)
        if rows.views_held >= self.max_views:
            text = f"keeps {rows.views_held} views, as many as it may (max_views); release one"
            raise TooManyViewsError(text, self._endpoint)
        if rows.viewer < 0:
            rows.become_viewer()
            cursor.unmap()
        entry = self._find(timeout)
        sample = None if entry is None else Sample(rows, self._take(entry), cast("ChannelMessage", self._last))
        self._rearm_fd()
        return sample


class Sample(Memory):
    """A message that is held: a read-only buffer.

    Attributes
    ----------
    position, publish_time, origin_time, publisher : as in `ChannelMessage`.
    """

    def __init__(self, rows: SubscriberRows, slot: Slot, message: ChannelMessage) -> None:
        super().__init__(slot.data)
        self.position, self.publisher = message.position, message.publisher
        self.publish_time, self.origin_time = message.publish_time, message.origin_time
        self._rows: SubscriberRows | None = rows
        self._slot = slot
        rows.pin(slot)

    def __del__(self) -> None:  # each buffer keeps it, so none is left
        self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def check_shown(self) -> None:
        """See `Memory`."""
        if self._rows is None:
            raise EndpointClosedError("this view was released; what it showed may be another message by now")

    def release(self) -> None:
        """Let go of the slot now; a second call does nothing."""
        if self.exports:
            text = f"{self.exports} buffers still look through this view (a memoryview, an array)"
            raise BufferError(f"{text}; release or delete them first")
        self._let_go()

    def _let_go(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.unpin(self._slot)


def slot_of(entry: Entry) -> Slot:
    """Return where the message of an entry is that was found, and so has not been retracted."""
    return cast("Pool", entry.pool).slots[entry.slot]


def publisher_of(pool: Pool) -> PublisherInfo:
    """Return whose pool it is."""
    return PublisherInfo(pool.node, os.getpid())
