"""Vectors and boards in this process: their elements, open handles, and the changes that each handle has seen.

A write takes effect before the call returns, also in a simulation, unless a fault delays or drops it. For a fault, all
elements of one call are one write.
"""

from __future__ import annotations

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
from msgq.impl.fake.bus import InProcessBus
from msgq.impl.fake.endpoint_state import BusMessage, EndpointState, Inbox, SharedInbox
from msgq.impl.records import options

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

_store_numbers = itertools.count(1)


class RecordHandleRow(SharedInbox):
    """A handle in the state of its vector or board. Unseen changes are its pending messages.

    Attributes
    ----------
    may_write : True if the handle is registered as a writer.
    written_count : number of elements that the handle wrote.
    """

    def __init__(self, store: RecordStore) -> None:
        super().__init__()
        self.store = store
        self.may_write = False
        self.written_count = 0
        store.handle_rows.append(self)

    def close_handle(self) -> None:
        """Close the handle."""
        self.closed = True
        self.event_fd = -1
        self.store.handle_rows.remove(self)
        self.store.release_ownership(self)


class _PendingWriteInbox(Inbox):
    """Writes that a simulation delays."""

    def __init__(self, store: RecordStore) -> None:
        super().__init__(store.apply_pending_change)
        self._store = store

    def can_receive(self) -> bool:
        return False

    def has_pending_messages(self) -> bool:
        return False

    def drop_message(self, message: BusMessage) -> None:
        self._store.discard_pending_change(message)


class RecordStore(EndpointState[Inbox]):
    """Content of a vector's or board's file.

    Attributes
    ----------
    handle_rows : rows of all handles and observers.
    creator : name and pid.
    last_writer : writer of the newest value.
    """

    is_shared_state = True

    def __init__(self, bus: InProcessBus, name: str, mode: int, schema: Schema | None) -> None:
        private = partial(InProcessBus.choose_route, bus)  # no simulation sees it
        super().__init__(f"{RECORDS_NAME_PREFIX}{name}", bus.choose_route if name else private)
        self.bus, self.name, self.mode, self.schema = bus, name, mode, schema
        self.identity = (0, next(_store_numbers))
        self.created_ns = bus.clock.now_ns
        self.creator = process_name(), os.getpid()
        self.handle_rows: list[RecordHandleRow] = []
        self.last_writer: RecordHandleRow | None = None
        self._pending_changes: dict[int, Any] = {}  # by number: changes that are written, but have not arrived yet
        self.add_inbox(_PendingWriteInbox(self))

    def write_change(self, row: RecordHandleRow, change: Any, count: int = 1) -> None:
        """Write `count` elements in the name of a handle."""
        self.published_count += 1
        row.written_count += count
        self.last_writer = row
        self._pending_changes[self.published_count] = change
        self.deliver_message((self.published_count, b""))

    def get_pending_change(self, message: BusMessage) -> Any:
        """Return the change of a delayed write."""
        return self._pending_changes[message[0]]

    def apply_pending_change(self, message: BusMessage) -> None:
        """Apply a delayed write."""
        self.apply_change(self._pending_changes.pop(message[0]))
        for row in self.handle_rows:
            row.update_descriptor()

    def discard_pending_change(self, message: BusMessage) -> None:
        """Discard a delayed write."""
        del self._pending_changes[message[0]]

    def apply_change(self, change: Any) -> None:
        """Apply a change to the elements."""
        raise NotImplementedError

    def register_writer(self, row: RecordHandleRow) -> None:
        """Register a handle as a writer.

        Raises
        ------
        TooManyWritersError : the maximum number of handles is registered.
        """
        if not row.may_write and sum(handle_row.may_write for handle_row in self.handle_rows) >= options.WRITERS_MAX:
            raise options.too_many_writers_error(self.name)
        row.may_write = True

    def release_ownership(self, row: RecordHandleRow) -> None:
        """Release everything that a closed handle owned."""
        raise NotImplementedError

    def mark_inherited_by_fork(self) -> None:
        """See `EndpointState`."""
        super().mark_inherited_by_fork()
        for row in self.handle_rows:
            row.event_fd = -1


