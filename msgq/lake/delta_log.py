"""The log of a Delta table: an entry for each commit, and checkpoints. It is read without the list of all files.

Other programs can put several entries together in a file N.M.compacted.json. Such a file repeats entries that the log
also has, so this module ignores it.

Format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import count

from pyarrow.fs import FileType, LocalFileSystem

from msgq.common.handler_errors import raise_handler_error
from msgq.common.storage.store_errors import translate_store_errors
from msgq.lake.lake_directory import LakeDirectory
from msgq.lake.table_head import HeadAdvance, TableHead, advance_head, list_paths, make_head, parse_actions
from msgq.lake.table_snapshot import TableSnapshot

LOG_DIRECTORY = "_delta_log"
#: Bytes of an entry, and the time of its change in ns.
LogEntryState = tuple[int | None, int | None]
NO_ENTRY: LogEntryState = (None, None)
_ENTRY_PATTERN = re.compile(r"(\d{20})\.json")
_CHECKPOINT_PATTERN = re.compile(r"(\d{20})\.checkpoint\b.*\.parquet")


class DeltaLog:
    """The log of a table that may not exist yet. Entries and checkpoints are named by their versions."""

    def __init__(self, lake: LakeDirectory, table_place: str) -> None:
        self._lake, self._place = lake, f"{table_place}/{LOG_DIRECTORY}"
        self._is_local = isinstance(lake.files, LocalFileSystem)

    # ---- entries ----

    def describe_entry(self, version: int) -> LogEntryState:
        """Return the size and the time of an entry; `NO_ENTRY`: there is none."""
        info = self._lake.files.get_file_info(self._resolve_entry_path(version))
        return info.size, info.mtime_ns

    @translate_store_errors()
    def read_entry(self, version: int) -> bytes | None:
        """Return the content of an entry; None: there is none."""
        try:
            with self._lake.files.open_input_file(self._resolve_entry_path(version)) as entry:  # one request
                return bytes(entry.readall())
        except FileNotFoundError:
            return None

    def create_entry(self, version: int, data: bytes) -> bool:
        """Create an entry. Return False if another writer has created an entry of this version."""
        return self._lake.create_file(f"{self._place}/{version:020}.json", data)

    def _resolve_entry_path(self, version: int) -> str:
        return self._lake.resolve_path(f"{self._place}/{version:020}.json")

    def list_versions(self) -> list[int]:
        """Return the versions that have an entry, sorted."""
        return self._list_matching_versions(_ENTRY_PATTERN)

    def list_versions_since(self, oldest: int, existing: int) -> Iterator[int]:
        """Yield the versions from `oldest` on that have an entry. `existing`: version whose entry was written.

        A listing of the log would cost more, the more commits the table has.
        """
        for version in count(oldest):
            if self.describe_entry(version) != NO_ENTRY:
                yield version
            elif version > existing:
                return

    def read_newest_version(self) -> int:
        """Return the number of the last commit; -1: the table does not exist."""
        return max(self.list_versions(), default=-1)

    def list_added_paths(self, after_version: int, version: int) -> set[str] | None:
        """Return the paths of the files that the commits after a version added, up to another version.

        The result is None if a log entry was removed.
        """
        paths: set[str] = set()
        for number in range(after_version + 1, version + 1):
            entry = self.read_entry(number)
            if entry is None:
                return None
            paths |= list_paths(parse_actions(entry), "add")
        return paths

    def remove_torn_entry(self) -> bool:
        """Remove the newest entry if a power failure has left it empty.

        The commit of such an entry never succeeded.
        """
        try:
            newest = self.read_newest_version() if self._is_local else -1
            if newest >= 0 and not os.path.getsize(path := self._resolve_entry_path(newest)):
                os.remove(path)
                return True
        except OSError as error:  # the table belongs to another user
            raise_handler_error(error)
        return False

    # ---- heads ----

    def make_head(self, snapshot: TableSnapshot) -> TableHead | None:
        """Return the head of a snapshot; None: only delta-rs can write the table."""
        return make_head(snapshot, self.read_entry) if self._lake.can_create_files else None

    def advance_head(self, head: TableHead) -> HeadAdvance | None:
        """Return the newest version after a head that was stored; None: the log was changed, so load the table."""
        if not self._lake.can_create_files:
            return None
        return advance_head(head, self.read_entry, self.read_checkpoint_version)

    # ---- checkpoints ----

    def read_checkpoint_version(self) -> int:
        """Return the version of the newest checkpoint; -1: the log names none."""
        return int(self._lake.read_json(f"{self._place}/_last_checkpoint", {}).get("version", -1))

    def list_checkpoint_versions(self) -> list[int]:
        """Return the versions that have a checkpoint, sorted."""
        return self._list_matching_versions(_CHECKPOINT_PATTERN)

    def list_checkpoint_paths(self, version: int) -> list[str]:
        """Return the paths of a checkpoint's files in the table, and of the file that names the newest checkpoint."""
        prefixes = f"{version:020}.checkpoint", "_last_checkpoint"
        return [f"{LOG_DIRECTORY}/{name}" for name in self._list_names() if name.startswith(prefixes)]

    def find_oldest_version(self) -> int:
        """Return the number of the oldest version that can be read; 0: the table does not exist."""
        checkpoints = self.list_checkpoint_versions()
        return 0 if not checkpoints or self.describe_entry(0) != NO_ENTRY else checkpoints[0]

    def explain_missing_version(self, version: int) -> str | None:
        """Return why the log does not have a version; None: it has the version, or the table does not exist."""
        newest, oldest = self.read_newest_version(), self.find_oldest_version()
        if version > newest >= 0:
            return f"has no such version; its newest version is {newest}"
        if version < oldest:
            return f"no longer has version {version}; `optimize` removed versions older than {oldest}"
        return None

    def _list_matching_versions(self, pattern: re.Pattern[str]) -> list[int]:
        return [int(found[1]) for found in map(pattern.fullmatch, self._list_names()) if found]

    def _list_names(self) -> list[str]:
        return self._lake.list_entry_names(self._place, FileType.File)


def make_entry_path(version: int) -> str:
    """Return the path of a log entry in the directory of its table."""
    return f"{LOG_DIRECTORY}/{version:020}.json"
