"""What vectors and boards hand out, alike on all backends."""

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
    """Elements of a vector that were written since the last look, by index; each of them once, as it is now.

    Attributes
    ----------
    indices : shape (k,), ascending.
    rows : shape (k,), of the vector's dtype.
    times : shape (k,); when each was written, nanoseconds of the host's clock (clock.md).
    counts : shape (k,); how often each was ever written. What it grew by since the last look, less one, was overwritten
        before anybody looked.
    """

    indices: npt.NDArray[np.int64]
    rows: npt.NDArray[Any]
    times: npt.NDArray[np.int64]
    counts: npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Value:
    """What is under a key of a board.

    Attributes
    ----------
    data : a private copy.
    time : when it was written, nanoseconds of the host's clock (clock.md).
    count : how often the key was ever written.
    age_ns : since then.
    owner : whose the key is, as of when this is asked first: finding it out takes longer than to read a value. None:
        nobody's.
    alive : whether the owner lives; None: there is none, or nobody can tell.
    """

    data: bytes
    time: int
    count: int
    age_ns: int
    find_owner: Callable[[], Participant | None] = field(repr=False, compare=False)

    @cached_property
    def owner(self) -> Participant | None:
        """Whose the key is now, or was when this was asked before."""
        return self.find_owner()

    @property
    def alive(self) -> bool | None:
        """Whether the owner lives."""
        return None if self.owner is None else self.owner.alive

    def __reduce__(self) -> tuple[Any, ...]:
        return Value, (self.data, self.time, self.count, self.age_ns, partial(_return_owner, self.owner))


def _return_owner(owner: Participant | None) -> Participant | None:
    return owner
