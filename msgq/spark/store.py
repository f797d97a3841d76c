"""Where a lake lies: tables by their place in it, in its format, and small files."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyarrow.fs import FileSelector, FileType

from msgq.errors import InvalidValueError
from msgq.spark.parts import open_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PLAIN = ("parquet", "orc")  # files without a log of their own: their columns must be said
_PACKAGES = {"delta": "io.delta:delta-spark_2.13", "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13"}


class Store:
    """Tables and files of one lake. Places are relative to it.

    Attributes
    ----------
    spark : the session.
    uri, files, root : of the lake, for Spark; its file system and the path there, for pyarrow.
    format : of the tables.
    """

    def __init__(self, spark: SparkSession, uri: str, table_format: str) -> None:
        """Look at a lake that may not exist yet. Raises InvalidValueError where this Spark does not have the format."""
        self.spark, self.uri, self.format = spark, uri, table_format
        self.files, self.root = open_path(uri)
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
            raise InvalidValueError(f"{text} to its settings, or take parquet") from None

    def address(self, place: str) -> str:
        """Return a place for Spark to read, which would take [ ] { } * ? for patterns."""
        return re.sub(r"[\\[\]{}*?]", r"\\\g<0>", f"{self.uri}/{place}")

    def has(self, place: str) -> bool:
        """Return whether there is such a file or directory."""
        return bool(self.files.get_file_info(f"{self.root}/{place}").type != FileType.NotFound)

    def is_filled(self, place: str) -> bool:
        """Return whether there is a directory in that directory, as a table has that holds something."""
        there = self.files.get_file_info(FileSelector(f"{self.root}/{place}", allow_not_found=True))
        return any(info.type == FileType.Directory for info in there)

    def read(self, place: str, columns: StructType) -> DataFrame:
        """Return a table with these columns, those of its directories among them; empty where there is none."""
        if not self.is_filled(place):
            return self.spark.createDataFrame([], columns)
        reader = self.spark.read.format(self.format)
        if self.format in _PLAIN:
            return reader.schema(columns).load(self.address(place))
        return reader.load(self.address(place)).select(*columns.names)

    def save(self, table: DataFrame, place: str, partitions: list[str], mode: str) -> None:
        """Write a table through Spark."""
        table.write.format(self.format).mode(mode).partitionBy(*partitions).save(f"{self.uri}/{place}")

    def remove(self, place: str) -> None:
        """Remove a directory, if it is there."""
        if self.has(place):
            self.files.delete_dir(f"{self.root}/{place}")

    def move(self, source: str, target: str) -> None:
        """Move a file, in place of one that may be there."""
        path = f"{self.root}/{target}"
        self.files.create_dir(path.rpartition("/")[0])
        self.files.move(f"{self.root}/{source}", path)

    def get(self, place: str, otherwise: Any) -> Any:
        """Return what `put` left there."""
        if not self.has(place):
            return otherwise
        with self.files.open_input_stream(f"{self.root}/{place}") as file:
            return json.loads(file.read())

    def put(self, place: str, value: Any) -> None:
        """Replace a small file of JSON at once."""
        path = f"{self.root}/{place}"
        self.files.create_dir(path.rpartition("/")[0])
        with self.files.open_output_stream(f"{path}.new") as file:
            file.write(json.dumps(value).encode())
        self.files.move(f"{path}.new", path)
