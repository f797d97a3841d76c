"""Ingests recordings and rows into bronze: Spark's workers read them, and write files of the lake."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.message_source import TOPIC_SOURCE
from msgq.common.storage.url_path import RecordingPath, UrlPath
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError, StorageError
from msgq.lake.bronze.bronze_store import BronzeStore
from msgq.lake.bronze.bronze_writer import write_bronze
from msgq.lake.bronze.ingest_log import IngestedFile
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor, TaskResult, merge_results
from msgq.lake.message_columns import INGEST_COLUMNS
from msgq.lake.schema_texts import read_schema_ids, write_schemas
from msgq.recording.mcap_io.problem import Problem, make_printable_path
from msgq.spark.lake.spark_directory import SparkDirectory
from msgq.spark.source.arrow_batches import convert_to_spark_schema, read_message_batches
from msgq.spark.source.parallelism import count_cores
from msgq.spark.source.partitions import RecordingPartition, plan_file_partitions
from msgq.spark.source.source_options import SourceOptions
from msgq.spark.spark_executor import run_function_by_partition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Optional columns of appended rows.
_OPTIONAL_COLUMNS = ("origin_time", "schema_id", "kind", "publisher", "key", "options", "lost_before", "lost_after")
#: Values of missing columns, for messages of other programs' files.
_COLUMN_DEFAULTS = {"run": "", "epoch": 0, "kind": TOPIC_SOURCE.kind}
_REQUIRED_COLUMNS = ("endpoint", "sequence", "log_time", "data")
_DICTIONARY_COLUMNS = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if pa.types.is_string(field.type) else field
        for field in INGEST_COLUMNS
    ]
)


@dataclass(frozen=True, slots=True)
class IngestResult:
    """Result of an ingest.

    Attributes:
        messages: number of messages new in the lake.
        files: number of files read.
        skipped: number of unchanged files that were ingested before.
        read_errors: parts of files that could not be read.
        version: version of the messages after the ingest. Includes messages that other ingests added during the call.
    """

    messages: int
    files: int
    skipped: int
    read_errors: list[Problem]
    version: int


def ingest_recordings(
    directory: SparkDirectory,
    executor: LakeExecutor,
    bronze: BronzeStore,
    files: Sequence[RecordingPath],
    read_errors: list[Problem],
    schemas: Schemas | None,
) -> IngestResult:
    """Add recordings, except unchanged files that were ingested before.

    `read_errors`: errors found before. New errors are appended.
    """
    bronze.complete_aggregates()
    inputs = {path: file for path in files if (file := _describe_input_file(path, read_errors)) is not None}
    ingested_files = bronze.find_ingested_files(inputs.values())
    new = {path: file for path, file in inputs.items() if file not in ingested_files}
    options = SourceOptions((), schemas=schemas, core_count=count_cores(directory.spark))
    pieces = list(plan_file_partitions(options, list(new), read_errors))
    messages = bronze.commit_task_result(
        list(new.values()), read_errors, _ingest_on_workers(directory, executor, pieces, options)
    )
    return IngestResult(messages, len(new), len(inputs) - len(new), read_errors, bronze.read_version())


def append_messages(directory: SparkDirectory, bronze: BronzeStore, messages: DataFrame, recordings: str | None) -> int:
    """Add rows, with the texts of their schemas from recordings. Return the number of new rows."""
    columns = _fill_message_columns(messages)
    bronze.complete_aggregates()
    with _translate_null_errors():
        result = merge_results(
            run_function_by_partition(columns, lambda batches: TaskResult(write_bronze(batches, directory)))
        )
    if recordings is not None:
        _store_missing_schemas(directory, result.written_files.row_group_ranges, recordings)
    return bronze.commit_task_result([], [], result)


def _ingest_on_workers(
    lake: LakeDirectory, executor: LakeExecutor, pieces: Sequence[RecordingPartition], options: SourceOptions
) -> TaskResult:
    """Let workers read and write. The messages do not pass through Java, which doubles the speed.

    Each task has one piece of a file. A row group of two separate pieces would seem to overlap everything between them.
    """
    return merge_results(executor.run_tasks(pieces, lambda piece: _ingest_partition(piece, options, lake)))


def _store_missing_schemas(directory: SparkDirectory, ranges: pa.Table, recordings: str) -> None:
    """Search recordings for the texts of schemas that the lake does not contain."""
    known_ids = pa.array(sorted(read_schema_ids(directory)), pa.int64())
    new = ranges.filter(pc.and_(ranges["schema_id"].is_valid(), pc.invert(pc.is_in(ranges["schema_id"], known_ids))))
    if not new.num_rows:
        return
    first, last = pc.min(new["start_time"]).as_py(), pc.max(new["end_time"]).as_py()
    options = SourceOptions(
        (recordings,), start_time=first, end_time=last + 1, storage_options=directory.storage_options
    )
    for log in options.open_logs(options.list_files([]), []):
        for _ in log.batches("log_time"):
            continue
        write_schemas(directory, (channel.schema for channel in log.channels))


def _describe_input_file(path: RecordingPath, read_errors: list[Problem]) -> IngestedFile | None:
    """Return the current state of a file. If the file is not accessible, add a read error and return None."""
    name = make_printable_path(path.absolute())
    try:
        if isinstance(path, UrlPath):
            info = path.describe_file()
            if not info.is_file:
                raise FileNotFoundError(errno.ENOENT, "it does not exist")
            return IngestedFile(name, info.size, info.mtime_ns)
        status = path.stat()
    except OSError as error:
        read_errors.append(Problem(name, 0, f"recording '{path}' cannot be read: {error.strerror}", error.errno))
        return None
    except StorageError as error:
        read_errors.append(Problem(name, 0, str(error), error.errno))
        return None
    return IngestedFile(name, status.st_size, status.st_mtime_ns)


def _fill_message_columns(messages: DataFrame) -> DataFrame:
    """Return rows with all columns of messages. Reading the rows fails if a required value is NULL."""
    from pyspark.sql import functions as F

    types = {field.name: field.dataType for field in convert_to_spark_schema(INGEST_COLUMNS)}
    missing = {name: F.lit(None).cast(types[name]) for name in _OPTIONAL_COLUMNS if name not in messages.columns}
    columns = {name: missing.get(name, F.col(name)) for name in INGEST_COLUMNS.names}
    for name, value in _COLUMN_DEFAULTS.items():
        columns[name] = F.coalesce(columns[name], F.lit(value))
    for name in _REQUIRED_COLUMNS:
        columns[name] = F.coalesce(
            columns[name], F.raise_error(F.lit(f"column '{name}' is NULL in a row; messages need a value"))
        )
    return messages.select(*(columns[name].alias(name) for name in INGEST_COLUMNS.names))


@contextmanager
def _translate_null_errors() -> Iterator[None]:
    """Translate the errors of `_fill_message_columns` into InvalidValueError."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if error.getCondition() != "USER_RAISED_EXCEPTION":
            raise
        raise InvalidValueError((error.getMessageParameters() or {})["errorMessage"]) from None


def _ingest_partition(piece: RecordingPartition, options: SourceOptions, lake: LakeDirectory) -> TaskResult:
    """Read pieces of files, and write their messages into a lake."""
    result = TaskResult()
    logs = list(piece.open_logs(options, result.read_errors))
    result.written_files = write_bronze(
        (batch for log in logs for batch in read_message_batches(log, _DICTIONARY_COLUMNS)), lake
    )
    result.schemas = {channel.schema for log in logs for channel in log.channels if channel.schema is not None}
    result.read_errors += [problem for log in logs for problem in log.problems]
    return result
