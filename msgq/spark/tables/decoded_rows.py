"""Rows of silver: messages decoded by their schemas, with a column for each field. On workers, without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from msgq.decoding.arrow_types import field_arrays, field_names
from msgq.decoding.columns import ColumnDecoder, Values
from msgq.decoding.decoders import ENCODINGS, SELF_DESCRIBING
from msgq.kinds import FRAMES, TOPIC
from msgq.schema import Schema
from msgq.spark.source.arrow_batches import MESSAGES, PLACES, gathered
from msgq.spark.spark_types import spark_type

_ROWS = 65536
_BYTES = 16 << 20  # of payloads that are decoded at once
#: What each row of silver begins with.
FIXED = pa.schema(
    [
        *(MESSAGES.field(name) for name in ("run", "epoch", "sequence", "publish_time", "log_time")),
        ("element", pa.int32()),
    ]
)
#: Messages that could not be decoded.
UNDECODED = pa.schema(
    [
        *(MESSAGES.field(name) for name in ("run", "endpoint", "epoch", "sequence", "log_time")),
        ("reason", pa.string()),
        ("data", pa.binary()),
    ]
)
#: What is needed of messages.
NEEDED = pa.schema(
    [*(MESSAGES.field(name) for name in (*FIXED.names[:-1], "endpoint", "encoding", "data")), PLACES.field("schema_id")]
)
#: What is asked of messages that have it. Rows of other kinds than topics say publisher and key, too.
SOURCES = pa.schema([MESSAGES.field(name) for name in ("kind", "publisher", "key")])
_OF_SOURCE = ("publisher", "key")
_TOPICS = (None, TOPIC.name, FRAMES)
_TAKEN = (*FIXED.names, "publish_timestamp", "log_timestamp", "date")  # no field has such a name


class Decoded(NamedTuple):
    """What became of some messages of one endpoint.

    Attributes
    ----------
    rows : `FIXED`, publisher and key of what is no topic, and the fields of what was decoded.
    undecoded : `UNDECODED`.
    """

    endpoint: str
    rows: pa.Table
    undecoded: pa.Table


class RowDecoder:
    """Makes rows of silver. One thread at a time."""

    def __init__(self, schemas: Mapping[int, Schema], value: pa.DataType | None = None) -> None:
        """Know what is needed. schemas : by `schema_id`. value : what messages say; None: whatever they are."""
        self._schemas = schemas
        self._decoder = ColumnDecoder(value, spark_type)

    def decoded(self, messages: pa.Table) -> Iterator[Decoded]:
        """Give what becomes of messages, `NEEDED`; of those without an encoding nothing: nobody says what they are.

        What has none of `SOURCES`, as a part that a release without kinds wrote, is a topic.
        """
        for group in _groups(messages):
            encoding, number = group.column("encoding")[0].as_py(), group.column("schema_id")[0].as_py()
            if not encoding:
                continue
            schema = self._schemas.get(number) if number is not None else None
            if encoding not in ENCODINGS:
                yield _set_aside(group, f"nothing here decodes {encoding!r}")
            elif schema is None and encoding not in SELF_DESCRIBING:
                yield _set_aside(group, f"{encoding} needs the text of its schema, which is not in the lake")
            else:
                data = group.column("data").combine_chunks()
                for values in self._decoder.values(schema or Schema("message", encoding), data):
                    yield _of_values(group, values)


def _groups(messages: pa.Table) -> Iterator[pa.Table]:
    """Give the messages of each endpoint, encoding and schema, so many at once."""
    if not messages.num_rows:
        return
    messages = messages.combine_chunks()
    code = np.zeros(messages.num_rows, np.int64)
    for name in ("endpoint", "encoding", "schema_id"):
        values = messages.column(name).dictionary_encode(null_encoding="encode").combine_chunks()
        code = code * len(values.dictionary) + np.asarray(values.indices)
    borders = np.flatnonzero(np.diff(code)) + 1
    if len(borders) >= len(np.unique(code)):
        order = np.argsort(code, kind="stable")
        messages, code = messages.take(pa.array(order)), code[order]
        borders = np.flatnonzero(np.diff(code)) + 1
    for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(code)], strict=True):
        group = messages.slice(begin, end - begin)
        step = min(_ROWS, max(1, _BYTES * len(group) // max(1, group.column("data").nbytes)))
        for first in range(0, len(group), step):
            yield group.slice(first, step)


def _set_aside(group: pa.Table, reason: str) -> Decoded:
    """Keep aside what nothing here could decode; the payloads are in bronze."""
    count = len(group)
    columns = [group.column(name) for name in UNDECODED.names[:-2]]
    undecoded = pa.table([*columns, pa.array([reason] * count), pa.nulls(count, pa.binary())], schema=UNDECODED)
    return Decoded(group.column("endpoint")[0].as_py(), FIXED.empty_table(), undecoded)


def _of_values(group: pa.Table, values: Values) -> Decoded:
    endpoint = group.column("endpoint")[0].as_py()
    if values.rows is not None:
        group = group.take(pa.array(values.rows))
    undecoded = UNDECODED.empty_table()
    value, element = values.value, values.element
    if values.reason is not None and values.data is not None and values.reason.null_count < len(values.reason):
        failed = values.reason.is_valid()
        columns = [group.column(name).filter(failed) for name in UNDECODED.names[:-2]]
        more = [values.reason.filter(failed), values.data.filter(failed)]
        undecoded = pa.table([*columns, *more], schema=UNDECODED)
        good = values.reason.is_null()
        group, value = group.filter(good), value.filter(good)
        element = None  # those of several elements have no reason
    element = np.zeros(len(group), np.int32) if element is None else element.astype(np.int32)
    sources = _source_names(group)
    names, arrays = value_names(value.type, sources), field_arrays(value)
    columns = [*(group.column(name) for name in FIXED.names[:-1]), pa.array(element)]
    columns += [group.column(name) for name in sources]
    return Decoded(endpoint, pa.table([*columns, *arrays], [*FIXED.names, *sources, *names]), undecoded)


def _source_names(group: pa.Table) -> Sequence[str]:
    """Return which columns of `SOURCES` the rows of one endpoint have."""
    is_topic = "kind" not in group.column_names or set(group.column("kind").unique().to_pylist()) <= set(_TOPICS)
    return () if is_topic else _OF_SOURCE


def value_names(value: pa.DataType, sources: Sequence[str] = ()) -> list[str]:
    """Return the names of the columns that a value becomes. sources : that are there already."""
    return field_names(value, (*_TAKEN, *sources))


def gathered_messages(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Give messages as they come through Spark in larger pieces: each has groups of its own."""
    return gathered(batches, 4 * _ROWS, 4 * _BYTES)
