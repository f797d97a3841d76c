"""Messages of recordings as a table, of what is wanted only."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgq.errors import InvalidValueError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, *paths: str, columns: Iterable[str] | None = None, **options: Any) -> DataFrame:
    """Return the messages of recordings.

    Each call loads anew: it sees what there is now, and what it prunes concerns nobody else.

    Parameters
    ----------
    paths : files, directories of whatever depth, patterns.
    columns : these only; None is those of `spark.read.format("msgq")`. Beyond them there are "file" and "offset".
    options : of the source, as ``endpoints=["a", "b*"]``, ``start="2026-01-31T12:00"``.

    Raises
    ------
    InvalidValueError : there is no such column, or option.
    RecordingError : nothing is at a path.
    """
    from msgq.spark.source import arrow_batches
    from msgq.spark.source.options import Options

    given = {name: _text(value) for name, value in options.items() if value is not None}
    Options.parse({**given, "paths": json.dumps(paths)}).files([])  # said here, an error is no page of Java
    schema = None if columns is None else arrow_batches.spark_schema(arrow_batches.chosen_columns(columns))
    reader = spark.read.format("msgq").options(**given)
    if schema is not None:
        reader = reader.schema(schema)
    return reader.load(list(map(str, paths)))


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple, set)):
        return json.dumps(list(value))
    if not isinstance(value, (str, int)):
        raise InvalidValueError(f"an option is {value!r}; give text, a number, or a list of names")
    return str(value).lower() if isinstance(value, bool) else str(value)
