"""The user's cache folder, for files that can be created again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from errno import EACCES, EEXIST, ENOTEMPTY
from pathlib import Path

from msgq.common.shm_paths import make_private_directory
from msgq.errors import SparkError


def get_cache_folder() -> Path:
    """Return the path of the folder. The folder may be missing or not writable."""
    for place in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(place):  # the XDG standard ignores relative paths. Without a home directory, "~" stays
            return Path(place, "msgq")
    return _get_temporary_folder()


def _get_temporary_folder() -> Path:
    return Path(tempfile.gettempdir(), f"msgq-{os.geteuid()}")


def check_cache_folder(place: Path) -> None:
    """Create the temporary cache folder if necessary. Raise an error if other users could write into it.

    Raises:
        PermissionError: other users can enter the folder, another user owns it, or it is not a folder.
        OSError: the folder cannot be created.
    """
    if place == _get_temporary_folder() and not make_private_directory(str(place)):
        raise PermissionError(EACCES, "other users can enter the folder")


def make_in_cache(name: str, make: Callable[[Path], None], program: str = "") -> Path:
    """Return the path of a program or folder in the cache, created by `make` if it is missing.

    Thread- and process-safe.

    If the cache is not writable, or programs in it cannot be executed, a temporary folder is used.

    `name`: name that identifies all inputs of `make`.
    `make`: creates the program or folder at the given path.
    `program`: path of the program within the folder.

    Raises:
        SparkError: neither folder is usable.
    """
    reasons = []
    for place in (get_cache_folder(), _get_temporary_folder()):
        try:
            check_cache_folder(place)
            return _make_cache_entry(place / name, make, program)
        except OSError as error:
            reasons.append(error)
    advice = "set XDG_CACHE_HOME to a folder that is writable and allows execution"
    text = f"cache entry '{get_cache_folder() / name}' cannot be created: {reasons[0].strerror}; {advice}"
    raise SparkError(text, errno=reasons[0].errno) from reasons[0]


def write_program(path: Path, text: str) -> None:
    """Write a script, and sync it to the disk. A script that a power failure left empty would run without an error."""
    with path.open("wb") as file:
        file.write(os.fsencode(text))
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o755)


def _make_cache_entry(place: Path, make: Callable[[Path], None], program: str) -> Path:
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, ignore_cleanup_errors=True) as draft:
            make(Path(draft, place.name))
            _move_into_cache(Path(draft, place.name), place)
    if not os.access(place / program, os.X_OK):
        raise PermissionError(EACCES, "programs in the folder cannot be executed")
    return place


def _move_into_cache(temporary: Path, place: Path) -> None:
    try:
        temporary.rename(place)
    except OSError as error:
        if error.errno not in (EEXIST, ENOTEMPTY):  # another process was faster, and its folder has the same content
            raise
