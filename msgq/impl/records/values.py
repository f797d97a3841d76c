"""Result types of vectors and boards, for all backends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar

from msgq.common.stats import Participant

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

ChangeType = TypeVar("ChangeType")


class ChangeIterator(Generic[ChangeType]):
    """An iterator over the changes of a vector, a record, a board or a key: each item is what its `receive` returns.

    ``for`` ends when nothing changes for the time-out, in seconds. ``async for`` waits in a task of an asyncio loop,
    without a time-out.
    """

    def __init__(self, source: Any, timeout: float | None) -> None:
        self._source, self._timeout = source, timeout

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ChangeType:
        item: ChangeType | None = self._source.receive(self._timeout)
        if item is None:
            raise StopIteration
        return item

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Coroutine[Any, Any, ChangeType]:
        item: Coroutine[Any, Any, ChangeType] = self._source.areceive()
        return item


class Changes(NamedTuple):
    """Elements of a vector written since the last call, sorted by index.

    Each element occurs once, with its newest value.

    Attributes:
        indices: shape (k,), ascending.
        rows: shape (k,), of the vector's dtype.
        times: shape (k,), times of the last writes, nanoseconds of the host's clock (clock.md).
        counts: shape (k,), numbers of writes. The increase since the last call, minus one, is the number of overwritten
            values that this reader did not see.
    """

    indices: npt.NDArray[np.int64]
    rows: npt.NDArray[Any]
    times: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Value:
    """Value of a board's key.

    Attributes:
        data: a private copy of the bytes.
        time: time of the write, nanoseconds of the host's clock (clock.md).
        count: number of writes of the key.
        age_ns: nanoseconds since the write.
        owner: owner of the key at the first access to this attribute, because determining it takes longer than reading
            a value. None: no owner.
        alive: True if the owner lives; None: no owner, or unknown.
    """

    data: bytes
    time: int
    count: int
    age_ns: int
    find_owner: Callable[[], Participant | None] = field(repr=False, compare=False)

    @cached_property
    def owner(self) -> Participant | None:
        """Owner of the key at the first access."""
        return self.find_owner()

    @property
    def alive(self) -> bool | None:
        """True if the owner lives."""
        return None if self.owner is None else self.owner.alive

    def __reduce__(self) -> tuple[Any, ...]:
        return Value, (self.data, self.time, self.count, self.age_ns, partial(_return_owner, self.owner))


def _return_owner(owner: Participant | None) -> Participant | None:
    return owner
