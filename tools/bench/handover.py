"""The floor under the source on Spark: the same rows, handed over without being read.

Each task reads one batch, and gives it to Spark again and again. What that takes is Spark's own: Arrow over a socket,
and a row of Java for each message.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from msgq.spark.source.data_source import RecordingSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class HandOver(DataSource):
    """Rows of a recording that were read before. Options: those of "msgq", and rows: how many in all."""

    @classmethod
    def name(cls) -> str:
        """Return what ``spark.read.format`` calls it."""
        return "handover"

    def _source(self) -> RecordingSource:
        return RecordingSource({name: value for name, value in self.options.items() if name != "rows"})

    def schema(self) -> StructType:
        """Return the columns of the recording."""
        return self._source().schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what repeats a batch."""
        return _Reader(self._source().reader(schema), int(self.options["rows"]))


class _Reader(DataSourceReader):
    def __init__(self, reader: DataSourceReader, rows: int) -> None:
        self._reader, self._rows = reader, rows

    def partitions(self) -> list[InputPartition]:
        cores = len(os.sched_getaffinity(0))
        return [self._reader.partitions()[0]] * cores

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = next(iter(self._reader.read(partition)))
        left = self._rows // len(os.sched_getaffinity(0))
        while left > 0:
            yield batch[:left]
            left -= batch.num_rows


def handed_over(spark: SparkSession, path: str, rows: int, columns: StructType, **options: Any) -> DataFrame:
    """Return rows of a recording as a table, without reading more than one batch a task."""
    spark.dataSource.register(HandOver)
    return spark.read.format("handover").schema(columns).options(rows=rows, **options).load(path)
