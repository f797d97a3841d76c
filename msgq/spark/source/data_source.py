"""The Spark source "msgq": MCAP recordings of any program as tables, and the live bus as a stream.

The source intentionally has no `pushFilters`. Spark (4.3) plans a reader once for each `load`, and the filters of one
query would affect all other queries on the same table. To read less, use the options `endpoints`, `exclude`, `start`
and `end`, and the columns of a user schema. `msgq.spark.read` supports both.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.message_columns import MESSAGE_COLUMNS, OPTIONAL_COLUMNS, READ_ERRORS_SCHEMA
from msgq.recording import Problem
from msgq.spark.source import arrow_batches
from msgq.spark.source.partitions import RecordingPartition, check_unread_files, plan_file_partitions, read_log_batches
from msgq.spark.source.schema_inference import infer_value_type
from msgq.spark.source.source_options import SourceOptions


class RecordingSource(DataSource):
    """Recordings as tables, and growing recordings as streams.

    Options: path, endpoints, exclude, start, end, clock, decode, readErrors, partitionBytes. For streams also
    maxBytesPerTrigger, failOnDataLoss, checkpointLocation. For the live bus instead of recordings: live, backend,
    prefix, bufferBytes. See docs/guides/spark.md.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return "msgq"

    @cached_property
    def parsed_options(self) -> SourceOptions:
        """The parsed options. Raises InvalidValueError for invalid options."""
        return SourceOptions.parse_options(self.options)

    def schema(self) -> StructType:
        """Return the available columns. With `decode`, they follow from the endpoint's schema or its first messages."""
        return arrow_batches.convert_to_spark_schema(self._find_source_columns())

    def _find_source_columns(self) -> pa.Schema:
        if self.parsed_options.wants_read_errors:
            return READ_ERRORS_SCHEMA
        if self.parsed_options.decoded_endpoint is None:
            return MESSAGE_COLUMNS
        if self.parsed_options.is_live:
            text = (
                "the columns of a live stream are unknown; "
                "give a schema: .schema('log_time long, value struct<x: double>')"
            )
            raise InvalidValueError(text, self.parsed_options.decoded_endpoint)
        for path in reversed(self.parsed_options.list_files([])):
            for log in self.parsed_options.open_logs([path], []):
                value = infer_value_type(log)
                if value is not None:
                    return arrow_batches.make_value_columns_schema(value)
        where = ", ".join(self.parsed_options.paths)
        text = f"no messages in {where}, so the columns are unknown; give a schema, or another path"
        raise RecordingError(text, self.parsed_options.decoded_endpoint or "")

    def _select_user_columns(self, user_schema: StructType) -> pa.Schema:
        if self.parsed_options.wants_read_errors:
            return arrow_batches.convert_to_arrow_schema(user_schema, READ_ERRORS_SCHEMA)
        known_columns = (
            MESSAGE_COLUMNS
            if self.parsed_options.decoded_endpoint is None
            else arrow_batches.make_value_columns_schema(pa.null())
        )
        return arrow_batches.convert_to_arrow_schema(user_schema, pa.schema([*known_columns, *OPTIONAL_COLUMNS]))

    def reader(self, schema: StructType) -> RecordingReader:
        """Return a reader of these columns."""
        if self.parsed_options.is_live:
            raise InvalidValueError("the live bus is endless; read it as a stream with spark.readStream")
        return RecordingReader(self.parsed_options, self._select_user_columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of growing recordings or of the bus."""
        if self.parsed_options.is_live:
            from msgq.spark.source.live_stream import LiveStreamReader

            return LiveStreamReader(self.parsed_options, self._select_user_columns(schema))
        from msgq.spark.source.file_stream import RecordingStreamReader

        return RecordingStreamReader(self.parsed_options, self._select_user_columns(schema))


class RecordingReader(DataSourceReader):
    """Reads the recordings that existed when it was created. Created on the driver, used on workers."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the partitions, planned by the summaries of the files or by scans."""
        problems: list[Problem] = []
        partitions: list[InputPartition] = list(
            plan_file_partitions(self._options, self._options.list_files(problems), problems)
        )
        return partitions + (
            [RecordingPartition([], [], problems)] if problems and self._options.wants_read_errors else []
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition.

        Raises:
            RecordingError: a file could be opened on the driver and cannot be opened here, unless `failOnDataLoss` is
                false or the query reads read errors.
        """
        if not isinstance(partition, RecordingPartition):  # Spark makes one of its own where there are none
            return
        for log in partition.open_logs(self._options, partition.problems):
            yield from read_log_batches(log, self._options, self._columns)
            check_unread_files(self._options, log.problems)
        check_unread_files(self._options, partition.problems)
        if self._options.wants_read_errors:
            yield from arrow_batches.make_read_error_batches(partition.problems, self._columns)
