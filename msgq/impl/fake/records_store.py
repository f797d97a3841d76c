"""Vectors and boards in this process: their elements, who has them open, and what each of those has seen.

A write is there when the call returns, also in a simulation, unless a fault delays or drops it. All elements of one
call are one write to a fault.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgq.common.dtypes import struct_schema
from msgq.common.naming import RECORDS_NAME_PREFIX
from msgq.common.schema import Schema
from msgq.impl.base.process import process_name
from msgq.impl.fake.bus import Bus, BusMessage, EndpointState, Inbox
from msgq.impl.records import options

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_numbers = itertools.count(1)


class Row(Inbox):
    """A handle, as what it has open knows it; what it has not seen is what comes to it.

    Attributes
    ----------
    writes : it has written, or may.
    written : elements that it wrote.
    descriptor : an eventfd that is readable while has_pending is there; -1: nobody asked for one.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(lambda _entry: None)  # writes come to the store, not to its handles
        self.store = store
        self.writes = False
        self.written = 0
        self.descriptor = -1
        store.rows.append(self)

    def has_pending_messages(self) -> bool:
        """See `Inbox`."""
        return self.can_receive()

    def update_descriptor(self) -> None:
        """Make the descriptor readable, or not."""
        if self.descriptor < 0:
            return
        if self.can_receive():
            os.eventfd_write(self.descriptor, 1)
        else:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.descriptor)

    def leave(self) -> None:
        """Close the handle."""
        self.closed = True
        self.descriptor = -1
        self.store.rows.remove(self)
        self.store.release_owned(self)


