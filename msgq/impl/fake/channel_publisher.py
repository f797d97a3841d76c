"""A channel's publisher. See the ring's core.pyi of msgq/impl/channel for the contract of each method."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from msgq.errors import (
    ConcurrentUseError,
    EndpointClosedError,
    ForkedSocketError,
    InvalidValueError,
    MessageTooLargeError,
    PoolExhaustedError,
    StateError,
)
from msgq.impl.base.argument_checks import not_connected_error, timeout_ns
from msgq.impl.base.origin import origin_time as thread_origin
from msgq.impl.fake.bus import EndpointState
from msgq.impl.fake.channel_counters import publisher_stats
from msgq.impl.fake.channel_order import ChannelFile, Pool, pool_stride
from msgq.impl.fake.memory import Memory, copy_of

if TYPE_CHECKING:
    from msgq.common.stats.channel import ChannelPublisher

DEFAULT_SLOT_BYTES = 4096
DEFAULT_POOL_BYTES = 1 << 26  # at most, unless four slots need more
MIN_SLOTS = 4
SPARE_SLOTS = 2
WORD_MAX = 2**64 - 1
Message = bytes  # a publisher has a property of that name


class Publisher:
    """Publishes on a channel, from a pool of its own."""

    def __init__(self, file: ChannelFile, name: str, slots: int | None, slot_bytes: int | None, max_bytes: int) -> None:
        self.closed = True
        self.endpoint, self.name = file.name, name
        self._file, self._channel = file, file.channel
        self._slots, self._max_bytes = slots, max_bytes
        self._previous = {"sent": 0, "bytes": 0, "refused": 0, "evicted": 0}  # of pools that were outgrown
        self._mark = object()  # for the channel to know us by, without keeping us
        self._is_waiting = False
        self._pool = self._new_pool(slot_bytes or DEFAULT_SLOT_BYTES, True)
        self.closed = False
        self._channel.bus.on_open(self)

    def __del__(self) -> None:
        self._close(False)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.sent} messages published"
        return f"<msgq fake channel Publisher {self.endpoint!r}, {state}>"

    # ---- what it counts ----

    @property
    def sent(self) -> int:
        """Messages that were published."""
        return self._previous["sent"] + self._pool.sent

    @property
    def bytes(self) -> int:
        """Bytes of payload that were published."""
        return self._previous["bytes"] + self._pool.bytes

    @property
    def refused(self) -> int:
        """Messages for which there was no slot."""
        return self._previous["refused"] + self._pool.refused

    @property
    def evicted(self) -> int:
        """Messages that left the order before their turn, since their slots were needed."""
        return self._previous["evicted"] + self._pool.evicted

    @property
    def slots(self) -> int:
        """Messages that the pool holds."""
        return len(self._pool.slots)

    @property
    def slot_bytes(self) -> int:
        """Bytes of each; larger messages make the pool grow."""
        return self._pool.slot_bytes

    def stats(self) -> ChannelPublisher:
        """Return its counters, from all its pools."""
        counts = {counter: getattr(self, counter) for counter in self._previous}
        return dataclasses.replace(publisher_stats(self._pool), **counts)

    # ---- coming and going ----

    def _new_pool(self, slot_bytes: int, newcomer: bool) -> Pool:
        self._file.lock()
        self._file.configure(publishes=True)
        remaining = self._channel.remove_dead_pools()
        if newcomer:
            self._channel.check_limit()
        row = self._channel.free_row(remaining)
        pool = Pool(self._file, row, self.name, self._slot_count(slot_bytes), slot_bytes)
        self._channel.rows[row] = pool
        return pool

    def _slot_count(self, slot_bytes: int) -> int:
        """Return how many slots: as asked, else one for each entry and a few, within the limits."""
        stride = pool_stride(slot_bytes)
        wanted = self._slots
        if wanted is None:
            wanted = max(min(self._channel.order.capacity + SPARE_SLOTS, DEFAULT_POOL_BYTES // stride), MIN_SLOTS)
            wanted = max(min(wanted, self._max_bytes // stride), 1)
        if wanted * stride > self._max_bytes:
            text = f"{wanted} slots of {slot_bytes} bytes need {wanted * stride}; the pool may have {self._max_bytes}"
            raise MessageTooLargeError(f"{text} (max_bytes)", self.endpoint)
        return wanted

    def close(self) -> None:
        """Leave. What was published can still be read."""
        self._close(True)

    def _close(self, removes_pool: bool) -> None:
        if self.closed:
            return
        if not self._channel.inherited:
            if self._is_waiting:
                raise self._refusal()
            self._pool.ending = True  # loans that are open end it
            self._pool.leave(removes_pool)
        self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_sender(self, source: EndpointState[Any]) -> bool:
        """See `BusMember`."""
        return source is self._channel and self._channel.sender is self._mark

    def _refusal(self) -> EndpointClosedError | ForkedSocketError | ConcurrentUseError:
        if self.closed:
            return not_connected_error(self.endpoint)
        if self._channel.inherited:
            text = "was made before a fork, on the parent's bus, which ends with that process; make another one here"
            return ForkedSocketError(text, self.endpoint)
        return ConcurrentUseError("is in use by another thread; a socket serves one thread at a time", self.endpoint)

    def check_usable(self) -> None:
        """Raise an error if it is closed, waits for a slot, or is the parent's."""
        if self.closed or self._is_waiting or self._channel.inherited:
            raise self._refusal()

    # ---- sending ----

    def send(self, data: Any, /, *, timeout: float | None = 0.0, origin_time: int = 0) -> int:
        """Publish a message, and return its position."""
        checked_origin = validate_word(origin_time)
        self.check_usable()
        timeout_ns(timeout, self.endpoint)
        if getattr(getattr(data, "dtype", None), "hasobject", False):
            raise TypeError(f"an array of dtype {data.dtype} holds Python objects, which cannot be sent as bytes")
        message = data if type(data) is bytes else copy_of(data)
        self.check_usable()  # an exporter may run any code
        slot = self._slot_for(len(message), timeout)
        return self.publish(self._pool, slot, message, checked_origin)

    def send_many(self, messages: Iterable[Any], /, *, origin_time: int = 0) -> int:
        """Publish several messages, and return how many."""
        count = 0
        for message in messages:
            self.send(message, origin_time=origin_time)
            count += 1
        return count

    def publish(self, pool: Pool, slot: int, message: Message, origin_time: int) -> int:
        """Give the message in a slot its position. (For loans, too.)"""
        publish_time = self._channel.bus.clock.now_ns if self._channel.config["stamps"] else 0
        position = pool.publish(slot, message, publish_time, origin_time or thread_origin())
        if pool is not self._pool:  # a loan of one that was outgrown since
            self._previous["sent"] += 1
            self._previous["bytes"] += len(message)
        self._channel.messages += 1
        self._channel.sender = self._mark
        self._channel.deliver((position, message))
        return position

    def loan(self, size: int, /, *, timeout: float | None = 0.0) -> Loan:
        """Return room for a message, to be written in place."""
        self.check_usable()
        timeout_ns(timeout, self.endpoint)
        if size < 0:
            raise InvalidValueError(f"a message cannot have {size} bytes", self.endpoint)
        slot = self._slot_for(size, timeout)
        return Loan(self, self._pool, slot, size)

    # ---- slots ----

    def _slot_for(self, size: int, timeout: float | None) -> int:
        """Return a slot that takes so many bytes."""
        if size > self._pool.slot_bytes:
            self._grow(size)
        slot = self._pool.take()
        if slot is None and timeout != 0:
            self._await_slot(timeout)
            slot = self._pool.take()
        if slot is None:
            self._pool.refused += 1
            text = f"all {self.slots} slots of this publisher are in use: {', '.join(self._pool.holders())}"
            advice = "release views sooner, give the publisher more slots, or a timeout to wait for one"
            raise PoolExhaustedError(f"{text}; {advice}. Nothing was sent", self.endpoint)
        return slot

    def _await_slot(self, timeout: float | None) -> None:
        """Wait until a holder lets go, or the time is over."""
        limit = timeout_ns(timeout, self.endpoint)
        self._is_waiting = True
        try:
            purpose = f"a slot to publish on {self.endpoint!r}"
            self._channel.bus.wait(self._pool.has_room, None if limit < 0 else limit, purpose)
        finally:
            self._is_waiting = False

    def _grow(self, size: int) -> None:
        """Publish from a pool of larger slots from now on."""
        previous = self._pool
        wanted, least = max(size, 2 * previous.slot_bytes), self._slots or 1
        if (self._slots or MIN_SLOTS) * pool_stride(wanted) > self._max_bytes:
            wanted = size
        if least * pool_stride(wanted) > self._max_bytes:
            need = least * pool_stride(size)
            text = (
                f"a message of {size} bytes does not fit: {least} slots of it need {need} bytes, and the pool may have"
            )
            raise MessageTooLargeError(f"{text} {self._max_bytes} (max_bytes)", self.endpoint)
        self._pool = self._new_pool(wanted, False)
        for counter in self._previous:
            self._previous[counter] += getattr(previous, counter)
        previous.superseded = previous.ending = True
        previous.leave(True)


