"""File index for Spark's planner: the files of messages for the conditions of a query.

`MessageFileIndex` implements Spark's Java interface FileIndex. When Spark plans a scan, Spark calls the index with the
conditions.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from msgq.lake.message_columns import BRONZE_COLUMNS
from msgq.lake.table_snapshot import TableSnapshot
from msgq.spark.lake.file_selector import FileSelector, warn_of_unselected_files
from msgq.spark.lake.hadoop_connectors import HadoopLocation
from msgq.spark.lake.pushed_filters import make_message_filters
from msgq.spark.runtime.callback_gateway import CallbackGateway, CallbackObject, get_callback_gateway
from msgq.spark.source.arrow_batches import convert_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTITION_COLUMNS = ("date", "size_class")
_FIRST_UNIX_DATE = date(1970, 1, 1)

_FileEntry = dict[str, Any]  # entry of `TableSnapshot.list_files`
_PartitionValues = tuple[date | None, str | None]


class MessageFileIndex(CallbackObject):
    """The files of one version of the messages. Spark calls the methods in any thread."""

    class Java:
        """The interfaces of Java, for py4j."""

        implements = ("org.apache.spark.sql.execution.datasources.FileIndex",)

    def __init__(
        self, gateway: CallbackGateway, uri: str, snapshot: TableSnapshot, selector: FileSelector, partitions: Any
    ) -> None:
        """Set the version.

        Args:
            uri: URI of the table.
            partitions: the partition columns as a StructType of Java.
        """
        super().__init__(gateway, f"MessageFileIndex({uri}, table {snapshot.table_id}, version {snapshot.version})")
        self._uri, self._snapshot, self._selector = uri, snapshot, selector
        self._partitions, jvm = partitions, gateway.jvm
        self._roots = _make_sequence(jvm, [jvm.org.apache.hadoop.fs.Path(uri)])
        self._no_time = jvm.scala.Option.empty()

    def listFiles(self, partition_filters: Any, data_filters: Any) -> Any:
        """Return the files for a scan, as a sequence of PartitionDirectory.

        Spark checks the data filters again for each row, but not the partition filters.
        """
        files: dict[_PartitionValues, list[_FileEntry]] = defaultdict(list)
        for file in self._snapshot.list_files(self._select_paths(_list_items(data_filters))):
            files[file["partition.date"], file["partition.size_class"]].append(file)
        partitions = self._select_partitions(files, _list_items(partition_filters))
        warn_of_unselected_files(sum(len(files[partition]) for partition in partitions), self._snapshot.file_count)
        return self.keep_answer(
            _make_sequence(
                self._gateway.jvm, [self._make_directory(partition, files[partition]) for partition in partitions]
            )
        )

    def _select_paths(self, data_filters: Sequence[Any]) -> list[str]:
        sources = _get_scala_object(self._gateway.jvm.org.apache.spark.sql.execution.datasources, "DataSourceStrategy")
        translated = [sources.translateFilter(condition, False) for condition in data_filters]
        filters = make_message_filters(condition.get() for condition in translated if condition.isDefined())
        return self._selector.select_paths(self._snapshot, filters)

    def _select_partitions(
        self, partitions: Iterable[_PartitionValues], partition_filters: Sequence[Any]
    ) -> list[_PartitionValues]:
        """Return the partitions whose values pass all filters."""
        catalyst = self._gateway.jvm.org.apache.spark.sql.catalyst.expressions
        predicates, references = (_get_scala_object(catalyst, name) for name in ("Predicate", "BindReferences"))
        selected = list(partitions)
        for condition in partition_filters:
            attributes = condition.references().toSeq()
            names = [attribute.name() for attribute in _list_items(attributes)]
            bound = references.bindReference(condition, getattr(catalyst, "package$AttributeSeq")(attributes), False)
            predicate = predicates.createInterpreted(bound)
            selected = [partition for partition in selected if predicate.eval(self._make_row(partition, names))]
        return selected

    def _make_row(self, partition: _PartitionValues, names: Iterable[str]) -> Any:
        """Return the values of partition columns as an InternalRow of Java."""
        jvm, (day, size_class) = self._gateway.jvm, partition
        values = {
            "date": None if day is None else (day - _FIRST_UNIX_DATE).days,
            "size_class": jvm.org.apache.spark.unsafe.types.UTF8String.fromString(size_class),
        }
        row = _make_sequence(jvm, [values[name] for name in names])
        return jvm.org.apache.spark.sql.catalyst.InternalRow.fromSeq(row)

    def _make_directory(self, partition: _PartitionValues, files: Iterable[_FileEntry]) -> Any:
        jvm = self._gateway.jvm
        hadoop = jvm.org.apache.hadoop.fs
        statuses = []
        for file in files:
            path, size = hadoop.Path(f"{self._uri}/{file['path']}"), file["size_bytes"]
            statuses.append(hadoop.FileStatus(size, False, 1, size, file["modification_time"], path))
        return jvm.org.apache.spark.sql.execution.datasources.PartitionDirectory.apply(
            self._make_row(partition, _PARTITION_COLUMNS), self._gateway.make_array(hadoop.FileStatus, statuses)
        )

    def inputFiles(self) -> Any:
        """Return the URIs of all files."""
        root = self._gateway.jvm.org.apache.hadoop.fs.Path(self._uri).toUri().toString()
        string_class = self._gateway.jvm.java.lang.String
        return self.keep_answer(
            self._gateway.make_array(string_class, [f"{root}/{path}" for path in self._snapshot.paths])
        )

    def rootPaths(self) -> Any:
        """Return the directory of the table."""
        return self._roots

    def partitionSchema(self) -> Any:
        """Return the partition columns."""
        return self._partitions

    def sizeInBytes(self) -> int:
        """Return the number of bytes of all files. Spark uses the number to choose a kind of join."""
        return self._snapshot.size_bytes

    def metadataOpsTimeNs(self) -> Any:
        """Return no time: Spark measures the calls."""
        return self._no_time

    def isTimeTravel(self) -> bool:
        """Return False: Spark's own time travel is not in use."""
        return False

    def refresh(self) -> None:
        """Do nothing: a version does not change."""