class VectorHandleRow(RecordHandleRow):
    """A handle of a vector, or of its first elements."""

    store: VectorStore

    def __init__(self, store: VectorStore, length: int) -> None:
        super().__init__(store)
        self._seen_counts = store.write_counts[:length] * 0
        self._next_batch_start = 0  # where a limited batch continues

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool((self.store.write_counts[: len(self._seen_counts)] != self._seen_counts).any())

    def take_changed_indices(self, limit: int | None) -> npt.NDArray[np.int64]:
        """Return the indexes of elements written since the last call. After a full batch, the next batch continues."""
        counts = self.store.write_counts[: len(self._seen_counts)]
        changed: npt.NDArray[np.int64] = (counts != self._seen_counts).nonzero()[0]
        if limit is not None:
            later_changes = changed[changed >= self._next_batch_start]
            changed = (later_changes if len(later_changes) else changed)[:limit]
        self._next_batch_start = int(changed[-1]) + 1 if limit and len(changed) == limit else 0
        self._seen_counts[changed] = counts[changed]
        self.update_descriptor()
        return changed

    def mark_all_seen(self) -> None:
        """Mark all values as seen."""
        self._seen_counts = self.store.write_counts[: len(self._seen_counts)].copy()
        self.update_descriptor()


class VectorStore(RecordStore):
    """A vector.

    Attributes
    ----------
    elements, write_times, write_counts : arrays with one element each.
    owner_row : writing handle of an exclusive vector.
    """

    def __init__(self, bus: InProcessBus, opening: options.VectorOpenOptions) -> None:
        import numpy as np

        self.dtype, length, self.exclusive, self.copies = opening.fill_defaults()
        super().__init__(bus, opening.name, opening.mode, struct_schema(self.dtype))
        self.elements: npt.NDArray[Any] = np.zeros(length, self.dtype)
        self.write_times = np.zeros(length, np.int64)
        self.write_counts = np.zeros(length, np.uint64)
        self._begun_counts: dict[int, int] = {}
        self.owner_row: RecordHandleRow | None = None

    def count_begun_write(self, index: int) -> int:
        """Count a write of an element, for simulations. The write may then be delayed or dropped."""
        self._begun_counts[index] = count = self._begun_counts.get(index, 0) + 1
        return count

    def apply_change(self, change: tuple[npt.NDArray[np.int64], npt.NDArray[Any], int]) -> None:
        """See `RecordStore`: indexes, rows, time."""
        import numpy as np

        indices, rows, time = change
        self.elements[indices] = rows
        self.write_times[indices] = time
        np.add.at(self.write_counts, indices, np.uint64(1))  # an index may be there twice

    def register_writer(self, row: RecordHandleRow) -> None:
        """See `RecordStore`.

        Raises
        ------
        MultipleWritersError : the vector is exclusive, and another handle writes.
        """
        if self.exclusive and self.owner_row not in (None, row):
            raise options.second_writer_error(" ".join(map(str, (process_name(), os.getpid()))), self.name)
        super().register_writer(row)
        self.owner_row = row if self.exclusive else None

    def release_ownership(self, row: RecordHandleRow) -> None:
        """See `RecordStore`."""
        if self.owner_row is row:
            self.owner_row = None


@dataclass(slots=True, eq=False)
class KeySlot:
    """A key of a board: its owner and its value.

    Attributes
    ----------
    owner_row : row of the owner; None: no owner.
    """

    owner_row: RecordHandleRow | None = None
    value: bytes = b""
    write_time: int = 0
    write_count: int = 0