class Loan(Memory):
    """Room for a message, to be written in place; a buffer. Serves once.

    Attributes
    ----------
    position : of the message, when it was published.
    origin_time : ns, for those who receive it.
    """

    def __init__(self, publisher: Publisher, pool: Pool, slot: int, size: int) -> None:
        super().__init__(size)
        self.position: int | None = None
        self._origin_time = 0
        self._publisher, self._pool, self._size = publisher, pool, size
        self._slot: int | None = slot
        self._over = False
        pool.open_loans += 1

    def __del__(self) -> None:  # each buffer keeps it, so none is left
        self._drop(False)

    @property
    def origin_time(self) -> int:
        """Nanoseconds, as whoever publishes wants."""
        return self._origin_time

    @origin_time.setter
    def origin_time(self, ns: int) -> None:
        self._origin_time = validate_word(ns)

    def __enter__(self) -> Self:
        self.check_shown()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if kind is None:
            self.publish()
        else:
            self.discard()

    def check_shown(self) -> None:
        """See `Memory`."""
        if self._over:
            text = "a loan serves once; this one was published or discarded"
            raise StateError(text, self._publisher.endpoint)
        self._publisher.check_usable()

    def publish(self, size: int | None = None) -> int:
        """Publish it, or only its first bytes, and return the position."""
        wanted = self._size if size is None else validate_word(size)
        self.check_shown()
        if wanted > self._size:
            text = f"the loan has {self._size} bytes, and {wanted} were to be published"
            raise InvalidValueError(text, self._publisher.endpoint)
        if self.exports:
            raise BufferError(
                f"{self.exports} buffers still look into this loan (a memoryview, an array), and could change what was "
                "published; release or delete them first"
            )
        slot, self._over, self._slot = cast("int", self._slot), True, None
        try:
            self.position = self._publisher.publish(self._pool, slot, self.to_bytes(wanted), self._origin_time)
        finally:
            self._pool.end_loan(True)
        return self.position

    def discard(self) -> None:
        """Give it back unpublished; its slot is free when no buffer looks into it any more."""
        if self._over:
            return
        self._over = True
        if not self.exports:
            self._drop(True)

    def _drop(self, removes_pool: bool) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            self._pool.give_back(slot)
            self._pool.end_loan(removes_pool)


def validate_word(value: int) -> int:
    """Return a number that 64 bits can have.

    Raises
    ------
    OverflowError : it is another one.
    """
    number = operator.index(value)
    if not 0 <= number <= WORD_MAX:
        raise OverflowError(f"{number} is not 0 to {WORD_MAX}")
    return number
