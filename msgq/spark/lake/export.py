"""Writes rows of Spark as a recording."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.lake.external_sort import SORTED_RUN_SCHEMA, write_sorted_runs
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.log_export import INTEGER_COLUMNS, REQUIRED_COLUMNS, TEXT_COLUMNS, write_merged_runs
from msgq.lake.schema_texts import read_schemas
from msgq.spark.runtime.spark_errors import translate_spark_errors
from msgq.spark.source.arrow_batches import convert_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INTEGER_TYPES = ("bigint", "int", "smallint", "tinyint")
_COLUMN_TYPES = {
    **{"endpoint": ("string",), "log_time": _INTEGER_TYPES, "data": ("binary", "string")},
    **dict.fromkeys(INTEGER_COLUMNS, _INTEGER_TYPES),
    **dict.fromkeys(TEXT_COLUMNS, ("string",)),
}


@translate_spark_errors()
def write_log(
    rows: DataFrame,
    path: Path,
    lake: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> int:
    """Write rows as an MCAP file in the order of log_time, and return their number.

    Workers write the rows in sorted runs of 64 MiB, and this process merges the runs. The rows are never in memory
    together.

    Args:
        rows: columns endpoint, log_time, data; optional: epoch, sequence, publish_time, origin_time, encoding, schema
            (name), schema_id, kind, publisher, key, options, lost_before and lost_after. Rows with NULL in one of the
            first three are omitted. Without a kind, the name of the endpoint determines the kind.
        path: path of the file, which must not exist.
        lake: directory or URL of the lake, which contains the texts of the schemas and temporarily the runs. None:
            schemas have only names and encodings, and the runs are next to `path`, where workers must be able to write.
        storage_options: credentials and settings of the lake's object store; see `Lake`.

    Raises:
        InvalidValueError: a column is missing, or has a type or a value that messages cannot have.
        RecordingError: the file exists, or cannot be written.
    """
    chosen, runs = _select_message_columns(rows), LakeDirectory(lake or path.parent, storage_options)

    def write_runs(order: Sequence[str], directory: LakeDirectory, place: str) -> pa.Table:
        write = partial(_write_export_runs, order, directory, place)
        return chosen.mapInArrow(write, convert_to_spark_schema(SORTED_RUN_SCHEMA)).toArrow()

    return write_merged_runs(write_runs, chosen.columns, path, runs, {} if lake is None else read_schemas(runs))


def _write_export_runs(
    order: Sequence[str], lake: LakeDirectory, place: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return write_sorted_runs(batches, order, lake, place)


def _select_message_columns(rows: DataFrame) -> DataFrame:
    """Return the columns that messages need. Raises InvalidValueError for missing columns or wrong types."""
    types = dict(rows.dtypes)
    if missing := [name for name in REQUIRED_COLUMNS if name not in types]:
        text = f"column {missing[0]!r} is missing; needed are {', '.join(REQUIRED_COLUMNS)}"
        raise InvalidValueError(f"{text}, as in SELECT * FROM messages")
    known_types = {name: fit for name, fit in _COLUMN_TYPES.items() if name in types}
    for name, fit in known_types.items():
        if types[name] not in fit:
            raise InvalidValueError(f"column {name!r} has type {types[name]}; expected {' or '.join(fit)}")
    chosen = rows.select(*known_types).dropna(subset=list(REQUIRED_COLUMNS))
    return chosen.withColumn("data", chosen["data"].cast("binary"))
