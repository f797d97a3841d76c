"""Location of a lake for Spark, and snapshots of its tables as data frames."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.fs import LocalFileSystem

from msgq.errors import RecordingError
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.spark.lake.file_source import FileScan
from msgq.spark.lake.hadoop_connectors import HadoopLocation, find_hadoop_location, warn_of_missing_connector
from msgq.spark.lake.python_scan import read_scan
from msgq.spark.runtime.spark_errors import translate_spark_errors
from msgq.spark.source.arrow_batches import convert_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LISTING_THRESHOLD_SETTING = "spark.sql.sources.parallelPartitionDiscovery.threshold"


class SparkDirectory(LakeDirectory):
    """Directory of a lake, and its tables. Workers get a `LakeDirectory`, without the session.

    Attributes:
        spark: Spark session.
        uri: URI of the lake for Spark.
    """

    def __init__(
        self, spark: SparkSession, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> None:
        """Set the location of a lake, which may not exist yet."""
        super().__init__(path, storage_options)
        self.spark = spark

    @cached_property
    def hadoop_location(self) -> HadoopLocation | None:
        """Location for Spark's own readers; None: Spark has no connector, so Python workers read the files."""
        location = find_hadoop_location(self.spark, self.uri, self.storage_options)
        if location is None:
            warn_of_missing_connector(self.spark, self.uri)
        return location

    def read_files(
        self, table: LakeTable, paths: Iterable[str], columns: pa.Schema, condition: pc.Expression | None = None
    ) -> DataFrame:
        """Return the rows of a table's files. The files of a snapshot are not removed while it is read.

        Args:
            condition: condition for rows, by which Python workers skip row groups. The result may have other rows.

        Raises:
            RecordingError: another program has removed a file.
            SparkError: Spark cannot open the files, for example because its connector has no credentials.
        """
        places, location = list(paths), self.hadoop_location
        spark_columns = convert_to_spark_schema(columns)
        if not places:
            return self.spark.createDataFrame([], spark_columns)
        if location is None:
            version = hashlib.sha256("\n".join(places).encode()).hexdigest()
            scan = self.make_scan(table, places, columns, condition)
            return read_scan(self.spark, scan, version, lambda _, selected: selected.select_partitions())
        root = f"{location.uri}/{table.place}"
        reader = self.spark.read.schema(spark_columns).options(**location.settings).option("basePath", root)
        with translate_spark_errors(), self._explain_missing_file(table), self._list_files_on_driver():
            return reader.parquet(*(_escape_spark_pattern(f"{root}/{path}") for path in places))

    def make_scan(
        self, table: LakeTable, paths: list[str], columns: pa.Schema, condition: pc.Expression | None = None
    ) -> FileScan:
        """Return a scan of a table's files by Python workers."""
        return FileScan(self, table.place, paths, columns, tuple(table.partitions), tuple(columns.names), condition)

    @contextmanager
    def _explain_missing_file(self, table: LakeTable) -> Iterator[None]:
        from pyspark.errors import AnalysisException

        try:
            yield
        except AnalysisException as error:
            if error.getCondition() != "PATH_NOT_FOUND":
                raise
            text = f"table '{self.resolve_path(table.place)}' lacks a file: another program removed it"
            advice = "to make the file again, use `msgq lake ingest` or Lake.build_silver"
            raise RecordingError(f"{text}; {advice}") from None

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


def _escape_spark_pattern(path: str) -> str:
    """Return a path with escaped [ ] { } * ?, which Spark would interpret as patterns."""
    return re.sub(r"[\\[\]{}*?]", r"\\\g<0>", path)
