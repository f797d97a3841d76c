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
from msgq.errors import InvalidValueError
from msgq.lake.catalog import is_lake_directory
from msgq.lake.lake_directory import FILE_URI_PREFIX, LakeDirectory


@dataclass(frozen=True, slots=True)
class FleetLake:
    """A lake of a fleet.

    Attributes
    ----------
    path : absolute path or URI.
    host, date : values of the folders `host=` and `date=` in the path; None: the path has no such folder.
    """

    path: str
    host: str | None
    date: date | None


def parse_lake_path(path: str) -> FleetLake:
    """Return a lake with the host and the date in its path.

    Raises
    ------
    InvalidValueError : the value of the folder `date=` is not a date.
    """
    values = dict(folder.split("=", 1) for folder in path.split("/") if "=" in folder)
    day = values.get("date")
    try:
        return FleetLake(path, values.get("host"), None if day is None else date.fromisoformat(day))
    except ValueError:
        raise InvalidValueError(
            f"folder 'date={day}' has no valid date; name the folder like date=2026-05-01"
        ) from None


def make_absolute_path(path: str | os.PathLike[str]) -> str:
    """Return the absolute path of a directory, without `..` and a slash at the end. A URI stays a URI."""
    text = os.fspath(path).removeprefix(FILE_URI_PREFIX)
    return text.rstrip("/") if "://" in text else os.path.abspath(text)


def find_fleet_lakes(
    fleet: str | os.PathLike[str], lakes: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
) -> list[str]:
    """Return the absolute paths of the lakes of a fleet, sorted, each once.

    A path without wildcards is returned even if the directory does not exist.

    Parameters
    ----------
    fleet : directory of the fleet tables. Patterns for lakes can also match this directory.
    lakes : directories, patterns such as `lakes/date=*/host=*`, or URIs; or one of them.

    Raises
    ------
    InvalidValueError : `fleet` is a lake, `lakes` is empty, or no directory matches.
    """
    place, patterns = make_absolute_path(fleet), list_paths(lakes, "lakes")
    if is_lake_directory(LakeDirectory(place)):
        raise InvalidValueError(f"'{fleet}' is a lake, and cannot have fleet tables; give another directory")
    paths = {path for pattern in patterns for path in _expand_pattern(make_absolute_path(pattern))} - {place}
    if not paths:
        raise InvalidValueError(f"no lakes found in {', '.join(patterns)}; give directories of lakes")
    return sorted(paths)


def _expand_pattern(pattern: str) -> list[str]:
    folders = pattern.split("/")
    first = next((index for index, folder in enumerate(folders) if has_magic(folder)), None)
    if first is None or LakeDirectory(pattern).has_entry(""):
        return [pattern]
    found = ["/".join(folders[:first])]
    for folder in folders[first:]:
        found = [
            f"{parent}/{name}"
            for parent in found
            for name in LakeDirectory(parent or "/").list_entry_names("", FileType.Directory)
            if fnmatchcase(name, folder)
        ]
    return found