def read_message_files(
    spark: SparkSession, location: HadoopLocation, snapshot: TableSnapshot, selector: FileSelector
) -> DataFrame:
    """Return the messages of a version. The conditions of a query select the files that Spark opens.

    The session must be a classic session with a Java process, not Spark Connect.
    """
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    gateway = get_callback_gateway(spark)
    session = gateway.import_object(spark._jsparkSession)
    columns = convert_to_spark_schema(BRONZE_COLUMNS)
    partitions, data = (
        session.parseDataType(
            StructType([column for column in columns if (column.name in _PARTITION_COLUMNS) == is_partition]).json()
        )
        for is_partition in (True, False)
    )
    sources = gateway.jvm.org.apache.spark.sql.execution.datasources
    relation = sources.HadoopFsRelation(
        MessageFileIndex(gateway, f"{location.uri}/messages", snapshot, selector, partitions),
        partitions,
        data,
        gateway.jvm.scala.Option.empty(),
        sources.parquet.ParquetFileFormat(),
        gateway.jvm.org.apache.spark.api.python.PythonUtils.toScalaMap(dict(location.settings)),
        session,
    )
    return DataFrame(spark._jsparkSession.baseRelationToDataFrame(gateway.export_object(relation)), spark)


def _make_sequence(jvm: Any, items: list[Any]) -> Any:
    """Return a sequence of Scala."""
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(items)


def _list_items(sequence: Any) -> list[Any]:
    """Return the items of a sequence of Scala."""
    return [sequence.apply(index) for index in range(sequence.size())]


def _get_scala_object(package: Any, name: str) -> Any:
    """Return a Scala object. In Java, the methods of the object are methods of one instance."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")
