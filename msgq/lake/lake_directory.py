"""A directory in any file system."""

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
    """Files below a path or URI, which may not exist yet. Paths of the methods are relative to it.

    Attributes
    ----------
    uri : URI of the directory; for a path, file:// and the absolute path.
    files, root : file system, and path of the directory in it.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Set the path, or a URI that pyarrow supports."""
        text = os.fspath(path)
        self.uri = text if "://" in text else f"{FILE_URI_PREFIX}{Path(text).absolute()}"
        self.files, self.root = open_file_system(self.uri)

    def resolve_path(self, place: str) -> str:
        """Return a path in the file system."""
        return f"{self.root}/{place}"

    def has_entry(self, place: str) -> bool:
        """Return True if a file or directory exists."""
        return bool(self.files.get_file_info(self.resolve_path(place)).type != FileType.NotFound)

    def list_entry_names(self, place: str, kind: FileType) -> list[str]:
        """Return the sorted names in a directory, without names that begin with a dot."""
        infos = self.files.get_file_info(FileSelector(self.resolve_path(place), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == kind and not info.base_name.startswith("."))

    def remove_directory(self, place: str) -> None:
        """Remove a directory if it exists."""
        if self.has_entry(place):
            self.files.delete_dir(self.resolve_path(place))

    def read_json(self, place: str, otherwise: Any = None) -> Any:
        """Return the value of a JSON file.

        `otherwise`: value for a missing file, or for a file damaged by a power failure.
        """
        if not self.has_entry(place):
            return otherwise
        with self.files.open_input_stream(self.resolve_path(place)) as file, suppress(ValueError):
            return json.loads(file.read())
        return otherwise

    def write_json(self, place: str, value: Any) -> None:
        """Replace a small JSON file atomically. Several processes may do so at the same time."""
        directory = place.rpartition("/")[0]
        new = f"{directory}/.{uuid4().hex}"
        self.files.create_dir(self.resolve_path(directory))
        with self.files.open_output_stream(self.resolve_path(new)) as file:
            file.write(json.dumps(value).encode())
        self.files.move(self.resolve_path(new), self.resolve_path(place))

    def write_durable_file(self, place: str, data: bytes) -> None:
        """Replace a file atomically. After the return, a local file is on the disk.

        A killed process can leave a file with the additional suffix .tmp.
        """
        path, folder = self.resolve_path(place), self.resolve_path(place.rpartition("/")[0])
        self.files.create_dir(folder)
        with self.files.open_output_stream(f"{path}.tmp", compression=None) as file:
            file.write(data)
        if isinstance(self.files, LocalFileSystem):
            sync_path(f"{path}.tmp")
        self.files.move(f"{path}.tmp", path)
        if isinstance(self.files, LocalFileSystem):
            sync_path(folder)


def sync_path(path: str) -> None:
    """Wait until a local file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_file_system(uri: str) -> tuple[FileSystem, str]:
    """Return the file system of a URI, and the path in it.

    The text after file:// is a plain path, as in Spark: %20 is not decoded.
    """
    if uri.startswith(FILE_URI_PREFIX):
        return LocalFileSystem(), uri.removeprefix(FILE_URI_PREFIX)
    file_system: tuple[FileSystem, str] = FileSystem.from_uri(uri)
    return file_system
