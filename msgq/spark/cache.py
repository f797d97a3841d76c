"""The user's cache folder, of what can be made again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from errno import EEXIST, ENOTEMPTY
from pathlib import Path

from msgq.errors import MissingLibraryError


def folder() -> Path:
    """Return the folder; it may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "msgq"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """Return a file or folder of the cache, whole whenever it is there. Thread- and process-safe.

    name : says all that `make` depends on. make : makes it at the path that it is given.

    Raises
    ------
    MissingLibraryError : the folder cannot be written.
    """
    place = folder() / name
    if not place.exists():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=place.parent) as draft:
                make(Path(draft, name))
                _move(Path(draft, name), place)
        except OSError as error:
            text = f"cannot make {place}: {error.strerror}; set XDG_CACHE_HOME to a folder that can be written"
            raise MissingLibraryError(text, errno=error.errno) from error
    return place


def _move(made: Path, place: Path) -> None:
    try:
        made.rename(place)
    except OSError as error:
        if error.errno not in (EEXIST, ENOTEMPTY):  # another process was faster; its folder says the same
            raise
