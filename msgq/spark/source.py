"""The source "msgq": MCAP recordings, ours and anybody's, as tables; and the live bus as a stream.

There is no `pushFilters`, on purpose: Spark (4.3) plans a reader once for each `load`, and the filters of one query
then act in all others on the same table. What prunes is: the options `endpoints`, `exclude`, `start` and `end`, and
the columns of the schema that the user gives. `msgq.spark.read` does both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from msgq.errors import InvalidValueError, RecordingError
from msgq.recording import LogReader, Problem
from msgq.recording.walk import opened
from msgq.spark import rows
from msgq.spark.decode import value_type
from msgq.spark.options import Options

_T = TypeVar("_T")
_OPENED_MAX = 256  # files that are opened where the query is planned
_WHOLE_BYTES = 512 << 20  # on disk; larger files are split
_END = 2**62


class RecordingSource(DataSource):
    """Recordings: batch, and stream of those that are being written.

    Options: path, endpoints, exclude, start, end, decode, problems, partitionBytes; of streams also
    maxBytesPerTrigger, failOnDataLoss; of the live bus instead of recordings: live, backend, prefix, bufferBytes. See
    docs/spark.md.
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
        if self._wanted.live:
            text = "what will come is not known before; say it: .schema('log_time long, value struct<x: double>')"
            raise InvalidValueError(text, self._wanted.decode)
        for path in reversed(self._wanted.files([])):
            for log in self._wanted.opened([path], []):
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
        if self._wanted.live:
            raise InvalidValueError("the live bus has no end; it is a stream: spark.readStream")
        return RecordingReader(self._wanted, self._columns_of(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return what reads recordings that grow, or the bus."""
        if self._wanted.live:
            from msgq.spark.live import LiveStreamReader

            return LiveStreamReader(self._wanted, self._columns_of(schema))
        from msgq.spark.stream import RecordingStreamReader

        return RecordingStreamReader(self._wanted, self._columns_of(schema))


class Pieces(InputPartition):
    """One task: pieces of files that were opened when it was planned, and files that are not opened yet."""

    def __init__(self, logs: list[LogReader], paths: list[Path], problems: list[Problem]) -> None:
        super().__init__(None)
        self.logs = logs
        self.paths = paths
        self.problems = problems  # that are known so far

    def opened(self, options: Options, problems: list[Problem]) -> Iterator[LogReader]:
        """Give readers of all of it; files that cannot be read are noted."""
        yield from self.logs
        yield from options.opened(self.paths, problems)


class RecordingReader(DataSourceReader):
    """Reads what there was when it was planned. Made on the driver, used on workers."""

    def __init__(self, options: Options, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        """Return the pieces, by the summaries of the files, or what takes their place."""
        problems: list[Problem] = []
        found: list[InputPartition] = list(tasks(self._options, self._options.files(problems), problems))
        return found + ([Pieces([], [], problems)] if problems and self._options.problems else [])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Give the rows of a partition.

        Raises
        ------
        RecordingError : a file could be opened where the query was planned, and cannot be here (unless `failOnDataLoss`
            is false, or problems are wanted).
        """
        if not isinstance(partition, Pieces):  # Spark makes one of its own where there are none
            return
        for log in partition.opened(self._options, partition.problems):
            yield from read(log, self._options, self._columns)
            check_read(self._options, log.problems)
        check_read(self._options, partition.problems)
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


def check_read(options: Options, problems: list[Problem]) -> None:
    """Raise RecordingError where a file that was planned could not be read, unless problems or losses are fine."""
    unread = next((problem for problem in problems if problem.errno), None)
    if unread is not None and options.fail_on_data_loss and not options.problems:
        text = f"{unread}, though it was there when this was planned; put recordings where all workers see them, or go"
        raise RecordingError(f"{text} on without it: option('failOnDataLoss', 'false')", errno=unread.errno)


def tasks(options: Options, paths: Sequence[Path], problems: list[Problem]) -> Iterator[Pieces]:
    """Give partitions of files, about the same size; what is known to be skipped is noted.

    Files are opened here, and large ones split; each costs some milliseconds, so that of very many the workers open
    those that need no splitting.
    """
    sizes = _sizes(paths) if len(paths) > _OPENED_MAX else {}
    whole = [path for path, size in sizes.items() if size <= _WHOLE_BYTES]
    room = options.piece_bytes(sum(sizes.values()))
    for group in packed(((path, sizes[path]) for path in whole), room):
        yield Pieces([], group, [])
    logs = options.opened([path for path in paths if sizes.get(path, _END) > _WHOLE_BYTES], problems)
    for log in logs:
        problems += log.problems
    yield from pieces(options, logs)


def _sizes(paths: Sequence[Path]) -> dict[Path, int]:
    """Return the bytes of those files that can be opened here; what is wrong with others, no worker needs to find."""
    sizes = {}
    for path in paths:
        with suppress(RecordingError), opened(path) as fd:
            sizes[path] = os.fstat(fd).st_size
    return sizes


def pieces(options: Options, logs: list[LogReader]) -> Iterator[Pieces]:
    """Give partitions of about the same size: pieces of large files, several small ones together."""
    size = options.piece_bytes(sum(log.size for log in logs))
    for group in packed(((piece, piece.size) for log in logs for piece in log.split(size)), size):
        yield Pieces(group, [], [])


def packed(things: Iterable[tuple[_T, int]], room: int) -> Iterator[list[_T]]:
    """Give things, in their order, in groups of this size at most; larger ones alone."""
    group: list[_T] = []
    left = room
    for thing, size in things:
        if group and size > left:
            yield group
            group, left = [], room
        group.append(thing)
        left -= size
    if group:
        yield group
