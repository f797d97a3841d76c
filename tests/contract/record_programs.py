"""Random programs for vectors, single records and boards."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from msgq.common.schema import Schema
from msgq.errors import MsgqError
from msgq.impl.backend import load_backend_class
from tests.contract.random_programs import Kind, Machine

PADDED = np.dtype([("flag", "i1"), ("value", "f8")], align=True)
DTYPES: dict[str, Any] = {
    "i8": "i8",
    "u1": "u1",
    "S60": "S60",
    "padded": PADDED,
    "nested": [("inner", PADDED, (2,)), ("x", "f4")],
}


class RecordMachine(Machine):
    """Handles of two vectors or boards."""

    def __init__(self, backend: str, token: str) -> None:
        super().__init__(backend, token)
        self._handles: list[Any] = []

    def vector(self, name: str, dtype: str | None = None, length: int | None = None, **options: Any) -> Any:
        return self._opened("SeqlockVector", name, dtype and DTYPES[dtype], length, **options)

    def seqlock(self, name: str, dtype: str | None = None, **options: Any) -> Any:
        return self._opened("Seqlock", name, dtype and DTYPES[dtype], **options)

    def board(self, name: str, keys: int | None = None, value_bytes: int | None = None, **options: Any) -> Any:
        if options.get("schema"):
            options["schema"] = Schema(options["schema"], "text")
        return self._opened("Board", name, keys, value_bytes, **options)

    def _opened(self, class_name: str, name: str, *args: Any, **options: Any) -> Any:
        self._handles.append(handle := self._class(class_name)(self._token + name, *args, **options))
        return handle

    def _class(self, name: str) -> Any:
        return load_backend_class(name, self.backend)

    def unlink(self, name: str) -> None:
        self._class("SeqlockVector").unlink_name(self._token + name)

    def rows(self, vector: Any, number: int, count: int) -> Any:
        """Return values for a vector, whose padding is zeros."""
        rows = np.zeros(count, vector.dtype)
        for row in range(count):
            value = number + row & 127
            if vector.dtype.names is None:
                rows[row] = b"%d" % value if vector.dtype.kind == "S" else value
            elif "x" in vector.dtype.names:
                rows[row] = ([(value, value / 2), (1, 2)], value)
            else:
                rows[row] = (value, value / 4)
        return rows

    def put(self, vector: Any, index: Any, number: int, count: int) -> None:
        vector[index] = self.rows(vector, number, count)

    def put_one(self, vector: Any, index: int, number: int) -> None:
        vector[index] = self.rows(vector, number, 1)[0]

    def write(self, vector: Any, index: Any, number: int, count: int, timeout: float) -> None:
        vector.write(index, self.rows(vector, number, count), timeout=timeout)

    def out(self, vector: Any, index: Any, count: int) -> Any:
        return vector.read(index, np.zeros(count, vector.dtype))

    def set_value(self, one: Any, number: int) -> None:
        one.value = self.rows(one, number, 1)[0]

    def changes(self, handle: Any, limit: int | None) -> Any:
        found = handle.changes(limit)
        if isinstance(found, dict):
            return {key: self._shown(value) for key, value in found.items()}
        return found.indices, found.rows, found.counts

    def _shown(self, value: Any) -> Any:
        return value and (value.data, value.count, value.alive)

    def look(self, observer: Any) -> Any:
        return observer.changed, self._shown(observer.read()), observer.changed

    def data(self, observer: Any, size: int) -> Any:
        buffer = bytearray(size)
        return observer.read_into(buffer), buffer, observer.wait(0), observer.data()

    def _seen(self, handle: Any) -> Any:
        if handle.closed or not hasattr(handle, "stats"):
            return handle.closed
        if hasattr(handle, "items"):
            return handle.keys(), handle.items(), handle.capacity, handle.value_bytes, handle.wait(0)
        return handle.dtype.descr, handle.exclusive, handle.copies, handle.wait(0), handle.passive

    def _end(self) -> None:
        for handle in self._handles:
            handle.close()
        for name in "abcd":
            with contextlib.suppress(MsgqError):
                self.unlink(name)


INDEXES = [0, 4, 5, [], [0], [2, 2, 1], [3], [4, 9], [True, False, True, False, True], slice(None), slice(1, None, 2)]

VECTORS = Kind(
    machine=RecordMachine,
    operations={
        "vector = vector({name}, {dtype}, {length}, copies={copies}, exclusive={choice})": 2,
        "vector = vector({name}, {DTYPE}, {length})": 2,
        "vector = vector({name}, create={choice}, passive={flag}, spin_us={limit})": 1,
        "one = seqlock({single}, {DTYPE})": 1,
        "{vector}.close()": 1,
        "{one}.close()": 1,
        "{vector}.unlink()": 1,
        "unlink({name})": 1,
        "{vector}.claim()": 1,
        "{vector}.stats()": 2,
        "put_one({vector}, {place}, {number})": 5,
        "put({vector}, {index}, {number}, {count})": 4,
        "write({vector}, {index}, {number}, {count}, {timeout})": 4,
        "{vector}[{place}]": 3,
        "{vector}[{index}]": 2,
        "{vector}.read({index})": 3,
        "out({vector}, {index}, {count})": 2,
        "{vector}.counts({index})": 2,
        "{vector}.snapshot(atomic={flag})": 2,
        "{vector}.changed": 1,
        "{vector}.wait(0)": 1,
        "changes({vector}, {limit})": 5,
        "poll({vector})": 1,
        "poll({vector}, {one})": 1,
        "set_value({one}, {number})": 2,
        "{one}.value": 1,
        "{one}.count": 1,
        "{one}.read()": 1,
        "changes({one}, {limit})": 1,
    },
    values={
        "name": ["a", "a", "a", "b"],
        "single": ["c", "c", "c", "c", "a"],
        "DTYPE": list(DTYPES),
        "dtype": [None, None, *DTYPES],
        "length": [None, 5, 5, 5, 5, 1, 9],
        "copies": [None, None, None, 2, 4],
        "choice": [None, None, None, False, True],
        "flag": [False, False, True],
        "place": [0, 0, 1, 1, 2, 2, 3, 4, 4, 5, -1],
        "index": INDEXES,
        "count": [1, 1, 1, 2, 3, 5],
        "timeout": [0, 1, None],
        "limit": [None, None, 0, 1, 3],
    },
    start=["vector = vector('a', {DTYPE}, 5, copies={copies})", "vector = vector('a')"],
)

BOARDS = Kind(
    machine=RecordMachine,
    operations={
        "board = board({name}, {keys}, {bytes})": 2,
        "board = board({name}, create={choice}, passive={flag}, spin_us={limit})": 1,
        "board = board({name}, schema={schema})": 1,
        "vector('a', 'i8', 5)": 1,
        "{board}.close()": 1,
        "{board}.unlink()": 1,
        "unlink({name})": 1,
        "{board}.stats()": 3,
        "entry = {board}.declare({key})": 5,
        "{entry}.write({data})": 9,
        "{entry}.close()": 3,
        "{board}[{key}]": 2,
        "{key} in {board}": 1,
        "{board}.wait(0)": 1,
        "changes({board}, {limit})": 4,
        "observer = {board}.observe({key})": 3,
        "{observer}.close()": 1,
        "look({observer})": 3,
        "data({observer}, {size})": 2,
        "poll({board})": 1,
        "poll({board}, {observer})": 1,
    },
    values={
        "name": ["a", "a", "a", "b"],
        "keys": [None, 3, 3],
        "bytes": [None, 16, 16],
        "choice": [None, None, False, True],
        "flag": [False, False, True],
        "schema": [None, "one"],
        "key": ["a", "b", "a longer key", "é", ""],
        "data": [b"", b"x", b"eight...", b"16 bytes........", b"17 bytes........."],
        "size": [0, 8, 16],
        "limit": [None, None, 0, 1, 3],
    },
    start=["board = board('a', 3, 16)", "entry = {board}.declare('a')"],
)
