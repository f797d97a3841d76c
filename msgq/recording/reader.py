"""Logs: one or several recordings, read as one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.errors import InvalidValueError, MissingLibraryError, RecordingError
from msgq.recording import layout
from msgq.recording.decode import Decoders, struct_dtype
from msgq.recording.files import TIME_MAX, Channel, LogFile, Part, Problem
from msgq.recording.message import EndpointInfo, Message
from msgq.recording.ordering import Found, Waiting
from msgq.recording.scan import TALLY, UNWANTED, Columns
from msgq.recording.walk import CHUNK_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow

_ROWS = 16384
_PROBLEMS_MAX = 1000
_OVERLAP = 4  # largest chunks whose messages may wait at the same time


class LogReader:
    """Reads MCAP files, ours and anybody's, whole and truncated ones. One thread at a time.

    Nothing in a file makes it fail once it is open: what is damaged is skipped, and listed in `problems`.

    Attributes
    ----------
    files : the files, in the order given.
    problems : what was skipped so far: the first 1000, and where more was.
    """

    def __init__(
        self,
        *paths: str | PathLike[str],
        endpoints: Iterable[str | re.Pattern[str]] | None = None,
        exclude: Iterable[str | re.Pattern[str]] | None = None,
        start: int | None = None,
        end: int | None = None,
        span: tuple[int, int] | None = None,
        max_chunk_bytes: int = CHUNK_BYTES_MAX,
    ) -> None:
        """Open files, and find out where their messages are.

        Parameters
        ----------
        paths : files, and directories of segments; one log, in this order.
        endpoints : only these: names, or compiled expressions that are searched for in the names.
        exclude : not these.
        start, end : only messages with start <= log_time < end, ns since the epoch.
        span : of each file only what is between these two offsets, which are the beginnings or ends of records.
        max_chunk_bytes : of a chunk before compression, a message outside of chunks, or a summary. What is larger is
            skipped, as a `Problem`, as a few bytes can be compressed ones of any number: give more for recordings of
            larger messages. So is what overlaps with so many other chunks in time that the four-fold would have to be
            held at once, to give messages in their order.

        Raises
        ------
        RecordingError : a file cannot be opened or is no MCAP file, or a directory has none.
        """
        if not paths:
            raise InvalidValueError("a log needs a file or a directory")
        self._only = None if endpoints is None else _Names(endpoints)
        self._not = _Names(exclude or ())
        self._start = 0 if start is None else min(max(0, start), TIME_MAX)
        self._end = TIME_MAX if end is None else min(max(0, end), TIME_MAX)
        self.problems: list[Problem] = []
        self._channels: list[Channel] = []
        self._codes: dict[Channel, int] = {}
        self._most = max_chunk_bytes
        self.files = [LogFile(path, self._code_of, self._note, span, max_chunk_bytes) for path in _files(paths)]

    def _note(self, problem: Problem) -> None:
        if len(self.problems) < _PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)
        elif len(self.problems) == _PROBLEMS_MAX:
            text = f"{problem.reason}; there is more from here on, which is not listed"
            self.problems.append(replace(problem, reason=text))

    def _code_of(self, channel: Channel) -> int:
        """Return the channel's index in `_channels`, or that it is not wanted."""
        name = channel.endpoint
        if name in self._not or (self._only is not None and name not in self._only):
            return UNWANTED
        if channel not in self._codes:
            self._codes[channel] = len(self._channels)
            self._channels.append(channel)
        return self._codes[channel]

    @property
    def channels(self) -> Sequence[Channel]:
        """What was found so far of what messages have in common; the column "channel" of batches counts in here."""
        return self._channels

    @property
    def size(self) -> int:
        """Bytes of all that may have to be read, before compression, as the files say."""
        return sum(part.size for _, part in self._parts())

    def split(self, size: int) -> list[LogReader]:
        """Return readers of pieces of this log, in its order, each of at least one chunk.

        They can be pickled, and read in other processes. Each has its own `problems`, none of which is known yet.

        Parameters
        ----------
        size : of a piece, in bytes before compression.
        """
        pieces: list[LogReader] = []
        room = 0
        for file, part in self._parts():
            room -= part.size
            if not pieces or room < 0:
                pieces.append(self._piece())
                room = size - part.size
            pieces[-1]._add(file, part)
        return pieces

    def _piece(self) -> LogReader:
        piece = copy(self)
        for name in ("endpoints", "start_time", "end_time"):
            piece.__dict__.pop(name, None)  # they are of the whole
        piece.problems, piece.files = [], []
        piece._channels, piece._codes = list(self._channels), dict(self._codes)
        return piece

    def _add(self, file: LogFile, part: Part) -> None:
        if not self.files or self.files[-1].path != file.path:
            self.files.append(file.cut([], self._code_of, self._note))
        self.files[-1].parts.append(part)

    def _endpoint_codes(self) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return the endpoints, and for each code the index of its endpoint among them."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(channel.endpoint, len(indexes)) for channel in self._channels]
        return list(indexes), np.array(of_code, np.int32)

    def _parts(self) -> Iterator[tuple[LogFile, Part]]:
        for file in self.files:
            for part in file.parts:
                if file.wants(part, self._start, self._end):
                    yield file, part

    def _scans(self, columns: Columns) -> Iterator[bytes]:
        """Fill the columns again and again, in the order of the files; give what their offsets are into."""
        for file, part in self._parts():
            content = file.content(part)
            position = 0
            while content is not None and position < len(content):
                columns.clear()
                position = file.scan(part, content, position, columns, self._start, self._end)
                yield content

    def between(self, start: int | None = None, end: int | None = None) -> LogReader:
        """Return this log within a narrower time; it costs nothing. One thread at a time for both.

        Parameters
        ----------
        start, end : only messages with start <= log_time < end, ns since the epoch; None leaves it as it is.
        """
        other = copy(self)
        for known in ("endpoints", "start_time", "end_time"):
            other.__dict__.pop(known, None)
        other._start = min(max(self._start, start or 0), TIME_MAX)
        other._end = min(self._end, TIME_MAX if end is None else max(0, end))
        return other

    # Message by message

    def __iter__(self) -> Iterator[Message]:
        """Give the messages in the order of log_time, those of one time in the order of the files."""
        columns = Columns(_ROWS)
        parts = sorted(self._parts(), key=lambda found: found[1].start)
        waiting = Waiting(_OVERLAP * self._most)
        for number, (file, part) in enumerate(parts):
            yield from waiting.before(part.start)
            found = self._found(file, part, columns)
            following = parts[number + 1][1].start if number + 1 < len(parts) else TIME_MAX
            if found is None:
                continue
            if not waiting and found.last_time <= following:
                yield from self._messages(found)
            elif not waiting.add(number, self._messages(found), found.size):
                text = f"more than {waiting.most} bytes overlap in time, four times max_chunk_bytes (--max-chunk)"
                self._note(Problem(str(file.path), part.offset, f"a chunk was skipped: {text}"))
        yield from waiting.before(TIME_MAX + 1)

    def _found(self, file: LogFile, part: Part, columns: Columns) -> Found | None:
        """Return the messages of a part in the order of log_time; None: there are none."""
        content = file.content(part)
        found: list[Found] = []
        position = 0
        while content is not None and position < len(content):
            columns.clear()
            position = file.scan(part, content, position, columns, self._start, self._end)
            if columns.rows:
                found.append(Found.of(content, columns))
        return Found.together(found) if found else None

    def _messages(self, found: Found) -> Iterator[Message]:
        """Make messages, not all at once: a chunk may have millions."""
        for begin in range(0, found.rows, _ROWS):
            yield from self._rows(found, slice(begin, begin + _ROWS))

    def _rows(self, found: Found, rows: slice) -> list[Message]:
        content = found.content
        codes, begins = found.code[rows].tolist(), found.offset[rows]
        ends = (begins + found.length[rows]).tolist()
        endpoints = [channel.endpoint for channel in self._channels]
        epochs = [channel.epoch for channel in self._channels]
        schemas = [channel.schema for channel in self._channels]
        fields = zip(
            [endpoints[code] for code in codes],
            [content[begin:end] for begin, end in zip(begins.tolist(), ends, strict=True)],
            found.log_time[rows].tolist(),
            found.publish_time[rows].tolist(),
            found.sequence[rows].tolist(),
            [epochs[code] for code in codes],
            [schemas[code] for code in codes],
            strict=True,
        )
        return list(map(Message._make, fields))

    def decoded(self) -> Iterator[tuple[Message, Any]]:
        """Give the messages as iteration does, each with its value by the schema of its endpoint.

        A payload without a known encoding is its own value; what cannot be decoded gives an `Undecoded`.
        """
        decoders = Decoders()
        for message in self:
            yield message, decoders.value(message)

    # Many at once

    def batches(self, columns: Sequence[str] | None = None, rows: int = 65536) -> Iterator[pyarrow.RecordBatch]:
        """Give the messages as Arrow batches, in the order of the files. Needs pyarrow.

        Parameters
        ----------
        columns : some of "endpoint" (dictionary), "epoch", "sequence", "log_time", "publish_time" (int64), "data"
            (binary), in the order wanted; None is all of these. Beyond them "channel" (int32, index in `channels`) and
            "offset" (int64, where in the file the chunk is).
        rows : at most so many a batch; large payloads make smaller ones.
        """
        try:
            from msgq.recording.batches import batches
        except ModuleNotFoundError as missing:
            text = "Arrow batches need pyarrow, which is not installed: pip install 'msgq-bus[arrow]'"
            raise MissingLibraryError(text) from missing
        return batches(self, columns, rows)

    def array(self, endpoint: str) -> np.ndarray[Any, Any]:
        """Return the messages of an endpoint with a "struct" schema as one array, in the order of the files.

        Raises
        ------
        RecordingError : there is no such endpoint, it has another or several schemas, or a message does not fit.
        """
        paths = [file.path for file in self.files]
        chosen: dict[str, Any] = {"start": self._start, "end": self._end, "max_chunk_bytes": self._most}
        only = LogReader(*paths, endpoints=(endpoint,), **chosen)
        columns, ends = Columns(_ROWS), np.empty(_ROWS, np.int32)
        pieces, sizes = [np.empty(0, np.uint8)], {0}
        for content in only._scans(columns):
            piece = np.empty(columns.payload_bytes(0), np.uint8)
            columns.gather(content, 0, piece, 0, ends)
            pieces.append(piece)
            sizes.update(np.unique(columns.length[: columns.rows]).tolist())
        for problem in only.problems:
            self._note(problem)
        dtype = _only_dtype(endpoint, only._channels)
        if wrong := [size for size in sizes if size % dtype.itemsize]:
            text = f"a message has {wrong[0]} bytes, which is no number of elements of {dtype.itemsize}"
            raise RecordingError(text, endpoint)
        return np.concatenate(pieces).view(dtype)

    # About the whole

    def is_counted(self, endpoint: str, epoch: int) -> bool:
        """Return whether a gap in the sequence of an endpoint is a loss, as far as was read."""
        return any(c.counted for c in self._channels if c.endpoint == endpoint and c.epoch == epoch)

    @cached_property
    def endpoints(self) -> dict[str, EndpointInfo]:
        """What there is of each endpoint, by name. Reads the whole log, once."""
        columns = Columns(_ROWS)
        tallies, largest = np.zeros(0, TALLY), np.zeros(0, np.int64)
        for _ in self._scans(columns):
            if len(tallies) < len(self._channels):
                more = len(self._channels) - len(tallies)
                tallies = np.concatenate((tallies, np.zeros(more, TALLY)))
                largest = np.concatenate((largest, np.zeros(more, np.int64)))
            columns.count(tallies, 0)
            np.maximum.at(largest, columns.code[: columns.rows], columns.length[: columns.rows])
        found: dict[str, EndpointInfo] = {}
        for channel, tally, size in zip(self._channels, tallies.tolist(), largest.tolist(), strict=False):
            if tally[0]:
                info = _info(channel, size, *tally[:5])
                found[channel.endpoint] = _together(found.get(channel.endpoint), info)
        return dict(sorted(found.items()))

    @property
    def messages(self) -> int:
        """How many there are; see `endpoints`."""
        return sum(info.messages for info in self.endpoints.values())

    @cached_property
    def start_time(self) -> int | None:
        """log_time of the first message, ns since the epoch; None when there is none. Reads little."""
        first = next(iter(self), None)
        return None if first is None else first.log_time

    @cached_property
    def end_time(self) -> int | None:
        """log_time of the last message, ns since the epoch; None when there is none. Reads little."""
        columns = Columns(_ROWS)
        last = -1
        for file, part in sorted(self._parts(), key=lambda found: found[1].end, reverse=True):
            if part.end < last:
                break
            content, position = file.content(part), 0
            while content is not None and position < len(content):
                columns.clear()
                position = file.scan(part, content, position, columns, self._start, self._end)
                last = max(last, int(columns.log_time[: columns.rows].max(initial=-1)))
        return None if last < 0 else last


