"""Applies functions of Arrow tables to data frames: batch by batch for messages, and key by key for other tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from msgq.lake.batching import combine_batches
from msgq.lake.metrics.group_by import RowGroups, get_column
from msgq.spark.source.arrow_batches import convert_to_spark_schema
from msgq.spark.tables.duplicates import make_payload_size_column
from msgq.spark.tables.message_columns import make_kind_column, make_optional_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BATCH_ROWS = 1 << 16  # rows that a worker handles at once
_BATCH_BYTES = 16 << 20

TableFunction = Callable[[pa.Table], pa.Table]


def map_message_batches(
    messages: DataFrame, columns: Sequence[str], function: TableFunction, schema: pa.Schema
) -> DataFrame:
    """Return the results of a function for batches of messages, with the columns of `schema`.

    Args:
        columns: columns that the function needs. Missing optional columns get default values. If log_time or sequence
            is needed, rows with NULL in this column are omitted.
    """
    message_columns = {
        "kind": make_kind_column(messages),
        "size_bytes": make_payload_size_column(messages).cast("long"),
    }
    message_columns |= {name: make_optional_column(messages, name) for name in ("publisher", "key")}
    message_columns |= {name: make_optional_column(messages, name, "long") for name in ("lost_before", "lost_after")}
    chosen = messages.select(*(message_columns.get(name, F.col(name)).alias(name) for name in columns))
    needed = [name for name in ("log_time", "sequence") if name in columns]
    return chosen.dropna(subset=needed).mapInArrow(
        lambda batches: _apply_to_batches(batches, function), convert_to_spark_schema(schema)
    )


def map_arrow_groups(rows: DataFrame, keys: Sequence[str], function: TableFunction, schema: pa.Schema) -> DataFrame:
    """Return the results of a function for groups of rows with equal keys, with the columns of `schema`."""
    ordered = rows.repartition(*keys).sortWithinPartitions(*keys)
    return ordered.mapInArrow(
        lambda batches: _apply_to_whole_groups(batches, keys, function), convert_to_spark_schema(schema)
    )


def list_arrow_fields(table: DataFrame, names: Sequence[str]) -> list[pa.Field]:
    """Return some columns of a table as Arrow fields."""
    return list(to_arrow_schema(table.select(*names).schema, timezone="UTC"))


def _apply_to_batches(batches: Iterable[pa.RecordBatch], function: TableFunction) -> Iterator[pa.RecordBatch]:
    """On a worker: yield the results for several batches together."""
    for piece in combine_batches(batches, _BATCH_ROWS, _BATCH_BYTES):
        yield from function(piece).to_batches()


def _apply_to_whole_groups(
    batches: Iterable[pa.RecordBatch], keys: Sequence[str], function: TableFunction
) -> Iterator[pa.RecordBatch]:
    """On a worker: yield the results for all rows with the same keys. Rows with the same keys are adjacent."""
    pending: pa.Table | None = None
    for piece in combine_batches(batches, _BATCH_ROWS, _BATCH_BYTES):
        piece = piece if pending is None else pa.concat_tables([pending, piece])
        places = RowGroups(*(get_column(piece, name) for name in keys)).compute_group_ids()
        until = int(np.argmax(places == places[-1]))  # the last ones may go on
        yield from function(piece.slice(0, until)).to_batches() if until else ()
        pending = piece.slice(until)
    if pending is not None:
        yield from function(pending).to_batches()
