"""Groups: a run and an hour, of which gold is made at once; which parts each is of, and what is derived of these."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from msgq.lake.aggregate_store import HOURS_NAME, PART, View, derived_table, origin, stem
from msgq.lake.bronze.writer import messages_table
from msgq.lake.delta_table import is_merged
from msgq.lake.directory import Directory
from msgq.lake.metrics.group_by import Groups, column, integers
from msgq.lake.metrics.hops import MESSAGES
from msgq.lake.metrics.partial_aggregates import SCHEMAS, VERSION
from msgq.lake.metrics.queues import event_hours
from msgq.lake.metrics.saturating_time import LEAST, MOST
from msgq.lake.metrics.windows import HOUR

_GOLD_VERSION = 1  # of the tables that are made; with another number, all are made anew
#: The time that says of which hour a row is.
_TIMES = {
    **{
        "traffic_windows": "window_start",
        "islands": "base_time",
        "key_islands": "base_time",
        "stages": "window_start",
        "frames": "log_time",
    },
    "origins": "origin_time",
}
_COLUMNS = SCHEMAS | {"origins": MESSAGES}


@dataclass(frozen=True, slots=True)
class Group:
    """Attributes
    ----------
    run, hour : of which it is; hours since the epoch, -1: nobody knows.
    parts : which have messages of it, "messages"; whose origins are in it, "origins"; and events, "events".
    """

    run: str
    hour: int
    parts: dict[str, set[str]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Return what changes when something else is to be made of it."""
        known = (f"{about} {part}" for about, parts in self.parts.items() for part in parts)
        return hashlib.sha256("\n".join([f"{VERSION} {_GOLD_VERSION}", *sorted(known)]).encode()).hexdigest()[:32]


def groups_of(view: View) -> dict[tuple[str, int], Group]:
    """Return all groups of the messages by run and hour."""
    found: dict[tuple[str, int], Group] = {}
    ranges = view.ranges
    hours = [integers(ranges, name) // HOUR for name in ("start_time", "end_time")]
    rows = Groups(column(ranges, "bronze_file"), column(ranges, "run"), *hours).first
    chosen = ranges.select(["bronze_file", "run"]).take(pa.array(rows))
    for part, run, first, last in zip(*_lists(chosen), *(hour[rows].tolist() for hour in hours), strict=True):
        for hour in range(first, last + 1):
            _add(found, run, hour, "messages", part)
    more = view.read(HOURS_NAME).select(["bronze_file", "run", "hour", "about"])
    for part, run, hour, about in zip(*_lists(more), strict=True):
        _add(found, run, hour, about, part)
    return found


def _add(found: dict[tuple[str, int], Group], run: str, hour: int, about: str, part: str) -> None:
    found.setdefault((run, hour), Group(run, hour)).parts.setdefault(about, set()).add(part)


def _lists(table: pa.Table) -> list[list[Any]]:
    return [one.to_pylist() for one in table.columns]


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker makes gold of: a group, and the files that have what was derived of it, by table."""

    group: Group
    files: Mapping[str, list[str]]

    def read(self, lake: Directory) -> dict[str, pa.Table]:
        """Return the rows of the group in each of `SCHEMAS`, and `origins`: the messages whose origins are in it."""
        found = {}
        for name, columns in _COLUMNS.items():
            table = messages_table(lake) if name == "origins" else derived_table(lake, name)
            parts = None if name == "origins" else self.group.parts.get(_about(name), ())
            where, there = _where(name, self.group, parts), columns.append(PART)
            rows = table.rows(self.files.get(name, ()), there, where, columns.names)
            found[name] = of_hour(name, rows, self.group.run, self.group.hour)
        return found


def of_hour(name: str, rows: pa.Table, run: str, hour: int) -> pa.Table:
    """Return those rows of a derived table, or of `origins`, that belong to a group."""
    if name == "hours":
        return rows.slice(0, 0)
    hours = event_hours(rows) if name == "events" else integers(rows, _TIMES[name], -HOUR) // HOUR
    is_one = pc.and_(pc.equal(rows.column("run"), run), pa.chunked_array([pa.array(hours == hour)]))
    return rows.filter(is_one)


def _about(name: str) -> str:
    return name if name in ("origins", "events") else "messages"


def _where(name: str, group: Group, parts: Collection[str] | None) -> Any:
    """Return what leaves out, where files are read, most of what is not of a group."""
    where = ds.field("run") == group.run
    if parts is not None:
        where &= ds.field("bronze_file").isin(sorted(parts))
    if name in _TIMES:
        time = ds.field(_TIMES[name])
        first, last = group.hour * HOUR, (group.hour + 1) * HOUR - 1
        where &= (time >= max(first, LEAST)) & (time <= min(last, MOST))
    return where


def tasks(view: View, groups: Iterable[Group]) -> list[Task]:
    """Return what workers need for each group: files of its parts only, and those in which many were merged."""
    files: dict[str, dict[str, list[str]]] = {}
    for name in SCHEMAS:
        for path in view.files(name) if name != HOURS_NAME else ():
            files.setdefault(name, {}).setdefault("" if is_merged(path) else origin(path), []).append(path)
    return [Task(group, _files_of(group, files)) for group in groups]


def _files_of(group: Group, files: Mapping[str, Mapping[str, list[str]]]) -> dict[str, list[str]]:
    mine = {"origins": sorted(group.parts.get("origins", ()))}
    for name, own in files.items():
        stems = map(stem, sorted(group.parts.get(_about(name), ())))
        mine[name] = [path for one in ("", *stems) for path in own.get(one, ())]
    return {name: paths for name, paths in mine.items() if paths}
