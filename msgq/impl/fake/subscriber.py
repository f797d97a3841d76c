"""Subscriber's socket. The ring's core.pyi documents the methods."""

from __future__ import annotations

import math
from collections import deque
from io import BytesIO
from typing import TYPE_CHECKING, Any, Self

from msgq.common import settings
from msgq.common.stats.topic import SubscriberStats, Tracked
from msgq.common.units import NS_PER_MS, WAIT_FOREVER
from msgq.errors import InvalidValueError, MessageSizeError, MessageTooLargeError
from msgq.impl.base.argument_checks import (
    check_before_connect,
    check_linger,
    check_non_blocking,
    check_rcvhwm,
    not_connected_error,
    timeout_ms,
    timeout_ns,
    untracked_topic_error,
)
from msgq.impl.base.core import Context
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import BusMessage, Inbox, fork_error
from msgq.impl.fake.socket import check_can_connect
from msgq.impl.fake.topic_state import TopicInbox, frame_bytes
from msgq.impl.fake.waiting import Waitable, wait_until_ready
from msgq.impl.sockets.pyzmq_names import NoLingerOption, PyzmqReceiver, StrictOptionSocket

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import WriteableBuffer

# The queue of a socket whose messages a plain receive may not take.
_EMPTY_QUEUE: deque[BusMessage] = deque(maxlen=0)


def copy_into_buffer(buffer: Any, data: bytes) -> int:
    """Copy bytes into a writable, contiguous buffer, as far as they fit. Return the number of copied bytes."""
    return BytesIO(data).readinto(buffer)


