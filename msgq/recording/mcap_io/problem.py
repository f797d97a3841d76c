"""Skipped data of files, with reasons."""

from __future__ import annotations

import os
from dataclasses import dataclass

from msgq.common.storage.url_path import RecordingPath
from msgq.errors import StorageError

_REASON_CHARACTERS_MAX = 4096  # names in a file, and so in the reason, may have any length


@dataclass(frozen=True, slots=True)
class Problem:
    """Skipped data of a file.

    Attributes:
        path: path of the file.
        offset: byte offset in the file.
        reason: description of the problem.
        errno: error number of the system if the file could not be read or not completely; else None.
    """

    path: str
    offset: int
    reason: str
    errno: int | None = None

    def __post_init__(self) -> None:
        for name in ("path", "reason"):  # names of files are bytes, and tables need valid text
            object.__setattr__(self, name, make_printable_path(getattr(self, name)[:_REASON_CHARACTERS_MAX]))

    def __str__(self) -> str:
        return f"{self.path} at byte {self.offset}: {self.reason}"


def make_printable_path(path: str | RecordingPath) -> str:
    """Return a path as printable text. Bytes that are not text are replaced."""
    return os.fsencode(str(path)).decode(errors="replace")


def raise_storage_error(error: Exception) -> None:
    """Raise an error of a store again: a store that cannot be read is no damage of the file, so no part is skipped."""
    if isinstance(error, StorageError):
        raise error
