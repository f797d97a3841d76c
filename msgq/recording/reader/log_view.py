"""A log's files, and the part of them that is wanted: the common ground of all ways to read it."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from msgq.common.selection import SelectedEndpoints
from msgq.decoding.schemas import Schemas
from msgq.errors import InvalidValueError
from msgq.recording.mcap_io.boundary_losses import BoundaryLosses
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.core import CHANNEL_CODE_UNWANTED, TIME_MAX, ScanColumns
from msgq.recording.mcap_io.data_block import DataBlock
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.mcap_io.problem import Problem

HOST_CLOCK, WALL_CLOCK = CLOCK_CHOICES = ("host", "wall")
_PROBLEMS_MAX = 1000


class LogView:
    """The files of a log, and of them the endpoints and the time that are wanted. One thread at a time.

    Attributes
    ----------
    files : in the order of the log.
    problems : what was skipped so far: the first 1000, and where more was.
    channels : what was found so far of what messages have in common; their codes are indexes in here.
    start_time, end_time : wanted are messages with start <= log_time < end, ns since the epoch.
    max_chunk_bytes : of a chunk before compression, a message outside of chunks, or a summary.
    clock_choice : by which all times are, HOST or WALL.
    """

    def __init__(
        self,
        paths: Iterable[Path],
        selection: SelectedEndpoints,
        start: int | None,
        end: int | None,
        span: tuple[int, int] | None,
        max_chunk_bytes: int,
        kinds: Container[str] | None = None,
        clock: str = HOST_CLOCK,
        schemas: Schemas | None = None,
    ) -> None:
        """Open the files; see `LogReader`. kinds: only of endpoints of these; None: of all."""
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
            McapFile(path, self._assign_code, self.report_problem, span, max_chunk_bytes, clock == WALL_CLOCK)
            for path in paths
        ]

    def report_problem(self, problem: Problem) -> None:
        """Add a problem, if it is a new one and there is room."""
        if len(self.problems) < _PROBLEMS_MAX and problem not in self.problems:
            self.problems.append(problem)
        elif len(self.problems) == _PROBLEMS_MAX:
            text = f"{problem.reason}; further problems are not listed"
            self.problems.append(replace(problem, reason=text))

    def _assign_code(self, channel: RecordedChannel) -> int:
        """Return the channel's index in `channels`, or that it is not wanted."""
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
        """Return the names of endpoints that were asked for, and of which nothing was found so far."""
        return sorted(self._selection.names - {channel.endpoint for channel in self.channels})

    def map_codes_to_endpoints(self) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return the endpoints, and for each code the index of its endpoint among them."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(channel.endpoint, len(indexes)) for channel in self.channels]
        return list(indexes), np.array(of_code, np.int32)

    def map_codes_to_numberings(self) -> np.ndarray[Any, np.dtype[np.int32]]:
        """Return for each code the first one whose messages have the same numbering: several publishers may share one,
        and another schema does not end it.
        """
        first: dict[tuple[str, str, int, bool], int] = {}
        of_code = [
            first.setdefault((channel.endpoint, channel.run_id, channel.epoch, channel.has_publisher_sequence), code)
            for code, channel in enumerate(self.channels)
        ]
        return np.array(of_code, np.int32)

    def collect_boundary_losses(self) -> dict[int, list[BoundaryLosses]]:
        """Return the losses that channels state, by numbering, as `iter_numberings` yields them."""
        stated: dict[int, list[BoundaryLosses]] = {}
        for channel, numbering in zip(self.channels, self.map_codes_to_numberings().tolist(), strict=True):
            if any(channel.boundary_losses):
                stated.setdefault(numbering, []).append(channel.boundary_losses)
        return stated

    def map_codes_to_source_field(self, name: str) -> tuple[list[str], np.ndarray[Any, np.dtype[np.int32]]]:
        """Return what a field of `MessageSource` says, and for each code the index of what it says of its messages."""
        indexes: dict[str, int] = {}
        of_code = [indexes.setdefault(getattr(channel.message_source, name), len(indexes)) for channel in self.channels]
        return list(indexes), np.array(of_code, np.int32)

    def iter_wanted_blocks(self) -> Iterator[tuple[McapFile, DataBlock]]:
        """Give what may have wanted messages, in the order of the files."""
        for file in self.files:
            for block in file.blocks:
                if file.may_have_messages(block, self.start_time, self.end_time):
                    yield file, block

    def scan_block(self, file: McapFile, block: DataBlock, columns: ScanColumns) -> Iterator[bytes]:
        """Fill the columns again and again with the wanted messages of a block; give what their offsets are into."""
        content = file.read_block(block)
        position = 0
        while content is not None and position < len(content):
            columns.clear_rows()
            position = file.scan_block_messages(block, content, position, columns, self.start_time, self.end_time)
            yield content

    def scan_file(self, file: McapFile, columns: ScanColumns) -> Iterator[bytes]:
        """Do the same for all blocks of a file."""
        for block in file.blocks:
            if file.may_have_messages(block, self.start_time, self.end_time):
                yield from self.scan_block(file, block, columns)

    def scan_all_files(self, columns: ScanColumns) -> Iterator[bytes]:
        """Do the same for all files."""
        for file in self.files:
            yield from self.scan_file(file, columns)

    def select_time_range(self, start: int | None, end: int | None) -> LogView:
        """Return the same within a narrower time; None leaves it as it is. One thread at a time for both."""
        narrower = copy(self)
        narrower.start_time = min(max(self.start_time, start or 0), TIME_MAX)
        narrower.end_time = min(self.end_time, TIME_MAX if end is None else max(0, end))
        return narrower

    def select_endpoint(self, endpoint: str) -> LogView:
        """Return one endpoint of the same files and time, whether it is wanted here or not; it costs nothing. What is
        skipped is listed here as well. One thread at a time for both.
        """
        view = copy(self)
        view._selection, view._endpoint_kinds = SelectedEndpoints([endpoint]), None
        view.channels, view._channel_codes = [], {}
        view.files = [file.select_blocks(file.blocks, view._assign_code, view.report_problem) for file in self.files]
        for file in view.files:
            file.registry.refresh_channel_codes()
        return view

    def select_full_history(self, *kinds: str) -> LogView:
        """Return the wanted endpoints of these kinds, from the beginning of the files to their end."""
        paths = [file.path for file in self.files if _may_have_kinds(file, kinds)]
        options = (self.max_chunk_bytes, kinds, self.clock_choice, self._schemas)
        return LogView(paths, self._selection, None, None, None, *options)

    def split_by_size(self, size: int) -> list[LogView]:
        """Return pieces, in the order of this, each of at least one block; see `LogReader.split`.

        What is compressed as a whole is in one piece: who reads any of it has to decompress all.
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


def _may_have_kinds(file: McapFile, kinds: Container[str]) -> bool:
    """Return whether a file may have endpoints of these kinds: a summary has all channels, or none."""
    channels = file.registry.channels.values()
    return not file.is_complete or not channels or any(channel.message_source.kind in kinds for channel in channels)
