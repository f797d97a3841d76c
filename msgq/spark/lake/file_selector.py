"""Files of messages for the conditions of a query."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from threading import Lock
from typing import Any

import pyarrow as pa

from msgq.errors import RecordingError
from msgq.impl.base.argument_checks import warn_program
from msgq.lake.bronze.bronze_reader import BronzeReader
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.message_filter import MessageFilter
from msgq.lake.table_snapshot import TableSnapshot
from msgq.spark.lake.file_source import FileScan
from msgq.spark.lake.pushed_filters import make_message_filters

#: Number of files that a query may open without a warning.
UNSELECTED_FILES_MAX = 1000
_SELECTION_ADVICE = "such as lake.messages(where=\"endpoint = 'imu' AND log_time >= 1777636800000000000\")"
_CONNECT_ADVICE = 'such as lake.messages(start="2026-05-01T12:00", endpoints=["imu"])'


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
        selected = replace(scan, paths=paths).select_partitions()
        warn_of_unselected_files(len(selected), snapshot.file_count)
        return selected


def warn_of_unselected_files(opened: int, existing: int, is_connect: bool = False) -> None:
    """Warn if a query opens all of many files. `is_connect`: the session is a client of Spark Connect."""
    if opened == existing > UNSELECTED_FILES_MAX:
        advice = _CONNECT_ADVICE if is_connect else _SELECTION_ADVICE
        columns = "arguments" if is_connect else "a condition on endpoint, log_time, date or size_class"
        warn_program(
            f"a query opens all files of messages, which are more than {UNSELECTED_FILES_MAX}; to open only files with "
            f"wanted messages, add {columns}, {advice}"
        )
