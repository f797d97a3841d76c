"""A directory in any file system or object store."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyarrow.fs import FileSelector, FileType, LocalFileSystem

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.file_creation import ObjectCreator, create_local_file, open_object_creator
from msgq.common.storage.file_systems import open_file_system
from msgq.common.storage.store_errors import translate_store_errors
from msgq.common.storage.urls import FILE_URL_PREFIX, is_url
from msgq.errors import StorageError

_OBJECT_STORES = ("s3", "gcs", "abfs")  # names of pyarrow
#: pyarrow reads an error into the buffer for the object. It does not repeat the request if the error is longer.
_SMALL_OBJECT_BYTES = 1024


class LakeDirectory:
    """Files below a path or URL, which may not exist yet. Paths of the methods are relative to it.

    Workers get the object itself. Its pickle contains the storage options, and its repr does not.

    Attributes:
        uri: URL of the directory; for a path, file:// and the absolute path.
        files: file system of the directory.
        root: path of the directory in the file system.
        storage_options: credentials and settings of the object store; None: the store's own library finds them.
        is_object_store: whether a file appears only when it is complete, and folders need not be created.
    """

    def __init__(self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        """Set the path or URL.

        Args:
            storage_options: see `open_file_system`.

        Raises:
            InvalidValueError: the URL or a storage option is not supported, or the storage options are for a local
                path.
        """
        text = os.fspath(path)
        self.uri = text.removesuffix("/") if is_url(text) else f"{FILE_URL_PREFIX}{Path(text).absolute()}"
        self.storage_options = dict(storage_options) if storage_options else None
        self.files, self.root = open_file_system(self.uri, self.storage_options)
        self.is_object_store = self.files.type_name in _OBJECT_STORES

    def __reduce__(self) -> tuple[type[LakeDirectory], tuple[str, dict[str, str] | None]]:
        return LakeDirectory, (self.uri, self.storage_options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.uri!r})"

    def resolve_path(self, place: str) -> str:
        """Return a path in the file system."""
        return f"{self.root}/{place}" if place else self.root or "/"

    def create_folder(self, place: str) -> None:
        """Create a folder for files, unless the store has no folders."""
        if not self.is_object_store:
            self.files.create_dir(self.resolve_path(place))

    @cached_property
    def _object_creator(self) -> ObjectCreator | None:
        return open_object_creator(self.uri, self.storage_options, self.files) if self.is_object_store else None

    @property
    def can_create_files(self) -> bool:
        """True if `create_file` is possible: on disks, and in stores whose credentials msgq finds without delta-rs."""
        return isinstance(self.files, LocalFileSystem) or self._object_creator is not None

    def create_file(self, place: str, data: bytes) -> bool:
        """Create a file atomically, and on the disk. Return False if another writer has created the file.

        Raises:
            StorageError: the store cannot be written.
        """
        path = self.resolve_path(place)
        if self._object_creator is None:
            return create_local_file(path, data)
        return self._object_creator.create_object(path.partition("/")[2], data)

    @translate_store_errors()
    def has_entry(self, place: str) -> bool:
        """Return True if a file or directory exists."""
        return bool(self.files.get_file_info(self.resolve_path(place)).type != FileType.NotFound)

    def require_bucket(self) -> None:
        """Check that the bucket of a URL exists, because a store lists no files of a missing bucket.

        Raises:
            StorageError: the bucket does not exist.
        """
        bucket = self.root.partition("/")[0]
        try:
            if self.is_object_store and self.files.get_file_info(bucket).type == FileType.NotFound:
                raise StorageError(f"bucket '{bucket}' of '{self.uri}' does not exist; create it, or correct the URL")
        except OSError as error:  # users who may list files may not always query the bucket
            raise_handler_error(error)

    @translate_store_errors()
    def list_entry_names(self, place: str, kind: FileType) -> list[str]:
        """Return the sorted names in a directory, without names that begin with a dot."""
        infos = self.files.get_file_info(FileSelector(self.resolve_path(place), allow_not_found=True))
        return sorted(info.base_name for info in infos if info.type == kind and not info.base_name.startswith("."))

    def remove_directory(self, place: str) -> None:
        """Remove a directory if it exists."""
        if self.has_entry(place):
            self.files.delete_dir(self.resolve_path(place))

    @translate_store_errors()
    def read_json(self, place: str, otherwise: Any = None) -> Any:
        """Return the value of a JSON file.

        `otherwise`: value for a missing file, or for a file damaged by a power failure.
        """
        try:
            with self.files.open_input_stream(self.resolve_path(place)) as file:
                return json.loads(file.read())
        except (FileNotFoundError, ValueError):
            return otherwise

    def write_json(self, place: str, value: Any) -> None:
        """Replace a small JSON file atomically. Several processes may do so at the same time."""
        data = json.dumps(value).encode()
        if self.is_object_store:
            self._write_object(place, data.ljust(_SMALL_OBJECT_BYTES))
            return
        directory = place.rpartition("/")[0]
        new = f"{directory}/.{uuid4().hex}"
        self.create_folder(directory)
        with self.files.open_output_stream(self.resolve_path(new)) as file:
            file.write(data)
        self.files.move(self.resolve_path(new), self.resolve_path(place))

    def write_durable_file(self, place: str, data: bytes) -> None:
        """Replace a file atomically. After the return, a local file is on the disk.

        A killed process can leave a file with the additional suffix .tmp in a file system.
        """
        if self.is_object_store:
            self._write_object(place, data)
            return
        path, folder = self.resolve_path(place), self.resolve_path(place.rpartition("/")[0])
        self.create_folder(place.rpartition("/")[0])
        with self.files.open_output_stream(f"{path}.tmp", compression=None) as file:
            file.write(data)
        if isinstance(self.files, LocalFileSystem):
            sync_path(f"{path}.tmp")
        self.files.move(f"{path}.tmp", path)
        if isinstance(self.files, LocalFileSystem):
            sync_path(folder)

    def _write_object(self, place: str, data: bytes) -> None:
        with self.files.open_output_stream(self.resolve_path(place), compression=None) as file:
            file.write(data)


def sync_path(path: str) -> None:
    """Wait until a local file or directory is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
