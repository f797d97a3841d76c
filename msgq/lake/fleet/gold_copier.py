"""Reads the gold tables of lakes, and writes their rows into files of fleet tables, on a worker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.store_errors import describe_store_error
from msgq.common.storage.urls import StorageOptions
from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.batching import pack_by_size
from msgq.lake.catalog import is_lake_directory
from msgq.lake.data_file import DataFile
from msgq.lake.fleet.fleet_lakes import FleetLake, open_fleet_directory
from msgq.lake.fleet.fleet_tables import (
    FLEET_FILE_BYTES,
    LAKES_TABLE,
    get_file_columns,
    refuse_fleet_directory,
    write_fleet_file,
)
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.gold.gold_files import GOLD_TABLE_SCHEMAS, get_stored_columns, open_gold_table
from msgq.lake.gold.increment_inputs import read_gold_version
from msgq.lake.lake_directory import LakeDirectory

_READ_ERRORS = (RecordingError, InvalidValueError, OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class LakeProblem:
    """A lake that could not be read. `lake`: path. `reason`: error message."""

    lake: str
    reason: str


@dataclass(frozen=True, slots=True)
class GoldVersion:
    """Version of the gold of a lake, and the bytes of its gold tables."""

    lake: FleetLake
    version: str
    size_bytes: int


def inspect_lake(
    lake: FleetLake, known_version: str | None, storage_options: StorageOptions
) -> GoldVersion | LakeProblem | None:
    """Return the version of a lake's gold, or an error; None: gold still has the known version."""
    try:
        directory = open_fleet_directory(lake.path, storage_options)
        version = read_gold_version(directory)
        if version is None:
            return LakeProblem(lake.path, _explain_missing_gold(directory))
        if version == known_version:
            return None
        sources = _GoldSource(lake, storage_options).files_by_table.values()
        return GoldVersion(lake, version, sum(file.size_bytes for files in sources for file in files))
    except _READ_ERRORS as error:
        raise_handler_error(error)
        return _describe_problem(lake.path, error)


def is_missing_lake(path: str, storage_options: StorageOptions) -> bool:
    """Return True if a directory no longer exists, or is no longer a lake."""
    try:
        return not is_lake_directory(open_fleet_directory(path, storage_options))
    except _READ_ERRORS as error:
        raise_handler_error(error)
        return False


def _explain_missing_gold(directory: LakeDirectory) -> str:
    refuse_fleet_directory(directory)
    if not is_lake_directory(directory):
        return "lake not found; to create it, run msgq lake ingest"
    return "lake has no gold tables; to build them, run msgq lake ingest"


def _describe_problem(lake: str, error: BaseException) -> LakeProblem:
    return LakeProblem(lake, describe_store_error(str(error)) or str(error).partition("\n")[0])


@dataclass(frozen=True, slots=True)
class CopyResult:
    """Result of a task: the written files by table, the copied lakes, and the unreadable lakes."""

    files: Mapping[str, Sequence[DataFile]]
    lakes: Sequence[FleetLake]
    problems: Sequence[LakeProblem]


def copy_gold(fleet: LakeDirectory, versions: Iterable[GoldVersion], storage_options: StorageOptions) -> CopyResult:
    """Write the gold of lakes into files of the fleet tables: one file for each table and date.

    A larger table has several files, so that the rows of a file fit into the worker's memory. If a lake is not
    readable, no file has rows of the lake.
    """
    sources: dict[str, _GoldSource] = {}
    problems: list[LakeProblem] = []
    versions_by_path = {version.lake.path: version for version in versions}
    for path, version in versions_by_path.items():
        try:
            sources[path] = _GoldSource(version.lake, storage_options)
        except _READ_ERRORS as error:
            raise_handler_error(error)
            problems.append(_describe_problem(path, error))
    while True:
        copied = [versions_by_path[path] for path in sources]
        try:
            return CopyResult(_write_tables(fleet, sources, copied), [version.lake for version in copied], problems)
        except _GoldReadError as error:
            problems.append(_describe_problem(error.lake, error.reason))
            del sources[error.lake]


class _GoldReadError(Exception):
    """A file of a lake is not readable."""

    def __init__(self, lake: str, reason: BaseException) -> None:
        super().__init__(lake, reason)
        self.lake, self.reason = lake, reason


