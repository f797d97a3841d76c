"""The channel below a queue of records that has several producers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgq.channel.channel import CAPACITY_MAX, SLOT_BYTES_MAX, SLOTS_MAX, Channel
from msgq.common.dtypes import struct_schema
from msgq.errors import ChannelMismatchError, InvalidValueError
from msgq.impl.base.argument_checks import not_connected_error
from msgq.records.sides import CAPACITY, bytes_dtype, resolve_dtype, round_capacity

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from msgq.common.stats.channel import PublisherInfo

CAPACITY_MIN = 2
SPARE_SLOTS = 2  # of a publisher's pool: then no message leaves the channel before its turn


class ChannelSide:
    """A channel of records. See `Side`."""

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
        wanted = round_capacity(capacity, CAPACITY_MIN, CAPACITY_MAX, name)
        if create and dtype is None:
            raise InvalidValueError("create=True makes a queue, which needs a dtype", name)
        create = False if dtype is None else create
        self._channel = channel = _open_channel(name, prefix, create, wanted, trust)
        self._publisher: Any = None
        try:
            self.dtype = resolve_dtype(dtype, channel.schema, name)
            self._bytes = bytes_dtype(self.dtype)
            if not channel.claim_schema(struct_schema(self.dtype)):
                resolve_dtype(self.dtype, channel.schema, name)
            self.reader: Any = channel.subscriber(
                history=history, on_lost="raise" if raises else "count", spin_us=spin_us
            )
        except BaseException:
            channel.close()
            raise

    @property
    def capacity(self) -> int:
        """See `Side`."""
        return self._channel.capacity or CAPACITY

    @property
    def lost(self) -> int:
        """See `Side`."""
        lost: int = self.reader.lost
        return lost

    # ---- producing ----

    def _connect(self) -> Any:
        if self.reader.closed:
            raise not_connected_error(self._name)
        slots = min(self.capacity + SPARE_SLOTS, SLOTS_MAX)
        self._publisher = self._channel.publisher(slots=slots, slot_bytes=self.dtype.itemsize, max_bytes=SLOT_BYTES_MAX)
        return self._publisher

    def send(self, rows: npt.NDArray[Any], origin_time: int) -> int:
        """See `Side`."""
        position = (self._publisher or self._connect()).send(rows[:1].tobytes(), origin_time=origin_time)
        if len(rows) > 1:
            self._publisher.send_many(rows[1:].view(self._bytes), origin_time=origin_time)
        return int(position) - self.capacity

    def disown(self) -> None:
        """See `Side`. The channel's publisher joins again by itself."""

    def number(self) -> int:
        """See `Side`."""
        if self.reader.closed:
            raise not_connected_error(self._name)
        return self._channel.messages

    # ---- consuming ----

    def receive(self, limit: int | None, timeout: float | None) -> npt.NDArray[Any]:
        """See `Side`. A channel's subscriber ends an array before a loss, and tells of it at the next call."""
        records: npt.NDArray[Any] = self.reader.receive_array(self.dtype, limit, timeout=timeout)
        return records

    def take(self, timeout: float | None) -> bytes | None:
        """See `Side`."""
        data: bytes | None = self.reader.receive(timeout)
        return data

    def receive_with_publishers(
        self, limit: int | None, timeout: float | None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """See `Side`."""
        publishers: list[PublisherInfo] = []
        records = self.reader.receive_array(self.dtype, limit, timeout=timeout, publishers=publishers)
        return records, publishers

    def unlink(self) -> None:
        """See `Side`."""
        self._channel.unlink()

    def close(self) -> None:
        """See `Side`."""
        self.reader.close()
        if self._publisher is not None:
            self._publisher.close()
        self._channel.close()


def _open_channel(name: str, prefix: str, create: bool | None, capacity: int | None, trust: str | None) -> Channel:
    """Return the channel, with its existing capacity if none is asked for."""
    try:
        return Channel(name, capacity=capacity or CAPACITY, create=create, prefix=prefix, trust=trust)
    except ChannelMismatchError:
        if capacity is not None:
            raise
        return Channel(name, create=create, prefix=prefix, trust=trust)
