"""Tasks of a query: pieces of recordings with similar sizes, and the rows of each piece."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from msgq.common.storage.url_path import RecordingPath
from msgq.errors import RecordingError
from msgq.lake.batching import pack_by_size
from msgq.recording import LogReader, Problem
from msgq.recording.mcap_io.byte_reader import open_bytes
from msgq.spark.source import arrow_batches
from msgq.spark.source.source_options import SourceOptions

_OPENED_FILES_MAX = 256  # files that are opened where the query is planned
_SAMPLED_FILES_MAX = 16  # files that are read to estimate the compression
_UNSPLIT_FILE_BYTES_MAX = 512 << 20  # maximum bytes on disk; larger files are split
_UNKNOWN_FILE_BYTES = 2**62


class RecordingPartition(InputPartition):
    """One task: pieces of files that were opened during planning, and files that are not opened yet."""

    def __init__(self, logs: list[LogReader], paths: Sequence[RecordingPath], problems: list[Problem]) -> None:
        super().__init__(None)
        self.logs = logs
        self.paths = paths
        self.problems = problems  # problems that are known already

    def open_logs(self, options: SourceOptions, problems: list[Problem]) -> Iterator[LogReader]:
        """Yield readers of all pieces. Unreadable files become problems."""
        yield from self.logs
        yield from options.open_logs(self.paths, problems)


def read_log_batches(log: LogReader, options: SourceOptions, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a piece of a file."""
    if options.wants_read_errors:
        for _ in log.batches("log_time"):
            continue
        yield from arrow_batches.make_read_error_batches(log.problems, columns)
    elif options.decoded_endpoint is not None:
        yield from arrow_batches.read_decoded_batches(log, columns)
    else:
        yield from arrow_batches.read_message_batches(log, columns)


def check_unread_files(options: SourceOptions, problems: list[Problem]) -> None:
    """Raise RecordingError if a planned file could not be read, unless the options accept read errors or losses."""
    unread = next((problem for problem in problems if problem.errno), None)
    if unread is not None and options.fail_on_data_loss and not options.wants_read_errors:
        text = (
            f"{unread} (the file existed when the query was planned); "
            "store recordings where all workers can read them, or continue"
        )
        raise RecordingError(f"{text} without the file: option('failOnDataLoss', 'false')", errno=unread.errno)


def plan_file_partitions(
    options: SourceOptions, paths: Sequence[RecordingPath], problems: list[Problem]
) -> Iterator[RecordingPartition]:
    """Yield partitions of files with similar sizes. Known skipped data becomes problems.

    The driver opens files, which takes some milliseconds each, and splits large files. If the files are many, workers
    open those that need no split.
    """
    sizes = _measure_file_sizes(paths) if len(paths) > _OPENED_FILES_MAX else {}
    whole = [path for path, size in sizes.items() if size <= _UNSPLIT_FILE_BYTES_MAX]
    growth = _estimate_compression_ratio(options, {path: sizes[path] for path in whole})
    room = options.choose_partition_bytes(round(growth * sum(sizes.values())))
    for group in pack_by_size(((path, round(growth * sizes[path])) for path in whole), room):
        yield RecordingPartition([], group, [])
    logs = options.open_logs(
        [path for path in paths if sizes.get(path, _UNKNOWN_FILE_BYTES) > _UNSPLIT_FILE_BYTES_MAX], problems
    )
    for log in logs:
        problems += log.problems
    yield from plan_log_partitions(options, logs)


def _measure_file_sizes(paths: Sequence[RecordingPath]) -> dict[RecordingPath, int]:
    """Return the sizes in bytes of the files that can be opened here."""
    sizes = {}
    for path in paths:
        with suppress(RecordingError), open_bytes(path) as reader:
            sizes[path] = reader.size_bytes
    return sizes


def _estimate_compression_ratio(options: SourceOptions, sizes: dict[RecordingPath, int]) -> float:
    """Return the ratio of uncompressed to compressed bytes, from an evenly spread sample of the files."""
    some = list(sizes)[:: len(sizes) // _SAMPLED_FILES_MAX or 1]
    measured_sizes = [(sizes[path], log.size) for path in some for log in options.open_logs([path], [])]
    stored, before = sum(size for size, _ in measured_sizes), sum(size for _, size in measured_sizes)
    return max(1.0, before / stored) if stored else 1.0


def plan_log_partitions(options: SourceOptions, logs: list[LogReader]) -> Iterator[RecordingPartition]:
    """Yield partitions of similar sizes: pieces of large files, or several small files."""
    size = options.choose_partition_bytes(sum(log.size for log in logs))
    for group in pack_by_size(((piece, piece.size) for log in logs for piece in log.split(size)), size):
        yield RecordingPartition(group, [], [])
