"""Playback of vectors and boards: each change is written again.

Vectors and boards have a state. A player that starts in the middle of a log first writes the state at that time.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgq.common import record_changes
from msgq.common.record_changes import CHANGE_HEAD_BYTES, CHANGE_INDEX_BYTES
from msgq.common.texts import format_count_noun
from msgq.errors import InvalidValueError, RecordMismatchError, SegmentError
from msgq.impl import backend as backends
from msgq.impl.base.clock import origin_time, set_origin
from msgq.impl.records import arrays
from msgq.kinds.playback import (
    ComparedMessage,
    EndpointSpec,
    EndpointWriter,
    KindPlayback,
    PlaybackMessage,
    PlaybackTarget,
    UnplayableError,
    make_mismatch_error,
    make_usable_schema,
)
from msgq.records.names import KIND

if TYPE_CHECKING:
    import numpy as np

    from msgq.impl.records import SeqlockVector

BOARD_FORM = "board"  # value of the option "form"
_STAMP_FIELD_BYTES = 8


def open_records_writer(spec: EndpointSpec, place: PlaybackTarget) -> VectorPlaybackWriter | BoardPlaybackWriter:
    """Open a vector or a board, according to the recorded options."""
    is_board = spec.options.get("form", BOARD_FORM if spec.keys else "") == BOARD_FORM
    try:
        return BoardPlaybackWriter(spec, place) if is_board else VectorPlaybackWriter(spec, place)
    except RecordMismatchError as error:
        raise make_mismatch_error(error, spec.endpoint) from None


class _OriginScope:
    """Sets the origin of writes within a block."""

    def __init__(self, origin: int) -> None:
        self._origin = origin

    def __enter__(self) -> None:
        self._previous_origin = origin_time()
        set_origin(self._origin)

    def __exit__(self, *_: object) -> None:
        set_origin(self._previous_origin)


class VectorPlaybackWriter(EndpointWriter):
    """Writes a vector or a single record. See `EndpointWriter`."""

    def __init__(self, spec: EndpointSpec, place: PlaybackTarget) -> None:
        super().__init__(spec)
        self._target = place
        self._vector = self._open_vector()
        self._item_dtype: np.dtype[Any] = self._vector.dtype
        self._tracked = arrays.is_tracked_dtype(self._item_dtype)
        self._written_indices: set[int] = set()
        try:
            self._vector.claim()  # now, and not when the first change is due
        except BaseException:
            self._vector.close()
            raise

    def _open_vector(self) -> SeqlockVector:
        """Open the vector. Create it if the recording has the necessary options."""
        spec, place = self.spec, self._target
        kind: type[SeqlockVector] = backends.load_backend_class("SeqlockVector", place.backend_module)
        item, length = None, spec.get_positive_option("length")
        if spec.schema is not None:
            try:
                item = record_changes.item_dtype(spec.schema)
            except ValueError as error:
                raise UnplayableError(str(error)) from None
        exclusive, copies = spec.get_flag_option("exclusive"), spec.get_positive_option("copies")
        try:
            vector = kind(
                KIND.bare_name(spec.endpoint), item, length, exclusive=exclusive, copies=copies, prefix=place.prefix
            )
            existing = kind(KIND.bare_name(spec.endpoint), passive=True, prefix=place.prefix)
        except SegmentError as error:
            if error.errno == errno.ENOENT:
                raise UnplayableError(
                    "records not found, and the recording does not describe how to create them; create them first"
                ) from None
            raise
        existing.close()
        if length not in (None, len(existing)):  # the library would open a part of it
            vector.close()
            raise RecordMismatchError(
                f"has length {len(existing)}, but {length} was recorded", KIND.bare_name(spec.endpoint)
            )
        return vector

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        index, item = self._parse_change(message)
        self._write_element(index, item, self._compute_age_ns(message, item))

    def _parse_change(self, message: PlaybackMessage) -> tuple[int, bytes]:
        """Return the index of the changed element, and its value."""
        try:
            change, item = record_changes.unpack_change(message.data)
        except ValueError as error:
            raise UnplayableError(str(error)) from None
        if message.schema not in (None, self.spec.schema) or len(item) != self._item_dtype.itemsize:
            raise UnplayableError(f"recorded dtype differs from the vector's {self._item_dtype}")
        if message.source.key or change.index >= len(self._vector):
            raise UnplayableError(
                f"recorded element {change.index} is out of range; the vector has "
                f"{format_count_noun(len(self._vector), 'element')}"
            )
        return change.index, item

    def _compute_age_ns(self, message: PlaybackMessage, item: bytes) -> int | None:
        """Return the age of the value's origin when it was written, in ns. Tracked records contain their origin."""
        if not self._tracked:
            return message.age_ns
        published, origin = (
            int.from_bytes(item[place : place + _STAMP_FIELD_BYTES], "little", signed=True)
            for place in (0, _STAMP_FIELD_BYTES)
        )
        return published - origin if origin else message.age_ns

    def _write_element(self, index: int, item: bytes, age_ns: int | None) -> None:
        import numpy as np

        with _OriginScope(self._target.compute_origin_time(age_ns)):
            self._vector.write([index], np.frombuffer(item, self._item_dtype))
        self._written_indices.add(index)

    def restore(self, messages: Iterable[PlaybackMessage]) -> None:
        """Write the state. Elements that were written since, and are not in the state, become zero."""
        former, self._written_indices = self._written_indices, set()
        for message in messages:
            with suppress(UnplayableError):
                self.send(message)
        for index in sorted(former - self._written_indices):
            self._write_element(index, bytes(self._item_dtype.itemsize), None)
            self._written_indices.discard(index)

    def close(self) -> None:
        """See `EndpointWriter`."""
        self._vector.close()


