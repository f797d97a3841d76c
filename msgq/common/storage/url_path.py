"""Paths of recordings: local, or in a store."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgq.common.optional import missing_library
from msgq.common.storage.urls import FILE_URL_PREFIX, get_scheme, is_store_url, refuse_local_options
from msgq.errors import StorageError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


class UrlPath:
    """A file or directory of a store, with the methods of `Path` that readers of recordings use. Immutable.

    The text and the repr contain no storage option. A pickle contains the options, because workers need them.
    """

    def __init__(self, url: str, storage_options: Mapping[str, str] | None = None) -> None:
        """Set the URL.

        Args:
            storage_options: credentials and settings by the names of environment variables; see `open_file_system`.

        Raises:
            InvalidValueError: the scheme is not supported.
        """
        get_scheme(url)
        self._url = url.rstrip("/")
        self._storage_options = dict(storage_options) if storage_options else None

    def __str__(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._url!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UrlPath) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    def __truediv__(self, name: str) -> UrlPath:
        return UrlPath(f"{self._url}/{name}", self._storage_options)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self._url.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """Last dot of the name, and the text after it; "": no dot."""
        return os.path.splitext(self.name)[1]

    @property
    def parent(self) -> UrlPath:
        """Directory that contains the file."""
        return UrlPath(self._url.rpartition("/")[0], self._storage_options)

    def absolute(self) -> UrlPath:
        """Return this path, because a URL is absolute."""
        return self

    def open_file_system(self) -> tuple[FileSystem, str]:
        """Return the file system, and the path in it. See `file_systems.open_file_system`."""
        try:
            from msgq.common.storage.file_systems import open_file_system  # imports pyarrow
        except ModuleNotFoundError as missing:
            raise missing_library("a file in an object store", "arrow", "pyarrow") from missing
        return open_file_system(self._url, self._storage_options)

    def describe_file(self) -> FileInfo:
        """Ask the store for type, size and time of the change.

        Raises:
            StorageError: the store cannot be read.
        """
        files, path = self.open_file_system()
        try:
            return files.get_file_info(path)
        except OSError as error:
            raise self.explain_error(error) from None

    def is_dir(self) -> bool:
        """Return True if the store has a directory, or files below this path."""
        return bool(self.describe_file().type.name == "Directory")

    def is_file(self) -> bool:
        """Return True if the store has an object of this name."""
        return bool(self.describe_file().type.name == "File")

    def exists(self) -> bool:
        """Return True if the store has a file or a directory."""
        return bool(self.describe_file().type.name != "NotFound")

    def list_entries(self, recursive: bool = False) -> dict[UrlPath, FileInfo]:
        """Return the entries of a directory, sorted by name; `recursive`: also those of its subdirectories.

        Raises:
            StorageError: the store cannot be read.
        """
        from pyarrow.fs import FileSelector

        files, path = self.open_file_system()
        try:
            infos = files.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive))
        except OSError as error:
            raise self.explain_error(error) from None
        infos.sort(key=lambda info: info.path)
        below = len(path.rstrip("/")) + 1
        return {self / info.path[below:]: info for info in infos}

    def match_pattern(self) -> list[UrlPath]:
        """Return the entries that match a pattern such as s3://bucket/runs/date=2026-05-*/*.mcap, sorted.

        Only the directories that match are listed.

        Raises:
            StorageError: the store cannot be read.
        """
        scheme, _, bucket, *parts = self._url.split("/")
        found = [UrlPath(f"{scheme}//{bucket}", self._storage_options)] if parts else []
        for number, part in enumerate(parts):
            if glob.has_magic(part):
                found = [
                    path for place in found for path in place.list_entries() if fnmatch.fnmatchcase(path.name, part)
                ]
            else:
                found = [path / part for path in found]
                if number == len(parts) - 1:
                    found = [path for path in found if path.exists()]
        return found

    def explain_error(self, error: OSError) -> StorageError:
        """Return the error of a store as our own, without credentials."""
        from msgq.common.storage.store_errors import explain_error  # compiles patterns, which local paths do not need

        missing = isinstance(error, FileNotFoundError)
        reason = "it does not exist" if missing else explain_error(error, self._storage_options)
        text = f"'{self._url}' cannot be read: {reason}"
        return StorageError(text, errno=error.errno or errno.EIO)


#: A file or directory of a recording.
RecordingPath = Path | UrlPath


def make_path(
    text: str | os.PathLike[str] | UrlPath, storage_options: Mapping[str, str] | None = None
) -> RecordingPath:
    """Return the path of a text: a `UrlPath` for a URL, except file://, otherwise a `Path`.

    Raises:
        InvalidValueError: the scheme of a URL is not supported, or storage options are given for a local path.
    """
    if isinstance(text, UrlPath):
        return text
    plain = os.fspath(text)
    if is_store_url(plain):
        return UrlPath(plain, storage_options)
    refuse_local_options(plain, storage_options)
    return Path(plain.removeprefix(FILE_URL_PREFIX))
