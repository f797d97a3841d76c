"""Decoded messages as tables: columns of the message, and columns of its fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from msgq.common.schema import Schema
from msgq.common.texts import format_count_noun
from msgq.decoding.arrow_types import (
    cast_table_columns,
    find_common_columns,
    list_value_column_names,
    split_value_columns,
)
from msgq.decoding.column_decoder import ColumnDecoder, DecodedValues
from msgq.kinds import list_kinds_without_senders
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.problem import Problem
from msgq.recording.reader.endpoint_batches import BATCH_ROWS_MAX, read_endpoint_batches, read_joined_batches
from msgq.recording.reader.log_view import LogView, unknown_endpoint_error

_MESSAGE_COLUMNS = ("log_time", "publish_time", "sequence", "origin_time", "data")
_INTEGER_COLUMNS = ("log_time", "publish_time", "sequence", "epoch", "origin_time")
_MESSAGE_SOURCE_COLUMNS = ("publisher", "key")  # columns of endpoints other than topics
_ELEMENT_INDEX_COLUMN = "element_index"
#: Columns of messages that could not be decoded.
UNDECODED_ARROW_SCHEMA = pa.schema(
    [
        ("endpoint", pa.string()),
        *((name, pa.int64()) for name in _INTEGER_COLUMNS[:-1]),
        ("reason", pa.string()),
        ("data", pa.binary()),
    ]
)
_NO_UNDECODED_ROWS = UNDECODED_ARROW_SCHEMA.empty_table()
_RowIndexArray = np.ndarray[Any, Any]


class DecodedBatch(NamedTuple):
    """Result of decoding some messages of an endpoint, in their order.

    Attributes:
        rows: decoded messages. Columns: log_time, publish_time, sequence, epoch, origin_time (int64; origin_time is
            null if unknown); publisher and key (string), except for topics; element_index (int32), the index of an
            element within its message, for struct schemas; then the fields, or `value` without fields, or `data`
            without a schema. A field with the name of another column gets the suffix "_".
        undecoded: other messages. Columns: endpoint, log_time, publish_time, sequence, epoch, reason, and data, the
            payload.
        messages: number of messages.
    """

    rows: pa.Table
    undecoded: pa.Table
    messages: int


class _SchemaValues(NamedTuple):
    """Values of one schema. `places`: row of the message of each value."""

    schema: Schema | None
    message_rows: _RowIndexArray
    decoded_values: DecodedValues


def decode_message_batches(view: LogView, rows_max: int = BATCH_ROWS_MAX) -> Iterator[tuple[str, DecodedBatch]]:
    """Yield the decoded messages of all selected endpoints, batch by batch, with limited memory.

    Suits one endpoint. For interleaved endpoints, `decode_joined_batches` is faster.

    `rows_max`: maximum messages per batch. Large payloads make smaller batches.
    """
    decoder = ColumnDecoder()
    for endpoint, batch in read_endpoint_batches(view, _MESSAGE_COLUMNS, rows_max):
        yield endpoint, _decode_batch(view, decoder, batch, endpoint)


def decode_joined_batches(view: LogView) -> Iterator[tuple[str, DecodedBatch]]:
    """Yield the decoded messages of all selected endpoints, with limited memory.

    Each endpoint's messages are collected across chunks to large batches. Endpoints have no order.
    """
    decoder = ColumnDecoder()
    for endpoint, batch in read_joined_batches(view, _MESSAGE_COLUMNS):
        yield endpoint, _decode_batch(view, decoder, batch, endpoint)


def _decode_batch(view: LogView, decoder: ColumnDecoder, batch: pa.RecordBatch, endpoint: str) -> DecodedBatch:
    """Decode messages of one endpoint."""
    of_row = batch.column("channel").to_numpy()
    channels = {code: view.channels[code] for code in np.flatnonzero(np.bincount(of_row)).tolist()}
    codes_of_schema: dict[Schema | None, list[int]] = {}
    for code, channel in channels.items():
        codes_of_schema.setdefault(channel.schema, []).append(code)
    decoded = []
    for schema, codes in codes_of_schema.items():
        places = np.flatnonzero(np.isin(of_row, codes)) if len(codes_of_schema) > 1 else np.arange(len(of_row))
        data = batch.column("data") if len(places) == len(of_row) else batch.column("data").take(pa.array(places))
        decoded += [
            _SchemaValues(schema, places if values.message_rows is None else places[values.message_rows], values)
            for values in decoder.decode_values(schema, data)
        ]
    return _merge_decoded_values(_build_message_columns(batch, channels), decoded, endpoint)


def _build_message_columns(batch: pa.RecordBatch, channels: Mapping[int, RecordedChannel]) -> pa.Table:
    """Return a table with the messages' own columns. `channels`: channels of the messages by code."""
    of_code = np.zeros(max(channels) + 1, np.int32)
    of_code[list(channels)] = np.arange(len(channels))
    of_row = of_code[batch.column("channel").to_numpy()]
    columns = {name: batch.column(name) for name in ("log_time", "publish_time", "sequence")}
    columns["epoch"] = pa.array(np.array([channel.epoch for channel in channels.values()], np.int64)[of_row])
    origin = batch.column("origin_time").to_numpy()
    columns["origin_time"] = pa.array(origin, mask=origin == 0)
    sources = [channel.message_source for channel in channels.values()]
    if not {source.kind for source in sources} <= set(list_kinds_without_senders()):
        for name in _MESSAGE_SOURCE_COLUMNS:
            texts = pa.array([getattr(source, name) for source in sources], pa.string())
            columns[name] = texts.take(pa.array(of_row))
    return pa.table(columns)


