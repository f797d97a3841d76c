"""Builds the tables of silver: workers decode files of bronze."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from msgq.lake.directory import Directory
from msgq.lake.executor import Executor
from msgq.lake.schema_texts import read_schemas
from msgq.lake.silver.manifest import SilverManifest
from msgq.lake.silver.table_assignment import SilverTable, TableAssignment
from msgq.lake.silver.writer import decode_bronze_file

_TASKS_MAX = 256  # of a job, at most


def build_silver(
    lake: Directory, executor: Executor, bronze_files: Callable[[], set[str]], full_refresh: bool = False
) -> int:
    """Decode new files of bronze, or all of them; return how many.

    bronze_files : returns those that there are.
    """
    uri = lake.uri

    def decode(bronze_files: Sequence[str], known: Mapping[str, SilverTable]) -> Iterator[pa.Table]:
        schemas = read_schemas(lake)

        def decode_share(share: Sequence[str]) -> list[pa.Table]:
            directory, tables = Directory(uri), TableAssignment(known)
            return [decode_bronze_file(directory, bronze_file, schemas, tables) for bronze_file in share]

        shares = [bronze_files[first::_TASKS_MAX] for first in range(min(_TASKS_MAX, len(bronze_files)))]
        for manifests in executor.run_tasks(shares, decode_share):
            yield from manifests

    return SilverManifest(lake).decode(bronze_files, decode, full_refresh)
