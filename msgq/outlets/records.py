"""Vectors and boards: each change is written again. They have a state, so a player that begins in the middle of a log
writes what was there by then.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgq import backend as backends
from msgq import record_changes
from msgq.errors import InvalidValueError, RecordMismatchError, SegmentError
from msgq.impl.base.origin import origin_time, set_origin
from msgq.impl.records import arrays
from msgq.outlets.base import Outlet, Place, Played, UnplayableError, Wanted, as_recorded_error, usable_schema

if TYPE_CHECKING:
    import numpy as np

    from msgq.impl.records import SeqlockVector

BOARD = "board"  # of the option "form"
_STAMP_BYTES = 8


def open_records(wanted: Wanted, place: Place) -> VectorOutlet | BoardOutlet:
    """Open a vector or a board, as the options say."""
    is_board = wanted.options.get("form", BOARD if wanted.keys else "") == BOARD
    try:
        return BoardOutlet(wanted, place) if is_board else VectorOutlet(wanted, place)
    except RecordMismatchError as error:
        raise as_recorded_error(error, wanted.endpoint) from None


class _Origins:
    """Lets what is written have an origin, within a block."""

    def __init__(self, origin: int) -> None:
        self._origin = origin

    def __enter__(self) -> None:
        self._former = origin_time()
        set_origin(self._origin)

    def __exit__(self, *_: object) -> None:
        set_origin(self._former)


class VectorOutlet(Outlet):
    """A writer of a vector, or of a single record. See `Outlet`."""

    def __init__(self, wanted: Wanted, place: Place) -> None:
        super().__init__(wanted)
        self._place = place
        self._vector = self._opened()
        self._item: np.dtype[Any] = self._vector.dtype
        self._tracked = arrays.is_tracked(self._item)
        self._written: set[int] = set()
        try:
            self._vector.claim()  # now, and not when the first change is due
        except BaseException:
            self._vector.close()
            raise

    def _opened(self) -> SeqlockVector:
        """Open the vector, or make it if the recording says all that this needs."""
        wanted, place = self.wanted, self._place
        kind: type[SeqlockVector] = backends.piece("SeqlockVector", place.module)
        item, length = None, wanted.number("length")
        if wanted.schema is not None:
            try:
                item = record_changes.item_dtype(wanted.schema)
            except ValueError as error:
                raise UnplayableError(str(error)) from None
        exclusive, copies = wanted.flag("exclusive"), wanted.number("copies")
        try:
            vector = kind(wanted.name, item, length, exclusive=exclusive, copies=copies, prefix=place.prefix)
            there = kind(wanted.name, passive=True, prefix=place.prefix)
        except SegmentError as error:
            if error.errno == errno.ENOENT:
                raise UnplayableError("it is not there, and the recording does not say how to make it") from None
            raise
        there.close()
        if length not in (None, len(there)):  # the library would open a part of it
            vector.close()
            raise RecordMismatchError(f"has length {len(there)}, and {length} was recorded", wanted.name)
        return vector

    def send(self, message: Played) -> None:
        """See `Outlet`."""
        index, item = self._change(message)
        self._write(index, item, self._age_ns(message, item))

    def _change(self, message: Played) -> tuple[int, bytes]:
        """Return the element that changed, and its value."""
        try:
            change, item = record_changes.unpacked(message.data)
        except ValueError as error:
            raise UnplayableError(str(error)) from None
        if message.schema not in (None, self.wanted.schema) or len(item) != self._item.itemsize:
            raise UnplayableError(f"it is of another dtype than the vector's, {self._item}")
        if message.source.key or change.index >= len(self._vector):
            raise UnplayableError(f"element {change.index} is not one of the vector's {len(self._vector)}")
        return change.index, item

    def _age_ns(self, message: Played, item: bytes) -> int | None:
        """Return how old what the value comes from was: tracked records say it themselves."""
        if not self._tracked:
            return message.age_ns
        published, origin = (
            int.from_bytes(item[place : place + _STAMP_BYTES], "little", signed=True) for place in (0, _STAMP_BYTES)
        )
        return published - origin if origin else message.age_ns

    def _write(self, index: int, item: bytes, age_ns: int | None) -> None:
        import numpy as np

        with _Origins(self._place.origin(age_ns)):
            self._vector.write([index], np.frombuffer(item, self._item))
        self._written.add(index)

    def restore(self, messages: Iterable[Played]) -> None:
        """Write these; what was written since, and had none then, is zero, as it was."""
        former, self._written = self._written, set()
        for message in messages:
            with suppress(UnplayableError):
                self.send(message)
        for index in sorted(former - self._written):
            self._write(index, bytes(self._item.itemsize), None)
            self._written.discard(index)

    def close(self) -> None:
        """See `Outlet`."""
        self._vector.close()


class BoardOutlet(Outlet):
    """The owner of keys of a board. See `Outlet`."""

    def __init__(self, wanted: Wanted, place: Place) -> None:
        super().__init__(wanted)
        self._place = place
        self._board = backends.piece("Board", place.module)(
            wanted.name,
            wanted.number("keys"),
            wanted.number("value_bytes"),
            schema=usable_schema(wanted.schema),
            prefix=place.prefix,
        )
        self._entries: dict[str, Any] = {}
        try:
            for key in wanted.keys:
                self._entry(key)
        except BaseException:
            self._board.close()
            raise

    def _entry(self, key: str) -> Any:
        known = self._entries.get(key)
        if known is None:
            known = self._entries[key] = self._board.declare(key)
        return known

    def send(self, message: Played) -> None:
        """See `Outlet`."""
        key = message.source.key
        try:
            entry = self._entry(key)
        except InvalidValueError as error:
            raise UnplayableError(str(error)) from None
        if len(message.data) > self._board.value_bytes:
            text = f"a value of {len(message.data)} bytes does not fit into {self._board.value_bytes}"
            raise UnplayableError(f"{text}, which a value of this board may have")
        with _Origins(self._place.origin(message.age_ns)):
            entry.write(message.data)

    def restore(self, messages: Iterable[Played]) -> None:
        """Write these. A key that had none then keeps what it has: it cannot be without again."""
        for message in messages:
            with suppress(UnplayableError):
                self.send(message)

    def close(self) -> None:
        """See `Outlet`."""
        self._board.close()
