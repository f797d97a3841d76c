"""Logs as Arrow batches: chunk after chunk, below Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.boundary_losses import LOST_MESSAGES_MAX
from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.reader.log_view import LogView

DEFAULT_COLUMNS = ("endpoint", "epoch", "sequence", "log_time", "publish_time", "data")
_SOURCE_COLUMNS = ("kind", "publisher", "key")  # fields of MessageSource
LOSS_COLUMNS = ("lost_before", "lost_after")
_COLUMN_TYPES = dict.fromkeys((*DEFAULT_COLUMNS, "origin_time", "byte_offset", *LOSS_COLUMNS), pa.int64()) | {
    "endpoint": pa.dictionary(pa.int32(), pa.string()),
    "data": pa.binary(),
    "channel": pa.int32(),
    **dict.fromkeys(_SOURCE_COLUMNS, pa.dictionary(pa.int32(), pa.string())),
}
_Array = np.ndarray[Any, np.dtype[Any]]
_BATCH_BYTES_MAX = 256 << 20  # of payloads in a batch, unless a single chunk has more: Arrow's offsets are 32 bits


def arrow_schema(columns: Sequence[str] | None) -> pa.Schema:
    """Return the schema of batches with these columns; None is all of them."""
    names = DEFAULT_COLUMNS if columns is None else tuple(columns)
    if unknown := [name for name in names if name not in _COLUMN_TYPES]:
        raise InvalidValueError(f"no column {unknown[0]!r}; there are {', '.join(_COLUMN_TYPES)}")
    return pa.schema([(name, _COLUMN_TYPES[name]) for name in names])


class _LossColumnBuilder:
    """Losses next to messages that are no gaps. side : the index in `LOSS_COLUMNS`."""

    def __init__(self, view: LogView, side: int) -> None:
        self._view, self._side = view, side
        self._known = -1  # channels that were there when these were made:
        self._numberings = self._positions = self._lost = np.empty(0, np.int64)

    def column(self, codes: _Array, sequences: _Array) -> Any:
        """Return the losses next to each message; null: none."""
        if self._known != len(self._view.channels):
            self._refresh()
        if not len(self._positions):
            return pa.nulls(len(codes), pa.int64())
        wanted = self._numberings[codes] << 32 | sequences
        nearest = np.minimum(np.searchsorted(self._positions, wanted), len(self._positions) - 1)
        lost = np.where(self._positions[nearest] == wanted, self._lost[nearest], 0)
        return pa.array(lost, mask=lost == 0)

    def _refresh(self) -> None:
        channels = self._view.channels
        ends = [
            (code, end)
            for code, channel in enumerate(channels)
            if (end := channel.boundary_losses.losses_at_ends[self._side])
        ]
        self._known = len(channels)
        self._numberings = self._view.numberings().astype(np.int64) if ends else self._numberings
        stated: dict[int, set[int]] = {}
        for code, end in ends:
            stated.setdefault(int(self._numberings[code]) << 32 | end.sequence, set()).add(end.lost_messages or 0)
        self._positions = np.array(sorted(stated), np.int64)
        self._lost = np.array(
            [min(sum(stated[place]), LOST_MESSAGES_MAX) for place in self._positions.tolist()], np.int64
        )


class _BatchBuilder:
    """A batch that is being filled. Its memory becomes Arrow's, so each one is used once."""

    def __init__(
        self, view: LogView, schema: pa.Schema, rows: int, room: int, loss_columns: Mapping[str, _LossColumnBuilder]
    ) -> None:
        self._view, self._schema, self._loss_columns = view, schema, loss_columns
        self.columns = ScanColumns(rows)
        self._ends = np.zeros(rows + 1, np.int32)
        self._wants_data = "data" in schema.names
        self._data = np.empty(room if self._wants_data else 0, np.uint8)
        self._used = 0
        self._gathered = 0
        self._positions: list[int] = []  # offsets of blocks, and of each the rows
        self._counts: list[int] = []

    @property
    def is_full(self) -> bool:
        return self.columns.rows == self.columns.capacity

    @property
    def used_bytes(self) -> int:
        """Bytes of payloads."""
        return self._used

    def copy_payloads(self, content: bytes, place: int) -> None:
        """Copy the payloads of the rows that came since; place : of the block that they are in."""
        first, self._gathered = self._gathered, self.columns.rows
        self._positions.append(place)
        self._counts.append(self._gathered - first)
        if not self._wants_data:
            return
        needed = self._used + self.columns.payload_bytes(first)
        if needed > len(self._data):
            grown = np.empty(max(needed, 2 * len(self._data)), np.uint8)
            grown[: self._used] = self._data[: self._used]
            self._data = grown
        self._used = self.columns.gather(content, first, self._data, self._used, self._ends[1:])

    def finish(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._build_array(name) for name in self._schema.names], schema=self._schema)

    def _build_array(self, name: str) -> Any:
        rows = self.columns.rows
        if name == "data":
            buffers = [None, pa.py_buffer(self._ends[: rows + 1]), pa.py_buffer(self._data[: self._used])]
            return pa.Array.from_buffers(pa.binary(), rows, buffers)
        if name == "endpoint":
            names, of_code = self._view.endpoint_codes()
            return pa.DictionaryArray.from_arrays(of_code[self.columns.code[:rows]], pa.array(names, pa.string()))
        if name in _SOURCE_COLUMNS:
            texts, of_code = self._view.source_codes(name)
            return pa.DictionaryArray.from_arrays(of_code[self.columns.code[:rows]], pa.array(texts, pa.string()))
        if name == "epoch":
            epochs = np.array([channel.epoch for channel in self._view.channels], np.int64)
            return pa.array(epochs[self.columns.code[:rows]])
        if name in LOSS_COLUMNS:
            return self._loss_columns[name].column(self.columns.code[:rows], self.columns.sequence[:rows])
        if name == "byte_offset":
            return pa.array(np.repeat(np.array(self._positions, np.int64), self._counts))
        return pa.array(getattr(self.columns, "code" if name == "channel" else name)[:rows])


def read_batches(
    view: LogView, columns: Sequence[str] | None, rows: int, size: int = _BATCH_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """See LogReader.batches. size : bytes of payloads in a batch, unless one chunk has more."""
    schema = arrow_schema(columns)
    room = 1 << 20
    loss_columns = {name: _LossColumnBuilder(view, side) for side, name in enumerate(LOSS_COLUMNS)}
    batch = _BatchBuilder(view, schema, rows, room, loss_columns)
    for file, block in view.blocks():
        content = file.read_block(block)
        position = 0
        while content is not None and position < len(content):
            if batch.is_full or (batch.columns.rows and batch.used_bytes + len(content) > size):
                yield batch.finish()
                room = max(1 << 20, min(batch.used_bytes + batch.used_bytes // 8, size))
                batch = _BatchBuilder(view, schema, rows, room, loss_columns)
            position = file.scan_block_messages(block, content, position, batch.columns, view.start, view.end)
            batch.copy_payloads(content, block.offset)
    if batch.columns.rows:
        yield batch.finish()
