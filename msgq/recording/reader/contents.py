"""A log's files, and the part of them that is wanted: the common ground of all ways to read it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from msgq.recording.format.file import TIME_MAX, Channel, LogFile, Stretch
from msgq.recording.format.problem import Problem
from msgq.recording.format.scan import UNWANTED, Columns
from msgq.selection import Selection

_PROBLEMS_MAX = 1000


class Contents:
    """The files of a log, and of them the endpoints and the time that are wanted. One thread at a time.

    Attributes
    ----------
    files : in the order of the log.
    problems : what was skipped so far: the first 1000, and where more was.
    channels : what was found so far of what messages have in common; their codes are indexes in here.
    start, end : wanted are messages with start <= log_time < end, ns since the epoch.
    max_chunk_bytes : of a chunk before compression, a message outside of chunks, or a summary.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        selection: Selection,
        start: int | None,
        end: int | None,
        span: tuple[int, int] | None,
        max_chunk_bytes: int,
        kind: str = "",
    ) -> None:
        """Open the files; see `LogReader`. kind: only of endpoints of this kind; "": of all kinds."""
        self._selection, self._kind = selection, kind
        self.start = 0 if start is None else min(max(0, start), TIME_MAX)
        self.end = TIME_MAX if end is None else min(max(0, end), TIME_MAX)
        self.max_chunk_bytes = max_chunk_bytes
        self.problems: list[Problem] = []
        self.channels: list[Channel] = []
        self._codes: dict[Channel, int] = {}
        self.files = [LogFile(path, self._code_of, self.note, span, max_chunk_bytes) for path in paths]

    def note(self, problem: Problem) -> None:
        """Add a problem, if it is a new one and there is room."""
        if len(self.problems) < _PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)
        elif len(self.problems) == _PROBLEMS_MAX:
            text = f"{problem.reason}; there is more from here on, which is not listed"
            self.problems.append(replace(problem, reason=text))

    def _code_of(self, channel: Channel) -> int:
        """Return the channel's index in `channels`, or that it is not wanted."""
        if channel.endpoint not in self._selection or self._kind not in ("", channel.source.kind):
            return UNWANTED
        if channel not in self._codes:
            self._codes[channel] = len(self.channels)
            self.channels.append(channel)
        return self._codes[channel]

    def endpoint_codes(self) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return the endpoints, and for each code the index of its endpoint among them."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(channel.endpoint, len(indexes)) for channel in self.channels]
        return list(indexes), np.array(of_code, np.int32)

    def numberings(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return for each code the first one whose messages have the same numbering: several publishers may share one,
        and another schema does not end it.
        """
        first: dict[tuple[str, str, int, bool], int] = {}
        of_code = [
            first.setdefault((channel.endpoint, channel.run, channel.epoch, channel.counted), code)
            for code, channel in enumerate(self.channels)
        ]
        return np.array(of_code, np.int32)

    def source_codes(self, name: str) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return what a field of `Source` says, and for each code the index of what it says of its messages."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(getattr(channel.source, name), len(indexes)) for channel in self.channels]
        return list(indexes), np.array(of_code, np.int32)

    def stretches(self) -> Iterator[tuple[LogFile, Stretch]]:
        """Give what may have wanted messages, in the order of the files."""
        for file in self.files:
            for stretch in file.stretches:
                if file.wants(stretch, self.start, self.end):
                    yield file, stretch

    def stretch_scans(self, file: LogFile, stretch: Stretch, columns: Columns) -> Iterator[bytes]:
        """Fill the columns again and again with the wanted messages of a stretch; give what their offsets are into."""
        content = file.content(stretch)
        position = 0
        while content is not None and position < len(content):
            columns.clear()
            position = file.scan(stretch, content, position, columns, self.start, self.end)
            yield content

    def scans(self, columns: Columns) -> Iterator[bytes]:
        """Do the same for all stretches."""
        for file, stretch in self.stretches():
            yield from self.stretch_scans(file, stretch, columns)

    def between(self, start: int | None, end: int | None) -> Contents:
        """Return the same within a narrower time; None leaves it as it is. One thread at a time for both."""
        narrower = copy(self)
        narrower.start = min(max(self.start, start or 0), TIME_MAX)
        narrower.end = min(self.end, TIME_MAX if end is None else max(0, end))
        return narrower

    def history(self, kind: str) -> Contents:
        """Return the endpoints of one kind, of those that are wanted, from the beginning of the files to their end."""
        paths = [file.path for file in self.files]
        return Contents(paths, self._selection, None, None, None, self.max_chunk_bytes, kind)

    def split(self, size: int) -> list[Contents]:
        """Return pieces, in the order of this, each of at least one stretch; see `LogReader.split`."""
        pieces: list[Contents] = []
        room = 0
        for file, stretch in self.stretches():
            room -= stretch.size
            if not pieces or room < 0:
                pieces.append(self._empty())
                room = size - stretch.size
            pieces[-1]._add(file, stretch)
        return pieces

    def _empty(self) -> Contents:
        piece = copy(self)
        piece.problems, piece.files = [], []
        piece.channels, piece._codes = list(self.channels), dict(self._codes)
        return piece

    def _add(self, file: LogFile, stretch: Stretch) -> None:
        if not self.files or self.files[-1].path != file.path:
            self.files.append(file.cut([], self._code_of, self.note))
        self.files[-1].stretches.append(stretch)
