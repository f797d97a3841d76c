"""Builds fleet tables from the gold tables of many lakes.

An update has up to three jobs on workers. The first one compares the version of each lake's gold with the version of
the previous update. The second one copies the gold of the other lakes into new files. The third one writes old files
again, without the rows of these lakes. One commit per table replaces the old rows. The commit of the table `_lakes` is
the last one. After a kill, a table has old or new rows, and the next update copies the same lakes again.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.storage.urls import StorageOptions, make_absolute_path
from msgq.errors import InvalidValueError
from msgq.lake.batching import call_for_each, pack_by_size
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import CommitConflictError
from msgq.lake.fleet.fleet_lakes import (
    FleetLake,
    find_fleet_lakes,
    open_fleet_directory,
    parse_lake_path,
)
from msgq.lake.fleet.fleet_tables import (
    FLEET_TABLE_NAMES,
    LAKES_TABLE,
    get_table_columns,
    list_rewrite_tasks,
    open_fleet_table,
    rewrite_files,
)
from msgq.lake.fleet.gold_copier import (
    CopyResult,
    GoldVersion,
    LakeProblem,
    copy_gold,
    inspect_lake,
    is_missing_lake,
)
from msgq.lake.gold.gold_builder import GOLD_TABLE_NAMES
from msgq.lake.lake_executor import LakeExecutor
from msgq.lake.table_snapshot import TableSnapshot

_INSPECT_TASKS_MAX = 64
_LAKES_PER_INSPECT_TASK = 16  # minimum lakes of a task
_COPY_TASK_BYTES = 64 << 20  # approximate bytes of gold files that a task copies
_LAKE_COST_BYTES = 2 << 20  # a lake costs as much as so many bytes
_RETAIN_HOURS = 168

_ItemT = TypeVar("_ItemT")
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, slots=True)
class FleetResult:
    """Result of an update of fleet tables.

    Attributes:
        copied: number of lakes whose rows are new.
        unchanged: number of lakes whose gold has not changed since the previous update.
        removed: number of missing lakes whose rows were removed.
        problems: lakes that could not be read. The tables keep the previous rows of these lakes.
    """

    copied: int
    unchanged: int
    removed: int
    problems: list[LakeProblem]


class FleetBuilder:
    """Fleet tables in a directory. Any number of writers and readers, each in one thread."""

    def __init__(
        self, path: str | os.PathLike[str], executor: LakeExecutor, storage_options: StorageOptions = None
    ) -> None:
        """Set the directory of the fleet tables, which may not exist yet.

        Args:
            storage_options: credentials and settings for the URLs of the fleet tables and of the lakes.

        Raises:
            InvalidValueError: the path on disk contains a backslash, or % and two hexadecimal digits.
        """
        self._path = make_absolute_path(path)
        self._fleet, self._executor = open_fleet_directory(self._path, storage_options), executor
        self._storage_options = storage_options
        self._tables = {name: open_fleet_table(self._fleet, name) for name in FLEET_TABLE_NAMES}

    def build_fleet(
        self, lakes: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], remove_missing: bool = False
    ) -> FleetResult:
        """Copy the gold of lakes that changed since the previous update.

        Args:
            lakes: directories, patterns such as `lakes/date=*/host=*`, or URLs; or one of them.
            remove_missing: remove the rows of all lakes that no longer exist.

        Raises:
            InvalidValueError: the directory of the fleet tables is a lake, or no directory matches.
            RecordingError: a table cannot be written.
        """
        paths = find_fleet_lakes(self._path, lakes, self._storage_options)
        while True:
            try:
                return self._build_fleet(paths, remove_missing)
            except CommitConflictError:  # another process updates the same tables
                continue

    def _build_fleet(self, paths: Sequence[str], remove_missing: bool) -> FleetResult:
        # The snapshots come first: a lake that another process copies later is then a conflict.
        base = self._read_table_snapshots()
        missing = self._find_missing_lakes(base[LAKES_TABLE]) if remove_missing else []
        lakes, problems = _parse_lake_paths(sorted(set(paths) - {lake.path for lake in missing}))
        found = self._inspect_lakes(lakes, _read_known_versions(base[LAKES_TABLE], lakes))
        problems += [item for item in found if isinstance(item, LakeProblem)]
        copied = self._copy_lakes([item for item in found if isinstance(item, GoldVersion)])
        problems += [problem for result in copied for problem in result.problems]
        stale = [*missing, *(lake for result in copied for lake in result.lakes)]
        if stale:
            self._replace_rows(base, copied, stale)
        return FleetResult(len(stale) - len(missing), found.count(None), len(missing), problems)

    def _read_table_snapshots(self) -> dict[str, TableSnapshot]:
        """Return the current version of all tables. Creates missing tables, so that readers find all of them."""

        def read_snapshot(name: str) -> TableSnapshot:
            while (snapshot := self._tables[name].read_snapshot()) is None:
                self._tables[name].commit_files(None, get_table_columns(name))
            return snapshot

        marked = read_snapshot(LAKES_TABLE)  # the first one, because it marks the directory
        return call_for_each(read_snapshot, GOLD_TABLE_NAMES) | {LAKES_TABLE: marked}

    def _find_missing_lakes(self, snapshot: TableSnapshot) -> list[FleetLake]:
        known_lakes = snapshot.read_rows(["lake"]).column("lake").to_pylist()
        options = self._storage_options
        is_missing = self._map_lakes(known_lakes, lambda path: is_missing_lake(path, options))
        return [parse_lake_path(path) for path, gone in zip(known_lakes, is_missing, strict=True) if gone]

    def _inspect_lakes(
        self, lakes: Sequence[FleetLake], old_versions: Mapping[str, str]
    ) -> list[GoldVersion | LakeProblem | None]:
        options = self._storage_options
        return self._map_lakes(
            [(lake, old_versions.get(lake.path)) for lake in lakes], lambda item: inspect_lake(*item, options)
        )

    def _map_lakes(self, items: Sequence[_ItemT], function: Callable[[_ItemT], _ResultT]) -> list[_ResultT]:
        """Call a function for each lake, on workers. Return the results in the order of the lakes."""
        size = max(_LAKES_PER_INSPECT_TASK, -(-len(items) // _INSPECT_TASKS_MAX))
        shares = [items[first : first + size] for first in range(0, len(items), size)]
        results = self._executor.run_tasks(shares, lambda share: list(map(function, share)))
        return [result for some in results for result in some]

    def _copy_lakes(self, versions: Sequence[GoldVersion]) -> list[CopyResult]:
        ordered = sorted(versions, key=lambda item: (str(item.lake.date), item.lake.host or "", item.lake.path))
        tasks = list(pack_by_size(((item, _LAKE_COST_BYTES + item.size_bytes) for item in ordered), _COPY_TASK_BYTES))
        fleet, options = self._fleet, self._storage_options
        return self._executor.run_tasks(tasks, lambda task: copy_gold(fleet, task, options))

    def _replace_rows(
        self, base: Mapping[str, TableSnapshot], copied: Iterable[CopyResult], stale: Collection[FleetLake]
    ) -> None:
        """Add the files of copied lakes to all tables, and remove the previous rows of stale lakes.

        A table without changes gets a commit, too. Otherwise an older update could still add rows to the table.
        """
        added: dict[str, list[DataFile]] = defaultdict(list)
        removed: dict[str, list[str]] = defaultdict(list)
        for result in copied:
            for name, files in result.files.items():
                added[name] += files
        tasks = [task for name in FLEET_TABLE_NAMES for task in list_rewrite_tasks(name, base[name], stale)]
        fleet = self._fleet
        replaced = self._executor.run_tasks(tasks, lambda task: rewrite_files(fleet, task))
        for task, replacement in zip(tasks, replaced, strict=True):
            added[task.name] += replacement.kept_files
            removed[task.name] += replacement.removed_paths

        def commit_table(name: str) -> None:
            self._tables[name].commit_files(base[name], get_table_columns(name), added[name], removed[name])

        call_for_each(commit_table, GOLD_TABLE_NAMES)
        commit_table(LAKES_TABLE)
        call_for_each(lambda name: self._tables[name].vacuum(_RETAIN_HOURS), FLEET_TABLE_NAMES)


def _parse_lake_paths(paths: Iterable[str]) -> tuple[list[FleetLake], list[LakeProblem]]:
    lakes, problems = [], []
    for path in paths:
        try:
            lakes.append(parse_lake_path(path))
        except InvalidValueError as error:
            problems.append(LakeProblem(path, str(error)))
    return lakes, problems


def _read_known_versions(snapshot: TableSnapshot, lakes: Sequence[FleetLake]) -> dict[str, str]:
    """Return the version of the gold of lakes in the previous update, by path."""
    where = pc.field("lake").isin(pa.array([lake.path for lake in lakes], pa.string()))
    days = {lake.date for lake in lakes}
    if None not in days:
        where &= pc.field("date").isin(pa.array(sorted(days, key=str), pa.date32()))
    rows = snapshot.read_rows(["lake", "gold_version"], where)
    return dict(zip(rows.column("lake").to_pylist(), rows.column("gold_version").to_pylist(), strict=True))
