"""Channel of a record queue with several producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.channel.channel import Channel
from msgq.common.dtypes import struct_schema
from msgq.errors import ChannelMismatchError, InvalidValueError
from msgq.impl.base.argument_checks import not_connected_error
from msgq.impl.channel.core import CAPACITY_MAX, SLOT_BYTES_MAX, SLOTS_MAX
from msgq.records.record_transport import DEFAULT_CAPACITY, make_bytes_dtype, resolve_queue_dtype, round_capacity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msgq.common.stats.channel import PublisherInfo

CAPACITY_MIN = 2
SPARE_SLOTS = 2  # spare slots of a publisher's pool, so that no message leaves the channel before its turn


class ChannelTransport:
    """A channel of records. See `RecordTransport`."""

    stores_origins = True

    def __init__(
        self,
        name: str,
        prefix: str,
        dtype: np.dtype[Any] | None,
        capacity: int | None,
        create: bool | None,
        history: int,
        raises: bool,
        trust: str | None,
        spin_us: int | None,
    ) -> None:
        self._name = name
        rounded_capacity = round_capacity(capacity, CAPACITY_MIN, CAPACITY_MAX, name)
        if create and dtype is None:
            raise InvalidValueError("create=True needs a dtype; pass dtype=", name)
        create = False if dtype is None else create
        self._channel = channel = _open_channel(name, prefix, create, rounded_capacity, trust)
        self.publisher: Any = None
        try:
            self.dtype = resolve_queue_dtype(dtype, channel.schema, name)
            self._bytes_dtype = make_bytes_dtype(self.dtype)
            if not channel.claim_schema(struct_schema(self.dtype)):
                resolve_queue_dtype(self.dtype, channel.schema, name)
            self.subscriber: Any = channel.subscriber(
                history=history, on_lost="raise" if raises else "count", spin_us=spin_us
            )
        except BaseException:
            channel.close()
            raise

    @property
    def capacity(self) -> int:
        """See `RecordTransport`."""
        return self._channel.capacity or DEFAULT_CAPACITY

    @property
    def lost(self) -> int:
        """See `RecordTransport`."""
        lost: int = self.subscriber.lost
        return lost

    # ---- producing ----

    def _connect_publisher(self) -> Any:
        if self.subscriber.closed:
            raise not_connected_error(self._name)
        slots = min(self.capacity + SPARE_SLOTS, SLOTS_MAX)
        self.publisher = self._channel.publisher(slots=slots, slot_bytes=self.dtype.itemsize, max_bytes=SLOT_BYTES_MAX)
        if self.subscriber.closed:  # another thread closed the queue in the meantime
            self.publisher.close()
            raise not_connected_error(self._name)
        return self.publisher

    def send(self, rows: npt.NDArray[Any], origin_time: int) -> int:
        """See `RecordTransport`."""
        position = (self.publisher or self._connect_publisher()).send(rows[:1].tobytes(), origin_time=origin_time)
        if len(rows) > 1:
            self.publisher.send_many(rows[1:].view(self._bytes_dtype), origin_time=origin_time)
        return int(position) - self.capacity

    def detach_inherited_producer(self) -> None:
        """See `RecordTransport`. The channel's publisher registers again automatically."""

    def get_next_number(self) -> int:
        """See `RecordTransport`."""
        if self.subscriber.closed:
            raise not_connected_error(self._name)
        return self._channel.messages

    # ---- consuming ----

    def receive(self, limit: int | None, timeout: float | None) -> npt.NDArray[Any]:
        """See `RecordTransport`.

        The channel's subscriber ends an array before a loss, and reports the loss in the next call.
        """
        records: npt.NDArray[Any] = self.subscriber.receive_array(self.dtype, limit, timeout=timeout)
        return records

    def check_schema(self) -> None:
        """See `RecordTransport`. The constructor has checked it."""

    def take_record(self, timeout: float | None) -> bytes | None:
        """See `RecordTransport`."""
        data: bytes | None = self.subscriber.receive(timeout)
        return data

    def receive_with_publishers(
        self, limit: int | None, timeout: float | None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """See `RecordTransport`."""
        publishers: list[PublisherInfo] = []
        records = self.subscriber.receive_array(self.dtype, limit, timeout=timeout, publishers=publishers)
        return records, publishers

    def unlink(self) -> None:
        """See `RecordTransport`."""
        self._channel.unlink()

    def close(self) -> None:
        """See `RecordTransport`."""
        self.subscriber.close()
        if self.publisher is not None:
            self.publisher.close()
        self._channel.close()


def _open_channel(name: str, prefix: str, create: bool | None, capacity: int | None, trust: str | None) -> Channel:
    """Return the channel. If `capacity` is None, an existing channel keeps its capacity."""
    try:
        return Channel(name, capacity=capacity or DEFAULT_CAPACITY, create=create, prefix=prefix, trust=trust)
    except ChannelMismatchError:
        if capacity is not None:
            raise
        return Channel(name, create=create, prefix=prefix, trust=trust)
