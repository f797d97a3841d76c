"""Lakes of a fleet: their paths, and the host and the date in the names of their folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from fnmatch import fnmatchcase
from glob import has_magic

from pyarrow.fs import FileType

from msgq.common.selection import list_paths
from msgq.common.storage.urls import StorageOptions, make_absolute_path, select_storage_options
from msgq.errors import InvalidValueError
from msgq.lake.catalog import is_lake_directory
from msgq.lake.lake_directory import LakeDirectory

#: Storage options of the lakes and of the fleet tables; None: the store's own library finds them.


@dataclass(frozen=True, slots=True)
class FleetLake:
    """A lake of a fleet.

    Attributes:
        path: absolute path or URI.
        host: value of the folder `host=` in the path; None: the path has no such folder.
        date: value of the folder `date=` in the path; None: the path has no such folder.
    """

    path: str
    host: str | None
    date: date | None


def parse_lake_path(path: str) -> FleetLake:
    """Return a lake with the host and the date in its path.

    Raises:
        InvalidValueError: the value of the folder `date=` is not a date.
    """
    values = dict(folder.split("=", 1) for folder in path.split("/") if "=" in folder)
    day = values.get("date")
    try:
        return FleetLake(path, values.get("host"), None if day is None else date.fromisoformat(day))
    except ValueError:
        raise InvalidValueError(
            f"folder 'date={day}' has no valid date; name the folder like date=2026-05-01"
        ) from None


def open_fleet_directory(path: str, storage_options: StorageOptions) -> LakeDirectory:
    """Return the directory of a lake or of fleet tables. The storage options are for URLs, and not for local paths."""
    return LakeDirectory(path, select_storage_options(path, storage_options))


def find_fleet_lakes(
    fleet: str | os.PathLike[str],
    lakes: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    storage_options: StorageOptions = None,
) -> list[str]:
    """Return the absolute paths of the lakes of a fleet, sorted, each once.

    A path without wildcards is returned even if the directory does not exist.

    Args:
        fleet: directory of the fleet tables. Patterns for lakes can also match this directory.
        lakes: directories, patterns such as `lakes/date=*/host=*`, or URLs; or one of them. A URL can be a pattern.
        storage_options: credentials and settings for the URLs.

    Raises:
        InvalidValueError: `fleet` is a lake, `lakes` is empty, or no directory matches.
    """
    place, patterns = make_absolute_path(fleet), list_paths(lakes, "lakes")
    if is_lake_directory(open_fleet_directory(place, storage_options)):
        raise InvalidValueError(f"'{fleet}' is a lake, and cannot have fleet tables; give another directory")
    absolute = map(make_absolute_path, patterns)
    paths = {path for pattern in absolute for path in _expand_pattern(pattern, storage_options)} - {place}
    if not paths:
        raise InvalidValueError(f"no lakes found in {', '.join(patterns)}; give directories of lakes")
    return sorted(paths)


def _expand_pattern(pattern: str, storage_options: StorageOptions) -> list[str]:
    folders = pattern.split("/")
    first = next((index for index, folder in enumerate(folders) if has_magic(folder)), None)
    if first is None or open_fleet_directory(pattern, storage_options).has_entry(""):
        return [pattern]
    found = ["/".join(folders[:first])]
    for folder in folders[first:]:
        found = [
            f"{parent}/{name}"
            for parent in found
            for name in open_fleet_directory(parent or "/", storage_options).list_entry_names("", FileType.Directory)
            if fnmatchcase(name, folder)
        ]
    return found
