"""Logs as Arrow batches: chunk after chunk, below Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.boundary_losses import LOST_MAX
from msgq.recording.mcap_io.scan import ScanColumns
from msgq.recording.reader.log_view import Contents

NAMES = ("endpoint", "epoch", "sequence", "log_time", "publish_time", "data")
_SOURCE = ("kind", "publisher", "key")  # fields of MessageSource
HIDDEN = ("lost_before", "lost_after")
_TYPES = dict.fromkeys((*NAMES, "origin_time", "byte_offset", *HIDDEN), pa.int64()) | {
    "endpoint": pa.dictionary(pa.int32(), pa.string()),
    "data": pa.binary(),
    "channel": pa.int32(),
    **dict.fromkeys(_SOURCE, pa.dictionary(pa.int32(), pa.string())),
}
_Array = np.ndarray[Any, np.dtype[Any]]
_BYTES_MAX = 256 << 20  # of payloads in a batch, unless a single chunk has more: Arrow's offsets are 32 bits


def arrow_schema(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of batches with these columns; None is all of them."""
    names = NAMES if columns is None else tuple(columns)
    if unknown := [name for name in names if name not in _TYPES]:
        raise InvalidValueError(f"no column {unknown[0]!r}; there are {', '.join(_TYPES)}")
    return pa.schema([(name, _TYPES[name]) for name in names])


class _Hidden:
    """Losses next to messages that are no gaps. side : the index in `HIDDEN`."""

    def __init__(self, contents: Contents, side: int) -> None:
        self._contents, self._side = contents, side
        self._known = -1  # channels that were there when these were made:
        self._numberings = self._places = self._lost = np.empty(0, np.int64)

    def column(self, codes: _Array, sequences: _Array) -> Any:
        """Return the losses next to each message; null: none."""
        if self._known != len(self._contents.channels):
            self._learn()
        if not len(self._places):
            return pa.nulls(len(codes), pa.int64())
        wanted = self._numberings[codes] << 32 | sequences
        found = np.minimum(np.searchsorted(self._places, wanted), len(self._places) - 1)
        lost = np.where(self._places[found] == wanted, self._lost[found], 0)
        return pa.array(lost, mask=lost == 0)

    def _learn(self) -> None:
        channels = self._contents.channels
        ends = [
            (code, end) for code, channel in enumerate(channels) if (end := channel.boundary_losses.ends[self._side])
        ]
        self._known = len(channels)
        self._numberings = self._contents.numberings().astype(np.int64) if ends else self._numberings
        stated: dict[int, set[int]] = {}
        for code, end in ends:
            stated.setdefault(int(self._numberings[code]) << 32 | end.sequence, set()).add(end.lost or 0)
        self._places = np.array(sorted(stated), np.int64)
        self._lost = np.array([min(sum(stated[place]), LOST_MAX) for place in self._places.tolist()], np.int64)


class _Batch:
    """A batch that is being filled. Its memory becomes Arrow's, so each one is used once."""

    def __init__(
        self, contents: Contents, schema: pa.Schema, rows: int, room: int, hidden: Mapping[str, _Hidden]
    ) -> None:
        self._contents, self._schema, self._hidden = contents, schema, hidden
        self.columns = ScanColumns(rows)
        self._ends = np.zeros(rows + 1, np.int32)
        self._wants_data = "data" in schema.names
        self._data = np.empty(room if self._wants_data else 0, np.uint8)
        self._used = 0
        self._gathered = 0
        self._places: list[int] = []  # offsets of blocks, and of each the rows
        self._counts: list[int] = []

    @property
    def is_full(self) -> bool:
        return self.columns.rows == self.columns.capacity

    @property
    def used(self) -> int:
        """Bytes of payloads."""
        return self._used

    def gather(self, content: bytes, place: int) -> None:
        """Copy the payloads of the rows that came since; place : of the block that they are in."""
        first, self._gathered = self._gathered, self.columns.rows
        self._places.append(place)
        self._counts.append(self._gathered - first)
        if not self._wants_data:
            return
        needed = self._used + self.columns.payload_bytes(first)
        if needed > len(self._data):
            more = np.empty(max(needed, 2 * len(self._data)), np.uint8)
            more[: self._used] = self._data[: self._used]
            self._data = more
        self._used = self.columns.gather(content, first, self._data, self._used, self._ends[1:])

    def finish(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._array(name) for name in self._schema.names], schema=self._schema)

    def _array(self, name: str) -> Any:
        rows = self.columns.rows
        if name == "data":
            buffers = [None, pa.py_buffer(self._ends[: rows + 1]), pa.py_buffer(self._data[: self._used])]
            return pa.Array.from_buffers(pa.binary(), rows, buffers)
        if name == "endpoint":
            names, of_code = self._contents.endpoint_codes()
            return pa.DictionaryArray.from_arrays(of_code[self.columns.code[:rows]], pa.array(names, pa.string()))
        if name in _SOURCE:
            texts, of_code = self._contents.source_codes(name)
            return pa.DictionaryArray.from_arrays(of_code[self.columns.code[:rows]], pa.array(texts, pa.string()))
        if name == "epoch":
            epochs = np.array([channel.epoch for channel in self._contents.channels], np.int64)
            return pa.array(epochs[self.columns.code[:rows]])
        if name in HIDDEN:
            return self._hidden[name].column(self.columns.code[:rows], self.columns.sequence[:rows])
        if name == "byte_offset":
            return pa.array(np.repeat(np.array(self._places, np.int64), self._counts))
        return pa.array(getattr(self.columns, "code" if name == "channel" else name)[:rows])


def batches(
    contents: Contents, columns: Sequence[str] | None, rows: int, size: int = _BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """See LogReader.batches. size : bytes of payloads in a batch, unless one chunk has more."""
    schema = arrow_schema(columns)
    room = 1 << 20
    hidden = {name: _Hidden(contents, side) for side, name in enumerate(HIDDEN)}
    batch = _Batch(contents, schema, rows, room, hidden)
    for file, block in contents.blocks():
        content = file.read_block(block)
        position = 0
        while content is not None and position < len(content):
            if batch.is_full or (batch.columns.rows and batch.used + len(content) > size):
                yield batch.finish()
                room = max(1 << 20, min(batch.used + batch.used // 8, size))
                batch = _Batch(contents, schema, rows, room, hidden)
            position = file.scan(block, content, position, batch.columns, contents.start, contents.end)
            batch.gather(content, block.offset)
    if batch.columns.rows:
        yield batch.finish()
