"""The source "msgq": MCAP recordings, ours and anybody's, as tables.

There is no `pushFilters`, on purpose: Spark (4.3) plans a reader once for each `load`, and the filters of one query
then act in all others on the same table. What prunes is: the options `endpoints`, `exclude`, `start` and `end`, and
the columns of the schema that the user gives. `msgq.spark.read` does both.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from msgq.errors import RecordingError
from msgq.recording import LogReader, Problem
from msgq.spark import rows
from msgq.spark.decode import value_type
from msgq.spark.options import Options

if TYPE_CHECKING:
    from msgq.spark.stream import RecordingStreamReader


class RecordingSource(DataSource):
    """Recordings: batch, and stream of those that are being written.

    Options: path, endpoints, exclude, start, end, decode, problems, partitionBytes; of streams also
    maxBytesPerTrigger, failOnDataLoss. See docs/spark.md.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(dict(options))

    @classmethod
    def name(cls) -> str:
        """Return what ``spark.read.format`` calls it."""
        return "msgq"

    @cached_property
    def _wanted(self) -> Options:
        return Options.parse(self.options)

    def schema(self) -> StructType:
        """Return the columns there are: with `decode`, by the schema of the endpoint, or its first messages."""
        return rows.spark_schema(self._columns())

    def _columns(self) -> pa.Schema:
        if self._wanted.problems:
            return rows.PROBLEMS
        if self._wanted.decode is None:
            return rows.MESSAGES
        for log in reversed(self._wanted.logs([])):
            value = value_type(log)
            if value is not None:
                return rows.decoded_schema(value)
        where = ", ".join(self._wanted.paths)
        text = f"there are no messages in {where}, so that their columns are unknown; give a schema, or another path"
        raise RecordingError(text, self._wanted.decode or "")

    def _columns_of(self, wanted: StructType) -> pa.Schema:
        if self._wanted.problems:
            return rows.arrow_schema(wanted, rows.PROBLEMS)
        known = rows.MESSAGES if self._wanted.decode is None else rows.decoded_schema(pa.null())
        return rows.arrow_schema(wanted, pa.schema([*known, *rows.PLACES]))

    def reader(self, schema: StructType) -> RecordingReader:
        """Return what reads; schema : the columns wanted, no others are made."""
        return RecordingReader(self._wanted, self._columns_of(schema))

    def streamReader(self, schema: StructType) -> RecordingStreamReader:
        """Return what reads recordings that grow."""
        from msgq.spark.stream import RecordingStreamReader

        return RecordingStreamReader(self._wanted, self._columns_of(schema))


class Pieces(InputPartition):
    """Pieces of files, and what is known of them so far: one task."""

    def __init__(self, logs: list[LogReader], problems: list[Problem]) -> None:
        super().__init__(None)
        self.logs = logs
        self.problems = problems


class RecordingReader(DataSourceReader):
    """Reads what there was when it was planned. Made on the driver, used on workers."""

    def __init__(self, options: Options, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the pieces, by the summaries of the files, or what takes their place."""
        problems: list[Problem] = []
        logs = self._options.logs(problems)
        for log in logs:
            problems += log.problems
        found: list[InputPartition] = list(pieces(self._options, logs))
        return found + ([Pieces([], problems)] if problems and self._options.problems else [])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of a partition."""
        if not isinstance(partition, Pieces):  # Spark makes one of its own where there are none
            return
        for log in partition.logs:
            yield from read(log, self._options, self._columns)
        if self._options.problems:
            yield from rows.problem_rows(partition.problems, self._columns)


def read(log: LogReader, options: Options, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give the rows of a piece of a file."""
    if options.problems:
        for _ in log.batches([]):
            continue
        yield from rows.problem_rows(log.problems, columns)
    elif options.decode is not None:
        yield from rows.decoded_rows(log, columns)
    else:
        yield from rows.message_rows(log, columns)


def pieces(options: Options, logs: list[LogReader]) -> Iterator[Pieces]:
    """Give partitions of about the same size: pieces of large files, several small ones together."""
    size = options.piece_bytes(sum(log.size for log in logs))
    group: list[LogReader] = []
    room = size
    for log in logs:
        for piece in log.split(size):
            if group and piece.size > room:
                yield Pieces(group, [])
                group, room = [], size
            group.append(piece)
            room -= piece.size
    if group:
        yield Pieces(group, [])
