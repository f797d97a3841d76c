"""Common interface of the topic or channel of a record queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from msgq.common.dtype_descriptions import record_dtype
from msgq.common.dtypes import struct_dtype
from msgq.errors import InvalidValueError, RecordMismatchError

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.common.schema import Schema
    from msgq.common.stats.channel import PublisherInfo

DEFAULT_CAPACITY = 4096  # capacity of a new queue


class RecordTransport(Protocol):
    """A topic or a channel of records. Timeouts are in seconds; None waits forever.

    Attributes:
        dtype: dtype of the records.
        stores_origins: True if records without timestamps have an origin, too.
        subscriber: subscriber of the topic or channel.
        publisher: publisher of the topic or channel; None: nothing was sent yet.
    """

    dtype: np.dtype[Any]
    stores_origins: bool
    subscriber: Any
    publisher: Any

    @property
    def lost(self) -> int | None:
        """Number of lost records; None: unknown."""

    @property
    def capacity(self) -> int:
        """Number of records that stay for slower consumers."""

    def send(self, rows: npt.NDArray[Any], origin_time: int) -> int:
        """Publish one or more records, and return the number of the first one."""

    def get_next_number(self) -> int:
        """Return the number of the next record."""

    def detach_inherited_producer(self) -> None:
        """In a forked child: until its next send, the producer belongs to the parent."""

    def receive(self, limit: int | None, timeout: float | None) -> npt.NDArray[Any]:
        """Take consecutive records."""

    def check_schema(self) -> None:
        """Raise an error if the endpoint has records of another dtype. Called after the first record arrived."""

    def take_record(self, timeout: float | None) -> bytes | None:
        """Take one record."""

    def receive_with_publishers(
        self, limit: int | None, timeout: float | None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """Take records, with the publisher of each."""

    def unlink(self) -> None:
        """Remove the name."""

    def close(self) -> None:
        """Close the transport. A second close has no effect."""


def make_bytes_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a dtype of plain bytes with the size of a record.

    NumPy then avoids a description of the fields for each buffer.
    """
    return np.dtype((np.void, dtype.itemsize))


def resolve_queue_dtype(asked: np.dtype[Any] | None, schema: Schema | None, name: str) -> np.dtype[Any]:
    """Return the dtype of a queue: the requested one, or that of its schema.

    Raises:
        RecordMismatchError: the two differ, or the schema does not describe records.
        InvalidValueError: neither is given.
    """
    if schema is None:
        if asked is None:
            raise InvalidValueError("queue has no dtype yet; pass dtype=", name)
        return asked
    try:
        schema_dtype = struct_dtype(schema) if schema.encoding == "struct" else None
    except ValueError as error:
        raise RecordMismatchError(f"{error}; another program uses this name, so choose another name", name) from None
    if schema_dtype is None:
        text = (
            f"endpoint has messages {schema.name!r} with encoding {schema.encoding!r}, not records; choose another name"
        )
        raise RecordMismatchError(text, name)
    if asked is not None and schema_dtype != asked:
        text = f"queue has dtype {schema_dtype}, but dtype is {asked}; omit dtype to use the existing one"
        raise RecordMismatchError(text, name)
    return record_dtype(schema_dtype, name)


def round_capacity(capacity: int | None, least: int, most: int, name: str) -> int | None:
    """Return the requested capacity, rounded up to a power of two.

    Raises:
        InvalidValueError: the capacity is below 1 or above `most`.
    """
    if capacity is None:
        return None
    if not isinstance(capacity, int) or not 1 <= capacity <= most:
        raise InvalidValueError(f"capacity is {capacity!r}; give 1 to {most}", name)
    return max(1 << (capacity - 1).bit_length(), least)
