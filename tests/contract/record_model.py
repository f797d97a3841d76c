"""Vectors in a page of plain NumPy, and boards in dictionaries. They stand for no implementation."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from msgq.errors import (
    BoardFullError,
    BoardKeyError,
    EndpointClosedError,
    InvalidValueError,
    KeyTakenError,
    MessageTooLargeError,
    MultipleWritersError,
    RecordIndexError,
    RecordMismatchError,
    SegmentError,
    StateError,
)


@dataclass(eq=False)
class Memory:
    """A vector, which its name leads to until that is removed."""

    items: np.ndarray[Any, Any]
    exclusive: bool
    copies: int
    owner: Vector | None = None

    def __post_init__(self) -> None:
        self.counts = np.zeros(len(self.items), "u8")


@dataclass(eq=False)
class Keys:
    """A board."""

    capacity: int
    value_bytes: int
    owners: dict[str, Board | None] = field(default_factory=dict)
    values: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)


def opened(there: dict[str, Any], name: str, create: bool | None, new: Any, kind: type) -> Any:
    """Return what has the name, or make it."""
    found = there.get(name)
    if found is None and (create is False or new is None):
        raise SegmentError("", errno=errno.ENOENT)
    if found is not None and create:
        raise SegmentError("", errno=errno.EEXIST)
    if found is None:
        there[name] = found = new
    if not isinstance(found, kind):
        raise RecordMismatchError("")
    return found


class Model:
    """All vectors and boards there are, by name."""

    def __init__(self) -> None:
        self.there: dict[str, Any] = {}

    def vector(self, dtype: Any = None, length: int | None = None, *, name: str = "", **options: Any) -> Vector:
        exclusive, copies = options.get("exclusive"), options.get("copies")
        create = False if options.get("passive") else options.get("create")
        new = None
        if dtype is not None and length is not None:
            new = Memory(np.zeros(length, dtype), bool(exclusive), copies or 2)
        elif create:
            raise InvalidValueError("")
        memory = opened(self.there, name, create, new, Memory)
        asked = {"exclusive": exclusive, "copies": copies}
        if (
            (dtype is not None and memory.items.dtype != np.dtype(dtype))
            or (length or 0) > len(memory.items)
            or any(value not in (None, getattr(memory, what)) for what, value in asked.items())
        ):
            raise RecordMismatchError("")
        return Vector(self, name, memory, length or len(memory.items), bool(options.get("passive")))

    def board(self, capacity: int | None = None, value_bytes: int | None = None, *, name: str = "") -> Board:
        keys = opened(self.there, name, None, Keys(capacity or 256, value_bytes or 1008), Keys)
        if capacity not in (None, keys.capacity) or value_bytes not in (None, keys.value_bytes):
            raise RecordMismatchError("")
        return Board(self, name, keys)

    def unlink(self, name: str) -> None:
        if self.there.pop(name, None) is None:
            raise SegmentError("", errno=errno.ENOENT)


@dataclass(eq=False)
class Handle:
    """What has something open. Nothing waits here: nobody else is there."""

    model: Model
    name: str

    def __post_init__(self) -> None:
        self.closed = False

    def check(self) -> None:
        if self.closed:
            raise EndpointClosedError("")

    def unlink(self) -> None:
        self.check()
        self.model.unlink(self.name)


@dataclass(eq=False)
class Vector(Handle):
    memory: Memory
    length: int
    passive: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen = np.zeros(self.length, "u8")

    def __len__(self) -> int:
        return self.length

    @property
    def dtype(self) -> Any:
        return self.memory.items.dtype

    def close(self) -> None:
        self.closed = True
        if self.memory.owner is self:
            self.memory.owner = None

    def _items(self) -> Any:
        self.check()
        return self.memory.items[: self.length]

    def claim(self) -> None:
        self.check()
        if self.passive:
            raise StateError("")
        if self.memory.exclusive and self.memory.owner not in (None, self):
            raise MultipleWritersError("")
        self.memory.owner = self

    def read(self, indices: Any = None, out: Any = None) -> Any:
        rows = self._items()[slice(None) if indices is None else indices].copy()
        if out is None:
            return rows
        out[...] = rows
        return out

    def snapshot(self, atomic: bool = False) -> Any:
        return self._items().copy()

    def counts(self, indices: Any = None) -> Any:
        self.check()
        return self.memory.counts[: self.length][slice(None) if indices is None else indices].copy()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, int) and not 0 <= index < self.length:
            raise RecordIndexError("")
        return self._items()[index].copy()

    def __setitem__(self, index: Any, values: Any) -> None:
        if isinstance(index, int) and not 0 <= index < self.length:
            raise RecordIndexError("")
        self.claim()
        self._items()[index] = values
        np.add.at(self.memory.counts[: self.length], index, 1)

    def write(self, indices: Any, values: Any, *, timeout: float | None = 1.0) -> None:
        self[indices] = values

    def wait(self, _timeout: float) -> bool:
        self.check()
        return bool((self.counts() != self.seen).any())

    def changes(self) -> Any:
        counts = self.counts()
        indices = np.flatnonzero(counts != self.seen)
        self.seen = counts
        return indices, self.memory.items[indices].copy(), None, counts[indices]


@dataclass(eq=False)
class Board(Handle):
    keys_: Keys

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen: dict[str, int] = {}
        self.observed: list[KeyObserver] = []

    @property
    def capacity(self) -> int:
        return self.keys_.capacity

    def close(self) -> None:
        self.closed = True
        for key, owner in self.keys_.owners.items():
            if owner is self:
                self.keys_.owners[key] = None
        for observed in self.observed:
            observed.closed = True

    def declare(self, key: str) -> Entry:
        self.check()
        if self.keys_.owners.get(key) is not None:
            raise KeyTakenError("")
        if key not in self.keys_.owners and len(self.keys_.owners) >= self.keys_.capacity:
            raise BoardFullError("")
        self.keys_.owners[key] = self
        return Entry(self, key)

    def observe(self, key: str) -> KeyObserver:
        self.check()
        self.observed.append(KeyObserver(self.keys_, key))
        return self.observed[-1]

    def keys(self) -> list[str]:
        self.check()
        return list(self.keys_.owners)

    def items(self) -> list[tuple[str, bytes]]:
        self.check()
        return [(key, self.keys_.values[key]) for key in self.keys_.owners if key in self.keys_.values]

    def __getitem__(self, key: str) -> bytes:
        self.check()
        if key not in self.keys_.values:
            raise BoardKeyError("")
        return self.keys_.values[key]

    def changes(self) -> dict[str, Any]:
        self.check()
        counts = self.keys_.counts
        found = {key: count for key, count in counts.items() if count != self.seen.get(key)}
        self.seen = dict(counts)
        return {key: (self.keys_.values[key], count) for key, count in found.items()}

    def wait(self, _timeout: float) -> bool:
        self.check()
        return any(count != self.seen.get(key) for key, count in self.keys_.counts.items())


class Entry:
    def __init__(self, board: Board, key: str) -> None:
        self.board, self.key, self.closed = board, key, False

    def write(self, data: bytes) -> None:
        if self.closed:
            raise StateError("")
        self.board.check()
        keys = self.board.keys_
        if len(data) > keys.value_bytes:
            raise MessageTooLargeError("")
        keys.values[self.key] = data
        keys.counts[self.key] = keys.counts.get(self.key, 0) + 1

    def close(self) -> None:
        if not self.closed and not self.board.closed:
            self.board.keys_.owners[self.key] = None
        self.closed = True


class KeyObserver:
    def __init__(self, keys: Keys, key: str) -> None:
        self.keys, self.key, self.seen, self.closed = keys, key, 0, False

    def check(self) -> None:
        if self.closed:
            raise EndpointClosedError("")

    @property
    def changed(self) -> bool:
        self.check()
        return self.keys.counts.get(self.key, 0) != self.seen

    def data(self) -> bytes | None:
        self.check()
        self.seen = self.keys.counts.get(self.key, 0)
        return self.keys.values.get(self.key)
