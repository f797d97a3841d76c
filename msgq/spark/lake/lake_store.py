"""Location of a lake for Spark, and snapshots of its tables as data frames."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyarrow.fs import LocalFileSystem

from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_LISTING_THRESHOLD_SETTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


class LakeStore(LakeDirectory):
    """Directory of a lake, and its tables. Workers get a `LakeDirectory`, without the session.

    Attributes
    ----------
    spark : Spark session.
    uri : URI of the lake for Spark.
    """

    def __init__(
        self, spark: SparkSession, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> None:
        """Set the location of a lake, which may not exist yet."""
        super().__init__(path, storage_options)
        self.spark = spark

    def read_files(self, table: LakeTable, paths: Iterable[str], columns: StructType) -> DataFrame:
        """Return the rows of a table's files. The files of a snapshot are not removed while it is read."""
        places = [self._make_spark_path(f"{table.place}/{path}") for path in paths]
        if not places:
            return self.spark.createDataFrame([], columns)
        reader = self.spark.read.schema(columns).option("basePath", f"{self.uri}/{table.place}")
        with self._list_files_on_driver():
            return reader.parquet(*places)

    @contextmanager
    def _list_files_on_driver(self) -> Iterator[None]:
        """Let the driver look up the named files of a local lake.

        For more than 32 paths, Spark starts a job instead. The job takes some 4 ms per file, the driver 0.3 ms.
        """
        if not isinstance(self.files, LocalFileSystem):
            yield
            return
        before = self.spark.conf.get(_LISTING_THRESHOLD_SETTING)
        self.spark.conf.set(_LISTING_THRESHOLD_SETTING, "1000000000")
        try:
            yield
        finally:
            self.spark.conf.set(_LISTING_THRESHOLD_SETTING, str(before))

    def _make_spark_path(self, place: str) -> str:
        """Return a path with escaped [ ] { } * ?, which Spark would interpret as patterns."""
        return re.sub(r"[\\[\]{}*?]", r"\\\g<0>", f"{self.uri}/{place}")