def _merge_decoded_values(about: pa.Table, decoded: Sequence[_SchemaValues], endpoint: str) -> DecodedBatch:
    """Return the decoded rows of a batch, in the order of its messages."""
    pieces, places, aside, aside_places = [], [], [], []
    for part in decoded:
        reason, data = part.decoded_values.failure_reasons, part.decoded_values.failed_payloads
        good = np.ones(len(part.message_rows), np.bool_) if reason is None else np.asarray(reason.is_null())
        pieces.append(_build_decoded_rows(about, part, good))
        places.append(part.message_rows[good])
        if reason is not None and data is not None and not good.all():
            bad = about.take(pa.array(part.message_rows[~good]))
            columns = {name: bad.column(name) for name in _INTEGER_COLUMNS[:-1]}
            columns |= {"reason": reason.filter(pa.array(~good)), "data": data.filter(pa.array(~good))}
            columns["endpoint"] = pa.array([endpoint] * bad.num_rows, pa.string())
            aside.append(pa.table(columns).select(UNDECODED_ARROW_SCHEMA.names).cast(UNDECODED_ARROW_SCHEMA))
            aside_places.append(part.message_rows[~good])
    rows = _sort_rows(merge_arrow_tables(pieces), places)
    undecoded = _sort_rows(pa.concat_tables(aside), aside_places) if aside else _NO_UNDECODED_ROWS
    return DecodedBatch(rows, undecoded, about.num_rows)


def _sort_rows(rows: pa.Table, places: Sequence[_RowIndexArray]) -> pa.Table:
    """Return the rows in the order of their messages."""
    order = np.concatenate(places)
    return rows.take(pa.array(np.argsort(order, kind="stable"))) if (order[1:] < order[:-1]).any() else rows


def _build_decoded_rows(about: pa.Table, decoded: _SchemaValues, good: _RowIndexArray) -> pa.Table:
    """Return a table with the messages' own columns and the decoded columns."""
    schema, places, values = decoded
    is_whole = good.all() and len(places) == about.num_rows and values.message_rows is None
    rows = about if is_whole else about.take(pa.array(places[good]))
    value = values.value_column if good.all() else values.value_column.filter(pa.array(good))
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    if schema is not None and schema.encoding == "struct":
        element = np.zeros(len(value), np.int32) if values.element_indexes is None else values.element_indexes[good]
        columns[_ELEMENT_INDEX_COLUMN] = pa.array(element, pa.int32())
    is_known = schema is not None and schema.encoding
    names = list_value_column_names(value.type, columns) if is_known else ["data"]
    return pa.table(columns | dict(zip(names, split_value_columns(value), strict=True)))


def merge_arrow_tables(pieces: Sequence[pa.Table]) -> pa.Table:
    """Return all rows as one table with all columns. Each column has a type that fits all of its values."""
    columns = reduce(find_common_columns, (piece.schema for piece in pieces))
    return pa.concat_tables([cast_table_columns(piece, columns) for piece in pieces])


class UndecodedReporter:
    """Counts messages that were not decoded, and reports them as one problem of a log."""

    def __init__(self, view: LogView) -> None:
        self._log_view = view
        self._undecoded_counts: dict[str, tuple[int, str]] = {}

    def count_undecoded(self, endpoint: str, undecoded: pa.Table) -> None:
        """Add messages of an endpoint."""
        if undecoded.num_rows:
            count, reason = self._undecoded_counts.get(endpoint, (0, undecoded.column("reason")[0].as_py()))
            self._undecoded_counts[endpoint] = (count + undecoded.num_rows, reason)

    def report_undecoded(self, action: str) -> None:
        """Report the counted messages. `action`: past participle, such as "omitted"."""
        for endpoint, (count, reason) in self._undecoded_counts.items():
            messages = f"{format_count_noun(count, 'message')} of {endpoint!r}"
            text = f"{messages} {action} as undecodable; first reason: {reason}"
            self._log_view.report_problem(Problem(str(self._log_view.files[0].path), 0, text))


def read_endpoint_table(view: LogView, endpoint: str) -> pa.Table:
    """See LogReader.to_arrow."""
    pieces, aside = [], UndecodedReporter(view)
    for _, batch in decode_message_batches(view.select_endpoint(endpoint)):
        pieces.append(batch.rows)
        aside.count_undecoded(endpoint, batch.undecoded)
    if not pieces:
        raise unknown_endpoint_error(view, endpoint)
    aside.report_undecoded("omitted")
    return merge_arrow_tables(pieces)
