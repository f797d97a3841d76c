"""Subscriber of a channel. The stub msgq/impl/channel/core.pyi documents the methods."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Self, cast

from msgq.common import settings
from msgq.common.stats.channel import ChannelMessage, ChannelSubscriber, PublisherInfo
from msgq.errors import (
    EndpointClosedError,
    InvalidValueError,
    MessageSizeError,
    MessageTooLargeError,
    StateError,
    TooManyViewsError,
)
from msgq.impl.base.argument_checks import not_connected_error, timeout_ns
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.fake.channel_counters import read_subscriber_stats
from msgq.impl.fake.channel_cursor import ChannelCursor
from msgq.impl.fake.channel_state import ChannelFile, IndexEntry, PoolSlot, PublisherPool
from msgq.impl.fake.endpoint_state import fork_error
from msgq.impl.fake.owned_buffer import OwnedBuffer
from msgq.impl.fake.waiting import copy_into_buffer
from msgq.impl.fake.waiting import Waitable, wait_until_ready

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import WriteableBuffer


class SubscriberRows:
    """Rows of a subscriber. The rows stay until the subscriber's last view is released."""

    def __init__(self, file: ChannelFile, node: str, cursor: ChannelCursor) -> None:
        file.lock()
        self._channel_file, self.node, self.cursor = file, node, cursor
        self._subscriber_row = file.channel.register_subscriber(self)
        self.viewer_row = -1  # -1: no view was received yet
        self.views_held = 0
        self._closed = False

    def register_viewer(self) -> None:
        """Take a row for a viewer."""
        self._channel_file.lock()
        self.viewer_row = self._channel_file.channel.register_viewer(f"{self.node} {os.getpid()}")

    def pin_slot(self, slot: PoolSlot) -> None:
        """Pin a slot, so that the publisher does not write it."""
        slot.viewer_rows.append(self.viewer_row)
        self.views_held += 1

    def unpin_slot(self, slot: PoolSlot) -> None:
        """Unpin a slot."""
        slot.viewer_rows.remove(self.viewer_row)
        self.views_held -= 1
        if self._closed:
            self.release_rows()

    def release_rows(self) -> None:
        """Release the rows now, or when the last view is released."""
        self._closed = True
        if self.views_held:
            return
        channel = self._channel_file.channel
        if self._subscriber_row is not None:
            channel.registered_subscribers[self._subscriber_row] = None
            self._subscriber_row = None
        if self.viewer_row >= 0:
            channel.viewer_names[self.viewer_row] = None
            self.viewer_row = -1