class BoardPlaybackWriter(EndpointWriter):
    """Owns keys of a board, and writes them. See `EndpointWriter`."""

    def __init__(self, spec: EndpointSpec, place: PlaybackTarget) -> None:
        super().__init__(spec)
        self._target = place
        self._board = backends.load_backend_class("Board", place.backend_module)(
            KIND.bare_name(spec.endpoint),
            spec.get_positive_option("keys"),
            spec.get_positive_option("value_bytes"),
            schema=make_usable_schema(spec.schema),
            prefix=place.prefix,
        )
        self._entries: dict[str, Any] = {}
        try:
            for key in spec.keys:
                self._get_entry(key)
        except BaseException:
            self._board.close()
            raise

    def _get_entry(self, key: str) -> Any:
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = self._board.declare(key)
        return entry

    def send(self, message: PlaybackMessage) -> None:
        """See `EndpointWriter`."""
        key = message.source.key
        try:
            entry = self._get_entry(key)
        except InvalidValueError as error:
            raise UnplayableError(str(error)) from None
        if len(message.data) > self._board.value_bytes:
            text = f"recorded value has {len(message.data)} bytes, but values of the board have at most"
            raise UnplayableError(f"{text} {self._board.value_bytes} bytes")
        with _OriginScope(self._target.compute_origin_time(message.age_ns)):
            entry.write(message.data)

    def restore(self, messages: Iterable[PlaybackMessage]) -> None:
        """Write the state. A key that is not in the state keeps its value, because a value cannot be removed."""
        for message in messages:
            with suppress(UnplayableError):
                self.send(message)

    def close(self) -> None:
        """See `EndpointWriter`."""
        self._board.close()


_CHANGE_TIME_SLICE = slice(CHANGE_INDEX_BYTES + 8, CHANGE_HEAD_BYTES)  # bytes of the time in a change


class _RecordsPlayback(KindPlayback):
    def extract_comparable(self, data: bytes, key: str) -> ComparedMessage | None:
        """Return a value for comparison. For a vector's change, the time is omitted, because the message has it."""
        if not key and len(data) >= _CHANGE_TIME_SLICE.stop:
            data = (
                data[: _CHANGE_TIME_SLICE.start]
                + bytes(_CHANGE_TIME_SLICE.stop - _CHANGE_TIME_SLICE.start)
                + data[_CHANGE_TIME_SLICE.stop :]
            )
        return ComparedMessage(data, ("key", key))


PLAYBACK = _RecordsPlayback(open_records_writer)
