"""Bronze and silver without Spark: parts written by hand, decoded here, or by a child who is killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from msgq.common.schema import Schema
from msgq.decoding.arrow_types import cast_table_columns, find_common_columns
from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.silver.silver_decoder import SILVER_INPUT_COLUMNS, SILVER_SOURCE_COLUMNS
from msgq.lake.silver.silver_manifest import SilverManifest
from msgq.lake.silver.silver_writer import decode_bronze_file
from msgq.lake.silver.table_assignment import SilverTable, TableAssignment, open_silver_table
from tests.lake import rows
from tests.lake.kills import die_at, kill

BRONZE = pa.schema([*SILVER_INPUT_COLUMNS, *SILVER_SOURCE_COLUMNS])
_CUT = 100_000  # rows of a row group


def json_message(endpoint: str, sequence: int, value: Any, **columns: Any) -> dict[str, Any]:
    """Return a row of bronze."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return message(endpoint, sequence, "json", data, **columns)


def message(endpoint: str, sequence: int, encoding: str, data: bytes, **columns: Any) -> dict[str, Any]:
    """Return a row of bronze."""
    return rows.message(endpoint, sequence, sequence, encoding=encoding, data=data, **columns)


class Lake:
    """A lake of parts by hand."""

    def __init__(self, path: Path, schemas: Mapping[int, Schema] | None = None) -> None:
        self.path, self.directory, self.schemas = path, LakeDirectory(path), schemas or {}
        self.manifest = SilverManifest(self.directory)
        self.bronze = BRONZE
        self.decoded: list[str] = []  # all decoded parts, in order

    def add(self, name: str, rows: Iterable[dict[str, Any]], date: str = "1970-01-01") -> str:
        """Write a part, sorted by endpoint as those of bronze."""
        table = pa.Table.from_pylist(sorted(rows, key=lambda row: row["endpoint"]), BRONZE)
        return self.add_table(name, table, date)

    def add_table(self, name: str, rows: pa.Table, date: str = "1970-01-01") -> str:
        part = f"date={date}/size_class=small/{name}.parquet"
        path = self.path / "messages" / part
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, row_group_size=_CUT)
        return part

    def parts(self) -> set[str]:
        return {str(path.relative_to(self.path / "messages")) for path in self.path.glob("messages/*/*/*.parquet")}

    def run(self, parts: Sequence[str], known: Mapping[str, SilverTable]) -> Iterator[pa.Table]:
        """Decode as workers do that know nothing of each other."""
        for part in parts:
            self.decoded.append(part)
            yield decode_bronze_file(self.directory, part, self.schemas, TableAssignment(known))

    def decode(self, full_refresh: bool = False, parts: Callable[[], set[str]] | None = None) -> int:
        return self.manifest.decode_bronze_files(parts or self.parts, self.run, full_refresh)

    def rows(self, endpoint: str) -> pa.Table:
        """Return the decoded messages of an endpoint, as all readers have to put them together."""
        tables, columns = [], pa.schema([])
        for source in self.manifest.list_endpoint_files(endpoint):
            for file in source.file_paths:
                rows = pq.ParquetFile(
                    open_silver_table(self.directory, source.table_name).resolve_file_path(file)
                ).read()
                rows = rows.filter(pa.compute.equal(rows.column("endpoint"), endpoint))
                tables.append(
                    cast_table_columns(cast_table_columns(rows, source.table_columns), source.endpoint_columns)
                )
            columns = find_common_columns(columns, source.endpoint_columns)
        return pa.concat_tables([cast_table_columns(rows, columns) for rows in tables]).sort_by("sequence")

    def values(self, endpoint: str, *names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in self.rows(endpoint).to_pylist()]

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of all tables of silver, as whoever reads them without the manifest sees them."""
        rows_by_table = {}
        for path in sorted((self.path / "silver").glob("*/_delta_log")):
            snapshot = open_silver_table(self.directory, path.parent.name).read_snapshot()
            assert snapshot is not None
            rows_by_table[path.parent.name] = snapshot.read_rows().to_pylist()
        return rows_by_table

    def files(self) -> set[str]:
        """Return all Parquet files of silver on the disk."""
        return {str(path.relative_to(self.path)) for path in self.path.glob("silver/*/*/*.parquet")}


def decode_killed(lake: str, place: int, full_refresh: bool) -> None:
    """Decode, and die before or after a commit."""
    with die_at(place, kill, (LakeTable, "commit_files"), (LakeDirectory, "write_json")):
        Lake(Path(lake)).decode(full_refresh=full_refresh)
