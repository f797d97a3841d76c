"""Lakes of releases that kept a journal: parts as they lie, and beside them entries that say which ones count.

    LAKE/messages/date=.../class=.../*.parquet
    LAKE/_journal/*.parquet, LAKE/_schemas/*.json, LAKE/_staged

They are read as they are. Who writes first makes Delta tables of what is there, without writing a message anew.
"""

from __future__ import annotations

import base64
import json
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import FileType

from msgq.common.schema import Schema, parted, schema_of
from msgq.errors import RecordingError
from msgq.lake.directory import Directory
from msgq.lake.inputs import Input
from msgq.recording.format.problem import Problem, valid_text

_JOURNAL = "_journal"
_SCHEMAS = "_schemas"
_STAGED = "_staged"
_ABOUT = b"msgq"


class OldLake:
    """What the journal of a lake says; nothing, where it has none. For one thread at a time."""

    def __init__(self, lake: Directory) -> None:
        self._lake = lake

    @cached_property
    def _entries(self) -> dict[str, tuple[list[str], dict[str, Any]]]:
        """Of each entry its parts, and what it says of files."""
        found = {}
        for name in self._lake.names(_JOURNAL, FileType.File):
            if name.endswith(".parquet"):
                table = self._read(f"{_JOURNAL}/{name}")
                parts = table.column("part").cast(pa.string())
                if parts.null_count:
                    text = f"the lake {self._lake.uri} was written in another format than Parquet, by a former release"
                    raise RecordingError(f"{text}: ingest its recordings into a new one")
                found[name.removesuffix(".parquet")] = (
                    parts.unique().to_pylist(),
                    json.loads(table.schema.metadata[_ABOUT]),
                )
        return found

    def _read(self, entry: str) -> pa.Table:
        path = self._lake.path(entry)
        try:
            return pq.read_table(path, filesystem=self._lake.files)
        except pa.ArrowInvalid:
            text = f"{path} is torn, as by a power failure: it says which parts count, and which recordings were read"
            raise RecordingError(f"{text}; remove it, and ingest again what was ingested at that time") from None

    def parts(self) -> list[str]:
        """Return the parts that lie in their place, below "messages"."""
        every = {part for parts, _ in self._entries.values() for part in parts}
        return sorted(part for part in every if self._lake.has(f"messages/{part}"))

    def inputs(self) -> list[Input]:
        """Return the files that were read, as they were, the newest last."""
        every = {
            Input(valid_text(one["path"]), one["size"], one["mtime_ns"])
            for _, about in self._entries.values()
            for one in about["inputs"]
        }
        return sorted(every, key=lambda one: (one.path, one.mtime_ns))

    def problems(self) -> list[Problem]:
        """Return what could not be read of the files as they were last, each once."""
        newest = {one.path: one.mtime_ns for one in self.inputs()}
        found: dict[Problem, None] = {}
        for _, about in self._entries.values():
            read = {one["path"] for one in about["inputs"] if one["mtime_ns"] == newest[valid_text(one["path"])]}
            for problem in about["problems"]:
                if problem["path"] in read or problem["path"] not in newest:
                    found[Problem(**problem)] = None
        return list(found)

    def settle(self) -> None:
        """Move to their place the parts that a kill has kept from it, as their release would do before it writes."""
        for name, (parts, _) in self._entries.items():
            for part in parts:
                staged = f"{_STAGED}/{name}/{part}"
                if self._lake.has(staged):
                    self._lake.move(staged, f"messages/{part}")

    def remove(self) -> None:
        """Remove all that only its release needs."""
        for place in (_STAGED, _SCHEMAS, _JOURNAL):
            self._lake.remove(place)


def old_schemas(lake: Directory) -> dict[int, Schema]:
    """Return the texts of schemas of an old lake, by their numbers."""
    found = {}
    for name in lake.names(_SCHEMAS, FileType.File):
        about = lake.get(f"{_SCHEMAS}/{name}")
        if about is None:
            raise RecordingError(f"{lake.path(f'{_SCHEMAS}/{name}')} is torn: remove it, which leaves a schema out")
        encoding, written_in = parted(about["encoding"])
        number = int(name.removesuffix(".json"))
        found[number] = schema_of(about["name"], encoding, base64.b64decode(about["data"]), written_in)
    return found
