"""Scans of lake files by Python workers, with the conditions and columns of each query.

When Spark's planner asks the table for a scan, `LakeFileTable` creates a Python source with the files, the condition
and the columns of this query only. Spark's own table of a Python source reads all columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.types as pa_types

from msgq.spark.lake.file_source import FileScan, load_scan
from msgq.spark.lake.pushed_filters import make_row_condition
from msgq.spark.runtime.callback_gateway import CallbackGateway, CallbackObject, get_callback_gateway
from msgq.spark.runtime.connect_client import is_connect_client

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Returns the files of a scan that may have a row for conditions, which are Java objects.
PathSelector = Callable[[Sequence[Any], FileScan], list[str]]


class LakeFileTable(CallbackObject):
    """Files of a table, as Spark's planner sees them. Spark calls the methods in any thread.

    Spark's own table of the source answers all calls except `newScanBuilder`.
    """

    class Java:
        """The interfaces of Java, for py4j."""

        implements = ("org.apache.spark.sql.connector.catalog.SupportsRead",)

    def __init__(
        self, spark: SparkSession, gateway: CallbackGateway, text: str, scan: FileScan, select_paths: PathSelector
    ) -> None:
        super().__init__(gateway, text)
        self._spark, self._scan, self._select_paths = spark, scan, select_paths
        columns_only = load_scan(spark, replace(scan, paths=[]))
        self._source_table = gateway.import_object(_find_relation(columns_only).table())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source_table, name)

    def newScanBuilder(self, _options: Any) -> Any:
        """Return a builder for the scan of one query."""
        return self.keep_answer(LakeScanBuilder(self._spark, self._gateway, str(self), self._scan, self._select_paths))


class LakeScanBuilder(CallbackObject):
    """Collects the conditions and columns of a query, and builds its scan."""

    class Java:
        """The interfaces of Java, for py4j."""

        implements = (
            "org.apache.spark.sql.connector.read.SupportsPushDownFilters",
            "org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns",
        )

    def __init__(
        self, spark: SparkSession, gateway: CallbackGateway, text: str, scan: FileScan, select_paths: PathSelector
    ) -> None:
        super().__init__(gateway, text)
        self._spark, self._scan, self._select_paths = spark, scan, select_paths
        self._conditions: list[Any] = []

    def pushFilters(self, conditions: Any) -> Any:
        """Store the conditions. Spark checks all of them again for each row."""
        self._conditions = list(conditions)
        return self.keep_answer(conditions)

    def pushedFilters(self) -> Any:
        """Return no condition: Spark must check all of them."""
        condition_class = self._gateway.jvm.org.apache.spark.sql.sources.Filter
        return self.keep_answer(self._gateway.make_array(condition_class, []))

    def pruneColumns(self, required: Any) -> None:
        """Store the columns that the query needs. A batch without columns has no rows, so one column remains."""
        names = tuple(required.fieldNames())
        self._scan = replace(self._scan, names=names or (_find_smallest_column(self._scan.columns),))

    def build(self) -> Any:
        """Return Spark's scan of a Python source with the selected files."""
        scan = replace(self._scan, condition=make_row_condition(self._conditions, self._scan.columns))
        paths = self._select_paths(self._conditions, scan)
        relation = _find_relation(load_scan(self._spark, replace(scan, paths=paths)))
        return self.keep_answer(
            self._gateway.import_object(relation.table().newScanBuilder(relation.options()).build())
        )


def read_scan(spark: SparkSession, scan: FileScan, version: str, select_paths: PathSelector) -> DataFrame:
    """Return the rows of files. The conditions of a query select files, row groups and columns.

    With Spark Connect, a client sees no conditions, and each query reads all columns of all files.

    Args:
        version: text that identifies the version of the table, by which Spark finds cached data.
    """
    from pyspark.sql import DataFrame

    if is_connect_client(spark):
        return load_scan(spark, scan)
    gateway = get_callback_gateway(spark)
    nothing = gateway.jvm.scala.Option.empty()
    relation = gateway.jvm.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(
        LakeFileTable(spark, gateway, f"{scan.table_url}, version {version}", scan, select_paths), nothing, nothing
    )
    dataset: Any = spark._jvm.org.apache.spark.sql.classic.Dataset  # type: ignore[union-attr]  # no Spark Connect
    return DataFrame(dataset.ofRows(spark._jsparkSession, gateway.export_object(relation)), spark)


def _find_relation(rows: DataFrame) -> Any:
    """Return Spark's relation of a loaded source."""
    return rows._jdf.queryExecution().analyzed()


def _find_smallest_column(columns: pa.Schema) -> str:
    return str(next((field.name for field in columns if pa_types.is_primitive(field.type)), columns.names[0]))
