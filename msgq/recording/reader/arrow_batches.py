"""Logs as Arrow batches, built without a Python object for each message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from msgq.common.choices import list_names
from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.boundary_losses import LOST_MESSAGES_MAX
from msgq.recording.mcap_io.core import ScanColumns
from msgq.recording.reader.log_view import LogView

DEFAULT_COLUMNS = ("endpoint", "epoch", "sequence", "log_time", "publish_time", "data")
_MESSAGE_SOURCE_COLUMNS = ("kind", "publisher", "key")  # fields of MessageSource
LOSS_COLUMNS = ("lost_before", "lost_after")
_ARROW_COLUMN_TYPES = dict.fromkeys((*DEFAULT_COLUMNS, "origin_time", "byte_offset", *LOSS_COLUMNS), pa.int64()) | {
    "endpoint": pa.dictionary(pa.int32(), pa.string()),
    "data": pa.binary(),
    "channel": pa.int32(),
    **dict.fromkeys(_MESSAGE_SOURCE_COLUMNS, pa.dictionary(pa.int32(), pa.string())),
}
_NumpyArray = np.ndarray[Any, np.dtype[Any]]
_ARROW_BATCH_BYTES_MAX = (
    256 << 20
)  # bytes of payloads in a batch, unless a single chunk has more: Arrow's offsets are 32 bits


def build_arrow_schema(columns: str | Iterable[str] | None) -> pa.Schema:
    """Return the schema of batches with these columns; None: all columns."""
    names = DEFAULT_COLUMNS if columns is None else list_names(columns, "columns")
    if unknown := [name for name in names if name not in _ARROW_COLUMN_TYPES]:
        raise InvalidValueError(f"column {unknown[0]!r} does not exist; columns: {', '.join(_ARROW_COLUMN_TYPES)}")
    return pa.schema([(name, _ARROW_COLUMN_TYPES[name]) for name in names])


class _LossColumnBuilder:
    """Builds a column with losses next to messages without a gap. `side`: index in `LOSS_COLUMNS`."""

    def __init__(self, view: LogView, side: int) -> None:
        self._log_view, self._loss_side = view, side
        self._known_channel_count = -1  # channels that were there when these were made:
        self._numberings = self._loss_positions = self._lost_messages = np.empty(0, np.int64)

    def build_loss_column(self, codes: _NumpyArray, sequences: _NumpyArray) -> Any:
        """Return the losses next to each message; null: no loss."""
        if self._known_channel_count != len(self._log_view.channels):
            self._reload_losses()
        if not len(self._loss_positions):
            return pa.nulls(len(codes), pa.int64())
        positions = self._numberings[codes] << 32 | sequences
        nearest = np.minimum(np.searchsorted(self._loss_positions, positions), len(self._loss_positions) - 1)
        lost = np.where(self._loss_positions[nearest] == positions, self._lost_messages[nearest], 0)
        return pa.array(lost, mask=lost == 0)

    def _reload_losses(self) -> None:
        channels = self._log_view.channels
        ends = [
            (code, end)
            for code, channel in enumerate(channels)
            if (end := channel.boundary_losses.losses_at_ends[self._loss_side])
        ]
        self._known_channel_count = len(channels)
        self._numberings = np.array(self._log_view.map_codes_to_numberings(), np.int64) if ends else self._numberings
        stated: dict[int, set[int]] = {}
        for code, end in ends:
            stated.setdefault(int(self._numberings[code]) << 32 | end.sequence, set()).add(end.lost_messages or 0)
        self._loss_positions = np.array(sorted(stated), np.int64)
        self._lost_messages = np.array(
            [min(sum(stated[place]), LOST_MESSAGES_MAX) for place in self._loss_positions.tolist()], np.int64
        )


class _ArrowBatchBuilder:
    """Builds one batch. Arrow takes over the memory, so use an object once."""

    def __init__(
        self,
        view: LogView,
        schema: pa.Schema,
        rows_max: int,
        payload_bytes: int,
        loss_columns: Mapping[str, _LossColumnBuilder],
    ) -> None:
        self._log_view, self._arrow_schema, self._loss_columns = view, schema, loss_columns
        self.scan_columns = ScanColumns(rows_max)
        self._payload_ends = np.zeros(rows_max + 1, np.int32)
        self._wants_data = "data" in schema.names
        self._payload_buffer = np.empty(payload_bytes if self._wants_data else 0, np.uint8)
        self._payload_bytes = 0
        self._copied_rows = 0
        self._block_offsets: list[int] = []  # offsets of blocks, and of each the rows
        self._block_row_counts: list[int] = []

    @property
    def is_batch_full(self) -> bool:
        return self.scan_columns.row_count == self.scan_columns.capacity

    @property
    def payload_bytes(self) -> int:
        """Bytes of the payloads."""
        return self._payload_bytes

    def copy_payloads(self, content: bytes, place: int) -> None:
        """Copy the payloads of the newest rows. `place`: byte offset of their block in the file."""
        first, self._copied_rows = self._copied_rows, self.scan_columns.row_count
        self._block_offsets.append(place)
        self._block_row_counts.append(self._copied_rows - first)
        if not self._wants_data:
            return
        needed = self._payload_bytes + self.scan_columns.count_payload_bytes(first)
        if needed > len(self._payload_buffer):
            grown = np.empty(max(needed, 2 * len(self._payload_buffer)), np.uint8)
            grown[: self._payload_bytes] = self._payload_buffer[: self._payload_bytes]
            self._payload_buffer = grown
        self._payload_bytes = self.scan_columns.copy_payloads(
            content, first, self._payload_buffer, self._payload_bytes, self._payload_ends[1:]
        )

    def build_record_batch(self) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [self._build_column_array(name) for name in self._arrow_schema.names], schema=self._arrow_schema
        )

    def _build_column_array(self, name: str) -> Any:
        rows = self.scan_columns.row_count
        if name == "data":
            buffers = [
                None,
                pa.py_buffer(self._payload_ends[: rows + 1]),
                pa.py_buffer(self._payload_buffer[: self._payload_bytes]),
            ]
            return pa.Array.from_buffers(pa.binary(), rows, buffers)
        if name == "endpoint":
            names, of_code = self._log_view.map_codes_to_endpoints()
            return pa.DictionaryArray.from_arrays(
                of_code[self.scan_columns.channel_code[:rows]], pa.array(names, pa.string())
            )
        if name in _MESSAGE_SOURCE_COLUMNS:
            texts, of_code = self._log_view.map_codes_to_source_field(name)
            return pa.DictionaryArray.from_arrays(
                of_code[self.scan_columns.channel_code[:rows]], pa.array(texts, pa.string())
            )
        if name == "epoch":
            epochs = np.array([channel.epoch for channel in self._log_view.channels], np.int64)
            return pa.array(epochs[self.scan_columns.channel_code[:rows]])
        if name in LOSS_COLUMNS:
            return self._loss_columns[name].build_loss_column(
                self.scan_columns.channel_code[:rows], self.scan_columns.sequence[:rows]
            )
        if name == "byte_offset":
            return pa.array(np.repeat(np.array(self._block_offsets, np.int64), self._block_row_counts))
        return pa.array(getattr(self.scan_columns, "channel_code" if name == "channel" else name)[:rows])


def read_arrow_batches(
    view: LogView, columns: str | Iterable[str] | None, rows_max: int, bytes_max: int = _ARROW_BATCH_BYTES_MAX
) -> Iterator[pa.RecordBatch]:
    """See LogReader.batches. `bytes_max`: maximum bytes of payloads in a batch, unless one chunk has more."""
    schema = build_arrow_schema(columns)
    buffer_bytes = 1 << 20
    loss_columns = {name: _LossColumnBuilder(view, side) for side, name in enumerate(LOSS_COLUMNS)}
    batch = _ArrowBatchBuilder(view, schema, rows_max, buffer_bytes, loss_columns)
    for file, block in view.plan_wanted_blocks():
        content = file.read_block(block)
        position = 0
        while content is not None and position < len(content):
            if batch.is_batch_full or (batch.scan_columns.row_count and batch.payload_bytes + len(content) > bytes_max):
                yield batch.build_record_batch()
                buffer_bytes = max(1 << 20, min(batch.payload_bytes + batch.payload_bytes // 8, bytes_max))
                batch = _ArrowBatchBuilder(view, schema, rows_max, buffer_bytes, loss_columns)
            position = file.scan_block_messages(
                block, content, position, batch.scan_columns, view.start_time, view.end_time
            )
            batch.copy_payloads(content, block.offset)
    if batch.scan_columns.row_count:
        yield batch.build_record_batch()
