"""The texts of schemas in a lake, a file each: its name is the number that the column `schema_id` of messages has."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from pyarrow.fs import FileType

from msgq.schema import Schema, parted, schema_of
from msgq.spark.lake.directory import Directory
from msgq.spark.source.arrow_batches import schema_id

_DIRECTORY = "_schemas"


def write_schemas(lake: Directory, schemas: Iterable[Schema | None]) -> None:
    """Add those that are not there yet. Any number of processes may, at one time."""
    for schema in set(schemas):
        number = None if schema is None else schema_id(schema)
        if schema is None or number is None:
            continue
        place = _place(number)
        if not lake.has(place):
            data = base64.b64encode(schema.data).decode()
            lake.put(place, {"name": schema.name, "encoding": schema.encodings, "data": data})


def known_schema_ids(lake: Directory) -> set[int]:
    """Return the numbers of those that are there."""
    return {int(name.removesuffix(".json")) for name in lake.names(_DIRECTORY, FileType.File)}


def read_schemas(lake: Directory) -> dict[int, Schema]:
    """Return all that are there."""
    found = {}
    for number in known_schema_ids(lake):
        about = lake.get(_place(number))
        encoding, written_in = parted(about["encoding"])
        found[number] = schema_of(about["name"], encoding, base64.b64decode(about["data"]), written_in)
    return found


def _place(number: int) -> str:
    return f"{_DIRECTORY}/{number}.json"
