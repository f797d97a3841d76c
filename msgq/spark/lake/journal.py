"""The journal of a lake: what was ingested, and which parts hold it.

An entry is one Parquet file, there or not there, with the ranges of its parts as rows and its inputs as metadata. It is
written before its parts are moved to their place: whoever opens the lake next moves those that a kill left behind.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileType, LocalFileSystem

from msgq.errors import RecordingError
from msgq.recording.format.problem import Problem
from msgq.spark.lake.directory import Directory
from msgq.spark.lake.message_files import RANGES

STAGED = "_staged"  # what is not in its place yet: of an entry, the parts below its name
_DIRECTORY = "_journal"
_ABOUT = b"msgq"
#: Entries of this process's journals, by file system and path. They never change, and each batch of a stream needs all.
_ENTRIES: dict[tuple[str, str], pa.Table] = {}
_ENTRIES_MAX = 1 << 14


@dataclass(frozen=True, slots=True)
class Input:
    """A file as it was when it was ingested. size : bytes. mtime_ns : since the epoch."""

    path: str
    size: int
    mtime_ns: int


class Journal:
    """The entries of a lake, in a directory of their own. One process at a time writes; see `locked`."""

    def __init__(self, lake: Directory) -> None:
        """Look at a lake that may not exist yet."""
        self._lake, self._files = lake, lake.files

    @contextmanager
    def locked(self, wait: bool = False) -> Iterator[None]:
        """Keep others from writing the lake, if it is on a disk of this machine; begin with what a kill has left.

        wait : until nobody else does.

        Raises
        ------
        RecordingError : somebody else is writing it, and nobody waits.
        """
        self._files.create_dir(self._lake.path(_DIRECTORY))
        with self._lock(wait) if isinstance(self._files, LocalFileSystem) else nullcontext():
            self.recover()
            yield

    @contextmanager
    def _lock(self, wait: bool) -> Iterator[None]:
        descriptor = os.open(self._lake.path(f"{_DIRECTORY}/lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                text = f"another process is writing the lake {self._lake.root}; try again when it is done"
                raise RecordingError(text) from None
            yield
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Return the names of the entries."""
        found = self._lake.names(_DIRECTORY, FileType.File)
        return [name.removesuffix(".parquet") for name in found if name.endswith(".parquet")]

    def inputs(self) -> set[Input]:
        """Return all files that were ingested."""
        return {Input(**one) for name in self.names() for one in self._about(name)["inputs"]}

    def ranges(self, runs: Iterable[str]) -> pa.Table:
        """Return the ranges of all parts that have messages of these runs."""
        wanted = pa.array(sorted(set(runs)), pa.string())
        found = pa.concat_tables([RANGES.empty_table(), *map(self._read, self.names())])
        return found.filter(pc.is_in(found.column("run"), wanted))

    def runs(self, names: Iterable[str]) -> set[str]:
        """Return the runs of which these entries have messages."""
        return {run for name in names for run in pc.unique(self._read(name).column("run")).to_pylist()}

    def parts(self, names: Iterable[str]) -> list[str]:
        """Return the parts of these entries."""
        found = {part for name in names for part in self._read(name).column("part").drop_null().to_pylist()}
        return sorted(found)

    def problems(self) -> list[Problem]:
        """Return what could not be read of the files as they were last, each once."""
        entries = [self._about(name) for name in self.names()]
        newest: dict[str, int] = {}
        for entry in entries:
            for one in entry["inputs"]:
                newest[one["path"]] = max(one["mtime_ns"], newest.get(one["path"], 0))
        found: dict[Problem, None] = {}
        for entry in entries:
            read = {one["path"] for one in entry["inputs"] if one["mtime_ns"] == newest[one["path"]]}
            for problem in entry["problems"]:
                if problem["path"] in read or problem["path"] not in newest:
                    found[Problem(**problem)] = None
        return list(found)

    def commit(self, name: str, ranges: pa.Table, inputs: Iterable[Input], problems: Iterable[Problem]) -> None:
        """Make the parts that are staged under this name part of the lake."""
        about = {"inputs": [asdict(one) for one in inputs], "problems": [asdict(one) for one in problems]}
        table = ranges.replace_schema_metadata({_ABOUT: json.dumps(about).encode()})
        new = f"{_DIRECTORY}/.{name}"
        pq.write_table(table, self._lake.path(new), filesystem=self._files)
        self._lake.move(new, _entry(name))
        self._place(name)

    def recover(self) -> None:
        """Finish what a kill left half done, and remove what was never committed."""
        for name in set(self._lake.names(STAGED, FileType.Directory)) & set(self.names()):
            self._place(name)
        self._lake.remove(STAGED)

    def _place(self, name: str) -> None:
        """Move the parts of an entry to their place, those that are not there yet."""
        staged = f"{STAGED}/{name}"
        for part in self.parts([name]):
            if self._lake.has(f"{staged}/{part}"):
                self._lake.move(f"{staged}/{part}", f"messages/{part}")
        self._lake.remove(staged)

    def _read(self, name: str) -> pa.Table:
        key = (self._files.type_name, self._lake.path(_entry(name)))
        if key not in _ENTRIES:
            if len(_ENTRIES) == _ENTRIES_MAX:
                _ENTRIES.clear()
            with pq.ParquetFile(key[1], filesystem=self._files) as file:  # 4x faster than read_table
                _ENTRIES[key] = file.read().cast(RANGES)
        return _ENTRIES[key]

    def _about(self, name: str) -> Any:
        metadata = pq.read_schema(self._lake.path(_entry(name)), filesystem=self._files).metadata
        return json.loads(metadata[_ABOUT])


def _entry(name: str) -> str:
    return f"{_DIRECTORY}/{name}.parquet"
