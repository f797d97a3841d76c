"""Publisher's socket. The ring's core.pyi documents the methods."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgq.common.schema import Schema, require_schema
from msgq.common.stats.topic import PublisherStats
from msgq.common.units import NS_PER_S
from msgq.errors import ConcurrentUseError, InvalidValueError, MultiplePublishersError
from msgq.impl.base.argument_checks import (
    check_linger,
    check_origin,
    check_send_flags,
    check_wait_for_readers,
    not_connected_error,
    takeover_error,
    tracking_mismatch_error,
    untracked_topic_error,
)
from msgq.impl.base.clock import origin_time as thread_origin
from msgq.impl.base.core import Context
from msgq.impl.base.foreign_names import add_advice, unsendable_error
from msgq.impl.fake.bus import current_bus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, fork_error
from msgq.impl.fake.socket import FakeSocket, check_can_connect
from msgq.impl.fake.topic_state import STAMPS_BYTES, TOPIC_PUBLISHERS_MAX, PublisherClaim, TopicState, frame_bytes
from msgq.impl.sockets.publishing import Reservation, has_enough_readers, missing_readers_error, split_messages
from msgq.impl.sockets.pyzmq_names import NoLingerOption, StrictOptionSocket, UnqueuedSenderOptions

if TYPE_CHECKING:
    import numpy.typing as npt
    from _typeshed import ReadableBuffer

SEND_IN_PROGRESS_NS = NS_PER_S

# What `_active_claim` is while the socket may not send: no topic ever has these for its writer.
_CLOSED_CLAIM = PublisherClaim()
_CLOSED_CLAIM.final_counts = (0, 0)
_RESERVED_CLAIM = PublisherClaim()


def _discard_message(_message: BusMessage) -> None:
    """Refuse a message of a closed publisher."""


_NO_TOPIC = TopicState("", 1024, lambda _: _discard_message)


def _copy_bytes(data: Any, endpoint: str) -> bytes:
    """Return a copy of any contiguous buffer. (bytes() takes numbers, memoryview() refuses NumPy's datetimes.)"""
    try:
        return b"".join((data,))
    except TypeError:
        raise unsendable_error(data, endpoint, can_have_schema=True) from None


def _decide_tracking(topic: TopicState, tracked: bool | None) -> None:
    """Set whether a topic is tracked. The first message fixes it."""
    if tracked is not None and bool(tracked) != bool(topic.stamp_bytes):
        if not tracked or topic.write_position:
            raise tracking_mismatch_error(topic.endpoint, bool(tracked))
        topic.stamp_bytes = STAMPS_BYTES


@add_advice
class PubSocket(StrictOptionSocket, UnqueuedSenderOptions, NoLingerOption, FakeSocket):
    """Publishes messages on one endpoint. The ring's core.pyi documents the methods.

    One comparison of `_active_claim` with the topic's `current_claim` detects a closed socket, an open reservation, and
    a takeover.
    """

    __slots__ = ("_active_claim", "_bus", "_own_claim", "_topic")

    def __init__(self) -> None:
        super().__init__()
        self._bus = current_bus()
        self._topic = _NO_TOPIC
        self._own_claim = self._active_claim = _CLOSED_CLAIM

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.stats().messages} messages published"
        return f"<msgq fake PubSocket {self._endpoint!r}, {state}>"

    @property
    def closed(self) -> bool:
        """True if the socket is closed, or was never connected."""
        return self._active_claim is _CLOSED_CLAIM

    @property
    def tracked(self) -> bool:
        """True if each message carries its publishing time and its origin."""
        return not self.closed and self._topic.stamp_bytes != 0

    def connect(
        self,
        context: Context,
        endpoint: str | bytes,
        segment_size: int = 0,
        *,
        mode: int | None = None,
        schema: Schema | None = None,
        trust: str | None = None,
        tracked: bool | None = None,
        prefix: str | None = None,
    ) -> None:
        """Become the endpoint's publisher."""
        name = check_can_connect(context, endpoint, self.closed, self._endpoint)
        if schema is not None:
            require_schema(schema)
        bus = current_bus()
        topic = bus.open_topic(name, segment_size, mode, prefix)
        if topic.open_publishers == TOPIC_PUBLISHERS_MAX:
            text = f"has {TOPIC_PUBLISHERS_MAX} open publishers; close those that were replaced"
            raise MultiplePublishersError(text, name)
        previous_claim = topic.current_claim
        if previous_claim is not None and previous_claim.has_reservation:
            bus.wait_until(
                lambda: not previous_claim.has_reservation, SEND_IN_PROGRESS_NS, f"the end of a send on {name!r}"
            )
            if previous_claim.has_reservation:
                text = f"process {os.getpid()} has been sending (or holding a reservation) for 1 s"
                raise MultiplePublishersError(f"{text}; stop the process, then connect again", name)
        _decide_tracking(topic, tracked)
        self._bus, self._topic, self._endpoint = bus, topic, name
        self._own_claim = self._active_claim = PublisherClaim()
        topic.open_publishers += 1
        topic.schema = topic.schema if schema is None else schema
        topic.set_publisher(self._own_claim)
        bus.on_member_opened(self)

    def unlink(self) -> bool:
        """Remove the topic's name, so that later sockets create another topic.

        Return False if it was removed before.
        """
        if self._active_claim is _CLOSED_CLAIM:
            raise not_connected_error(self._endpoint)
        return self._bus.remove_topic(self._topic)

    def close(self, linger: int | None = None) -> None:
        """Close the socket. Published messages stay readable."""
        if linger is not None:
            check_linger(linger, self._endpoint)
        if self.closed:
            return
        if self._active_claim is _RESERVED_CLAIM and not self._topic.inherited_by_fork:
            raise self._make_use_error()
        self._active_claim = _CLOSED_CLAIM
        self._topic.open_publishers -= 1
        if self._topic.current_claim is self._own_claim:
            self._topic.clear_publisher()

    def _check_can_send(self) -> None:
        if self._topic.current_claim is not self._active_claim:
            raise self._make_use_error()

    def _make_use_error(self) -> Exception:
        if self._active_claim is _CLOSED_CLAIM:
            return not_connected_error(self._endpoint)
        if self._topic.inherited_by_fork:
            return fork_error(self._endpoint)
        if self._active_claim is _RESERVED_CLAIM:
            return ConcurrentUseError("a reservation is open; leave its with block first", self._endpoint)
        return takeover_error(self._endpoint, os.getpid() if self._topic.current_claim else 0)

    def send(
        self, data: ReadableBuffer | npt.NDArray[Any], /, flags: int = 0, copy: bool = True, *, origin_time: int = 0
    ) -> None:
        """Publish one message."""
        if flags:
            check_send_flags(flags, self._endpoint)
        if origin_time or self._topic.stamp_bytes:
            self._send_tracked(data, origin_time)
            return
        message = data if type(data) is bytes else _copy_bytes(data, self._endpoint)
        topic = self._topic
        if topic.current_claim is not self._active_claim:
            raise self._make_use_error()
        size = len(message)
        cursor = topic.write_position
        position = cursor + (size + 15 & ~7)
        if position > topic.granted_position:
            position = topic.extend_grant(size)
        topic.write_position = position
        topic.published_count += 1
        topic.published_bytes += size
        topic.last_message = (cursor, message)
        topic.deliver_message(topic.last_message)

    def _send_tracked(self, data: ReadableBuffer | npt.NDArray[Any], origin_time: int) -> None:
        self._check_can_send()
        self._check_origin_time(origin_time)
        message = data if type(data) is bytes else _copy_bytes(data, self._endpoint)
        self._check_can_send()
        topic, clock = self._topic, self._bus.clock
        cursor, size = topic.write_position, len(message)
        position = cursor + frame_bytes(size + STAMPS_BYTES)
        topic.write_position = topic.extend_grant(size) if position > topic.granted_position else position
        topic.published_count += 1
        topic.published_bytes += size
        origin = origin_time or thread_origin()
        publish_time = clock.now_ns if origin else clock.new_origin_time()
        topic.last_message = (cursor, message, publish_time, origin or publish_time)
        topic.deliver_message(topic.last_message)

    def _check_origin_time(self, origin_time: int) -> None:
        if origin_time:
            if not self._topic.stamp_bytes:
                raise untracked_topic_error(self._endpoint)
            check_origin(origin_time, self._endpoint)

    def send_many(
        self, messages: Iterable[ReadableBuffer | npt.NDArray[Any]] | npt.NDArray[Any], /, *, origin_time: int = 0
    ) -> int:
        """Publish several messages, and return their number."""
        self._check_can_send()
        self._check_origin_time(origin_time)
        count = 0
        for message in split_messages(messages):
            self.send(message, origin_time=origin_time)
            count += 1
        return count

    def reserve(self, size: int, *, origin_time: int = 0) -> Reservation:
        """Write one message in place: ``with pub.reserve(size) as view: ...``."""
        self._check_can_send()
        if size < 0:
            raise InvalidValueError(f"message size {size} is invalid; give 0 or more bytes", self._endpoint)
        self._check_origin_time(origin_time)
        return Reservation(self, size, origin_time)

    loan = reserve

    def _begin_reservation(self, size: int) -> None:
        self._check_can_send()
        self._topic.check_message_size(size)
        self._own_claim.has_reservation = True
        self._active_claim = _RESERVED_CLAIM

    def _end_reservation(self) -> None:
        self._own_claim.has_reservation = False
        self._active_claim = self._own_claim

    def all_readers_updated(self) -> bool:
        """Return True if every living subscriber has read all messages; False without subscribers."""
        self._check_open()
        attached, updated = self._topic.count_readers()
        return 0 < attached == updated

    def wait_for_readers(self, timeout: float | None = 1.0, interval: float = 0.001, n: int | None = None) -> None:
        """Wait until subscribers are connected or up to date. `interval` has no effect."""
        check_wait_for_readers(timeout, interval, n, self._endpoint)
        self._check_open()

        def are_readers_ready() -> bool:
            return has_enough_readers(*self._topic.count_readers(), n)

        if not are_readers_ready() and timeout != 0:
            timeout_ns = None if timeout is None or math.isinf(timeout) else round(timeout * NS_PER_S)
            self._bus.wait_until(
                lambda: self.closed or are_readers_ready(), timeout_ns, f"readers of {self._endpoint!r}"
            )
            self._check_open()
        if not are_readers_ready():
            raise missing_readers_error(*self._topic.count_readers(), timeout, n, self._endpoint)

    def _check_open(self) -> None:
        """Like `_check_can_send`, but without the check for a takeover."""
        if (
            self._active_claim is _CLOSED_CLAIM
            or self._active_claim is _RESERVED_CLAIM
            or self._topic.inherited_by_fork
        ):
            raise self._make_use_error()

    @property
    def _sent_count(self) -> int:
        counts = self._own_claim.final_counts
        return self._topic.published_count if counts is None else counts[0]

    def stats(self) -> PublisherStats:
        """Return the number of messages and bytes that this publisher and its predecessors published."""
        counts = self._own_claim.final_counts
        messages, size = (self._topic.published_count, self._topic.published_bytes) if counts is None else counts
        return PublisherStats(self._endpoint, messages, size)

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        return not self.closed and isinstance(source, TopicState) and self._own_claim is source.current_claim
