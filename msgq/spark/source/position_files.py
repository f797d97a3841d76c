"""Positions of a stream of recordings, in the offsets of Spark and in files next to them.

Spark stores the offset of each batch in its checkpoint. To keep offsets small, an offset lists the positions that
changed lately, and names a file with all other positions. Files never change, and their names contain a hash of the
content. A batch has these steps, and a kill after any of them loses nothing:

1. The stream writes a file if the list is too long. After a kill, no offset names the file.
2. Spark stores the offset.
3. Spark reads the messages. After a kill, Spark repeats the batch with the stored offsets.
4. The stream removes the files that no stored offset names, including those of kills after step 1. Only the first
   file of a stream stays after such a kill, because the stream then gets another random number.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any

from pyarrow.fs import FileType

from msgq.errors import InvalidValueError, RecordingError
from msgq.lake.lake_directory import LakeDirectory

#: Position in a recording: the segment, the position in the segment, and the first known segment. "gone", if present:
#: number of segments that were deleted before the stream had read the whole segment.
StreamPosition = dict[str, int]
#: Positions by path of the recording. `FILE_FIELD`, if present, is the name of the file with the positions of other
#: recordings. None instead of a position: the recording in the file was deleted.
RecordingOffset = dict[str, Any]

FILE_FIELD = "positions_file"  # cannot be a recording, because paths of recordings are absolute
LISTED_POSITIONS_MAX = 256
_POSITIONS_FOLDER, _OFFSETS_FOLDER, _QUERY_FILE = "recording_positions", "offsets", "metadata"  # in the checkpoint
_FILE_NAME_PATTERN = re.compile(rb"[0-9a-f]{16}-[0-9a-f]{32}\.json\.gz")
_CACHED_FILES_MAX = 2  # the files of the start and of the end of a batch


class PositionFiles:
    """Converts between the offsets of a stream and the positions of all its recordings. Runs on the driver."""

    def __init__(self, checkpoint: str | None) -> None:
        """Set the checkpoint of the query: a path, or a URI. None: offsets list all positions."""
        self._checkpoint = checkpoint
        self._positions_by_file: dict[str, dict[str, StreamPosition]] = {}
        self._unstored_names: set[str] = set()  # files of this process that no stored offset names yet
        self._cleaned_name = ""  # file of the offset at the last removal of files

    @cached_property
    def _checkpoint_directory(self) -> LakeDirectory:
        """The checkpoint. Raises InvalidValueError if the option is missing, or the path is not a checkpoint."""
        if self._checkpoint is None:
            raise InvalidValueError(
                "the offset of this stream names a file with positions, and option 'checkpointLocation' is missing; "
                "give the source the checkpointLocation of writeStream"
            )
        try:
            directory = LakeDirectory(self._checkpoint)
        except ValueError as error:
            raise InvalidValueError(
                f"option 'checkpointLocation' of the source is '{self._checkpoint}', which pyarrow cannot open: "
                f"{error}; use a path, or a URI that Spark and pyarrow accept"
            ) from None
        if not directory.has_entry(_QUERY_FILE):
            raise self._make_checkpoint_error(f"has no file '{_QUERY_FILE}'")
        return directory

    def _make_checkpoint_error(self, reason: str) -> InvalidValueError:
        return InvalidValueError(
            f"option 'checkpointLocation' of the source is '{self._checkpoint}', which is not the checkpoint of this "
            f"query: it {reason}; give the source the checkpointLocation of writeStream"
        )

    def check_checkpoint(self) -> None:
        """Raise InvalidValueError if the option names a path that is not a checkpoint."""
        if self._checkpoint is not None:
            _ = self._checkpoint_directory

    def read_positions(self, offset: RecordingOffset) -> dict[str, StreamPosition]:
        """Return the positions of an offset by path of the recording.

        Raises:
            RecordingError: the file of the offset is missing or damaged.
        """
        listed = dict(offset)
        name = listed.pop(FILE_FIELD, None)
        positions = listed if name is None else self._read_file(name) | listed
        return {path: position for path, position in positions.items() if position is not None}

    def make_offset(self, start: RecordingOffset, changes: Mapping[str, StreamPosition | None]) -> RecordingOffset:
        """Return the offset after changes of positions. If its list is too long, write a file with all positions.

        `changes`: new positions by path of the recording; None: the recording was deleted.
        """
        offset = {**start, **changes}
        if FILE_FIELD not in start:
            offset = self.read_positions(offset)
        if self._checkpoint is None or len(offset) <= LISTED_POSITIONS_MAX:
            return offset
        stream = start.get(FILE_FIELD, secrets.token_hex(8)).partition("-")[0]
        return {FILE_FIELD: self._write_file(stream, self.read_positions(offset))}

    def remove_unused_files(self, offset: RecordingOffset) -> None:
        """Remove the files of this stream that no stored offset names.

        `offset`: an offset that Spark has stored.
        """
        name = offset.get(FILE_FIELD)
        if name is None or name == self._cleaned_name:
            return
        stored = self._find_stored_names()
        if name not in stored:
            raise self._make_checkpoint_error(
                f"has no offset of this stream, but has '{_POSITIONS_FOLDER}/{name}' by mistake: move "
                f"'{_POSITIONS_FOLDER}/{_get_stream_id(name)}-*' to the same folder of the right checkpoint"
            )
        self._unstored_names -= stored
        for found in self._checkpoint_directory.list_entry_names(_POSITIONS_FOLDER, FileType.File):
            if _get_stream_id(found) == _get_stream_id(name) and found not in stored | self._unstored_names:
                self._checkpoint_directory.files.delete_file(self._resolve_file_path(found))
        self._cleaned_name = name

    def _find_stored_names(self) -> set[str]:
        """Return the names of files in all offsets that Spark keeps."""
        names: set[str] = set()
        for entry in self._checkpoint_directory.list_entry_names(_OFFSETS_FOLDER, FileType.File):
            path = self._checkpoint_directory.resolve_path(f"{_OFFSETS_FOLDER}/{entry}")
            with (
                suppress(FileNotFoundError),
                self._checkpoint_directory.files.open_input_stream(path) as file,
            ):  # Spark removed it
                names.update(name.decode() for name in _FILE_NAME_PATTERN.findall(file.read()))
        return names

    def _resolve_file_path(self, name: str) -> str:
        return self._checkpoint_directory.resolve_path(f"{_POSITIONS_FOLDER}/{name}")

    def _read_file(self, name: str) -> dict[str, StreamPosition]:
        if name not in self._positions_by_file:
            path = self._resolve_file_path(name)
            try:
                with self._checkpoint_directory.files.open_input_stream(path, compression=None) as file:
                    data = file.read()
            except FileNotFoundError:
                raise _make_file_error(path, "is missing") from None
            if name != _make_file_name(_get_stream_id(name), data):
                raise _make_file_error(path, "is damaged")
            self._cache_positions(name, json.loads(gzip.decompress(data)))
        return self._positions_by_file[name]

    def _write_file(self, stream: str, positions: dict[str, StreamPosition]) -> str:
        """Write a file completely, and return its name."""
        data = gzip.compress(json.dumps(positions).encode(), mtime=0)
        name = _make_file_name(stream, data)
        try:
            self._checkpoint_directory.write_durable_file(f"{_POSITIONS_FOLDER}/{name}", data)
        except OSError as error:
            path = self._resolve_file_path(name)
            text = f"file '{path}' with the positions of this stream cannot be written: {error}"
            raise RecordingError(text, errno=error.errno) from error
        self._unstored_names.add(name)
        self._cache_positions(name, positions)
        return name

    def _cache_positions(self, name: str, positions: dict[str, StreamPosition]) -> None:
        self._positions_by_file[name] = positions
        for oldest in list(self._positions_by_file)[:-_CACHED_FILES_MAX]:
            del self._positions_by_file[oldest]


def _get_stream_id(name: str) -> str:
    """Return the random number of the stream that a file belongs to. Streams never remove each other's files."""
    return name.partition("-")[0]


def _make_file_name(stream: str, data: bytes) -> str:
    return f"{stream}-{hashlib.sha256(data).hexdigest()[:32]}.json.gz"


def _make_file_error(path: str, problem: str) -> RecordingError:
    return RecordingError(
        f"file '{path}' with the positions of this stream {problem}; restore the file from a backup, or start the "
        "query with a new checkpoint, which reads all recordings again (a lake skips the messages that it has)"
    )
