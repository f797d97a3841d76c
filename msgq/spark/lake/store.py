"""Where a lake lies: its directory, and tables by their place in it, in its format."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyarrow.fs import FileType

from msgq.errors import SparkError
from msgq.spark.lake.directory import Directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PLAIN = ("parquet", "orc")  # files without a log of their own: their columns must be said
_PACKAGES = {"delta": "io.delta:delta-spark_2.13", "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13"}


class Store(Directory):
    """The directory of a lake, and its tables.

    Attributes
    ----------
    spark : the session.
    uri : of the lake, for Spark.
    format : of the tables.
    """

    def __init__(self, spark: SparkSession, uri: str, table_format: str) -> None:
        """Look at a lake that may not exist yet. Raises SparkError where this Spark does not have the format."""
        super().__init__(uri)
        self.spark, self.uri, self.format = spark, uri, table_format
        if table_format not in _PLAIN:
            self._check()

    @property
    def is_parquet(self) -> bool:
        """Whether tables are Parquet files, which workers write themselves."""
        return self.format == "parquet"

    def _check(self) -> None:
        try:
            self.spark.read.format(self.format).load(self.address("messages")).schema  # noqa: B018  (Connect is lazy)
        except Exception as error:  # of Java or of Spark, as it likes; the table need not be there yet
            if not any(word in str(error) for word in ("DATA_SOURCE_NOT_FOUND", "Failed to find")):
                return
            example = _PACKAGES.get(self.format, "GROUP:ARTIFACT")
            text = f"this Spark has no format {self.format!r}; add spark.jars.packages {example}:VERSION"
            raise SparkError(f"{text} to its settings, or take parquet") from None

    def address(self, place: str) -> str:
        """Return a place for Spark to read, which would take [ ] { } * ? for patterns."""
        return re.sub(r"[\\[\]{}*?]", r"\\\g<0>", f"{self.uri}/{place}")

    def read(self, place: str, columns: StructType) -> DataFrame:
        """Return a table with these columns, those of its directories among them; empty where there is none.

        A column that the table does not have yet is NULL.
        """
        from pyspark.sql import functions as F

        if not self.names(place, FileType.Directory):  # a table that holds something has some
            return self.spark.createDataFrame([], columns)
        reader = self.spark.read.format(self.format)
        if self.format in _PLAIN:
            return reader.schema(columns).load(self.address(place))
        found = reader.load(self.address(place))
        missing = {field.name: F.lit(None).cast(field.dataType) for field in columns if field.name not in found.columns}
        return found.select(*(missing.get(name, F.col(name)).alias(name) for name in columns.names))

    def save(self, table: DataFrame, place: str, partitions: list[str], mode: str) -> None:
        """Write a table through Spark, which may have columns that the one which is there has not."""
        writer = table.write.format(self.format).option("mergeSchema", "true").mode(mode)
        writer.partitionBy(*partitions).save(f"{self.uri}/{place}")
