"""Selected messages of recordings as a table.

For a query on a Python source, Spark starts Python twice, and copies each row once more than for a function of Arrow
batches. Therefore this module uses such a function, with the same reader.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from msgq.common.choices import list_names
from msgq.common.selection import list_paths
from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from msgq.spark.source.data_source import RecordingReader

_LIST_OPTION_NAMES = frozenset(("endpoints", "exclude", "importpaths", "schemas"))
_PICKLED_PIECES_BYTES_MAX = 8 << 20  # each task gets all pieces; Spark distributes more than this


def read(
    spark: SparkSession,
    *paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    columns: str | Iterable[str] | None = None,
    **options: Any,
) -> DataFrame:
    """Return the messages of recordings.

    Each call reads the current files. The selection of a call does not affect other tables.

    Args:
        paths: files, directories with all subdirectories, and patterns, or lists of them.
        columns: a column, or columns to read; None: those of `spark.read.format("msgq")`. "file" and "byte_offset" are
            additional columns.
        options: options of the source, such as ``endpoints=["a", "b*"]``, ``start="2026-01-31T12:00"``. Endpoints are a
            text, as for Spark's options, or a list of texts, which must not be empty.

    Raises:
        InvalidValueError: a column or option does not exist, or a list is empty.
        RecordingError: a path does not exist.
    """
    from msgq.spark.source.arrow_batches import convert_to_spark_schema, select_message_columns
    from msgq.spark.source.data_source import RecordingSource
    from msgq.spark.source.parallelism import count_cores

    source_options = {name: _format_option(name, value) for name, value in options.items() if value is not None}
    names = [path for item in paths for path in list_paths(item, "paths")]
    where = {"paths": json.dumps(names)}
    RecordingSource(source_options | where).parsed_options.list_files([])  # raises without a stack trace of Java
    selected_schema = (
        None if columns is None else convert_to_spark_schema(select_message_columns(list_names(columns, "columns")))
    )
    source_options.setdefault("cores", str(count_cores(spark)))
    source = RecordingSource(source_options | where)
    schema = source.schema() if selected_schema is None else selected_schema
    reader = source.reader(schema)
    pieces = list(map(pickle.dumps, reader.partitions()))
    if sum(map(len, pieces)) <= _PICKLED_PIECES_BYTES_MAX:
        tasks = max(1, len(pieces))
        return spark.range(0, len(pieces), 1, tasks).mapInArrow(partial(_read_partition_pieces, reader, pieces), schema)
    return spark.read.format("msgq").options(**source_options).schema(schema).load(names)


def _read_partition_pieces(
    reader: RecordingReader, pieces: Sequence[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: yield the rows of the pieces whose numbers are in the batches."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        yield from reader.read(pickle.loads(pieces[number]))


def _format_option(name: str, value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if name.lower() in _LIST_OPTION_NAMES and not isinstance(value, str):
        return json.dumps(list_names(value, name, may_be_empty=name.lower() != "endpoints"))
    if not isinstance(value, (str, int)):
        hint = "use text, a number, or a datetime"
        raise InvalidValueError(f"option value {value!r} has type {type(value).__name__}; {hint}")
    return str(value).lower() if isinstance(value, bool) else str(value)
