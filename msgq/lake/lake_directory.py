"""A directory in whatever file system."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileSelector, FileSystem, FileType, LocalFileSystem

FILE_URI_PREFIX = "file://"


class LakeDirectory:
    """Files below a path or URI, which need not be there yet. Places are relative to it.

    Attributes
    ----------
    uri : of it; of a path file:// and what is absolute.
    files, root : its file system, and its path there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """path : or a URI that pyarrow knows."""
        text = os.fspath(path)
        self.uri = text if "://" in text else f"{FILE_URI_PREFIX}{Path(text).absolute()}"
        self.files, self.root = open_file_system(self.uri)

    def resolve_path(self, place: str) -> str:
        """Return a place as the file system knows it."""
        return f"{self.root}/{place}"

    def has_entry(self, place: str) -> bool:
        """Return whether there is such a file or directory."""
        return bool(self.files.get_file_info(self.resolve_path(place)).type != FileType.NotFound)

    def list_entry_names(self, place: str, kind: FileType) -> list[str]:
        """Return the names of what is in a directory, sorted, without those that begin with a dot."""
        infos = self.files.get_file_info(FileSelector(self.resolve_path(place), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == kind and not info.base_name.startswith("."))

    def remove_directory(self, place: str) -> None:
        """Remove a directory, if it is there."""
        if self.has_entry(place):
            self.files.delete_dir(self.resolve_path(place))

    def read_json(self, place: str, otherwise: Any = None) -> Any:
        """Return what `put` left there. otherwise : nothing is, or what a power failure has left of it."""
        if not self.has_entry(place):
            return otherwise
        with self.files.open_input_stream(self.resolve_path(place)) as file, suppress(ValueError):
            return json.loads(file.read())
        return otherwise

    def write_json(self, place: str, value: Any) -> None:
        """Replace a small file of JSON at once. Several processes may, at one time."""
        directory = place.rpartition("/")[0]
        new = f"{directory}/.{uuid4().hex}"
        self.files.create_dir(self.resolve_path(directory))
        with self.files.open_output_stream(self.resolve_path(new)) as file:
            file.write(json.dumps(value).encode())
        self.files.move(self.resolve_path(new), self.resolve_path(place))


def open_file_system(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI, and the path there.

    What follows file:// is a path as it is, as it is for Spark: neither knows %20.
    """
    if uri.startswith(FILE_URI_PREFIX):
        return LocalFileSystem(), uri.removeprefix(FILE_URI_PREFIX)
    file_system: tuple[FileSystem, str] = FileSystem.from_uri(uri)
    return file_system
