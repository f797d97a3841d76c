"""Gold in a lake: what was made of the messages, group by group, as hours of runs change.

    LAKE/gold/TABLE/run_id=.../hour=.../*.parquet    made of what was derived of an hour of a run
    LAKE/gold/TABLE/run_id=.../*.parquet             made of all hours of a run
    LAKE/gold/_groups                                of which parts each group was made

Two jobs of Spark make all of it, whatever there is in the lake: workers take groups, then runs, and write files; one
commit a table puts them in place of those that were there. `_groups` is last: whoever is killed before leaves old rows
or new ones, and the next one makes the same groups again.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pyarrow as pa

from msgq.errors import InvalidValueError
from msgq.lake.delta_table import ConflictError, File, Snapshot, Table
from msgq.lake.directory import Directory
from msgq.lake.gold.increments import Task, groups_of, tasks
from msgq.lake.gold.tables import HOURLY, TOTALS, hourly, totals
from msgq.lake.metrics.checks import Limits
from msgq.lake.metrics.windows import HOUR
from msgq.spark.executor import done
from msgq.spark.lake.bronze import Bronze
from msgq.spark.lake.store import Store
from msgq.spark.source.arrow_batches import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GROUPS = pa.schema([("run", pa.string()), ("hour", pa.int64()), ("state", pa.string())])
_SCHEMAS = HOURLY | TOTALS
#: The tables that there are for everybody.
NAMES = tuple(name for name in _SCHEMAS if not name.startswith("_"))
_BETWEEN = tuple(name for name in HOURLY if name.startswith("_"))
_TASKS = 64  # of a job, at most

_Work = TypeVar("_Work")
_Files = dict[str, list[File]]
_Snapshots = dict[str, Snapshot | None]


class Gold:
    """The tables of gold of a lake. For any number of writers and readers, in one thread each."""

    def __init__(self, store: Store, bronze: Bronze) -> None:
        self._store, self._bronze = store, bronze
        self._tables = {name: _table(store, name) for name in _SCHEMAS}
        self._groups = Table(store, "gold/_groups")

    def names(self) -> list[str]:
        """Return the tables that there are."""
        return [] if self._groups.snapshot() is None else list(NAMES)

    def table(self, name: str) -> DataFrame | None:
        """Return a table; None: there is none of this name."""
        snapshot = self._tables[name].snapshot() if name in NAMES else None
        if snapshot is None:
            return None
        columns = spark_schema(_SCHEMAS[name])
        return self._store.files_of(self._tables[name], snapshot.files, columns).select(*columns.names)

    def refresh(self, window_ns: int, limits: Limits | None, every: bool) -> int:
        """Make the rows again of those groups whose parts changed; return of how many runs.

        Raises
        ------
        InvalidValueError : `window_ns` is longer than an hour.
        RecordingError : a table cannot be written.
        """
        if not 0 < window_ns <= HOUR:
            raise InvalidValueError(f"windows of {window_ns} ns cannot be; give from 1 ns to {HOUR}, which is an hour")
        while True:
            try:
                return self._refresh(window_ns, limits or Limits(), every)
            except ConflictError:  # somebody else has made the same, or is about to
                continue

    def _refresh(self, window_ns: int, limits: Limits, every: bool) -> int:
        was = self._groups.snapshot()
        base = self._snapshots()
        view = self._bronze.view()
        groups = groups_of(view)
        known = {} if was is None else {(run, hour): state for run, hour, state in _rows(was)}
        changed = [key for key, group in groups.items() if every or known.get(key) != group.state]
        gone = [key for key in known if key not in groups]
        if was is not None and not changed and not gone:
            return 0
        stale = {(_run_id(run), str(hour)) for run, hour in [*changed, *gone]}
        runs = {run for run, _ in [*changed, *gone]}
        new = self._made(tasks(view, [groups[key] for key in changed]), _make_hours(self._store.uri, window_ns))
        left = {name: _left(base[name], stale) for name in _BETWEEN}
        work = [(run, {name: _of_run(run, left[name], new.get(name, ())) for name in _BETWEEN}) for run in sorted(runs)]
        new |= self._made(work, _make_totals(self._store.uri, window_ns, limits))
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: self._commit(name, base[name], new.get(name, []), stale), _SCHEMAS))
        state = pa.Table.from_pylist(
            [{"run": run, "hour": hour, "state": group.state} for (run, hour), group in groups.items()], _GROUPS
        )
        self._groups.commit(was, _GROUPS, [self._groups.write(f"{uuid4().hex}.parquet", state)], None)
        return len(runs)

    def _snapshots(self) -> _Snapshots:
        with ThreadPoolExecutor(4) as pool:
            return dict(zip(self._tables, pool.map(Table.snapshot, self._tables.values()), strict=True))

    def _made(self, work: Sequence[_Work], make: Callable[[_Work], _Files]) -> _Files:
        """Let workers make files of each of these; return all."""
        shares = [work[first::_TASKS] for first in range(min(len(work), _TASKS))]
        found: _Files = defaultdict(list)
        for made in done(self._store.spark, shares, lambda share: list(map(make, share))):
            for name, files in (item for one in made for item in one.items()):
                found[name] += files
        return found

    def _commit(self, name: str, base: Snapshot | None, new: list[File], stale: set[tuple[str, str]]) -> None:
        """Put files in place of those of the groups, or of the runs, that were made anew."""
        runs = {run_id for run_id, _ in stale}
        old = [
            path
            for path, file in ({} if base is None else base.files).items()
            if (_key(file) in stale if name in HOURLY else file.partition["run_id"] in runs)
        ]
        if base is None or new or old:
            self._tables[name].commit(base, _columns(name), new, old)


def _columns(name: str) -> pa.Schema:
    """Return the columns of a table, those of its partitions among them."""
    columns = _SCHEMAS[name].append(pa.field("run_id", pa.string()))
    return columns.append(pa.field("hour", pa.int64())) if name in HOURLY else columns


def _table(lake: Directory, name: str) -> Table:
    return Table(lake, f"gold/{name}", ["run_id", "hour"] if name in HOURLY else ["run_id"])


def _run_id(run: str) -> str:
    return hashlib.sha256(run.encode()).hexdigest()[:16]


def _rows(snapshot: Snapshot) -> Iterator[tuple[Any, ...]]:
    table = snapshot.read(_GROUPS.names)
    return zip(*(table.column(name).to_pylist() for name in _GROUPS.names), strict=True)


def _key(file: File) -> tuple[str, str]:
    return str(file.partition["run_id"]), str(file.partition["hour"])


def _left(base: Snapshot | None, stale: set[tuple[str, str]]) -> list[File]:
    """Return the files of those groups that stay as they are."""
    return [] if base is None else [file for file in base.files.values() if _key(file) not in stale]


def _of_run(run: str, *files: Iterable[File]) -> list[str]:
    return [file.path for some in files for file in some if file.partition["run_id"] == _run_id(run)]


def _make_hours(uri: str, window_ns: int) -> Callable[[Task], _Files]:
    """Return what makes the tables of a group, on a worker."""

    def make(task: Task) -> _Files:
        lake = Directory(uri)
        group = task.group
        return _write(lake, hourly(task.read(lake), window_ns), f"run_id={_run_id(group.run)}/hour={group.hour}")

    return make


def _make_totals(uri: str, window_ns: int, limits: Limits) -> Callable[[tuple[str, dict[str, list[str]]]], _Files]:
    """Return what makes the tables of a run, on a worker."""

    def make(work: tuple[str, dict[str, list[str]]]) -> _Files:
        lake, (run, files) = Directory(uri), work
        found = {name: _table(lake, name).rows(sorted(paths), HOURLY[name]) for name, paths in files.items()}
        return _write(lake, totals(found, window_ns, limits), f"run_id={_run_id(run)}")

    return make


def _write(lake: Directory, made: dict[str, pa.Table], place: str) -> _Files:
    name = f"{place}/{uuid4().hex}.parquet"
    return {table: [_table(lake, table).write(name, rows)] for table, rows in made.items() if rows.num_rows}
