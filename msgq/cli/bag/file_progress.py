"""Progress over the files of recordings."""

from collections.abc import Callable, Iterable
from contextlib import suppress

from msgq.cli.common.progress import BYTES, ProgressLine
from msgq.common.storage.url_path import RecordingPath
from msgq.errors import RecordingError
from msgq.recording.mcap_io.byte_reader import open_bytes
from msgq.recording.mcap_io.recording_files import find_segment_files


class FileProgress(ProgressLine):
    """Shows the progress of an operation on each file of recordings. The total is the size of all files."""

    def __init__(self, text: str, logs: Iterable[RecordingPath]) -> None:
        """Prepare the line. The operation itself reports unreadable files.

        Args:
            text: name of the operation.
            logs: files and directories.
        """
        super().__init__(text, BYTES, sum(map(_find_recording_bytes, logs)))
        self._end_bytes = 0

    def begin_file(self, path: RecordingPath) -> Callable[[float], None]:
        """Begin the next file. Return a function for the finished part of this file, from 0 to 1."""
        begin, size = self._end_bytes, _find_file_bytes(path)
        self._end_bytes = begin + size
        return lambda part: self.set_finished(begin + part * size)


def _find_recording_bytes(log: RecordingPath) -> int:
    with suppress(RecordingError):
        return sum(map(_find_file_bytes, find_segment_files(log)))
    return 0


def _find_file_bytes(path: RecordingPath) -> int:
    with suppress(RecordingError), open_bytes(path) as reader:
        return reader.size_bytes
    return 0