class _PendingWrites(Inbox):
    """What was written and is not there so far; only when a simulation delays it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.arrive)
        self._store = store

    def can_receive(self) -> bool:
        return False

    def has_pending_messages(self) -> bool:
        return False

    def drop_message(self, entry: BusMessage) -> None:
        self._store.forget(entry)


class Store(EndpointState[Inbox]):
    """What the file of a vector or board has.

    Attributes
    ----------
    rows : of all that wait: handles, and what observes a key.
    creator : name and pid.
    sender : whose the newest write is.
    """

    is_shared_state = True

    def __init__(self, bus: Bus, name: str, mode: int, schema: Schema | None) -> None:
        private = partial(Bus.choose_route, bus)  # no simulation sees it
        super().__init__(f"{RECORDS_NAME_PREFIX}{name}", bus.choose_route if name else private)
        self.bus, self.name, self.mode, self.schema = bus, name, mode, schema
        self.identity = (0, next(_numbers))
        self.created_ns = bus.clock.now_ns
        self.creator = process_name(), os.getpid()
        self.rows: list[Row] = []
        self.sender: Row | None = None
        self._pending: dict[int, Any] = {}  # by number: written, and not there so far
        self.add_inbox(_PendingWrites(self))

    def write(self, row: Row, change: Any, count: int = 1) -> None:
        """Write `count` elements, in the name of a handle."""
        self.published_count += 1
        row.written += count
        self.sender = row
        self._pending[self.published_count] = change
        self.deliver_message((self.published_count, b""))

    def pending(self, entry: BusMessage) -> Any:
        """Return what a write writes that is not there so far."""
        return self._pending[entry[0]]

    def arrive(self, entry: BusMessage) -> None:
        """A write is there."""
        self.put(self._pending.pop(entry[0]))
        for row in self.rows:
            row.update_descriptor()

    def forget(self, entry: BusMessage) -> None:
        """A write will never be there."""
        del self._pending[entry[0]]

    def put(self, change: Any) -> None:
        """Change the elements."""
        raise NotImplementedError

    def admit(self, row: Row) -> None:
        """Let a handle write.

        Raises
        ------
        TooManyWritersError : as many do as may.
        """
        if not row.writes and sum(each.writes for each in self.rows) >= options.WRITERS_MAX:
            raise options.too_many_writers_error(self.name)
        row.writes = True

    def release_owned(self, row: Row) -> None:
        """A handle was closed: nothing is its own any more."""
        raise NotImplementedError

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        for row in self.rows:
            row.descriptor = -1


class VectorRow(Row):
    """A handle of a vector, or of its first elements."""

    store: VectorStore

    def __init__(self, store: VectorStore, length: int) -> None:
        super().__init__(store)
        self._seen = store.counts[:length] * 0
        self._next_index = 0  # where a limited batch continues

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool((self.store.counts[: len(self._seen)] != self._seen).any())

    def take_changed(self, limit: int | None) -> npt.NDArray[np.int64]:
        """Return which elements were written since the last call. A batch starts after a previous one that was full."""
        counts = self.store.counts[: len(self._seen)]
        changed: npt.NDArray[np.int64] = (counts != self._seen).nonzero()[0]
        if limit is not None:
            later = changed[changed >= self._next_index]
            changed = (later if len(later) else changed)[:limit]
        self._next_index = int(changed[-1]) + 1 if limit and len(changed) == limit else 0
        self._seen[changed] = counts[changed]
        self.update_descriptor()
        return changed

    def mark_seen(self) -> None:
        """All that is there is known."""
        self._seen = self.store.counts[: len(self._seen)].copy()
        self.update_descriptor()


class VectorStore(Store):
    """A vector.

    Attributes
    ----------
    items, times, counts : of each element.
    owner : the handle that writes, of an exclusive one.
    """

    def __init__(self, bus: Bus, wanted: options.VectorOpenOptions) -> None:
        import numpy as np

        self.dtype, length, self.exclusive, self.copies = wanted.fill_defaults()
        super().__init__(bus, wanted.name, wanted.mode, struct_schema(self.dtype))
        self.items: npt.NDArray[Any] = np.zeros(length, self.dtype)
        self.times = np.zeros(length, np.int64)
        self.counts = np.zeros(length, np.uint64)
        self._begun: dict[int, int] = {}
        self.owner: Row | None = None

    def begin(self, index: int) -> int:
        """Count a write of an element, be it delayed or dropped then; for simulations."""
        self._begun[index] = count = self._begun.get(index, 0) + 1
        return count

    def put(self, change: tuple[npt.NDArray[np.int64], npt.NDArray[Any], int]) -> None:
        """See `Store`: indexes, rows, time."""
        import numpy as np

        indices, rows, time = change
        self.items[indices] = rows
        self.times[indices] = time
        np.add.at(self.counts, indices, np.uint64(1))  # an index may be there twice

    def admit(self, row: Row) -> None:
        """See `Store`.

        Raises
        ------
        MultipleWritersError : it is exclusive, and another handle writes.
        """
        if self.exclusive and self.owner not in (None, row):
            raise options.second_writer_error(" ".join(map(str, (process_name(), os.getpid()))), self.name)
        super().admit(row)
        self.owner = row if self.exclusive else None

    def release_owned(self, row: Row) -> None:
        """See `Store`."""
        if self.owner is row:
            self.owner = None


@dataclass(slots=True, eq=False)
class Slot:
    """A key of a board: whose it is, and its value.

    Attributes
    ----------
    owner : the handle; None: nobody's.
    """

    owner: Row | None = None
    data: bytes = b""
    time: int = 0
    count: int = 0


class BoardRow(Row):
    """A handle of a board."""

    store: BoardStore

    def __init__(self, store: BoardStore) -> None:
        super().__init__(store)
        self._seen: dict[str, int] = {}
        self._next_index = 0  # where a limited batch continues

    def _unseen_keys(self) -> list[str]:
        return [key for key, slot in self.store.slots.items() if slot.count != self._seen.get(key, 0)]

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool(self._unseen_keys())

    def take_changed(self, limit: int | None) -> list[str]:
        """Return which keys were written since the last call. A batch starts after a previous one that was full."""
        changed = self._unseen_keys()
        if limit is not None:
            order = {key: i for i, key in enumerate(self.store.slots)}
            later = [key for key in changed if order[key] >= self._next_index]
            changed = (later or changed)[:limit]
            self._next_index = order[changed[-1]] + 1 if limit and len(changed) == limit else 0
        self._seen |= {key: self.store.slots[key].count for key in changed}
        self.update_descriptor()
        return changed


class KeyRow(Row):
    """What observes one key, whether anybody has declared it or not."""

    store: BoardStore

    def __init__(self, store: BoardStore, key: str) -> None:
        super().__init__(store)
        self._key = key
        self._seen = 0

    def slot(self) -> Slot:
        """Return the key as it is; an empty one if nobody has declared it."""
        return self.store.slots.get(self._key) or Slot()

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return self.slot().count != self._seen

    def read(self) -> None:
        """What is there has been seen."""
        self._seen = self.slot().count
        self.update_descriptor()


class BoardStore(Store):
    """A board.

    Attributes
    ----------
    capacity : keys that it may have.
    slots : by key, in the order in which they were declared.
    """

    def __init__(self, bus: Bus, wanted: options.BoardOpenOptions) -> None:
        super().__init__(bus, wanted.name, wanted.mode, wanted.schema)
        self.capacity, self.value_bytes = wanted.fill_defaults()
        self.slots: dict[str, Slot] = {}

    def put(self, change: tuple[str, bytes, int]) -> None:
        """See `Store`: key, value, time."""
        key, data, time = change
        slot = self.slots[key]
        slot.data, slot.time, slot.count = data, time, slot.count + 1

    def claim(self, row: Row, key: str) -> None:
        """Make a key the handle's.

        Raises
        ------
        KeyTakenError : it is somebody's. BoardFullError : there is no place for it. TooManyWritersError : as `admit`.
        """
        slot = self.slots.get(key)
        if slot is not None and slot.owner is not None:
            raise options.key_taken_error(key, f"{process_name()} {os.getpid()}", self.name)
        if slot is None and len(self.slots) >= self.capacity:
            raise options.board_full_error(self.capacity, self.name)
        self.admit(row)
        self.slots.setdefault(key, Slot()).owner = row

    def release_owned(self, row: Row) -> None:
        """See `Store`."""
        for slot in self.slots.values():
            if slot.owner is row:
                slot.owner = None


Kind = TypeVar("Kind", VectorStore, BoardStore)
Wanted = TypeVar("Wanted", options.VectorOpenOptions, options.BoardOpenOptions)


def open_store(
    bus: Bus, prefix: str, wanted: Wanted, kind: type[Kind], make: Callable[[Bus, Wanted], Kind]
) -> tuple[Kind, bool]:
    """Open a vector or board, or make it; tell whether it was made.

    Raises
    ------
    SegmentError : it is not there, or is and was to be made.
    RecordMismatchError : it is of the other kind.
    """
    store: Any = bus.records.get((prefix, wanted.name)) if wanted.name else None
    if store is None and wanted.create is False:
        raise wanted.missing_error()
    if store is not None and wanted.create:
        raise options.records_exist_error(wanted.name)
    if store is None:
        made = make(bus, wanted)
        if wanted.name:
            bus.records[prefix, wanted.name] = made
        return made, True
    if not isinstance(store, kind):
        raise options.wrong_records_kind_error(isinstance(store, BoardStore), wanted.name)
    return store, False
