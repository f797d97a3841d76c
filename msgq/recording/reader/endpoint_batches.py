"""Messages of interleaved endpoints as Arrow batches of one endpoint."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from msgq.recording.reader.arrow_batches import read_arrow_batches
from msgq.recording.reader.log_view import LogView

BATCH_ROWS_MAX = 65536  # messages in a batch
_BATCH_BYTES_MAX = 16 << 20  # bytes of payloads in a batch, unless one chunk has more
_BUFFERED_BYTES_MAX = 128 << 20  # bytes of messages that wait for other messages of their endpoints


def read_endpoint_batches(view: LogView, columns: Sequence[str], rows_max: int) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the messages in batches of one endpoint, without buffering. Interleaved endpoints make small batches.

    Args:
        columns: "data", and columns of `LogReader.batches` with integers. Batches also have the column "channel".
        rows_max: maximum messages per batch. Large payloads make smaller batches.
    """
    for batch in read_arrow_batches(view, ["channel", *columns], rows_max, _BATCH_BYTES_MAX):
        for endpoint, endpoint_batch in _split_by_endpoint(view, batch):
            yield endpoint, endpoint_batch.batch


def read_joined_batches(view: LogView, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the messages in large batches of one endpoint. Each endpoint keeps the order of its messages.

    `columns`: "data", and columns of `LogReader.batches` with integers. Batches also have the column "channel".
    """
    buffer = EndpointBuffer(view)
    for batch in read_arrow_batches(view, ["channel", *columns], BATCH_ROWS_MAX, _BATCH_BYTES_MAX):
        yield from buffer.add_messages(batch)
    yield from buffer.pop_endpoints()


class _EndpointBatch(NamedTuple):
    """Messages of one endpoint: a slice of memory that endpoints share."""

    batch: pa.RecordBatch
    size_bytes: int


class EndpointBuffer:
    """Buffers messages of all endpoints. Large batches of one endpoint are decoded faster than small batches.

    Attributes:
        buffered_bytes: bytes of the buffered messages.
    """

    def __init__(self, view: LogView) -> None:
        self._log_view = view
        self._batches: dict[str, list[_EndpointBatch]] = {}
        self.buffered_bytes = 0

    def add_messages(self, messages: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Add messages. If the buffer is full, yield the endpoints with the most bytes until most memory is free."""
        for endpoint, batch in _split_by_endpoint(self._log_view, messages):
            self._batches.setdefault(endpoint, []).append(batch)
            self.buffered_bytes += batch.size_bytes
        if self.buffered_bytes > _BUFFERED_BYTES_MAX:
            yield from self.pop_endpoints(_BUFFERED_BYTES_MAX // 4)

    def pop_endpoints(self, kept_bytes: int = 0) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Remove and yield the endpoints with the most bytes, until `kept_bytes` or less are buffered."""
        sizes = {endpoint: sum(batch.size_bytes for batch in self._batches[endpoint]) for endpoint in self._batches}
        smallest_first = sorted(sizes, key=sizes.__getitem__)
        totals = list(accumulate(sizes[endpoint] for endpoint in smallest_first))
        kept = set(smallest_first[: bisect_right(totals, kept_bytes)])
        popped = {endpoint: batches for endpoint, batches in self._batches.items() if endpoint not in kept}
        self._batches = {
            endpoint: [_EndpointBatch(_join_batches(batches), sizes[endpoint])]
            for endpoint, batches in self._batches.items()
            if endpoint in kept
        }
        self.buffered_bytes = sum(sizes[endpoint] for endpoint in kept)
        for endpoint, batches in popped.items():
            for group in _group_by_size(batches):
                yield endpoint, _join_batches(group)


def _split_by_endpoint(view: LogView, batch: pa.RecordBatch) -> Iterator[tuple[str, _EndpointBatch]]:
    """Yield the messages of each endpoint, in the order of the endpoints."""
    endpoints, of_code = view.map_codes_to_endpoints()
    of_row = of_code[batch.column("channel").to_numpy()]
    if (of_row[1:] < of_row[:-1]).any():
        order = np.argsort(of_row.astype(np.min_scalar_type(len(endpoints))), kind="stable")  # radix sort
        batch, of_row = batch.take(pa.array(order)), of_row[order]
    borders = np.append(np.flatnonzero(np.diff(of_row, prepend=-1)), len(of_row))
    payload_bytes = np.diff(np.frombuffer(batch.column("data").buffers()[1], np.int32)[borders])
    other_bytes = sum(field.type.bit_width // 8 for field in batch.schema if field.name != "data") + 4
    for (start, end), size in zip(pairwise(borders.tolist()), payload_bytes.tolist(), strict=True):
        rows = end - start
        yield endpoints[of_row[start]], _EndpointBatch(batch.slice(start, rows), size + other_bytes * rows)


def _group_by_size(batches: Sequence[_EndpointBatch]) -> Iterator[list[_EndpointBatch]]:
    """Yield consecutive batches that have together at most the maximum rows and bytes of a batch."""
    group: list[_EndpointBatch] = []
    rows = size = 0
    for item in batches:
        rows, size = rows + item.batch.num_rows, size + item.size_bytes
        if group and (rows > BATCH_ROWS_MAX or size > _BATCH_BYTES_MAX):
            yield group
            group, rows, size = [], item.batch.num_rows, item.size_bytes
        group.append(item)
    yield group


def _join_batches(batches: Sequence[_EndpointBatch]) -> pa.RecordBatch:
    """Return the messages of all batches as a copy, because a slice would keep the memory of all endpoints."""
    if len(batches) == 1:
        return batches[0].batch.take(pa.array(np.arange(batches[0].batch.num_rows)))
    return pa.Table.from_batches([item.batch for item in batches]).combine_chunks().to_batches()[0]
