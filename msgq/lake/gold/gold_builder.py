"""Builds the gold tables, hour by hour of each run, for new messages.

    LAKE/gold/TABLE/run_id=.../hour=.../*.parquet    from the aggregates of an hour of a run
    LAKE/gold/TABLE/run_id=.../*.parquet             from all hours of a run
    LAKE/gold/_groups                                bronze files of each group

A build needs two jobs for any number of messages: workers process groups, then runs, and write files. For each table,
one commit replaces the previous files. `_groups` is committed last. After a kill, each table has old or new rows, and
the next build processes the same groups again.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from uuid import uuid4

import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.lake.aggregate_store import AggregateSnapshot
from msgq.lake.delta_table import CommitConflictError, DataFile, LakeTable, TableSnapshot
from msgq.lake.gold.gold_increments import IncrementTask, list_increment_tasks, list_increments
from msgq.lake.gold.gold_tables import HOURLY_SCHEMAS, RUN_SCHEMAS, make_hourly_tables, make_run_tables
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.lake_executor import LakeExecutor
from msgq.lake.metrics.checks import CheckThresholds
from msgq.lake.metrics.time_windows import HOUR_NS

_INCREMENT_STATES_SCHEMA = pa.schema([("run", pa.string()), ("hour", pa.int64()), ("state", pa.string())])
#: The columns of all tables, without those of their partitions.
GOLD_TABLE_SCHEMAS = HOURLY_SCHEMAS | RUN_SCHEMAS
#: The tables that there are for everybody.
GOLD_TABLE_NAMES = tuple(name for name in GOLD_TABLE_SCHEMAS if not name.startswith("_"))
_INTERMEDIATE_TABLES = tuple(name for name in HOURLY_SCHEMAS if name.startswith("_"))
_TASKS_PER_JOB_MAX = 64  # of a job, at most

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
        self._tables = {name: _open_gold_table(lake, name) for name in GOLD_TABLE_SCHEMAS}
        self._groups = LakeTable(lake, "gold/_groups")

    def list_table_names(self) -> list[str]:
        """Return the names of the existing tables."""
        return [] if self._groups.read_snapshot() is None else list(GOLD_TABLE_NAMES)

    def get_table(self, name: str) -> LakeTable | None:
        """Return a table, which may not exist yet; None: the name is unknown."""
        return self._tables[name] if name in GOLD_TABLE_NAMES else None

    def build_gold(self, window_ns: int, thresholds: CheckThresholds | None, full_refresh: bool) -> int:
        """Build the rows of groups whose bronze files changed. Return the number of their runs.

        Raises
        ------
        InvalidValueError : `window_ns` is longer than an hour.
        RecordingError : a table cannot be written.
        """
        if not 0 < window_ns <= HOUR_NS:
            raise InvalidValueError(f"window of {window_ns} ns is out of range; use 1 ns to {HOUR_NS} ns (one hour)")
        while True:
            try:
                return self._build_gold(window_ns, thresholds or CheckThresholds(), full_refresh)
            except CommitConflictError:  # somebody else has made the same, or is about to
                continue

    def _build_gold(self, window_ns: int, thresholds: CheckThresholds, full_refresh: bool) -> int:
        was = self._groups.read_snapshot()
        base = self._read_table_snapshots()
        view = self._aggregates()
        groups = list_increments(view)
        known = {} if was is None else {(run, hour): state for run, hour, state in _read_increment_states(was)}
        changed = [key for key, group in groups.items() if full_refresh or known.get(key) != group.input_fingerprint]
        removed = [key for key in known if key not in groups]
        if was is not None and not changed and not removed:
            return 0
        stale = {(_hash_run_id(run), str(hour)) for run, hour in [*changed, *removed]}
        runs = {run for run, _ in [*changed, *removed]}
        new = self._run_table_makers(
            list_increment_tasks(view, [groups[key] for key in changed]),
            _make_hourly_table_maker(self._lake.uri, window_ns),
        )
        kept = {name: _find_unchanged_files(base[name], stale) for name in _INTERMEDIATE_TABLES}
        work = [
            (run, {name: _list_run_files(run, kept[name], new.get(name, ())) for name in _INTERMEDIATE_TABLES})
            for run in sorted(runs)
        ]
        new |= self._run_table_makers(work, _make_run_table_maker(self._lake.uri, window_ns, thresholds))
        with ThreadPoolExecutor(4) as pool:
            list(
                pool.map(
                    lambda name: self._commit_gold_table(name, base[name], new.get(name, []), stale), GOLD_TABLE_SCHEMAS
                )
            )
        state = pa.Table.from_pylist(
            [{"run": run, "hour": hour, "state": group.input_fingerprint} for (run, hour), group in groups.items()],
            _INCREMENT_STATES_SCHEMA,
        )
        self._groups.commit_files(
            was, _INCREMENT_STATES_SCHEMA, [self._groups.write_file(f"{uuid4().hex}.parquet", state)], None
        )
        return len(runs)

    def _read_table_snapshots(self) -> _SnapshotsByTable:
        with ThreadPoolExecutor(4) as pool:
            return dict(zip(self._tables, pool.map(LakeTable.read_snapshot, self._tables.values()), strict=True))

    def _run_table_makers(self, work: Sequence[_WorkItem], make: Callable[[_WorkItem], _FilesByTable]) -> _FilesByTable:
        """Let workers create the files for all items, and return the files."""
        shares = [work[first::_TASKS_PER_JOB_MAX] for first in range(min(len(work), _TASKS_PER_JOB_MAX))]
        files_by_table: _FilesByTable = defaultdict(list)
        for made in self._executor.run_tasks(shares, lambda share: list(map(make, share))):
            for name, files in (item for result in made for item in result.items()):
                files_by_table[name] += files
        return files_by_table

    def _commit_gold_table(
        self, name: str, base: TableSnapshot | None, new: list[DataFile], stale: set[tuple[str, str]]
    ) -> None:
        """Commit new files in place of the files of rebuilt groups or runs."""
        runs = {run_id for run_id, _ in stale}
        old = [
            path
            for path, file in ({} if base is None else base.files_by_path).items()
            if (
                _get_increment_key(file) in stale if name in HOURLY_SCHEMAS else file.partition_values["run_id"] in runs
            )
        ]
        if base is None or new or old:
            self._tables[name].commit_files(base, _get_gold_table_columns(name), new, old)


def _get_gold_table_columns(name: str) -> pa.Schema:
    """Return the columns of a table, including partition columns."""
    columns = GOLD_TABLE_SCHEMAS[name].append(pa.field("run_id", pa.string()))
    return columns.append(pa.field("hour", pa.int64())) if name in HOURLY_SCHEMAS else columns


def _open_gold_table(lake: LakeDirectory, name: str) -> LakeTable:
    return LakeTable(lake, f"gold/{name}", ["run_id", "hour"] if name in HOURLY_SCHEMAS else ["run_id"])


def _hash_run_id(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def _read_increment_states(snapshot: TableSnapshot) -> Iterator[tuple[Any, ...]]:
    table = snapshot.read_rows(_INCREMENT_STATES_SCHEMA.names)
    return zip(*(table.column(name).to_pylist() for name in _INCREMENT_STATES_SCHEMA.names), strict=True)


def _get_increment_key(file: DataFile) -> tuple[str, str]:
    return str(file.partition_values["run_id"]), str(file.partition_values["hour"])


def _find_unchanged_files(base: TableSnapshot | None, stale: set[tuple[str, str]]) -> list[DataFile]:
    """Return the files of unchanged groups."""
    return (
        [] if base is None else [file for file in base.files_by_path.values() if _get_increment_key(file) not in stale]
    )


def _list_run_files(run: str, *files: Iterable[DataFile]) -> list[str]:
    return [file.path for some in files for file in some if file.partition_values["run_id"] == _hash_run_id(run)]


def _make_hourly_table_maker(uri: str, window_ns: int) -> Callable[[IncrementTask], _FilesByTable]:
    """Return a function for workers that creates the tables of a group."""

    def make_gold_files(task: IncrementTask) -> _FilesByTable:
        lake = LakeDirectory(uri)
        group = task.increment
        return _write_gold_files(
            lake,
            make_hourly_tables(task.read_inputs(lake), window_ns),
            f"run_id={_hash_run_id(group.run)}/hour={group.hour_number}",
        )

    return make_gold_files


def _make_run_table_maker(
    uri: str, window_ns: int, thresholds: CheckThresholds
) -> Callable[[tuple[str, dict[str, list[str]]]], _FilesByTable]:
    """Return a function for workers that creates the tables of a run."""

    def make_gold_files(work: tuple[str, dict[str, list[str]]]) -> _FilesByTable:
        lake, (run, files) = LakeDirectory(uri), work
        aggregates = {
            name: _open_gold_table(lake, name).read_rows(sorted(paths), HOURLY_SCHEMAS[name])
            for name, paths in files.items()
        }
        return _write_gold_files(
            lake, make_run_tables(aggregates, window_ns, thresholds), f"run_id={_hash_run_id(run)}"
        )

    return make_gold_files


def _write_gold_files(lake: LakeDirectory, made: dict[str, pa.Table], place: str) -> _FilesByTable:
    name = f"{place}/{uuid4().hex}.parquet"
    return {
        table: [_open_gold_table(lake, table).write_file(name, rows)] for table, rows in made.items() if rows.num_rows
    }