class BoardHandleRow(RecordHandleRow):
    """A handle of a board."""

    store: BoardStore

    def __init__(self, store: BoardStore) -> None:
        super().__init__(store)
        self._seen_counts: dict[str, int] = {}
        self._next_batch_start = 0  # where a limited batch continues

    def _unseen_keys(self) -> list[str]:
        return [key for key, slot in self.store.slots.items() if slot.write_count != self._seen_counts.get(key, 0)]

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return bool(self._unseen_keys())

    def take_changed_keys(self, limit: int | None) -> list[str]:
        """Return the keys written since the last call. After a full batch, the next batch continues."""
        changed = self._unseen_keys()
        if limit is not None:
            key_order = {key: i for i, key in enumerate(self.store.slots)}
            later_changes = [key for key in changed if key_order[key] >= self._next_batch_start]
            changed = (later_changes or changed)[:limit]
            self._next_batch_start = key_order[changed[-1]] + 1 if limit and len(changed) == limit else 0
        self._seen_counts |= {key: self.store.slots[key].write_count for key in changed}
        self.update_descriptor()
        return changed


class KeyObserverRow(RecordHandleRow):
    """Observer of one key, declared or not."""

    store: BoardStore

    def __init__(self, store: BoardStore, key: str) -> None:
        super().__init__(store)
        self._key = key
        self._seen_counts = 0

    def find_slot(self) -> KeySlot:
        """Return the key's slot; an empty one if the key is not declared."""
        return self.store.slots.get(self._key) or KeySlot()

    def can_receive(self) -> bool:
        """See `Inbox`."""
        return self.find_slot().write_count != self._seen_counts

    def mark_seen(self) -> None:
        """Mark the value as seen."""
        self._seen_counts = self.find_slot().write_count
        self.update_descriptor()


class BoardStore(RecordStore):
    """A board.

    Attributes
    ----------
    capacity : maximum number of keys.
    slots : slots by key, in the order of declaration.
    """

    def __init__(self, bus: InProcessBus, opening: options.BoardOpenOptions) -> None:
        super().__init__(bus, opening.name, opening.mode, opening.schema)
        self.capacity, self.value_bytes = opening.fill_defaults()
        self.slots: dict[str, KeySlot] = {}

    def apply_change(self, change: tuple[str, bytes, int]) -> None:
        """See `RecordStore`: key, value, time."""
        key, data, time = change
        slot = self.slots[key]
        slot.value, slot.write_time, slot.write_count = data, time, slot.write_count + 1

    def claim_key(self, row: RecordHandleRow, key: str) -> None:
        """Make a handle the owner of a key.

        Raises
        ------
        KeyTakenError : the key has an owner.
        BoardFullError : no free key is left.
        TooManyWritersError : as `register_writer`.
        """
        slot = self.slots.get(key)
        if slot is not None and slot.owner_row is not None:
            raise options.key_taken_error(key, f"{process_name()} {os.getpid()}", self.name)
        if slot is None and len(self.slots) >= self.capacity:
            raise options.board_full_error(self.capacity, self.name)
        self.register_writer(row)
        self.slots.setdefault(key, KeySlot()).owner_row = row

    def release_ownership(self, row: RecordHandleRow) -> None:
        """See `RecordStore`."""
        for slot in self.slots.values():
            if slot.owner_row is row:
                slot.owner_row = None


StoreType = TypeVar("StoreType", VectorStore, BoardStore)
OpeningType = TypeVar("OpeningType", options.VectorOpenOptions, options.BoardOpenOptions)


def open_store(
    bus: InProcessBus,
    prefix: str,
    opening: OpeningType,
    store_class: type[StoreType],
    create_store: Callable[[InProcessBus, OpeningType], StoreType],
) -> tuple[StoreType, bool]:
    """Open or create a vector or board. The second value is True if it was created.

    Raises
    ------
    SegmentError : it does not exist, or exists and must be created.
    RecordMismatchError : it is of the other kind.
    """
    store: Any = bus.records.get((prefix, opening.name)) if opening.name else None
    if store is None and opening.create is False:
        raise opening.missing_error()
    if store is not None and opening.create:
        raise options.records_exist_error(opening.name)
    if store is None:
        store = create_store(bus, opening)
        if opening.name:
            bus.records[prefix, opening.name] = store
        return store, True
    if not isinstance(store, store_class):
        raise options.wrong_records_kind_error(isinstance(store, BoardStore), opening.name)
    return store, False
