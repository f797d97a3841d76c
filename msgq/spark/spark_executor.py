"""Runs tasks of a lake in Spark's Python workers, and returns the results. The data does not pass through Java."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from msgq.lake.bronze.bronze_writer import UncommittedFiles, write_bronze
from msgq.lake.bronze.duplicate_messages import MESSAGE_KEYS_SCHEMA, read_message_keys, read_rows_except
from msgq.lake.lake_directory import LakeDirectory
from msgq.spark import tables
from msgq.spark.runtime.connect_client import is_connect_client
from msgq.spark.source.arrow_batches import convert_to_spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TaskT = TypeVar("_TaskT")
_ResultT = TypeVar("_ResultT")
_TASK_FRAME_SCHEMA = pa.schema([("number", pa.int64()), ("task", pa.binary())])
_TASK_RESULT_SCHEMA = pa.schema([("number", pa.int64()), ("result", pa.binary())])


class SparkExecutor:
    """Runs the work of a lake in Spark's Python workers. The messages do not pass through Java."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def run_tasks(self, tasks: Sequence[_TaskT], function: Callable[[_TaskT], _ResultT]) -> list[_ResultT]:
        """Run a function on all tasks at once. Return the results in the order of the tasks."""
        return run_tasks_on_workers(self.spark, tasks, function)

    def rewrite_duplicates(
        self, lake: LakeDirectory, doubtful: Sequence[str], met: Sequence[str]
    ) -> dict[str, UncommittedFiles]:
        """Rewrite the bronze files in `doubtful` that contain messages of other files.

        Return the new files by old file.

        Spark shuffles only the keys of the messages. The writing workers read all other columns from the files.
        """
        parts = [*doubtful, *met]

        def read_keys(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for number, part in unpack_tasks(batches):
                yield from read_message_keys(lake, part, number, number >= len(doubtful))

        def write_without_duplicates(duplicates: pa.Table) -> UncommittedFiles:
            part, rows = parts[duplicates["file_number"][0].as_py()], np.asarray(duplicates["row_number"])
            return write_bronze(read_rows_except(lake, part, rows), lake)

        compared = make_task_frame(self.spark, parts).mapInArrow(
            read_keys, convert_to_spark_schema(MESSAGE_KEYS_SCHEMA)
        )
        results = run_function_by_key(tables.find_duplicates(compared), "file_number", write_without_duplicates)
        return {parts[number]: written for number, written in results.items()}


def make_task_frame(spark: SparkSession, tasks: Sequence[Any]) -> DataFrame:
    """Return a data frame with one partition for each task. Workers read the tasks with `unpack_tasks`."""
    rows = pa.Table.from_pydict(
        {"number": range(len(tasks)), "task": list(map(pickle.dumps, tasks))}, _TASK_FRAME_SCHEMA
    )
    return spark.createDataFrame(rows).repartitionByRange(len(tasks), "number")


def run_tasks_on_workers(
    spark: SparkSession, tasks: Sequence[_TaskT], function: Callable[[_TaskT], _ResultT]
) -> list[_ResultT]:
    """Run a function on all tasks at once, in workers. Return the results in the order of the tasks.

    A job on an RDD needs neither a plan nor a shuffle, and takes a third of the time of a job on a data frame. Spark
    Connect has no RDDs.
    """
    if not tasks:
        return []
    if not is_connect_client(spark):
        return spark.sparkContext.parallelize(tasks, len(tasks)).map(function).collect()
    results = make_task_frame(spark, tasks).mapInArrow(
        lambda batches: _run_tasks_of_partition(batches, function), convert_to_spark_schema(_TASK_RESULT_SCHEMA)
    )
    return list(_collect_results(results).values())


def run_function_by_key(rows: DataFrame, key: str, function: Callable[[pa.Table], _ResultT]) -> dict[int, _ResultT]:
    """Run a function in workers on the rows of each number in a column. Return the results by number."""

    def compute_group_result(rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches([_make_result_batch(rows.column(key)[0].as_py(), function(rows))])

    return _collect_results(
        rows.groupBy(key).applyInArrow(compute_group_result, convert_to_spark_schema(_TASK_RESULT_SCHEMA))
    )


def run_function_by_partition(
    rows: DataFrame, function: Callable[[Iterable[pa.RecordBatch]], _ResultT]
) -> list[_ResultT]:
    """Run a function in workers on each partition of the rows. Return the results."""

    def compute_partition_result(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _make_result_batch(0, function(batches))

    results = rows.mapInArrow(compute_partition_result, convert_to_spark_schema(_TASK_RESULT_SCHEMA))
    return list(map(pickle.loads, _collect_columns(results)["result"]))


def _collect_results(results: DataFrame) -> dict[int, Any]:
    """Return the results of tasks by number. The results are small: a few rows for each endpoint and task."""
    columns = _collect_columns(results)
    return dict(zip(columns["number"], map(pickle.loads, columns["result"]), strict=True))


def _collect_columns(results: DataFrame) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = results.toArrow().sort_by("number").to_pydict()
    return columns


# ---- on workers ----


def unpack_tasks(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    """Yield number and task of each row in a partition of a task frame."""
    for row in (row for batch in batches for row in batch.to_pylist()):
        yield row["number"], pickle.loads(row["task"])


def _run_tasks_of_partition(
    batches: Iterable[pa.RecordBatch], function: Callable[[Any], object]
) -> Iterator[pa.RecordBatch]:
    for number, task in unpack_tasks(batches):
        yield _make_result_batch(number, function(task))


def _make_result_batch(number: int, result: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"number": [number], "result": [pickle.dumps(result)]}, _TASK_RESULT_SCHEMA)
