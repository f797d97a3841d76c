"""What a queue of records has below it, a topic or a channel: what the two have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from msgq.common.dtypes import record_dtype, struct_dtype
from msgq.errors import InvalidValueError, RecordMismatchError

if TYPE_CHECKING:
    import numpy.typing as npt

    from msgq.common.schema import Schema
    from msgq.common.stats.channel import PublisherInfo

DEFAULT_CAPACITY = 4096  # of a new queue


class RecordTransport(Protocol):
    """A topic or a channel of records. Time-outs are seconds; None waits for ever.

    Attributes
    ----------
    dtype : of the records.
    subscriber : the subscriber.
    """

    dtype: np.dtype[Any]
    subscriber: Any

    @property
    def lost(self) -> int | None:
        """Records that were passed over; None: nobody can tell."""

    @property
    def capacity(self) -> int:
        """Records that stay for those who are slower."""

    def send(self, rows: npt.NDArray[Any], origin_time: int) -> int:
        """Publish records, at least one, and return the number of the first."""

    def get_next_number(self) -> int:
        """Return the number that the next record gets."""

    def detach_inherited_producer(self) -> None:
        """In a forked child: the producer is the parent's, until the next send."""

    def receive(self, limit: int | None, timeout: float | None) -> npt.NDArray[Any]:
        """Take records; they are consecutive."""

    def take_record(self, timeout: float | None) -> bytes | None:
        """Take one record."""

    def receive_with_publishers(
        self, limit: int | None, timeout: float | None
    ) -> tuple[npt.NDArray[Any], list[PublisherInfo]]:
        """Take records, with who published each."""

    def unlink(self) -> None:
        """Remove the name."""

    def close(self) -> None:
        """Leave. Closing twice does nothing."""


def make_bytes_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of records as mere bytes: at each buffer, NumPy says what is in a record else."""
    return np.dtype((np.void, dtype.itemsize))


def resolve_queue_dtype(asked: np.dtype[Any] | None, schema: Schema | None, name: str) -> np.dtype[Any]:
    """Return the dtype of a queue: what was asked for, or what its schema says.

    Raises
    ------
    RecordMismatchError : these are two. Or the schema is none of records.
    InvalidValueError : nobody says one.
    """
    if schema is None:
        if asked is None:
            raise InvalidValueError("queue has no dtype yet; pass dtype=", name)
        return asked
    try:
        schema_dtype = struct_dtype(schema) if schema.encoding == "struct" else None
    except ValueError as error:
        raise RecordMismatchError(f"{error}; another program uses this name, choose another", name) from None
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
    """Return a capacity that was asked for as a power of two, not smaller.

    Raises
    ------
    InvalidValueError : it is below 1, or above `most`.
    """
    if capacity is None:
        return None
    if not isinstance(capacity, int) or not 1 <= capacity <= most:
        raise InvalidValueError(f"capacity is {capacity!r}; give 1 to {most}", name)
    return max(1 << (capacity - 1).bit_length(), least)
