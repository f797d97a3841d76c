"""Publisher of a channel. The stub msgq/impl/channel/core.pyi documents the methods."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, cast

from msgq.common.closing import ClosingContext
from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    MessageTooLargeError,
    PoolExhaustedError,
    StateError,
)
from msgq.impl.base.argument_checks import assign_bytes, not_connected_error, timeout_ns
from msgq.impl.base.clock import origin_time as thread_origin
from msgq.impl.base.foreign_names import add_advice
from msgq.impl.fake.channel_counters import read_publisher_stats
from msgq.impl.fake.channel_state import ChannelFile, PublisherPool, slot_stride_bytes
from msgq.impl.fake.endpoint_state import EndpointState
from msgq.impl.fake.owned_buffer import OwnedBuffer, copy_buffer

if TYPE_CHECKING:
    from msgq.common.stats.channel import ChannelPublisher

DEFAULT_SLOT_BYTES = 4096
DEFAULT_POOL_BYTES = 1 << 26  # at most, unless four slots need more
MIN_SLOTS = 4
SPARE_SLOTS = 2
UINT64_MAX = 2**64 - 1
PayloadBytes = bytes  # a publisher has a property of that name


@add_advice
class Publisher(ClosingContext):
    """Publishes on a channel, from its own pool."""

    def __init__(self, file: ChannelFile, name: str, slots: int | None, slot_bytes: int | None, max_bytes: int) -> None:
        self.closed = True
        self.endpoint, self.name = file.name, name
        self._channel_file, self._channel = file, file.channel
        self._requested_slots, self._pool_bytes_max = slots, max_bytes
        self._previous_counts = {"sent": 0, "bytes": 0, "refused": 0, "evicted": 0}  # counts of replaced pools
        self._sender_mark = object()  # for the channel to know us by, without keeping us
        self._is_waiting_for_slot = False
        self._pool = self._open_pool(slot_bytes or DEFAULT_SLOT_BYTES, True)
        self.closed = False
        self._channel.bus.on_member_opened(self)

    def __del__(self) -> None:
        self._leave_channel(False)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.sent} messages published"
        return f"<msgq fake channel Publisher {self.endpoint!r}, {state}>"

    # ---- counters ----

    @property
    def sent(self) -> int:
        """Number of published messages."""
        return self._previous_counts["sent"] + self._pool.sent

    @property
    def bytes(self) -> int:
        """Payload bytes of the published messages."""
        return self._previous_counts["bytes"] + self._pool.bytes

    @property
    def refused(self) -> int:
        """Number of messages without a free slot."""
        return self._previous_counts["refused"] + self._pool.refused

    @property
    def evicted(self) -> int:
        """Number of messages evicted early because their slots were needed."""
        return self._previous_counts["evicted"] + self._pool.evicted

    @property
    def slots(self) -> int:
        """Number of slots in the pool."""
        return len(self._pool.slots)

    @property
    def slot_bytes(self) -> int:
        """Bytes of a slot. A larger message grows the pool."""
        return self._pool.slot_bytes

    def stats(self) -> ChannelPublisher:
        """Return the counters of all pools."""
        counts = {counter: getattr(self, counter) for counter in self._previous_counts}
        return dataclasses.replace(read_publisher_stats(self._pool), **counts)

    # ---- coming and going ----

    def _open_pool(self, slot_bytes: int, is_first_pool: bool) -> PublisherPool:
        self._channel_file.lock()
        self._channel_file.apply_config(publishes=True)
        dead_count = self._channel.remove_dead_pools()
        if is_first_pool:
            self._channel.check_publisher_limit()
        row = self._channel.find_free_publisher_row(dead_count)
        pool = PublisherPool(self._channel_file, row, self.name, self._compute_slot_count(slot_bytes), slot_bytes)
        self._channel.publisher_pools[row] = pool
        return pool

    def _compute_slot_count(self, slot_bytes: int) -> int:
        """Return the number of slots: the requested number, or the capacity and a few more, within the limits."""
        stride = slot_stride_bytes(slot_bytes)
        slot_count = self._requested_slots
        if slot_count is None:
            slot_count = max(
                min(self._channel.index_ring.capacity + SPARE_SLOTS, DEFAULT_POOL_BYTES // stride), MIN_SLOTS
            )
            slot_count = max(min(slot_count, self._pool_bytes_max // stride), 1)
        if slot_count * stride > self._pool_bytes_max:
            text = f"{slot_count} slots of {slot_bytes} bytes need {slot_count * stride}"
            raise MessageTooLargeError(
                f"{text}; the pool is limited to {self._pool_bytes_max} bytes (max_bytes)", self.endpoint
            )
        return slot_count

    def close(self) -> None:
        """Close the publisher. Published messages stay readable."""
        self._leave_channel(True)

    def _leave_channel(self, removes_pool: bool) -> None:
        if self.closed:
            return
        if not self._channel.inherited_by_fork:
            if self._is_waiting_for_slot:
                raise self._make_use_error()
            self._pool.leaves_after_loans = True  # loans that are open end it
            self._pool.retire_pool(removes_pool)
        self.closed = True

    def _is_last_sender(self, source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        return source is self._channel and self._channel.last_sender is self._sender_mark

    def _make_use_error(self) -> EndpointClosedError | ForkedSocketError | ConcurrentUseError:
        if self.closed:
            return not_connected_error(self.endpoint)
        if self._channel.inherited_by_fork:
            text = "was created before a fork, on the bus of the parent process; create another one here"
            return ForkedSocketError(text, self.endpoint)
        return ConcurrentUseError("is in use by another thread; use a socket in one thread at a time", self.endpoint)

    def check_usable(self) -> None:
        """Raise an error if the publisher is closed, waits for a slot, or belongs to the parent."""
        if self.closed or self._is_waiting_for_slot or self._channel.inherited_by_fork:
            raise self._make_use_error()

    # ---- sending ----

    def send(self, data: Any, /, *, timeout: float | None = 0.0, origin_time: int = 0) -> int:
        """Publish a message, and return its position."""
        checked_origin = validate_uint64(origin_time)
        self.check_usable()
        timeout_ns(timeout, self.endpoint)
        if getattr(getattr(data, "dtype", None), "hasobject", False):
            raise TypeError(
                f"array of dtype {data.dtype} has Python objects, which cannot be sent as bytes; convert it first"
            )
        message = data if type(data) is bytes else copy_buffer(data)
        self.check_usable()  # an exporter may run any code
        slot = self._acquire_slot(len(message), timeout)
        return self.publish_slot(self._pool, slot, message, checked_origin)

    def send_many(self, messages: Iterable[Any], /, *, origin_time: int = 0) -> int:
        """Publish several messages, and return their number."""
        count = 0
        for message in messages:
            self.send(message, origin_time=origin_time)
            count += 1
        return count

    def publish_slot(self, pool: PublisherPool, slot: int, message: PayloadBytes, origin_time: int) -> int:
        """Publish the message in a slot. Also used for loans."""
        publish_time = self._channel.bus.clock.now_ns if self._channel.config["stamps"] else 0
        position = pool.publish_slot(slot, message, publish_time, origin_time or thread_origin())
        if pool is not self._pool:  # a loan of one that was outgrown since
            self._previous_counts["sent"] += 1
            self._previous_counts["bytes"] += len(message)
        self._channel.published_count += 1
        self._channel.last_sender = self._sender_mark
        self._channel.deliver_message((position, message))
        return position

    def loan(self, size: int, /, *, timeout: float | None = 0.0) -> Loan:
        """Lend a slot for writing a message in place."""
        self.check_usable()
        timeout_ns(timeout, self.endpoint)
        if size < 0:
            raise InvalidValueError(f"message size {size} is invalid; give 0 or more bytes", self.endpoint)
        slot = self._acquire_slot(size, timeout)
        return Loan(self, self._pool, slot, size)

    # ---- slots ----

    def _acquire_slot(self, size: int, timeout: float | None) -> int:
        """Return a slot for `size` bytes."""
        if size > self._pool.slot_bytes:
            self._enlarge_pool(size)
        slot = self._pool.acquire_slot()
        if slot is None and timeout != 0:
            self._wait_for_slot(timeout)
            slot = self._pool.acquire_slot()
        if slot is None:
            self._pool.refused += 1
            text = f"all {self.slots} slots of this publisher are in use: {', '.join(self._pool.describe_holders())}"
            advice = "release views sooner, give the publisher more slots, or a timeout to wait for one"
            raise PoolExhaustedError(f"{text}; {advice}. Nothing was sent", self.endpoint)
        return slot

    def _wait_for_slot(self, timeout: float | None) -> None:
        """Wait until a slot is free, or until the timeout."""
        limit = timeout_ns(timeout, self.endpoint)
        self._is_waiting_for_slot = True
        try:
            purpose = f"a slot to publish on {self.endpoint!r}"
            self._channel.bus.wait_until(self._pool.has_free_slot, None if limit < 0 else limit, purpose)
        finally:
            self._is_waiting_for_slot = False

    def _enlarge_pool(self, size: int) -> None:
        """Switch to a pool with larger slots."""
        previous = self._pool
        slot_bytes, slot_count_min = max(size, 2 * previous.slot_bytes), self._requested_slots or 1
        if (self._requested_slots or MIN_SLOTS) * slot_stride_bytes(slot_bytes) > self._pool_bytes_max:
            slot_bytes = size
        if slot_count_min * slot_stride_bytes(slot_bytes) > self._pool_bytes_max:
            needed_bytes = slot_count_min * slot_stride_bytes(size)
            text = f"a message of {size} bytes does not fit: {slot_count_min} such slots need {needed_bytes} bytes, and"
            raise MessageTooLargeError(
                f"{text} the pool is limited to {self._pool_bytes_max} bytes (max_bytes)", self.endpoint
            )
        self._pool = self._open_pool(slot_bytes, False)
        for counter in self._previous_counts:
            self._previous_counts[counter] += getattr(previous, counter)
        previous.is_superseded = previous.leaves_after_loans = True
        previous.retire_pool(True)


class Loan(OwnedBuffer):
    """A writable buffer for one message. Use it once.

    Attributes
    ----------
    position : position of the message after publishing.
    origin_time : origin of the message, ns.
    """

    def __init__(self, publisher: Publisher, pool: PublisherPool, slot: int, size: int) -> None:
        super().__init__(size)
        self.position: int | None = None
        self._origin_time = 0
        self._publisher, self._pool, self._size = publisher, pool, size
        self._slot: int | None = slot
        self._is_over = False
        pool.open_loan_count += 1

    def __del__(self) -> None:  # each buffer keeps it, so none is left
        self._return_slot(False)

    @property
    def origin_time(self) -> int:
        """Origin of the message, in ns."""
        return self._origin_time

    @origin_time.setter
    def origin_time(self, ns: int) -> None:
        self._origin_time = validate_uint64(ns)

    def __setitem__(self, index: slice | SupportsIndex, value: Any) -> None:
        assign_bytes(memoryview(cast("Any", self)), index, value, self._publisher.endpoint)

    def __enter__(self) -> Self:
        self.check_exportable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_over:
            return
        if kind is None:
            self.publish()
        else:
            self.discard()

    def check_exportable(self) -> None:
        """See `OwnedBuffer`."""
        if self._is_over:
            text = "loan was already published or discarded; take another one"
            raise StateError(text, self._publisher.endpoint)
        self._publisher.check_usable()

    def publish(self, size: int | None = None) -> int:
        """Publish the message, or its first `size` bytes, and return the position."""
        published_size = self._size if size is None else validate_uint64(size)
        self.check_exportable()
        if published_size > self._size:
            text = f"loan has {self._size} bytes, but {published_size} were to be published"
            raise InvalidValueError(text, self._publisher.endpoint)
        if self.export_count:
            raise BufferError(
                f"loan has open buffers: {self.export_count} (memoryview, array), which could change "
                "the message; release or delete them first"
            )
        slot, self._is_over, self._slot = cast("int", self._slot), True, None
        try:
            self.position = self._publisher.publish_slot(
                self._pool, slot, self.copy_bytes(published_size), self._origin_time
            )
        finally:
            self._pool.end_loan(True)
        return self.position

    def discard(self) -> None:
        """Return the slot without publishing. The slot is free when all its buffers are released."""
        if self._is_over:
            return
        self._is_over = True
        if not self.export_count:
            self._return_slot(True)

    def _return_slot(self, removes_pool: bool) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            self._pool.return_slot(slot)
            self._pool.end_loan(removes_pool)


def validate_uint64(value: int) -> int:
    """Return a number that fits 64 bits.

    Raises
    ------
    OverflowError : the number does not fit.
    """
    number = operator.index(value)
    if not 0 <= number <= UINT64_MAX:
        raise OverflowError(f"{number} is not 0 to {UINT64_MAX}")
    return number
