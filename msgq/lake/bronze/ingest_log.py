"""Log of ingested files, and their read errors."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.delta_table import LakeTable
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.text_columns import make_text_column
from msgq.recording.mcap_io.problem import Problem

#: ingest_number : of the reading; a file as it was last is that of the greatest.
_INGESTED_FILES_SCHEMA = pa.schema(
    [("path", pa.string()), ("size_bytes", pa.int64()), ("mtime_ns", pa.int64()), ("ingest_number", pa.int64())]
)
#: ingest_number : of the reading in which this was found, or in which the file could not be read.
_READ_ERRORS_SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        ("byte_offset", pa.int64()),
        ("reason", pa.string()),
        ("errno", pa.int32()),
        ("ingest_number", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class IngestedFile:
    """State of a file when it was read: path as text, size in bytes, mtime_ns since the epoch."""

    path: str
    size_bytes: int
    mtime_ns: int


class IngestLog:
    """The tables `ingested_files` and `read_errors` of a lake. Rows are only added. One thread at a time.

    The Delta log has the bounds of paths and modification times in each file of the tables. New recordings were
    modified after the recordings in older files, so their search opens only the newest files. Files of earlier releases
    have no bounds, and each search reads them.
    """

    def __init__(self, lake: LakeDirectory) -> None:
        self._files, self._read_errors = (
            LakeTable(lake, place, has_statistics=True) for place in ("ingested_files", "read_errors")
        )

    def find_ingested_files(self, files: Collection[IngestedFile]) -> set[IngestedFile]:
        """Return those of these files that were ingested in the same state."""
        snapshot = self._files.read_snapshot() if files else None
        if snapshot is None:
            return set()
        bounds = {}
        for name in ("path", "mtime_ns"):
            values = [getattr(file, name) for file in files]
            bounds[name] = min(values), max(values)
        is_wanted = pc.field("path").isin(make_text_column(file.path for file in files))
        found = self._files.read_rows(snapshot.find_paths(bounds), _INGESTED_FILES_SCHEMA, is_wanted)
        rows = found.select(["path", "size_bytes", "mtime_ns"]).to_pylist()
        return {IngestedFile(**row) for row in rows} & set(files)

    def list_read_errors(self) -> list[Problem]:
        """Return the current read errors of all files, each once."""
        errors = _read_rows_of_paths(self._read_errors, None)
        files = _read_rows_of_paths(self._files, {row["path"] for row in errors})
        return [
            problem for errors_of_path in _select_current_problems(files, errors).values() for problem in errors_of_path
        ]

    def record_inputs(self, inputs: Collection[IngestedFile], problems: Iterable[Problem]) -> None:
        """Add ingested files, the newest state of a path last, and read errors of these or other files."""
        new_errors: dict[str, dict[Problem, None]] = {}
        for problem in problems:
            new_errors.setdefault(problem.path, {})[problem] = None
        files, errors = (_read_rows_of_paths(table, new_errors) for table in (self._files, self._read_errors))
        first = 1 + max(map(_find_last_ingest_number, (self._files, self._read_errors)))
        old_inputs, old_errors = self.find_ingested_files(inputs), _select_current_problems(files, errors)
        new = {row: number for number, row in enumerate(inputs, first) if row not in old_inputs}
        numbers = {row.path: number for row, number in new.items()}
        rows = [
            _make_read_error_row(problem) | {"ingest_number": numbers.get(path, first + len(inputs))}
            for path, errors_of_path in new_errors.items()
            if path in numbers or errors_of_path.keys() != old_errors.get(path, {}).keys()
            for problem in errors_of_path
        ]
        if rows:
            self._read_errors.append_rows(pa.Table.from_pylist(rows, _READ_ERRORS_SCHEMA))
        if rows := [
            {"path": row.path, "size_bytes": row.size_bytes, "mtime_ns": row.mtime_ns, "ingest_number": number}
            for row, number in new.items()
        ]:
            self._files.append_rows(pa.Table.from_pylist(rows, _INGESTED_FILES_SCHEMA))


def _make_read_error_row(problem: Problem) -> dict[str, Any]:
    return {
        "path": problem.path,
        "byte_offset": problem.offset,
        "reason": problem.reason,
        "errno": problem.errno,
    }


def _read_rows_of_paths(table: LakeTable, paths: Collection[str] | None) -> list[dict[str, Any]]:
    """Return the rows of some paths. `paths`: None for all."""
    snapshot = table.read_snapshot() if paths is None or paths else None
    where = None if paths is None else pc.field("path").isin(make_text_column(paths))
    return [] if snapshot is None else snapshot.read_rows(where=where).to_pylist()


def _find_last_ingest_number(table: LakeTable) -> int:
    snapshot = table.read_snapshot()
    if snapshot is None:
        return -1
    largest, others = snapshot.find_largest_value("ingest_number")
    rows = table.read_rows(others, pa.schema([("ingest_number", pa.int64())]))
    return max(-1 if number is None else int(number) for number in (largest, pc.max(rows.column(0)).as_py()))


def _select_current_problems(
    files: list[dict[str, Any]], problems: list[dict[str, Any]]
) -> dict[str, dict[Problem, None]]:
    """Return by path the problems of the last read, or of the last failed read."""
    newest: dict[str, int] = {}
    for row in [*files, *problems]:
        newest[row["path"]] = max(row["ingest_number"], newest.get(row["path"], 0))
    current: dict[str, dict[Problem, None]] = {}
    for row in problems:
        if row["ingest_number"] == newest[row["path"]]:
            problem = Problem(row["path"], row["byte_offset"], row["reason"], row["errno"])
            current.setdefault(problem.path, {})[problem] = None
    return current
