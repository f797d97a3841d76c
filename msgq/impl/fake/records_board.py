"""Boards of named values on the fake backend. The stub msgq/impl/records/core.pyi documents the methods."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, NoReturn, cast

from msgq.common.closing import ClosingContext
from msgq.common.stats import Participant
from msgq.impl.base.foreign_names import add_advice, key_assignment_error
from msgq.impl.base.process import process_name
from msgq.impl.fake.owned_buffer import copy_buffer
from msgq.impl.fake.records_handle import RecordHandle, RecordWatcher
from msgq.impl.fake.records_store import (
    BoardHandleRow,
    BoardStore,
    KeyObserverRow,
    KeySlot,
    RecordHandleRow,
    open_store,
)
from msgq.impl.fake.waiting import copy_into_buffer
from msgq.impl.records import options
from msgq.impl.records.values import Value

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

    from msgq.common.schema import Schema


@add_advice
class Board(RecordHandle):
    """Named values. The stub core.pyi documents the methods."""

    _store: BoardStore
    _handle_row: BoardHandleRow | None

    def __init__(
        self,
        name: str | bytes,
        keys: int | None = None,
        value_bytes: int | None = None,
        *,
        schema: Schema | None = None,
        create: bool | None = None,
        mode: int | None = None,
        prefix: str | None = None,
        trust: str | None = None,
        passive: bool = False,
        spin_us: int | None = None,
    ) -> None:
        opening = options.check_board_options(name, keys, value_bytes, schema, create, mode, passive)
        super().__init__(opening.name, prefix, trust, opening.passive, spin_us)
        self._store, created = open_store(self._bus, self._prefix, opening, BoardStore, BoardStore)
        if not created:
            opening.check_existing(self._store.capacity, self._store.value_bytes)
        self._handle_row = BoardHandleRow(self._store)
        self._observers = weakref.WeakSet[KeyObserver]()
        self._bus.on_member_opened(self)

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} of {self.capacity} keys"
        return f"<msgq fake Board {self._endpoint!r}, {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen_pickled_board, (self._endpoint, self._prefix, self._trust, self._passive)

    @property
    def capacity(self) -> int:
        """Maximum number of keys."""
        return self._store.capacity

    @property
    def value_bytes(self) -> int:
        """Maximum bytes of a value."""
        return self._store.value_bytes

    def __del__(self) -> None:
        super().close()  # observers of keys stay open

    def close(self) -> None:
        """Close the handle and its observers."""
        super().close()
        for observer in list(self._observers):
            observer.close()

    # ---- keys ----

    def declare(self, key: str) -> Entry:
        """Become the owner of a key."""
        options.validate_key(key, self._endpoint)
        return Entry(self, self._store, self._get_writable_row(), key)

    def observe(self, key: str) -> KeyObserver:
        """Return an observer that reads a key and waits for it."""
        options.validate_key(key, self._endpoint)
        self._get_usable_row()
        observer = KeyObserver(self._store, key)
        self._observers.add(observer)
        return observer

    def keys(self) -> list[str]:
        """Return all declared keys."""
        self._get_usable_row()
        return list(self._store.slots)

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, key: object) -> bool:
        self._get_usable_row()
        return isinstance(key, str) and key in self._store.slots

    def __setitem__(self, key: str, _value: object) -> NoReturn:
        raise key_assignment_error(key, self._endpoint)

    def __getitem__(self, key: str) -> bytes:
        options.validate_key(key, self._endpoint)
        self._get_usable_row()
        slot = self._store.slots.get(key)
        if slot is None or not slot.write_count:
            raise options.unwritten_key_error(key, self._endpoint)
        return slot.value

    def __iter__(self) -> Any:
        return iter(self.keys())

    def items(self) -> list[tuple[str, bytes]]:
        """Return all written keys with their values."""
        self._get_usable_row()
        return [(key, slot.value) for key, slot in self._store.slots.items() if slot.write_count]

    def changes(self, limit: int | None = None) -> dict[str, Value]:
        """Return the keys written since the last call."""
        if limit is not None:
            limit = options.resolve_change_limit(limit, self.capacity, self._endpoint)
        changed = cast("BoardHandleRow", self._get_usable_row()).take_changed_keys(limit)
        return {key: make_value(self._store, self._store.slots[key]) for key in changed}

    _read_newest = changes


class Entry(ClosingContext):
    """A key owned by a handle, until the entry or the handle closes."""

    def __init__(self, board: Board, store: BoardStore, row: RecordHandleRow, key: str) -> None:
        self._board, self._store, self._handle_row, self._key = board, store, row, key
        self._closed = True
        store.claim_key(row, key)
        self._closed = False

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "Entry cannot be pickled or copied, because a key has one handle; close it, and declare the key elsewhere"
        )

    def __repr__(self) -> str:
        return f"<msgq fake Entry {self._key!r} of board {self._store.name!r}>"

    @property
    def key(self) -> str:
        """Name of the key."""
        return self._key

    @property
    def closed(self) -> bool:
        """True if the key was released."""
        return self._closed

    def close(self) -> None:
        """Release the key. Its value stays."""
        if not self._closed and not self._handle_row.closed:
            self._store.slots[self._key].owner_row = None
        self._closed = True

    def write(self, data: ReadableBuffer) -> None:
        """Write the value."""
        copy = data if type(data) is bytes else copy_buffer(data)
        if self._closed:
            raise options.closed_entry_error(self._key, self._store.name)
        self._board._get_usable_row()
        if len(copy) > self._store.value_bytes:
            raise options.value_too_large_error(len(copy), self._store.value_bytes, self._store.name)
        self._store.write_change(self._handle_row, (self._key, copy, self._store.bus.clock.now_ns))


class KeyObserver(RecordWatcher):
    """Reads one key."""

    _handle_row: KeyObserverRow | None

    def __init__(self, store: BoardStore, key: str) -> None:
        super().__init__()
        self._endpoint, self._bus = store.name, store.bus
        self._store, self._key = store, key
        self._handle_row = KeyObserverRow(store, key)
        self._bus.on_member_opened(self)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("KeyObserver cannot be pickled or copied; pickle its board, and observe the key there")

    def __repr__(self) -> str:
        return f"<msgq fake KeyObserver {self._key!r} of board {self._endpoint!r}>"

    @property
    def key(self) -> str:
        """Name of the key."""
        return self._key

    @property
    def changed(self) -> bool:
        """True if the key was written since the last read."""
        return self._get_usable_row().can_receive()

    def _find_written_slot(self) -> KeySlot | None:
        """Return the key's slot; None: never written."""
        slot = cast("KeyObserverRow", self._get_usable_row()).find_slot()
        return slot if slot.write_count else None

    def _mark_value_seen(self) -> None:
        cast("KeyObserverRow", self._handle_row).mark_seen()

    def read(self) -> Value | None:
        """Return the value with its properties; None: never written."""
        slot = self._find_written_slot()
        self._mark_value_seen()
        return None if slot is None else make_value(self._store, slot)

    _read_newest = read

    def data(self) -> bytes | None:
        """Return the value."""
        slot = self._find_written_slot()
        self._mark_value_seen()
        return None if slot is None else slot.value

    def read_into(self, buffer: WriteableBuffer) -> int | None:
        """Copy the value into the caller's memory, and return its length."""
        copy_into_buffer(buffer, b"")  # raises if the buffer is not writable or not contiguous
        buffer_bytes = buffer.nbytes if hasattr(buffer, "nbytes") else memoryview(buffer).nbytes
        slot = self._find_written_slot()
        if slot is None:
            return None
        if len(slot.value) > buffer_bytes:
            raise options.buffer_too_small_error(len(slot.value), buffer_bytes, self._endpoint)
        self._mark_value_seen()
        return copy_into_buffer(buffer, slot.value)


def make_value(store: BoardStore, slot: KeySlot) -> Value:
    """Return a value for its reader."""
    age = store.bus.clock.now_ns - slot.write_time
    owner = None
    if slot.owner_row is not None:
        owner = Participant(os.getpid(), threading.get_native_id(), 0, process_name(), True)
    return Value(slot.value, slot.write_time, slot.write_count, age, lambda: owner)


def _reopen_pickled_board(name: str, prefix: str, trust: str | None, passive: bool) -> Board:
    """Return a handle for a pickled board."""
    return Board(name, create=False, prefix=prefix, trust=trust, passive=passive)