@add_advice
class SubSocket(StrictOptionSocket, PyzmqReceiver, NoLingerOption, Waitable):
    """Receives the messages of one endpoint. The ring's core.pyi documents the methods.

    `_direct_queue` is the inbox's `unread_messages` while a plain receive may take from it, otherwise an empty queue.
    """

    __slots__ = ("_conflate", "_conflate_default", "_direct_queue", "_inbox", "_timeout_ms")

    def __init__(self) -> None:
        super().__init__()
        self._inbox: TopicInbox | None = None
        self._direct_queue = _EMPTY_QUEUE
        self._timeout_ms = WAIT_FOREVER
        self._conflate = self._conflate_default = False  # the current state, and the state that was set before connect

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.stats().received} messages received"
        return f"<msgq fake SubSocket {self._endpoint!r}, {state}>"

    @property
    def closed(self) -> bool:
        """True if the socket is closed, or was never connected."""
        return self._inbox is None or self._inbox.closed

    @property
    def conflate(self) -> bool:
        """True if `receive` skips all messages except the newest."""
        return self._conflate

    @conflate.setter
    def conflate(self, value: bool) -> None:
        check_before_connect("conflate", self.closed, self._endpoint)
        self._conflate = self._conflate_default = bool(value)

    @property
    def lost(self) -> int | None:
        """Number of messages published after `connect` and skipped, by conflation, a lap, or a fault."""
        return 0 if self._inbox is None else self._inbox.lost

    @property
    def tracked(self) -> bool:
        """True if each message carries its publishing time and its origin. The first message fixes it."""
        return self._inbox is not None and not self._inbox.closed and self._inbox.topic.stamp_bytes != 0

    def stats(self) -> SubscriberStats:
        """Return the numbers of received and lost messages since `connect`."""
        inbox = self._inbox
        if inbox is None:
            return SubscriberStats(self._endpoint, 0, 0, 0)
        return SubscriberStats(self._endpoint, inbox.received, inbox.lost, inbox.resets)

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        address: str | bytes = b"127.0.0.1",
        conflate: bool = False,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        passive: bool = False,
        latest: bool = False,
        spin_us: int | None = None,
        trust: str | None = None,
        prefix: str | None = None,
    ) -> None:
        """Subscribe to later messages.

        `wait_for_readers` ignores a passive subscriber, which otherwise waits like any other.
        """
        name = check_can_connect(context, endpoint, self.closed, self._endpoint)
        if not isinstance(address, (str, bytes)):
            raise TypeError(f"address is of type {type(address).__name__}; give str or bytes")
        settings.resolve_spin_us(spin_us, name)
        bus = current_bus()
        topic = bus.find_topic(name, prefix) if passive else bus.open_topic(name, segment_size, mode, prefix)
        self._bus, self._endpoint = bus, name
        self._conflate = bool(conflate) or self._conflate_default
        self._inbox = TopicInbox(topic, self._conflate, bool(passive))
        if latest:
            self._inbox.deliver_last_message()
        self._is_in_use = False
        self._update_direct_queue()
        bus.on_member_opened(self)

    def _set_record_bytes(self, _size: int) -> None:
        """Continue at the oldest remaining message after a lap."""
        self._check_usable().resumes_at_oldest = True
        self._update_direct_queue()

    def close(self, linger: int | None = None) -> None:
        """Close the socket. A wait of another node of a simulation ends with `EndpointClosedError`."""
        if linger is not None:
            check_linger(linger, self._endpoint)
        if self._inbox is not None and not self._inbox.closed:
            self._inbox.close()
            self._direct_queue = _EMPTY_QUEUE
            self._end_all_waits()

    def setTimeout(self, timeout: float) -> None:
        """Set the timeout of receives in milliseconds (compatibility: stock's name); -1: forever."""
        self._timeout_ms = timeout_ms(timeout, self._endpoint)

    # ---- receiving ----

    def receive(self, non_blocking: bool = False, *, timeout: float | None = None) -> bytes | None:
        """Take the next message, or the newest if the socket conflates; waits at most `timeout` seconds."""
        queue = self._direct_queue
        if queue and timeout is None:
            self._inbox.received += 1  # type: ignore[union-attr]  # whose queue it is
            return queue.popleft()[1]
        inbox = self._wait_for_inbox(non_blocking, timeout)
        if inbox is None:
            return None
        data = inbox.take_message()
        self._rearm_fd()
        return data

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        message = self.receive()
        if message is None:
            raise StopIteration
        return message

    def receive_tracked(self, non_blocking: bool = False) -> Tracked | None:
        """Take the next message, or the newest if the socket conflates, with its timestamps."""
        inbox = self._wait_for_inbox(non_blocking)
        if inbox is None:
            return None
        if not inbox.topic.stamp_bytes:
            raise untracked_topic_error(self._endpoint)
        inbox.peek_message()
        _, _, publish_time, origin_time = inbox.unread_messages[0]  # type: ignore[misc]  # there are four
        message = Tracked(inbox.take_message(), publish_time, origin_time)
        self._rearm_fd()
        return message

    def _check_usable(self) -> TopicInbox:
        """Return the inbox. Raises an error if the socket may not be used now."""
        if self._inbox is None or self._inbox.closed:
            raise not_connected_error(self._endpoint)
        if self._inbox.topic.inherited_by_fork:
            raise fork_error(self._endpoint)
        self._check_not_in_use()
        return self._inbox

    def _wait_for_inbox(self, non_blocking: bool, timeout: float | None = None) -> TopicInbox | None:
        """Return the inbox when a message is available; None at the timeout.

        `timeout`: seconds; None: the socket's timeout.
        """
        check_non_blocking(non_blocking, self._endpoint)
        wait_ns = self._default_timeout_ns() if timeout is None else timeout_ns(timeout, self._endpoint)
        inbox = self._check_usable()
        if inbox.can_receive():
            return inbox
        if non_blocking or wait_ns == 0:
            return None
        wait_until_ready([self], wait_ns)
        return inbox if inbox.can_receive() else None

    def _update_direct_queue(self) -> None:
        inbox = self._inbox
        can_bypass = (
            inbox is not None and not (inbox.conflate or inbox.resumes_at_oldest or inbox.closed) and self._event_fd < 0
        )
        self._direct_queue = inbox.unread_messages if inbox is not None and can_bypass else _EMPTY_QUEUE

    @property
    def rcvtimeo(self) -> int:
        """Timeout in milliseconds (compatibility: pyzmq's name)."""
        return self._timeout_ms

    @rcvtimeo.setter
    def rcvtimeo(self, timeout: float) -> None:
        self.setTimeout(timeout)

    @property
    def rcvhwm(self) -> int:
        """Limit of messages in the queue (compatibility: pyzmq's name).

        Always 0 (no limit), because `segment_size` is the limit.
        """
        return 0

    @rcvhwm.setter
    def rcvhwm(self, messages: int) -> None:
        check_rcvhwm(messages, self._endpoint)

    # ---- waiting ----

    def _receive_now(self) -> bytes | None:
        return self.receive(non_blocking=True)

    def _default_timeout_ns(self) -> int | None:
        return None if self._timeout_ms < 0 else self._timeout_ms * NS_PER_MS

    def _acquire(self) -> None:
        super()._acquire()
        self._direct_queue = _EMPTY_QUEUE

    def _release(self, inbox: Inbox) -> None:
        if self._inbox is inbox:  # the socket was not closed and connected again during the wait
            super()._release(inbox)
            self._update_direct_queue()

    def fileno(self) -> int:
        """Return a descriptor that is readable while a message is available. In a simulation: `DeadlockError`."""
        fd = super().fileno()
        self._update_direct_queue()
        return fd

    # ---- receiving in bulk ----

    def receive_many(self, limit: int | None = None, wait_for_one: bool = False) -> list[bytes]:
        """Take the pending messages, oldest first."""
        message_limit = self._batch_limit(limit)
        inbox = self._check_usable() if not wait_for_one or message_limit == 0 else self._wait_for_inbox(False)
        messages: list[bytes] = []
        while inbox is not None and len(messages) < message_limit and inbox.can_receive():
            messages.append(inbox.take_message())
        self._rearm_fd()
        return messages

    def _batch_limit(self, limit: int | None) -> float:
        if limit is None:
            return math.inf
        if limit < 0:
            raise InvalidValueError(f"limit is {limit}; give 0 or more, or None for all", self._endpoint)
        return limit

    def receive_into(self, buffer: WriteableBuffer | npt.NDArray[Any], non_blocking: bool = False) -> int | None:
        """Take the next message into the caller's memory."""
        copy_into_buffer(buffer, b"")  # raises if the buffer is not writable or not contiguous
        buffer_bytes = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        inbox = self._wait_for_inbox(non_blocking)
        if inbox is None:
            return None
        size = len(inbox.peek_message())
        if size > buffer_bytes:
            text = f"message has {size} bytes, but the buffer has {buffer_bytes}; the message stays for the next call"
            raise MessageTooLargeError(text, self._endpoint)
        data = inbox.take_message()
        self._rearm_fd()
        return copy_into_buffer(buffer, data)

    def receive_array(
        self, dtype: npt.DTypeLike, limit: int | None = None, wait_for_one: bool = False
    ) -> np.ndarray[tuple[int], np.dtype[Any]]:
        """Take the pending messages as an array with one element each."""
        import numpy  # the only method that needs it

        message_limit = self._batch_limit(limit)
        element = numpy.dtype(dtype)
        if element.itemsize == 0 or element.hasobject:
            text = f"dtype {element} has no fixed size; give one with a fixed size"
            raise InvalidValueError(text, self._endpoint)
        inbox = self._wait_for_inbox(False) if wait_for_one and message_limit else self._check_usable()
        messages: list[bytes] = []
        if inbox is not None and inbox.is_newly_lapped():
            message_limit = 0  # a call that finds a lap returns nothing, as in the ring
        next_cursor = 0  # position of the next message if none is dropped
        while inbox is not None and len(messages) < message_limit and inbox.can_receive():
            pending_bytes, element_bytes = len(inbox.peek_message()), element.itemsize
            if (
                messages
                and not inbox.conflate
                and inbox.find_cursor() != inbox.topic.find_message_start(next_cursor, pending_bytes)
            ):
                break  # messages between the two positions were dropped
            next_cursor = inbox.find_cursor() + frame_bytes(pending_bytes + inbox.topic.stamp_bytes)
            if pending_bytes != element_bytes and not messages:
                text = f"next message has {pending_bytes} bytes, but the dtype has {element_bytes}"
                raise MessageSizeError(f"{text}; use receive() instead", self._endpoint)
            if pending_bytes != element_bytes:
                break
            messages.append(inbox.take_message())
        self._rearm_fd()
        array = numpy.empty(len(messages), element)
        copy_into_buffer(array, b"".join(messages))
        return array
