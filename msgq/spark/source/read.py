"""Messages of recordings as a table, of what is wanted only.

Spark plans a query about a source of Python by starting Python twice, and takes each row from it one time more than
from a function of Arrow batches. So this is such a function, with the same reader.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from msgq.spark.source.data_source import RecordingReader

_PICKLED_PIECES_BYTES_MAX = 8 << 20  # of all, as each task is given all of them; beyond it Spark hands them out


def read(spark: SparkSession, *paths: str, columns: Iterable[str] | None = None, **options: Any) -> DataFrame:
    """Return the messages of recordings.

    Each call loads anew: it sees what there is now, and what it prunes concerns nobody else.

    Parameters
    ----------
    paths : files, directories of whatever depth, patterns.
    columns : these only; None is those of `spark.read.format("msgq")`. Beyond them there are "file" and "byte_offset".
    options : of the source, as ``endpoints=["a", "b*"]``, ``start="2026-01-31T12:00"``.

    Raises
    ------
    InvalidValueError : there is no such column, or option.
    RecordingError : nothing is at a path.
    """
    from msgq.spark.source.arrow_batches import convert_to_spark_schema, select_message_columns
    from msgq.spark.source.data_source import RecordingSource
    from msgq.spark.source.parallelism import count_cores

    source_options = {name: _format_option(value) for name, value in options.items() if value is not None}
    where = {"paths": json.dumps(list(map(str, paths)))}
    RecordingSource(source_options | where).parsed_options.list_files([])  # said here, an error is no page of Java
    wanted = None if columns is None else convert_to_spark_schema(select_message_columns(columns))
    source_options.setdefault("cores", str(count_cores(spark)))
    source = RecordingSource(source_options | where)
    schema = source.schema() if wanted is None else wanted
    reader = source.reader(schema)
    pieces = list(map(pickle.dumps, reader.partitions()))
    if sum(map(len, pieces)) <= _PICKLED_PIECES_BYTES_MAX:
        tasks = max(1, len(pieces))
        return spark.range(0, len(pieces), 1, tasks).mapInArrow(partial(_read_partition_pieces, reader, pieces), schema)
    return spark.read.format("msgq").options(**source_options).schema(schema).load(list(map(str, paths)))


def _read_partition_pieces(
    reader: RecordingReader, pieces: Sequence[bytes], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """On a worker: give the rows of those pieces whose numbers there are."""
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        yield from reader.read(pickle.loads(pieces[number]))


def _format_option(value: Any) -> str:
    if isinstance(value, (list, tuple, set)):
        return json.dumps(list(value))
    if not isinstance(value, (str, int)):
        raise InvalidValueError(
            f"option value {value!r} has type {type(value).__name__}; use text, a number, or a list of names"
        )
    return str(value).lower() if isinstance(value, bool) else str(value)
