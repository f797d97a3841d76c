"""Builds the silver tables: workers decode bronze files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor
from msgq.lake.schema_texts import read_schemas
from msgq.lake.silver.silver_manifest import SilverManifest
from msgq.lake.silver.silver_writer import decode_bronze_file
from msgq.lake.silver.table_assignment import SilverTable, TableAssignment
from msgq.lake.text_columns import TextColumn

_TASKS_MAX = 256  # maximum tasks of a job


def build_silver(
    lake: LakeDirectory, executor: LakeExecutor, bronze_files: Callable[[], TextColumn], full_refresh: bool = False
) -> int:
    """Decode new bronze files, or all of them. Return the number of decoded files.

    `bronze_files`: returns the existing bronze files.
    """

    def decode_bronze_files(
        bronze_files: Sequence[str], silver_tables: Mapping[str, SilverTable]
    ) -> Iterator[pa.Table]:
        schemas = read_schemas(lake)

        def decode_share(share: Sequence[str]) -> list[pa.Table]:
            tables = TableAssignment(silver_tables)
            return [decode_bronze_file(lake, bronze_file, schemas, tables) for bronze_file in share]

        shares = [bronze_files[first::_TASKS_MAX] for first in range(min(_TASKS_MAX, len(bronze_files)))]
        for manifests in executor.run_tasks(shares, decode_share):
            yield from manifests

    return SilverManifest(lake).decode_bronze_files(bronze_files, decode_bronze_files, full_refresh)
