"""Positions in the listings of directories with recordings.

    LAKE/_listings/NAME.json    the directory, and the recording at which its next listing begins

A listing that continues at its position does not visit the directories of older recordings. The user asks for it,
because it assumes that the names sort by time, and that a recording without a change for an hour has ended. A listing
of all recordings also finds recordings that came later with older names.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterable, Mapping

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.url_path import RecordingPath, UrlPath, make_path
from msgq.common.storage.urls import select_storage_options
from msgq.errors import StorageError
from msgq.lake.lake_directory import LakeDirectory
from msgq.recording.mcap_io.problem import Problem, make_printable_path
from msgq.recording.mcap_io.recording_files import list_directory_recordings, list_recordings

_ENDED_AFTER_S = 3600


class ListingPositions:
    """Listings of new recordings for one ingest."""

    def __init__(self, lake: LakeDirectory, storage_options: Mapping[str, str] | None = None) -> None:
        """Set the lake, and the storage options for URLs of recordings."""
        self._lake, self._storage_options = lake, storage_options
        self._found: dict[str, list[RecordingPath]] = {}
        self._listed_at = time.time()  # before the listings: the ingest after them can take long

    def list_new_recordings(self, paths: Iterable[str], problems: list[Problem]) -> list[RecordingPath]:
        """Return the recordings of directories from their positions on. Files and patterns are listed as always.

        Args:
            problems: gets the paths without files.

        Raises:
            RecordingError: a path does not exist.
        """
        files: dict[RecordingPath, None] = {}
        for path in paths:
            found = self._list_from_position(path, problems)
            found = found or list_recordings([path], problems, self._storage_options)
            if self._make_path(path).is_dir():
                self._found[path] = found
            files.update(dict.fromkeys(found))
        return list(files)

    def _list_from_position(self, path: str, problems: list[Problem]) -> list[RecordingPath]:
        """Return the recordings from the position on; an empty list: the directory has no position, or is empty."""
        stored = self._lake.read_json(self._make_place(path), {})
        if stored.get("directory") != path:
            return []
        directory = self._make_path(path)
        return list_directory_recordings(directory, problems, directory / stored["first"])

    def _make_path(self, path: str) -> RecordingPath:
        return make_path(path, select_storage_options(path, self._storage_options))

    def _make_place(self, path: str) -> str:
        return f"_listings/{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.json"

    def record_positions(self, unread: Collection[str]) -> None:
        """Store the positions after an ingest of the listed recordings.

        A position is the first recording that has changed within the last hour or that was not read. Without such a
        recording, the position is the last recording.

        `unread`: printable paths of the recordings that were not read, so that the next ingest tries again.
        """
        ended_at = self._listed_at - _ENDED_AFTER_S
        for path, files in self._found.items():
            open_files = (file for file in files if make_printable_path(file) in unread or _is_changed(file, ended_at))
            first = next(open_files, files[-1] if files else None)
            if first is not None:
                place, name = self._make_place(path), str(first).removeprefix(f"{path}/")
                if self._lake.read_json(place, {}).get("first") != name:
                    self._lake.write_json(place, {"directory": path, "first": name})


def _is_changed(file: RecordingPath, since: float) -> bool:
    """Return whether a file was modified since a time, or cannot be examined."""
    try:
        if isinstance(file, UrlPath):
            changed_at = file.describe_file().mtime
            return changed_at is None or bool(changed_at.timestamp() >= since)
        return file.stat().st_mtime >= since
    except (OSError, StorageError) as error:
        raise_handler_error(error)
        return True
