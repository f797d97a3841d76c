"""The texts of schemas in a lake, a file each: its name is the number that the column `schema_id` of messages has."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from uuid import uuid4

from pyarrow.fs import FileSelector, FileSystem, FileType

from msgq.recording.files import schema_of
from msgq.schema import Schema
from msgq.spark.rows import schema_id

DIRECTORY = "_schemas"


def write_texts(files: FileSystem, root: str, schemas: Iterable[Schema | None]) -> None:
    """Add those that are not there yet. Any number of processes may, at one time."""
    for schema in set(schemas):
        number = None if schema is None else schema_id(schema)
        if schema is None or number is None:
            continue
        path = f"{root}/{DIRECTORY}/{number}.json"
        if files.get_file_info(path).type == FileType.NotFound:
            files.create_dir(f"{root}/{DIRECTORY}")
            about = {"name": schema.name, "encoding": schema.encoding, "data": base64.b64encode(schema.data).decode()}
            new = f"{root}/{DIRECTORY}/.{uuid4().hex}"
            with files.open_output_stream(new) as file:
                file.write(json.dumps(about).encode())
            files.move(new, path)


def known_texts(files: FileSystem, root: str) -> set[int]:
    """Return the numbers of those that are there."""
    found = files.get_file_info(FileSelector(f"{root}/{DIRECTORY}", allow_not_found=True))
    return {int(info.base_name[:-5]) for info in found if not info.base_name.startswith(".")}


def read_texts(files: FileSystem, root: str) -> dict[int, Schema]:
    """Return all that are there."""
    found = {}
    for number in known_texts(files, root):
        with files.open_input_stream(f"{root}/{DIRECTORY}/{number}.json") as file:
            about = json.loads(file.read())
        found[number] = schema_of(about["name"], about["encoding"], base64.b64decode(about["data"]))
    return found