def _only_dtype(endpoint: str, channels: Sequence[Channel]) -> np.dtype[Any]:
    """Return the dtype that all channels of an endpoint have."""
    schemas = {channel.schema for channel in channels}
    if len(schemas) != 1:
        found = "several schemas" if schemas else "no messages"
        raise RecordingError(f"the log has {found} of it", endpoint)
    schema = schemas.pop()
    if schema is None or schema.encoding != "struct":
        encoding = "no schema" if schema is None else f"the encoding {schema.encoding!r}"
        raise RecordingError(f"it has {encoding}; only 'struct' makes an array, use decoded()", endpoint)
    try:
        return struct_dtype(schema)
    except ValueError as error:
        raise RecordingError(str(error), endpoint) from None


class _Names:
    """Names, and expressions for names."""

    def __init__(self, wanted: Iterable[str | re.Pattern[str]]) -> None:
        if isinstance(wanted, (str, re.Pattern)):
            wanted = [wanted]
        wanted = list(wanted)
        self._names = {name for name in wanted if isinstance(name, str)}
        self._expressions = [name for name in wanted if not isinstance(name, str)]

    def __contains__(self, name: str) -> bool:
        return name in self._names or any(expression.search(name) for expression in self._expressions)


def _files(paths: Sequence[str | PathLike[str]]) -> list[Path]:
    found = []
    for path in map(Path, paths):
        segments = layout.segments(path)
        if not segments:
            raise RecordingError(f"{path} has no {layout.SUFFIX} file in it")
        found += segments
    return found


def _info(channel: Channel, largest: int, messages: int, size: int, first: int, last: int, lost: int) -> EndpointInfo:
    known = lost if channel.counted else None
    return EndpointInfo(channel.endpoint, channel.schema, messages, size, first, last, known, 1, largest)


def _together(before: EndpointInfo | None, info: EndpointInfo) -> EndpointInfo:
    if before is None:
        return info
    lost = None if before.lost is None or info.lost is None else before.lost + info.lost
    return EndpointInfo(
        info.endpoint, info.schema or before.schema, before.messages + info.messages, before.bytes + info.bytes,
        min(before.first_time, info.first_time), max(before.last_time, info.last_time), lost,
        before.epochs + info.epochs, max(before.largest, info.largest),
    )  # fmt: skip
