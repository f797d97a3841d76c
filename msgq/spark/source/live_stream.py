"""The live bus as a stream. Each message is delivered at most once, and messages may be lost.

Spark may request a batch again, but the bus does not keep messages. Therefore the driver receives messages
continuously, and keeps them in files until their batch is committed. The files end with the query. After a restart,
batches that were planned and not committed are empty, and their messages count as lost.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from msgq.errors import MissingLibraryError, RecordingError
from msgq.lake.batching import pack_by_size
from msgq.spark.source.bus_feed import open_bus_feed
from msgq.spark.source.live_buffer import LiveBuffer
from msgq.spark.source.partitions import RecordingPartition, read_log_batches
from msgq.spark.source.source_options import SourceOptions

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes
except ModuleNotFoundError as missing:
    raise MissingLibraryError("streams need pyspark 4.2 or later: pip install 'pyspark>=4.2'") from missing


#: Position of a stream. "run": id of the buffer that knows these messages; each start of the query has another buffer.
#: "messages": messages that were planned since the query's first start. "lost": messages that were published and are in
#: no batch, according to the subscribers; None: unknown.
LiveOffset = dict[str, Any]


class LiveStreamReader(DataSourceStreamReader):
    """Reads messages that are published while a query runs. Runs on the driver, except for `read`."""

    def __init__(self, options: SourceOptions, columns: pa.Schema) -> None:
        self._options = options
        self._columns = columns
        self._previous_offset: LiveOffset | None = None  # position of the query when it was started again
        self._forgotten_counts: dict[int, int] = {}  # messages of batches that were planned before, by their end

    @cached_property
    def _live_buffer(self) -> LiveBuffer:
        """The buffer, created at the first use, because Spark also creates readers only for `read`."""
        root = Path(SparkFiles.getRootDirectory())  # the session's own, which Spark removes in the end
        return LiveBuffer(open_bus_feed(self._options), root, self._options.buffer_bytes)

    def initialOffset(self) -> LiveOffset:
        """Return the current position."""
        return {"run": self._live_buffer.run, "messages": 0, "lost": self._live_buffer.lost}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit from the option `maxBytesPerTrigger`."""
        limit = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxBytes(limit)

    def latestOffset(self, start: LiveOffset, limit: ReadLimit) -> LiveOffset:
        """Return the end of the next batch."""
        if start["run"] != self._live_buffer.run:
            lost = start["lost"]
            self._previous_offset = {
                **start,
                "lost": None if lost is None else lost + sum(self._forgotten_counts.values()),
            }
        size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        count = self._live_buffer.plan_messages(start["messages"] - self._former_message_count, size)
        lost = self._live_buffer.lost
        if self._previous_offset is not None:
            lost = (
                None if lost is None or self._previous_offset["lost"] is None else lost + self._previous_offset["lost"]
            )
        if (self._former_message_count + count, lost) == (start["messages"], start["lost"]):
            return start
        return {"run": self._live_buffer.run, "messages": self._former_message_count + count, "lost": lost}

    @property
    def _former_message_count(self) -> int:
        """Number of messages planned before the buffer was created."""
        return 0 if self._previous_offset is None else self._previous_offset["messages"]

    def partitions(self, start: LiveOffset, end: LiveOffset) -> list[InputPartition]:
        """Return the files between two offsets. Empty if the files belong to an earlier run of the query."""
        if end["run"] != self._live_buffer.run:
            self._forgotten_counts[end["messages"]] = end["messages"] - start["messages"]
            return []
        files = self._live_buffer.list_files(
            start["messages"] - self._former_message_count, end["messages"] - self._former_message_count
        )
        size = self._options.choose_partition_bytes(sum(file.size_bytes for file in files))
        return [
            RecordingPartition([], paths, [])
            for paths in pack_by_size(((file.path, file.size_bytes) for file in files), size)
        ]

    def commit(self, end: LiveOffset) -> None:
        """Remove the files that are no longer needed."""
        if end["run"] == self._live_buffer.run:
            self._live_buffer.remove_committed_files(end["messages"] - self._former_message_count)

    def stop(self) -> None:
        """End the subscription."""
        buffer: LiveBuffer | None = self.__dict__.pop("_live_buffer", None)
        if buffer is not None:
            buffer.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a partition.

        Raises:
            RecordingError: the worker is not on the driver's machine.
        """
        if not isinstance(partition, RecordingPartition):
            return
        for path in partition.paths:
            try:
                log = self._options.open_log(path)
            except RecordingError as error:
                if error.errno != errno.ENOENT:
                    raise
                text = (
                    f"buffer file '{path}' is not on this machine: "
                    "workers for the live bus must run on the driver's machine; use a"
                )
                raise RecordingError(f"{text} local master, or record the bus and stream the recording") from error
            yield from read_log_batches(log, self._options, self._columns)
