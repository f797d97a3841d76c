"""The user's cache folder, of what can be made again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from errno import EACCES, EEXIST, ENOTEMPTY
from pathlib import Path

from msgq.common.shm_paths import make_private_directory
from msgq.errors import SparkError


def get_cache_folder() -> Path:
    """Return the folder; it may not be there yet, or not be for us to write."""
    for place in (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache")):
        if os.path.isabs(place):  # of another one the standard says that it does not count; ~ stays without a home
            return Path(place, "msgq")
    return _get_temporary_folder()


def _get_temporary_folder() -> Path:
    return Path(tempfile.gettempdir(), f"msgq-{os.geteuid()}")


def check_cache_folder(place: Path) -> None:
    """Refuse the temporary cache folder if others could put something there; make it if it is missing.

    Raises
    ------
    PermissionError : other users can enter the folder, it is another user's, or it is no folder.
    OSError : it cannot be made.
    """
    if place == _get_temporary_folder() and not make_private_directory(str(place)):
        raise PermissionError(EACCES, "other users can enter the folder")


def make_in_cache(name: str, make: Callable[[Path], None], program: str = "") -> Path:
    """Return a program, or a folder with one, of the cache: whole whenever it is there. Thread- and process-safe.

    Where the cache cannot be written, or nothing in it can be run, it is made among the temporary files.

    name : says all that `make` depends on. make : makes it at the path that it is given. program : where in the folder
    the program is.

    Raises
    ------
    SparkError : neither folder will do.
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
    """Write a script. It is on the disk then: one that a power failure left empty would run, and do nothing."""
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


def _move_into_cache(made: Path, place: Path) -> None:
    try:
        made.rename(place)
    except OSError as error:
        if error.errno not in (EEXIST, ENOTEMPTY):  # another process was faster; its folder says the same
            raise
