"""Builds the gold tables, hour by hour of each run, for new messages.

    LAKE/gold/TABLE/*.parquet    rows of hours of runs (hourly tables), or of runs (run tables)
    LAKE/gold/_increments        the bronze files of each hour of a run
    LAKE/gold/_settings.json     the window and the thresholds of the last update, if they are not the defaults

An update has two jobs. In the first one, workers make the hourly tables of the changed hours. In the second one, they
make the run tables of the changed runs. A task has one large hour, or many small ones, and writes one file per table.
One commit per table replaces the previous rows. The commit of `_increments` is the last one. After a kill, a table has
old rows or new rows, and the next update makes the same hours again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TypeVar

import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.errors import InvalidValueError
from msgq.lake.aggregate_store import AggregateSnapshot
from msgq.lake.batching import call_for_each, pack_by_size
from msgq.lake.data_file import DataFile
from msgq.lake.delta_table import CommitConflictError, LakeTable
from msgq.lake.gold.gold_files import (
    GOLD_TABLE_SCHEMAS,
    FileReplacement,
    find_files_of_runs,
    get_stored_columns,
    open_gold_table,
    replace_groups,
    write_gold_files,
)
from msgq.lake.gold.gold_increments import IncrementTask, list_increment_tasks, restore_increments
from msgq.lake.gold.gold_tables import HOURLY_SCHEMAS, RUN_SCHEMAS, make_hourly_tables, make_run_tables
from msgq.lake.gold.increment_inputs import commit_inputs, find_input_changes, open_inputs_table
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor
from msgq.lake.metrics.checks import CheckThresholds
from msgq.lake.metrics.time_windows import HOUR_NS
from msgq.lake.table_snapshot import TableSnapshot

#: The tables that there are for everybody.
GOLD_TABLE_NAMES = tuple(name for name in GOLD_TABLE_SCHEMAS if not name.startswith("_"))
_INTERMEDIATE_TABLES = tuple(name for name in HOURLY_SCHEMAS if name.startswith("_"))
_TASKS_PER_JOB_MAX = 64
_RUN_TASK_BYTES = 8 << 20  # approximate bytes of intermediate files of a task
_RUN_COST_BYTES = 128 << 10  # a run costs as much as so many bytes

_SETTINGS_PATH = "gold/_settings.json"  # the settings of the last update, if they are not the defaults
_DEFAULT_SETTINGS = {"window_ns": NS_PER_S, "thresholds": asdict(CheckThresholds())}

_WorkItem = TypeVar("_WorkItem")
_FilesByTable = dict[str, list[DataFile]]
_SnapshotsByTable = dict[str, TableSnapshot | None]


class GoldBuilder:
    """Gold tables of a lake. Any number of writers and readers, each in one thread."""

    def __init__(
        self, lake: LakeDirectory, executor: LakeExecutor, aggregates: Callable[[], AggregateSnapshot]
    ) -> None:
        """Set the lake. `aggregates`: returns the aggregates of all messages."""
        self._lake, self._executor, self._aggregates = lake, executor, aggregates
        self._tables = {name: open_gold_table(lake, name) for name in GOLD_TABLE_SCHEMAS}
        self._inputs = open_inputs_table(lake)

    def list_table_names(self) -> list[str]:
        """Return the names of the existing tables."""
        return [] if self._inputs.read_snapshot() is None else list(GOLD_TABLE_NAMES)

    def get_table(self, name: str) -> LakeTable | None:
        """Return a table, which may not exist yet; None: the name is unknown."""
        return self._tables[name] if name in GOLD_TABLE_NAMES else None

    def build_gold(self, window_ns: int | None, thresholds: CheckThresholds | None, full_refresh: bool) -> int:
        """Build the rows of groups whose bronze files changed. Return the number of their runs.

        `window_ns`, `thresholds`: None: as in the previous call, or the defaults. The lake stores both.

        Raises:
            InvalidValueError: `window_ns` is longer than an hour.
            RecordingError: a table cannot be written.
        """
        if window_ns is not None and not 0 < window_ns <= HOUR_NS:
            raise InvalidValueError(f"window of {window_ns} ns is out of range; use 1 ns to {HOUR_NS} ns (one hour)")
        window_ns, thresholds = self._resolve_settings(window_ns, thresholds)
        while True:
            try:
                return self._build_gold(window_ns, thresholds, full_refresh)
            except CommitConflictError:  # another process builds the same tables
                continue

    def _resolve_settings(
        self, window_ns: int | None, thresholds: CheckThresholds | None
    ) -> tuple[int, CheckThresholds]:
        """Return the given settings, and the stored ones for those that are None. Store them if they changed."""
        stored = self._lake.read_json(_SETTINGS_PATH, {})
        window_ns = stored.get("window_ns", NS_PER_S) if window_ns is None else window_ns
        thresholds = CheckThresholds(**stored.get("thresholds", {})) if thresholds is None else thresholds
        settings = {"window_ns": window_ns, "thresholds": asdict(thresholds)}
        if settings != stored and (stored or settings != _DEFAULT_SETTINGS):
            self._lake.write_json(_SETTINGS_PATH, settings)
        return window_ns, thresholds

    def _build_gold(self, window_ns: int, thresholds: CheckThresholds, full_refresh: bool) -> int:
        old_inputs = self._inputs.read_snapshot()
        base = self._read_table_snapshots()
        aggregates = self._aggregates()
        changes = find_input_changes(old_inputs, aggregates, full_refresh)
        stale = changes.stale_hours
        if old_inputs is not None and not stale:
            return 0
        new = self._run_table_makers(
            list_increment_tasks(aggregates, changes.increments), _make_hourly_table_maker(self._lake, window_ns)
        )
        replaced = self._replace_groups(HOURLY_SCHEMAS, base, stale)
        tasks = _list_run_tasks(sorted(stale), _list_intermediate_files(base, replaced, new))
        new |= self._run_table_makers(tasks, _make_run_table_maker(self._lake, window_ns, thresholds))
        replaced |= self._replace_groups(RUN_SCHEMAS, base, stale)
        self._commit_gold_tables(base, new, replaced)
        commit_inputs(self._inputs, old_inputs, changes)
        return len(stale)

    def _replace_groups(
        self, names: Iterable[str], base: _SnapshotsByTable, stale: Mapping[str, Collection[int]]
    ) -> dict[str, FileReplacement]:
        return call_for_each(lambda name: replace_groups(self._tables[name], name, base[name], stale), names)

    def _read_table_snapshots(self) -> _SnapshotsByTable:
        return call_for_each(lambda name: self._tables[name].read_snapshot(), self._tables)

    def _run_table_makers(self, work: Sequence[_WorkItem], make: Callable[[_WorkItem], _FilesByTable]) -> _FilesByTable:
        """Let workers create the files for all items, and return the files."""
        shares = [work[first::_TASKS_PER_JOB_MAX] for first in range(min(len(work), _TASKS_PER_JOB_MAX))]
        files_by_table: _FilesByTable = defaultdict(list)
        for results in self._executor.run_tasks(shares, lambda share: list(map(make, share))):
            for name, files in (item for result in results for item in result.items()):
                files_by_table[name] += files
        return files_by_table

    def _commit_gold_tables(
        self, base: _SnapshotsByTable, new: _FilesByTable, replaced: Mapping[str, FileReplacement]
    ) -> None:
        """Commit all tables; the first one alone, so that one of two concurrent updates fails before it commits.

        A table without changes gets a commit, too. Otherwise an older update could still add rows to the table.
        """

        def commit_table(name: str) -> None:
            added = [*new.get(name, []), *replaced[name].kept_files]
            self._tables[name].commit_files(base[name], get_stored_columns(name), added, replaced[name].removed_paths)

        first, *others = GOLD_TABLE_SCHEMAS
        commit_table(first)
        call_for_each(commit_table, others)


def _list_intermediate_files(
    base: _SnapshotsByTable, replaced: Mapping[str, FileReplacement], new: _FilesByTable
) -> _FilesByTable:
    """Return the files of the intermediate tables as they are after the update."""
    files: _FilesByTable = {}
    for name in _INTERMEDIATE_TABLES:
        snapshot, removed = base[name], set(replaced[name].removed_paths)
        unchanged = () if snapshot is None else snapshot.files_by_path.values()
        files[name] = [file for file in unchanged if file.path not in removed]
        files[name] += [*replaced[name].kept_files, *new.get(name, ())]
    return files


@dataclass(frozen=True, slots=True)
class _RunTask:
    """Runs of which a worker makes the run tables, and the files of the intermediate tables."""

    runs: list[str]
    paths_by_table: dict[str, list[str]]


def _list_run_tasks(runs: Sequence[str], files: _FilesByTable) -> list[_RunTask]:
    """Return tasks with runs whose files together are small, or with one run. `runs`: sorted."""
    bytes_by_run: dict[str, int] = defaultdict(int)
    for file in chain.from_iterable(files.values()):
        first, last = file.column_bounds.get("run", (None, None))
        if first == last and first is not None:
            bytes_by_run[first] += file.size_bytes  # small runs share the other files
    return [
        _RunTask(
            group,
            {name: sorted(file.path for file in find_files_of_runs(some, group)) for name, some in files.items()},
        )
        for group in pack_by_size(((run, _RUN_COST_BYTES + bytes_by_run[run]) for run in runs), _RUN_TASK_BYTES)
    ]


def _make_hourly_table_maker(lake: LakeDirectory, window_ns: int) -> Callable[[IncrementTask], _FilesByTable]:
    """Return a function that makes the hourly tables of a task, on a worker."""

    def make_gold_files(task: IncrementTask) -> _FilesByTable:
        tables = make_hourly_tables(task.read_inputs(lake), window_ns)
        return write_gold_files(
            lake, {name: restore_increments(rows, task.increments) for name, rows in tables.items()}
        )

    return make_gold_files


def _make_run_table_maker(
    lake: LakeDirectory, window_ns: int, thresholds: CheckThresholds
) -> Callable[[_RunTask], _FilesByTable]:
    """Return a function that makes the run tables of a task, on a worker."""

    def make_gold_files(task: _RunTask) -> _FilesByTable:
        where = pc.field("run").isin(task.runs)
        rows = {
            name: open_gold_table(lake, name).read_rows(paths, HOURLY_SCHEMAS[name], where)
            for name, paths in task.paths_by_table.items()
        }
        return write_gold_files(lake, make_run_tables(rows, window_ns, thresholds))

    return make_gold_files
