"""Files and selection of a log, shared by all readers."""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgq.common.choices import list_names
from msgq.common.selection import SelectedEndpoints
from msgq.common.storage.url_path import RecordingPath
from msgq.common.texts import join_first_texts, suggest_name
from msgq.errors import InvalidTypeError, InvalidValueError, UnknownEndpointError
from msgq.impl.base.argument_checks import warn_program
from msgq.recording.mcap_io.boundary_losses import BoundaryLosses
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.core import CHANNEL_CODE_UNWANTED, TIME_MAX, ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.file_source import FileSource, open_sources
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import Problem

if TYPE_CHECKING:
    import numpy as np

    from msgq.decoding.schemas import Schemas

HOST_CLOCK, WALL_CLOCK = CLOCK_CHOICES = ("host", "wall")
_PROBLEMS_MAX = 1000


class LogView:
    """Files of a log, with the selected endpoints and time range. One thread at a time.

    Attributes:
        files: files in the order of the log.
        problems: skipped data: the first 1000 entries, and the position of the next one.
        channels: channels found up to now. Codes are indexes into this list.
        start_time: read only messages with start_time <= log_time, in ns since the epoch.
        end_time: read only messages with log_time < end_time, in ns since the epoch.
        max_chunk_bytes: maximum bytes of a chunk before compression, of a message outside of chunks, or of a summary.
        clock_choice: clock of all times, HOST or WALL.
    """

    def __init__(
        self,
        paths: Iterable[RecordingPath | FileSource],
        selection: SelectedEndpoints,
        start: int | None,
        end: int | None,
        span: tuple[int, int] | None,
        max_chunk_bytes: int,
        kinds: Container[str] | None = None,
        clock: str = HOST_CLOCK,
        schemas: Schemas | None = None,
    ) -> None:
        """Open the files; see `LogReader`. `kinds`: read only endpoints of these kinds; None: all kinds."""
        if clock not in CLOCK_CHOICES:
            raise InvalidValueError(f"clock {clock!r} is unknown; use one of {', '.join(CLOCK_CHOICES)}")
        self._selection, self._endpoint_kinds, self.clock_choice, self._schemas = selection, kinds, clock, schemas
        self.start_time = 0 if start is None else min(max(0, start), TIME_MAX)
        self.end_time = TIME_MAX if end is None else min(max(0, end), TIME_MAX)
        self.max_chunk_bytes = max_chunk_bytes
        self.problems: list[Problem] = []
        self.channels: list[RecordedChannel] = []
        self._channel_codes: dict[RecordedChannel, int] = {}
        self.files = [
            McapFile(source, self._assign_code, self.report_problem, span, max_chunk_bytes, clock == WALL_CLOCK)
            for source in open_sources(paths)
        ]

    def report_problem(self, problem: Problem) -> None:
        """Add a problem, unless it is already listed or the list is full."""
        if len(self.problems) < _PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)
        elif len(self.problems) == _PROBLEMS_MAX:
            text = f"{problem.reason}; further problems are not listed"
            self.problems.append(replace(problem, reason=text))

    def _assign_code(self, channel: RecordedChannel) -> int:
        """Return the channel's index in `channels`, or CHANNEL_CODE_UNWANTED."""
        if channel.endpoint not in self._selection or (
            self._endpoint_kinds is not None and channel.message_source.kind not in self._endpoint_kinds
        ):
            return CHANNEL_CODE_UNWANTED
        if self._schemas is not None:
            channel = replace(channel, schema=self._schemas.of(channel.endpoint, channel.schema))
        if channel not in self._channel_codes:
            self._channel_codes[channel] = len(self.channels)
            self.channels.append(channel)
        return self._channel_codes[channel]

    def find_missing_endpoints(self) -> list[str]:
        """Return the names of requested endpoints that have not been found up to now."""
        return sorted(self._selection.names - {channel.endpoint for channel in self.channels})

    def warn_of_unmatched(self) -> None:
        """Warn of names and expressions that select no endpoint, unless a file may have further channels."""
        if not all(file.is_complete and file.registry.channels for file in self.files):
            return
        existing = {channel.endpoint for file in self.files for channel in file.registry.channels.values()}
        if unmatched := self._selection.find_unmatched(existing):
            near = suggest_name(unmatched[0], existing)
            hint = near or f"; its endpoints are {join_first_texts(map(repr, sorted(existing)), 10)}"
            warn_program(f"the recording has no endpoint {join_first_texts(map(repr, unmatched))}{hint}")

    def map_codes_to_endpoints(self) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return the endpoints, and for each code the index of its endpoint."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(channel.endpoint, len(indexes)) for channel in self.channels]
        import numpy as np

        return list(indexes), np.array(of_code, np.int32)

    def map_codes_to_numberings(self) -> array[int]:
        """Return for each code the first code with the same numbering, in 32 bits.

        Several publishers may share a numbering, and a new schema continues the numbering.
        """
        first: dict[tuple[str, str, int, bool], int] = {}
        of_code = [
            first.setdefault((channel.endpoint, channel.run_id, channel.epoch, channel.has_publisher_sequence), code)
            for code, channel in enumerate(self.channels)
        ]
        return array("i", of_code)

    def collect_boundary_losses(self) -> dict[int, list[BoundaryLosses]]:
        """Return the losses that channels store, by numbering, as `iter_numberings` yields them."""
        stated: dict[int, list[BoundaryLosses]] = {}
        for channel, numbering in zip(self.channels, self.map_codes_to_numberings(), strict=True):
            if any(channel.boundary_losses):
                stated.setdefault(numbering, []).append(channel.boundary_losses)
        return stated

    def map_codes_to_source_field(self, name: str) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return all values of a field of `MessageSource`, and for each code the index of its value."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(getattr(channel.message_source, name), len(indexes)) for channel in self.channels]
        import numpy as np

        return list(indexes), np.array(of_code, np.int32)

    def iter_wanted_blocks(self) -> Iterator[tuple[McapFile, DataBlock]]:
        """Yield the blocks that may have wanted messages, in the order of the files."""
        for file in self.files:
            for block in file.blocks:
                if file.may_have_messages(block, self.start_time, self.end_time):
                    yield file, block

    def plan_wanted_blocks(self, by_time: bool = False) -> list[tuple[McapFile, DataBlock]]:
        """Return the blocks of `iter_wanted_blocks` for a caller that reads all of them. Stores read ahead.

        `by_time`: order of the blocks. True: by their first log_time. False: as in the files.
        """
        blocks = list(self.iter_wanted_blocks())
        if by_time:
            blocks.sort(key=lambda pair: pair[1].start_time)
        ranges_by_path: dict[RecordingPath, list[tuple[int, int]]] = {}
        for file, block in blocks:
            ranges_by_path.setdefault(file.path, []).append((block.offset, block.stored_bytes))
        for file in self.files:
            file.file_source.plan_reads(ranges_by_path.get(file.path, ()))
        return blocks

    def scan_block(self, file: McapFile, block: DataBlock, columns: ScanColumns) -> Iterator[bytes]:
        """Fill the columns repeatedly with the wanted messages of a block. Yield the scanned bytes after each fill."""
        content = file.read_block(block)
        position = 0
        while content is not None and position < len(content):
            columns.clear_rows()
            position = file.scan_block_messages(block, content, position, columns, self.start_time, self.end_time)
            yield content

    def scan_file(self, file: McapFile, columns: ScanColumns) -> Iterator[bytes]:
        """Scan all blocks of a file, as `scan_block`."""
        wanted_blocks = [
            block for block in file.blocks if file.may_have_messages(block, self.start_time, self.end_time)
        ]
        file.file_source.plan_reads((block.offset, block.stored_bytes) for block in wanted_blocks)
        for block in wanted_blocks:
            yield from self.scan_block(file, block, columns)

    def scan_all_files(self, columns: ScanColumns) -> Iterator[bytes]:
        """Scan all files, as `scan_block`."""
        for file in self.files:
            yield from self.scan_file(file, columns)

    def select_time_range(self, start: int | None, end: int | None) -> LogView:
        """Return a view with a narrower time range; None keeps the limit.

        One thread at a time may use the two views.
        """
        narrower = copy(self)
        narrower.start_time = min(max(self.start_time, start or 0), TIME_MAX)
        narrower.end_time = min(self.end_time, TIME_MAX if end is None else max(0, end))
        return narrower

    def select_endpoint(self, endpoint: str) -> LogView:
        """Return a view of one endpoint, also if this view does not select it. Takes no noticeable time.

        Both views share the list of problems. One thread at a time may use the two views.

        Raises:
            InvalidTypeError: the name is not a text, but for example a list of names.
        """
        if not isinstance(endpoint, str):
            text = f"endpoint is {endpoint!r:.80}, of type {type(endpoint).__name__}; give one name"
            raise InvalidTypeError(f"{text}, and repeat the call for other endpoints")
        view = copy(self)
        view._selection, view._endpoint_kinds = SelectedEndpoints([endpoint]), None
        view.channels, view._channel_codes = [], {}
        view.files = [file.select_blocks(file.blocks, view._assign_code, view.report_problem) for file in self.files]
        for file in view.files:
            file.registry.refresh_channel_codes()
        return view

    def select_full_history(self, *kinds: str) -> LogView:
        """Return a view of the selected endpoints of these kinds, from the beginning of the files to their end."""
        kind_names = list_names(kinds, "kinds")
        sources = [file.file_source.copy_unopened() for file in self.files if _may_have_kinds(file, kind_names)]
        options = (self.max_chunk_bytes, kind_names, self.clock_choice, self._schemas)
        return LogView(sources, self._selection, None, None, None, *options)

    def split_by_size(self, size: int) -> list[LogView]:
        """Return parts of the view in order, each with at least one block; see `LogReader.split`.

        A file that is compressed as a whole stays in one part, because each reader has to decompress all of it.
        """
        pieces: list[LogView] = []
        room = 0
        for file, block in self.iter_wanted_blocks():
            room -= block.uncompressed_bytes
            belongs = file.file_source.reads_decompressed_copy and pieces and pieces[-1].files[-1].path == file.path
            if not pieces or (room < 0 and not belongs):
                pieces.append(self._copy_without_files())
                room = size - block.uncompressed_bytes
            pieces[-1]._append_block(file, block)
        return pieces

    def _copy_without_files(self) -> LogView:
        piece = copy(self)
        piece.problems, piece.files = [], []
        piece.channels, piece._channel_codes = list(self.channels), dict(self._channel_codes)
        return piece

    def _append_block(self, file: McapFile, block: DataBlock) -> None:
        if not self.files or self.files[-1].path != file.path:
            self.files.append(file.select_blocks([], self._assign_code, self.report_problem))
        self.files[-1].blocks.append(block)


def unknown_endpoint_error(view: LogView, endpoint: str) -> UnknownEndpointError:
    """Return the error for an endpoint without messages in a view."""
    endpoints = sorted({channel.endpoint for file in view.files for channel in file.registry.channels.values()})
    near = suggest_name(endpoint, endpoints) or f"; its endpoints are {join_first_texts(map(repr, endpoints), 10)}"
    return UnknownEndpointError(f"the recording has no messages of this endpoint{near}", endpoint)


def _may_have_kinds(file: McapFile, kinds: Container[str]) -> bool:
    """Return True if a file may have endpoints of these kinds. A summary has either all channels or none."""
    channels = file.registry.channels.values()
    return not file.is_complete or not channels or any(channel.message_source.kind in kinds for channel in channels)
