"""Logs: one or several recordings, read as one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msgq.dtypes import struct_dtype
from msgq.errors import InvalidValueError, MissingLibraryError, RecordingError
from msgq.kinds import RECORDS
from msgq.recording.format import conventions
from msgq.recording.format.file import TIME_MAX, Channel, LogFile, Stretch
from msgq.recording.format.problem import Problem
from msgq.recording.format.scan import TALLY, Columns
from msgq.recording.format.walk import CHUNK_BYTES_MAX
from msgq.recording.reader.contents import Contents
from msgq.recording.reader.decoders import Decoders
from msgq.recording.reader.message import EndpointInfo, Message
from msgq.recording.reader.ordering import FoundMessages, Waiting
from msgq.selection import Choice, Selection

if TYPE_CHECKING:
    import pyarrow

_ROWS = 16384
_OVERLAP = 4  # largest chunks whose messages may wait at the same time


class LogReader:
    """Reads MCAP files, ours and anybody's, whole and truncated ones. One thread at a time.

    Nothing in a file makes it fail once it is open: what is damaged is skipped, and listed in `problems`.

    Attributes
    ----------
    files : the files, in the order given.
    problems : what was skipped so far: the first 1000, and where more was.
    contents : the files, and what of them is wanted; for those who read chunk by chunk.
    """

    def __init__(
        self,
        *paths: str | PathLike[str],
        endpoints: Iterable[Choice] | None = None,
        exclude: Iterable[Choice] | None = None,
        start: int | None = None,
        end: int | None = None,
        span: tuple[int, int] | None = None,
        max_chunk_bytes: int = CHUNK_BYTES_MAX,
    ) -> None:
        """Open files, and find out where their messages are.

        Parameters
        ----------
        paths : files, and directories of segments; one log, in this order.
        endpoints : only these: names, or compiled expressions, as `Selection` has them.
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
        selection = Selection(endpoints, exclude or ())
        self._read(Contents(_files(paths), selection, start, end, span, max_chunk_bytes))

    def _read(self, contents: Contents) -> None:
        self.contents, self.files, self.problems = contents, contents.files, contents.problems

    @property
    def channels(self) -> Sequence[Channel]:
        """What was found so far of what messages have in common; the column "channel" of batches counts in here."""
        return self.contents.channels

    @property
    def size(self) -> int:
        """Bytes of all that may have to be read, before compression, as the files say."""
        return sum(stretch.size for _, stretch in self.contents.stretches())

    def split(self, size: int) -> list[LogReader]:
        """Return readers of pieces of this log, in its order, each of at least one chunk.

        They can be pickled, and read in other processes. Each has its own `problems`, none of which is known yet.

        Parameters
        ----------
        size : of a piece, in bytes before compression.
        """
        return [self._of(piece) for piece in self.contents.split(size)]

    def between(self, start: int | None = None, end: int | None = None) -> LogReader:
        """Return this log within a narrower time; it costs nothing. One thread at a time for both.

        Parameters
        ----------
        start, end : only messages with start <= log_time < end, ns since the epoch; None leaves it as it is.
        """
        return self._of(self.contents.between(start, end))

    def history(self, kind: str) -> LogReader:
        """Return all that the files have of the endpoints of one kind, of those that were chosen, whenever it was.

        It is for kinds that have a state, which what came before left. It opens the files anew.
        """
        return self._of(self.contents.history(kind))

    def _of(self, contents: Contents) -> LogReader:
        """Return a reader of some of this log."""
        reader = copy(self)
        for known in ("endpoints", "start_time", "end_time"):
            reader.__dict__.pop(known, None)  # they are of the whole
        reader._read(contents)
        return reader

    # Message by message

    def __iter__(self) -> Iterator[Message]:
        """Give the messages in the order of log_time, those of one time in the order of the files."""
        columns = Columns(_ROWS)
        stretches = sorted(self.contents.stretches(), key=lambda pair: pair[1].start)
        waiting = Waiting(_OVERLAP * self.contents.max_chunk_bytes)
        for number, (file, stretch) in enumerate(stretches):
            yield from waiting.before(stretch.start)
            found = self._found_messages(file, stretch, columns)
            following = stretches[number + 1][1].start if number + 1 < len(stretches) else TIME_MAX
            if found is None:
                continue
            if not waiting and found.last_time <= following:
                yield from self._messages(found)
            elif not waiting.add(number, self._messages(found), found.size):
                text = f"more than {waiting.most} bytes overlap in time, four times max_chunk_bytes (--max-chunk)"
                self.contents.note(Problem(str(file.path), stretch.offset, f"a chunk was skipped: {text}"))
        yield from waiting.before(TIME_MAX + 1)

    def _found_messages(self, file: LogFile, stretch: Stretch, columns: Columns) -> FoundMessages | None:
        """Return the messages of a stretch in the order of log_time; None: there are none."""
        scans = self.contents.stretch_scans(file, stretch, columns)
        found = [FoundMessages.of(content, columns) for content in scans if columns.rows]
        return FoundMessages.together(found) if found else None

    def _messages(self, found: FoundMessages) -> Iterator[Message]:
        """Make messages, not all at once: a chunk may have millions."""
        for begin in range(0, found.rows, _ROWS):
            yield from self._rows(found, slice(begin, begin + _ROWS))

    def _rows(self, found: FoundMessages, rows: slice) -> list[Message]:
        content = found.content
        codes, begins = found.code[rows].tolist(), found.offset[rows]
        ends = (begins + found.length[rows]).tolist()
        channels = self.contents.channels
        endpoints = [channel.endpoint for channel in channels]
        epochs = [channel.epoch for channel in channels]
        schemas = [channel.schema for channel in channels]
        sources = [channel.source for channel in channels]
        fields = zip(
            [endpoints[code] for code in codes],
            [content[begin:end] for begin, end in zip(begins.tolist(), ends, strict=True)],
            found.log_time[rows].tolist(),
            found.publish_time[rows].tolist(),
            found.sequence[rows].tolist(),
            [epochs[code] for code in codes],
            [schemas[code] for code in codes],
            found.origin_time[rows].tolist(),
            [sources[code] for code in codes],
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
            (binary), in the order wanted; None is all of these. Beyond them "origin_time" (int64, 0 where it is not
            known), "kind", "publisher", "key" (dictionaries; "" where there is none), "channel" (int32, index in
            `channels`) and "offset" (int64, where in the file the chunk is).
        rows : at most so many a batch; large payloads make smaller ones.
        """
        try:
            from msgq.recording.reader.batches import batches
        except ModuleNotFoundError as missing:
            text = "Arrow batches need pyarrow, which is not installed: pip install 'msgq-bus[arrow]'"
            raise MissingLibraryError(text) from missing
        return batches(self.contents, columns, rows)

    def array(self, endpoint: str) -> np.ndarray[Any, Any]:
        """Return the messages of an endpoint with a "struct" schema as one array, in the order of the files.

        Raises
        ------
        RecordingError : there is no such endpoint, it has another or several schemas, or a message does not fit.
        """
        paths = [file.path for file in self.files]
        all_of = self.contents
        only = Contents(paths, Selection([endpoint]), all_of.start, all_of.end, None, all_of.max_chunk_bytes)
        columns, ends = Columns(_ROWS), np.empty(_ROWS, np.int32)
        pieces, sizes = [np.empty(0, np.uint8)], {0}
        for content in only.scans(columns):
            piece = np.empty(columns.payload_bytes(0), np.uint8)
            columns.gather(content, 0, piece, 0, ends)
            pieces.append(piece)
            sizes.update(np.unique(columns.length[: columns.rows]).tolist())
        for problem in only.problems:
            self.contents.note(problem)
        dtype = _only_dtype(endpoint, only.channels)
        if wrong := [size for size in sizes if size % dtype.itemsize]:
            text = f"a message has {wrong[0]} bytes, which is no number of elements of {dtype.itemsize}"
            raise RecordingError(text, endpoint)
        return np.concatenate(pieces).view(dtype)

    # About the whole

    def is_counted(self, endpoint: str, epoch: int) -> bool:
        """Return whether a gap in the sequence of an endpoint is a loss, as far as was read."""
        return any(c.counted for c in self.contents.channels if c.endpoint == endpoint and c.epoch == epoch)

    def is_tracked(self, endpoint: str) -> bool:
        """Return whether the topic of an endpoint was tracked, as far as was read."""
        return any(channel.tracked for channel in self.contents.channels if channel.endpoint == endpoint)

    @cached_property
    def endpoints(self) -> dict[str, EndpointInfo]:
        """What there is of each endpoint, by name. Reads the whole log, once."""
        columns = Columns(_ROWS)
        tallies, largest = np.zeros(0, TALLY), np.zeros(0, np.int64)
        channels = self.contents.channels
        for _ in self.contents.scans(columns):
            if len(tallies) < len(channels):
                more = len(channels) - len(tallies)
                tallies = np.concatenate((tallies, np.zeros(more, TALLY)))
                largest = np.concatenate((largest, np.zeros(more, np.int64)))
            columns.count(tallies, 0, self.contents.numberings())
            np.maximum.at(largest, columns.code[: columns.rows], columns.length[: columns.rows])
        found: dict[str, EndpointInfo] = {}
        counts = zip(channels, tallies.tolist(), largest.tolist(), self.contents.numberings().tolist(), strict=False)
        begun: set[int] = set()
        for channel, tally, size, numbering in counts:
            if tally[0]:
                messages, payload, first, last = tally[:4]
                lost = int(tallies["lost"][numbering])
                info = _info(channel, size, messages, payload, first, last, lost, numbering not in begun)
                begun.add(numbering)
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
        for file, stretch in sorted(self.contents.stretches(), key=lambda pair: pair[1].end, reverse=True):
            if stretch.end < last:
                break
            for _ in self.contents.stretch_scans(file, stretch, columns):
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


def _files(paths: Sequence[str | PathLike[str]]) -> list[Path]:
    files = []
    for path in map(Path, paths):
        segments = conventions.segments(path)
        if not segments:
            raise RecordingError(f"{path} has no {conventions.SUFFIX} file in it")
        files += segments
    return files


def _info(
    channel: Channel, largest: int, messages: int, size: int, first: int, last: int, lost: int, begins: bool
) -> EndpointInfo:
    """Return what there is of a channel. begins : whether it is the first of its numbering, whose losses count once."""
    known = (lost if begins else 0) if channel.counted else 0 if channel.source.kind == RECORDS.name else None
    fields = (channel.endpoint, channel.schema, messages, size, first, last, known, int(begins), largest)
    publishers = (channel.source.publisher,) if channel.source.publisher else ()
    return EndpointInfo(*fields, channel.tracked, channel.source.kind, channel.source.parsed_options(), publishers)


def _together(before: EndpointInfo | None, info: EndpointInfo) -> EndpointInfo:
    if before is None:
        return info
    lost = None if before.lost is None or info.lost is None else before.lost + info.lost
    return EndpointInfo(
        info.endpoint,
        info.schema or before.schema,
        before.messages + info.messages,
        before.bytes + info.bytes,
        min(before.first_time, info.first_time),
        max(before.last_time, info.last_time),
        lost,
        before.epochs + info.epochs,
        max(before.largest, info.largest),
        before.tracked or info.tracked,
        info.kind,
        info.options or before.options,
        tuple(sorted({*before.publishers, *info.publishers})),
    )