class _GoldSource:
    """Gold tables of a lake, in their versions at the time of the construction."""

    def __init__(self, lake: FleetLake, storage_options: StorageOptions) -> None:
        self.lake = lake
        self._directory = open_fleet_directory(lake.path, storage_options)
        self.files_by_table: dict[str, list[DataFile]] = {}
        for name in GOLD_TABLE_NAMES:
            snapshot = open_gold_table(self._directory, name).read_snapshot()
            self.files_by_table[name] = [] if snapshot is None else list(snapshot.files_by_path.values())
        self.date = lake.date or self._find_first_date()

    def read_rows(self, name: str, paths: Sequence[str]) -> pa.Table:
        """Return the rows of files of a table, with the columns of a fleet table."""
        try:
            rows = self._read_gold(name, paths, GOLD_TABLE_SCHEMAS[name].names)
            return self._add_lake_columns(rows).select(get_file_columns(name).names)
        except _READ_ERRORS as error:
            raise_handler_error(error)
            raise _GoldReadError(self.lake.path, error) from None

    def _read_gold(self, name: str, paths: Sequence[str], columns: Sequence[str]) -> pa.Table:
        return open_gold_table(self._directory, name).read_rows(paths, get_stored_columns(name), names=columns)

    @cached_property
    def _endpoint_rows(self) -> pa.Table:
        paths = [file.path for file in self.files_by_table["endpoints"]]
        return self._read_gold("endpoints", paths, ["run", "host", "start_time"])

    def _find_first_date(self) -> date:
        first = pc.min(self._endpoint_rows.column("start_time")).as_py() or 0
        return datetime.fromtimestamp(first // NS_PER_S, UTC).date()

    def _add_lake_columns(self, rows: pa.Table) -> pa.Table:
        lake = pa.repeat(pa.scalar(self.lake.path, pa.string()), rows.num_rows)
        rows = rows.append_column("lake", lake)
        if self.lake.host is not None:
            host = pa.repeat(pa.scalar(self.lake.host, pa.string()), rows.num_rows)
            names = [name for name in rows.column_names if name != "host"]
            return rows.select(names).append_column("host", host)
        return rows if "host" in rows.column_names else rows.append_column("host", self._find_hosts(rows["run"]))

    def _find_hosts(self, runs: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return the host of each run; NULL for a run of several hosts."""
        hosts = self._endpoint_rows.group_by("run").aggregate([("host", "min"), ("host", "max")])
        single_hosts = hosts.filter(pc.equal(hosts["host_min"], hosts["host_max"])).combine_chunks()
        return single_hosts["host_min"].take(pc.index_in(runs, single_hosts["run"]))


def _write_tables(
    fleet: LakeDirectory, sources: Mapping[str, _GoldSource], versions: Iterable[GoldVersion]
) -> dict[str, list[DataFile]]:
    """Write the gold tables of lakes, and the rows of the lakes themselves. Return the files by table."""
    files: dict[str, list[DataFile]] = defaultdict(list)
    versions_by_path = {version.lake.path: version.version for version in versions}
    ordered = sorted(sources.values(), key=lambda source: (source.date, source.lake.host or "", source.lake.path))
    for day, some in groupby(ordered, key=lambda source: source.date):
        group = list(some)
        for name in GOLD_TABLE_NAMES:
            files[name] += _write_gold_table(fleet, name, day, group)
        rows = [
            {"gold_version": versions_by_path[path], "lake": path, "host": source.lake.host}
            for source in group
            if (path := source.lake.path)
        ]
        lakes = pa.Table.from_pylist(rows, get_file_columns(LAKES_TABLE))
        files[LAKES_TABLE].append(write_fleet_file(fleet, LAKES_TABLE, day, lakes))
    return files


def _write_gold_table(fleet: LakeDirectory, name: str, day: date, sources: Iterable[_GoldSource]) -> list[DataFile]:
    sized = (((source, file.path), file.size_bytes) for source in sources for file in source.files_by_table[name])
    files = []
    for group in pack_by_size(sized, FLEET_FILE_BYTES):
        parts = [
            source.read_rows(name, [path for _, path in some])
            for source, some in groupby(group, key=lambda item: item[0])
        ]
        files.append(write_fleet_file(fleet, name, day, pa.concat_tables(parts)))
    return files
