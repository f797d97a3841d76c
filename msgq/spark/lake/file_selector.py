"""Files of messages for the conditions of a query."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import pyarrow as pa

from msgq.errors import RecordingError
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_filter import MessageFilter
from msgq.lake.table_snapshot import TableSnapshot
from msgq.spark.lake.file_source import FileScan
from msgq.spark.lake.pushed_filters import make_message_filters


class FileSelector:
    """Selects files of messages for conditions. Any thread may use it."""

    def __init__(self, lake: LakeDirectory) -> None:
        self._reader, self._lock = BronzeReader(lake), Lock()

    def select_paths(self, snapshot: TableSnapshot, filters: Sequence[MessageFilter]) -> list[str]:
        """Return the paths of the files that may have a message that passes a filter.

        If the aggregates of the lake are damaged, the paths of all files: the query itself does not need them.
        """
        if MessageFilter() not in filters:
            with self._lock, suppress(RecordingError, OSError, pa.ArrowException):
                return self._reader.select_paths(snapshot, filters)
        return snapshot.paths

    def select_scan_paths(self, snapshot: TableSnapshot, conditions: Sequence[Any], scan: FileScan) -> list[str]:
        """Return the paths of the files for a scan by Python workers. `conditions`: see `make_message_filters`."""
        paths = self.select_paths(snapshot, make_message_filters(conditions))
        return replace(scan, paths=paths).select_partitions()
