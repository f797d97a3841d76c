"""The journal of a lake: what was ingested, and which parts hold it.

An entry is one Parquet file, there or not there, with the ranges of its parts as rows and its inputs as metadata. It is
written before its parts are moved to their place: whoever opens the lake next moves those that a kill left behind.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

from msgq.errors import RecordingError
from msgq.recording.files import Problem
from msgq.spark.parts import RANGES

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

    def __init__(self, files: FileSystem, root: str) -> None:
        """Look at a lake that may not exist yet. root : its directory in the file system."""
        self._files, self._root = files, root
        self._directory = f"{root}/_journal"

    @contextmanager
    def locked(self, wait: bool = False) -> Iterator[None]:
        """Keep others from writing the lake, if it is on a disk of this machine.

        wait : until nobody else does.

        Raises
        ------
        RecordingError : somebody else is writing it, and nobody waits.
        """
        self._files.create_dir(self._directory)
        if not isinstance(self._files, LocalFileSystem):
            yield
            return
        descriptor = os.open(f"{self._directory}/lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                text = f"another process is writing the lake {self._root}; try again when it is done"
                raise RecordingError(text) from None
            yield
        finally:
            os.close(descriptor)

    def names(self) -> list[str]:
        """Return the names of the entries."""
        found = self._files.get_file_info(FileSelector(self._directory, allow_not_found=True))
        return sorted(
            info.base_name.removesuffix(".parquet")
            for info in found
            if info.base_name.endswith(".parquet") and not info.base_name.startswith(".")
        )

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

    def commit(
        self, name: str, ranges: pa.Table, inputs: Iterable[Input], problems: Iterable[Problem], staged: str
    ) -> None:
        """Make the parts that lie below `staged` part of the lake."""
        about = {"inputs": [asdict(one) for one in inputs], "problems": [asdict(one) for one in problems],
                 "staged": staged}  # fmt: skip
        table = ranges.replace_schema_metadata({_ABOUT: json.dumps(about).encode()})
        part = f"{self._directory}/.{name}"
        pq.write_table(table, part, filesystem=self._files)
        self._files.move(part, f"{self._directory}/{name}.parquet")
        self._place(name)

    def recover(self) -> None:
        """Finish what a kill left half done, and remove what was never committed."""
        staging = f"{self._root}/_staged"
        found = self._files.get_file_info(FileSelector(staging, allow_not_found=True))
        left = {info.base_name for info in found}
        for name in self.names():
            if name in left:
                self._place(name)
        if found:
            self._files.delete_dir(staging)

    def _place(self, name: str) -> None:
        """Move the parts of an entry to their place, those that are not there yet."""
        staged = self._about(name)["staged"]
        for part in pc.unique(self._read(name).column("part").drop_null()).to_pylist():
            source, target = f"{staged}/{part}", f"{self._root}/messages/{part}"
            if self._files.get_file_info(source).type == FileType.File:
                self._files.create_dir(target.rpartition("/")[0])
                self._files.move(source, target)
        if self._files.get_file_info(staged).type == FileType.Directory:
            self._files.delete_dir(staged)

    def _read(self, name: str) -> pa.Table:
        key = (self._files.type_name, f"{self._directory}/{name}.parquet")
        if key not in _ENTRIES:
            if len(_ENTRIES) == _ENTRIES_MAX:
                _ENTRIES.clear()
            with pq.ParquetFile(key[1], filesystem=self._files) as file:  # 4x faster than read_table
                _ENTRIES[key] = file.read().cast(RANGES)
        return _ENTRIES[key]

    def _about(self, name: str) -> Any:
        metadata = pq.read_schema(f"{self._directory}/{name}.parquet", filesystem=self._files).metadata
        return json.loads(metadata[_ABOUT])
