"""Files of a lake as a Python source of Spark, for object stores that Spark's own readers cannot open.

Workers read the files with pyarrow. The driver chooses the files, the columns and the condition for rows before Spark
creates the source. The source has no `pushFilters`: Spark 4.1 to 4.3 keeps the filters of one query for all other
queries on the same table, and ignores filters unless a setting is changed.
"""

from __future__ import annotations

import pickle
from base64 import b64decode, b64encode
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from msgq.common.storage.store_errors import translate_store_errors
from msgq.lake.lake_directory import LakeDirectory
from msgq.spark.runtime.connect_client import is_connect_client
from msgq.spark.source.arrow_batches import convert_to_spark_schema
from msgq.spark.source.parallelism import count_cores

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE_NAME = "msgq_lake"
_SCAN_OPTION = "scan_secret"  # contains credentials, and Spark hides options with such a name
_TASKS_PER_CORE = 4  # so that a task with large files delays the query little
_BATCH_ROWS = 65536


@dataclass(frozen=True)
class FileScan:
    """Files to read, and what to read of them. It may contain credentials, so it has no repr.

    Attributes:
        directory: directory of the lake.
        place: directory of the table in the lake.
        paths: files relative to the table's directory.
        columns: all columns of the table, of which those in `partitions` are in the paths.
        names: columns to read.
        condition: condition for rows; None: all. Row groups without such rows are skipped.
    """

    directory: LakeDirectory
    place: str
    paths: list[str]
    columns: pa.Schema
    partitions: tuple[str, ...]
    names: tuple[str, ...]
    condition: pc.Expression | None = None

    __repr__ = object.__repr__

    @property
    def table_url(self) -> str:
        """URL of the table's directory."""
        return f"{self.directory.uri}/{self.place}"

    @property
    def selected_columns(self) -> pa.Schema:
        """Columns to read, in the order of `names`."""
        return pa.schema([self.columns.field(name) for name in self.names])

    def open_dataset(self, paths: list[str]) -> ds.Dataset:
        """Return some files as a dataset. No file is opened yet."""
        root = self.directory.resolve_path(self.place)
        partition_columns = pa.schema([self.columns.field(name) for name in self.partitions])
        return ds.dataset(
            [f"{root}/{path}" for path in paths],
            schema=self.columns,
            format="parquet",
            filesystem=self.directory.files,
            partitioning=ds.partitioning(partition_columns, flavor="hive"),
            partition_base_dir=root,
        )

    def select_partitions(self) -> list[str]:
        """Return the paths of the files whose partition may have a row that meets the condition."""
        if not self.paths or self.condition is None or not self.partitions:
            return self.paths
        prefix = len(self.directory.resolve_path(self.place)) + 1
        return [fragment.path[prefix:] for fragment in self.open_dataset(self.paths).get_fragments(self.condition)]

    def read_batches(self, paths: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some files. The memory holds a row group and the next one."""
        columns = {name: pc.field(name) for name in self.names}  # a text with dots would be a path in a struct
        for path in paths:  # one dataset of all files would keep the metadata of each file in memory
            for file in self.open_dataset([path]).get_fragments():
                for group in file.split_by_row_group(self.condition, self.columns):
                    yield from group.to_batches(
                        self.columns, columns, filter=self.condition, batch_size=_BATCH_ROWS, batch_readahead=1
                    )


class LakeFileSource(DataSource):
    """Files of a lake. The option `scan` has the pickled `FileScan`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return _SOURCE_NAME

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the scan. Its columns are those of `schema`."""
        return LakeFileReader(*pickle.loads(b64decode(self.options[_SCAN_OPTION])))


class _FilePartition(InputPartition):
    """Files of a task."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(None)
        self.paths = paths


class LakeFileReader(DataSourceReader):
    """Reads the files of a scan in workers."""

    def __init__(self, scan: FileScan, task_count: int) -> None:
        self._scan, self._task_count = scan, task_count

    def partitions(self) -> list[InputPartition]:
        """Return a partition for each task, with every n-th file."""
        paths, count = self._scan.paths, min(self._task_count, len(self._scan.paths))
        return [_FilePartition(paths[number::count]) for number in range(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition.

        Raises:
            StorageError: the object store cannot be used.
        """
        if not isinstance(partition, _FilePartition):  # Spark makes one of its own where there are none
            return
        with translate_store_errors():
            for batch in self._scan.read_batches(partition.paths):
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._scan.selected_columns)


def load_scan(spark: SparkSession, scan: FileScan) -> DataFrame:
    """Return the rows of a scan as a data frame. Workers of a server with Spark Connect need msgq, too."""
    _register_source(spark)
    content = b64encode(pickle.dumps((scan, _TASKS_PER_CORE * count_cores(spark)))).decode()
    source = spark.read.format(_SOURCE_NAME).schema(convert_to_spark_schema(scan.selected_columns))
    return source.option(_SCAN_OPTION, content).load()


def _register_source(spark: SparkSession) -> None:
    if not is_connect_client(spark):
        if spark._jsparkSession.sessionState().dataSourceManager().dataSourceExists(_SOURCE_NAME):
            return  # a second registration would log a warning
        # Spark refuses a name that the active session has, also if that is another session.
        sessions: Any = spark._jvm.org.apache.spark.sql.classic.SparkSession  # type: ignore[union-attr]
        sessions.setActiveSession(spark._jsparkSession)
    spark.dataSource.register(LakeFileSource)