@add_advice
class Subscriber(Waitable):
    """Receives the messages of a channel."""

    __slots__ = ("_channel_file", "_cursor", "_last_message", "_rows", "max_views", "name")

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
        self._channel_file, self.max_views = file, max_views
        self._last_message: ChannelMessage | None = None
        self._cursor = ChannelCursor(file.channel, history, conflate, newest, raises, None if own else file)
        settings.resolve_spin_us(spin_us, file.name)
        self._rows = SubscriberRows(file, name, self._cursor) if file.writable else None
        self._cursor.join_channel()
        self._bus.on_member_opened(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.received} messages received"
        return f"<msgq fake channel Subscriber {self._endpoint!r}, {state}>"

    # ---- counters ----

    @property
    def closed(self) -> bool:
        """True if the subscriber is closed."""
        return self._cursor.closed

    @property
    def lost(self) -> int:
        """Number of lost messages."""
        return self._cursor.lost

    @property
    def received(self) -> int:
        """Number of received messages."""
        return self._cursor.received

    @property
    def resets(self) -> int:
        """Number of times that publishers lapped the subscriber."""
        return self._cursor.resets

    @property
    def position(self) -> int:
        """Position of the next message; 0 while the capacity is not set."""
        return self._cursor.position

    @property
    def views_held(self) -> int:
        """Number of held views."""
        return 0 if self._rows is None else self._rows.views_held

    @property
    def passive(self) -> bool:
        """True if the subscriber leaves no trace."""
        return self._rows is None

    @property
    def last(self) -> ChannelMessage | None:
        """Information about the message received last."""
        return self._last_message

    def stats(self) -> ChannelSubscriber:
        """Return the counters."""
        return read_subscriber_stats(self.name, self._cursor, self.views_held)

    def close(self) -> None:
        """Close the subscriber. Views stay valid."""
        if not self.closed:
            self._cursor.close()
            if self._rows is not None:
                self._rows.release_rows()
            self._end_all_waits()

    # ---- finding ----

    def _check_usable(self) -> ChannelCursor:
        if self.closed:
            raise not_connected_error(self._endpoint)
        if self._channel_file.channel.inherited_by_fork:
            raise fork_error(self._endpoint)
        self._check_not_in_use()
        return self._cursor

    def _find_message(self, timeout: float | None) -> IndexEntry | None:
        """Return the message at the cursor. Waits up to `timeout` seconds."""
        cursor = self._check_usable()
        timeout_ns(timeout, self._endpoint)
        entry = cursor.find_message()
        if entry is not None or timeout == 0:
            return entry
        limit = timeout_ns(timeout, self._endpoint)
        wait_until_ready([self], None if limit < 0 else limit)
        return cursor.find_message()

    def _receive_entry(self, entry: IndexEntry) -> PoolSlot:
        """Receive the found message, and return its slot."""
        slot, pool = find_message_slot(entry), cast("PublisherPool", entry.pool)
        self._cursor.accept_message(entry)
        self._last_message = ChannelMessage(
            entry.position, slot.publish_time, slot.origin_time, make_publisher_info(pool)
        )
        return slot

    # ---- receiving copies ----

    def receive(self, timeout: float | None = None) -> bytes | None:
        """Take the next message."""
        entry = self._find_message(timeout)
        data = None if entry is None else self._receive_entry(entry).data
        self._rearm_fd()
        return data

    def _receive_now(self) -> bytes | None:
        return self.receive(0)

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], timeout: float | None = None) -> int | None:
        """Take the next message into the caller's memory."""
        copy_into_buffer(buffer, b"")  # raises if the buffer is not writable or not contiguous
        buffer_bytes = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        try:
            entry = self._find_message(timeout)
            if entry is None:
                return None
            size = len(find_message_slot(entry).data)
            if size > buffer_bytes:
                text = (
                    f"message has {size} bytes, but the buffer has {buffer_bytes}; the message stays for the next call"
                )
                raise MessageTooLargeError(text, self._endpoint)
            return copy_into_buffer(buffer, self._receive_entry(entry).data)
        finally:
            self._rearm_fd()

    def _limit_to_available(self, limit: int | None) -> int:
        """Return the maximum number of messages to take: `limit`, but at most the available number."""
        if limit is not None and limit < 0:
            raise InvalidValueError(f"limit is {limit}; give 0 or more, or None for all", self._endpoint)
        cursor = self._check_usable()
        if not cursor.set_start_position():
            return 0
        available = max(cursor.arrived_position - cursor.position, 0)
        return available if limit is None else min(available, limit)

    def receive_many(self, limit: int | None = None) -> list[bytes]:
        """Take the available messages."""
        messages: list[bytes] = []
        cursor, end_position = self._cursor, self._limit_to_available(limit)
        end_position += cursor.position
        while cursor.position < end_position:
            entry = self._find_next_of_batch(bool(messages) and cursor.raises_on_loss)
            if entry is None:
                break
            messages.append(self._receive_entry(entry).data)
        self._rearm_fd()
        return messages

    def _find_next_of_batch(self, ends_at_loss: bool) -> IndexEntry | None:
        """Return the next message. `ends_at_loss`: True: a loss ends the batch, and the next call counts the loss."""
        return self._cursor.find_following_message() if ends_at_loss else self._cursor.find_message()

    def receive_array(
        self,
        dtype: npt.DTypeLike,
        limit: int | None = None,
        *,
        timeout: float | None = 0.0,
        publishers: list[PublisherInfo] | None = None,
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the available messages as an array of one element each. The array ends before a loss."""
        import numpy  # the only method that needs it

        timeout_ns(timeout, self._endpoint)
        element = numpy.dtype(dtype)
        if element.itemsize == 0 or element.hasobject:
            text = f"dtype {element} has no fixed size; give one with a fixed size"
            raise InvalidValueError(text, self._endpoint)
        message_limit = self._limit_to_available(limit)
        if not message_limit and limit != 0 and timeout != 0 and self._find_message(timeout) is not None:
            message_limit = self._limit_to_available(limit)
        messages: list[bytes] = []
        while len(messages) < message_limit and (entry := self._find_next_of_batch(bool(messages))) is not None:
            size = len(find_message_slot(entry).data)
            if size != element.itemsize:
                if messages:
                    break
                text = f"next message has {size} bytes, but the dtype has {element.itemsize}; use receive() instead"
                raise MessageSizeError(text, self._endpoint)
            messages.append(self._receive_entry(entry).data)
            if publishers is not None and self._last_message is not None:
                publishers.append(self._last_message.publisher)
        self._rearm_fd()
        array = numpy.empty(len(messages), element)
        copy_into_buffer(array, b"".join(messages))
        return array

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        return cast("bytes", self.receive())  # which waits for ever

    def arecv(self) -> Coroutine[Any, Any, bytes]:
        """Return the next message, in a task of an asyncio loop."""
        from msgq.impl.base import event_loop

        return event_loop.receive_async(self, 0.0)

    __anext__ = arecv

    # ---- views ----

    def receive_view(self, timeout: float | None = None) -> Sample | None:
        """Take the next message without a copy.

        The publisher does not write the message's slot before the view is released.
        """
        cursor = self._check_usable()
        rows = self._rows
        if rows is None:
            raise StateError("is passive, and cannot hold views; use receive(), which copies", self._endpoint)
        if rows.views_held >= self.max_views:
            text = f"holds {rows.views_held} views, its limit (max_views); release one"
            raise TooManyViewsError(text, self._endpoint)
        if rows.viewer_row < 0:
            rows.register_viewer()
            cursor.forget_mapped_pools()
        entry = self._find_message(timeout)
        sample = (
            None
            if entry is None
            else Sample(rows, self._receive_entry(entry), cast("ChannelMessage", self._last_message))
        )
        self._rearm_fd()
        return sample


class Sample(OwnedBuffer):
    """A held message: a read-only buffer.

    Attributes
    ----------
    position, publish_time, origin_time, publisher : as in `ChannelMessage`.
    """

    def __init__(self, rows: SubscriberRows, slot: PoolSlot, message: ChannelMessage) -> None:
        super().__init__(slot.data)
        self.position, self.publisher = message.position, message.publisher
        self.publish_time, self.origin_time = message.publish_time, message.origin_time
        self._rows: SubscriberRows | None = rows
        self._slot = slot
        rows.pin_slot(slot)

    def __del__(self) -> None:  # each buffer keeps it, so none is left
        self._release_slot()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def check_exportable(self) -> None:
        """See `OwnedBuffer`."""
        if self._rows is None:
            raise EndpointClosedError(
                "view was released, and its memory may hold another message; receive another view"
            )

    def release(self) -> None:
        """Release the slot. A second call has no effect."""
        if self.export_count:
            text = f"view has open buffers: {self.export_count} (memoryview, array)"
            raise BufferError(f"{text}; release or delete them first")
        self._release_slot()

    def _release_slot(self) -> None:
        rows, self._rows = self._rows, None
        if rows is not None:
            rows.unpin_slot(self._slot)


def find_message_slot(entry: IndexEntry) -> PoolSlot:
    """Return the slot of an entry whose message is present."""
    return cast("PublisherPool", entry.pool).slots[entry.slot]


def make_publisher_info(pool: PublisherPool) -> PublisherInfo:
    """Return the publisher of a pool."""
    return PublisherInfo(pool.node, os.getpid())
