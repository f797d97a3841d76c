"""Totals of each endpoint of a log, from the statistics of its files, or from a scan."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace
from typing import Any

from mcap.opcode import Opcode

from msgq.kinds import keeps_values
from msgq.recording.mcap_io import metadata_keys
from msgq.recording.mcap_io.boundary_losses import BoundaryLosses, count_boundary_losses
from msgq.recording.mcap_io.channel_registry import RecordedChannel
from msgq.recording.mcap_io.channel_tally import ChannelTally
from msgq.recording.mcap_io.core import TIME_MAX, ScanColumns, tally_dtype
from msgq.recording.mcap_io.mcap_file import McapFile
from msgq.recording.reader.log_view import LogView
from msgq.recording.reader.message import EndpointInfo

_BATCH_ROWS = 16384
_CHANNEL_ID_DIGITS = 5  # digits of 65535, the largest ID
_TALLY_COUNT_FIELDS = ("messages", "bytes", "largest", "lost")
_STATISTICS_FIELDS = ("messages", "bytes", "largest", "first_time", "last_time")


def find_stored_statistics(view: LogView, file: McapFile) -> dict[int, dict[str, Any]] | None:
    """Return the statistics of a file's channels by id. None: missing, incomplete, or not valid for the selection."""
    if view.start_time > 0 or view.end_time < TIME_MAX:
        return None
    if (
        file.wall_time_converter is not None and file.wall_time_converter.is_clock_stepped
    ):  # only their messages tell which were first and last
        return None
    return read_stored_statistics(file)


def read_stored_statistics(file: McapFile) -> dict[int, dict[str, Any]] | None:
    """Return the statistics of a file's channels by id, regardless of the selection; None: missing or incomplete.

    The statistics are valid only at the offset at which their writer stored them, and only if their number of messages
    matches the file's statistics record. Other programs copy the record to files with other messages.
    """
    record, statistics = file.metadata.get(metadata_keys.STATISTICS_METADATA), file.statistics
    places = [extra.offset for extra in file.extra_records if extra.opcode == Opcode.METADATA]
    if not file.is_complete or record is None or statistics is None:
        return None
    if not places or record.get(metadata_keys.STATISTICS_OFFSET_KEY) != str(places[-1]):
        return None
    totals = {
        int(number): _parse_statistics(text)
        for number, text in record.items()
        if number.isdecimal() and len(number) <= _CHANNEL_ID_DIGITS
    }
    counts = {number: figure.get("messages") for number, figure in totals.items()}
    if counts != {number: count for number, count in statistics.channel_message_counts.items() if count}:
        return None
    return totals if all(figure.keys() >= set(_STATISTICS_FIELDS) for figure in totals.values()) else None


def _parse_statistics(text: str) -> dict[str, Any]:
    """Return the totals of a channel; empty if the text is invalid."""
    try:
        figure = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(figure, dict):
        return {}
    sequences = figure.get("sequences", [0, 0])
    if not isinstance(sequences, list) or len(sequences) != 2:
        return {}
    counts = [figure.get("lost", 0) if name == "lost" else figure.get(name) for name in _TALLY_COUNT_FIELDS]
    times = [figure.get(name) for name in ("first_time", "last_time")]
    bounds = [*((count, 2**48) for count in counts), *((time, 2**63) for time in times)]  # no file has more bytes
    is_whole = all(
        _is_valid_count(value, bound) for value, bound in [*bounds, *((sequence, 2**32) for sequence in sequences)]
    )
    return figure if is_whole else {}


def _is_valid_count(value: Any, bound: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < bound


def read_message_counts(view: LogView) -> dict[str, int] | None:
    """Return the number of messages by endpoint, from the files' statistics.

    None: a file has no statistics, or a time range is selected.
    """
    counts: dict[str, int] = {}
    for file in view.files:
        if file.statistics is None or view.start_time > 0 or view.end_time < TIME_MAX:
            return None
        for number, count in file.statistics.channel_message_counts.items():
            channel = file.registry.channels.get(number)
            if channel is None:
                return None
            if count and file.registry.channel_codes[number] >= 0:
                counts[channel.endpoint] = counts.get(channel.endpoint, 0) + count
    return dict(sorted(counts.items()))


class EndpointTotals:
    """Adds up the files of a log, in order."""

    def __init__(self, view: LogView) -> None:
        self._log_view = view
        self._tallies: list[ChannelTally] = []

    def add_file(self, file: McapFile, read: bool) -> None:
        """Add a file, from its statistics.

        If the statistics are missing, or `read` is True, the call scans the file.
        """
        if read or not self.add_stored_statistics(file):
            self._scan_file(file)

    def add_stored_statistics(self, file: McapFile) -> bool:
        """Add a file from its statistics. Return False if they are missing or incomplete."""
        totals = find_stored_statistics(self._log_view, file)
        self._grow_tallies()
        numberings = self._log_view.map_codes_to_numberings()
        for number, figure in (totals or {}).items():
            code = int(file.registry.channel_codes[number]) if number < len(file.registry.channel_codes) else -1
            if code >= 0:
                self._add_statistics(code, numberings[code], figure, file)
        return totals is not None

    def iter_tallies(self) -> Iterator[tuple[int, ChannelTally]]:
        """Yield the code and the statistics of each channel that has messages."""
        return ((code, tally) for code, tally in enumerate(self._tallies) if tally.messages)

    def _grow_tallies(self) -> None:
        while len(self._tallies) < len(self._log_view.channels):
            self._tallies.append(ChannelTally())

    def _scan_file(self, file: McapFile) -> None:
        import numpy as np  # imported late: stored statistics need no array

        columns = ScanColumns(_BATCH_ROWS)
        tallies = np.array([astuple(tally) for tally in self._tallies], tally_dtype())
        for _ in self._log_view.scan_file(file, columns):
            missing = len(self._log_view.channels) - len(tallies)
            tallies = np.concatenate((tallies, np.zeros(missing, tally_dtype()))) if missing else tallies
            columns.update_tallies(tallies, 0, self._log_view.map_codes_to_numberings())
        self._tallies = [ChannelTally(*row) for row in tallies.tolist()]

    def _add_statistics(self, code: int, numbering_code: int, figure: dict[str, Any], file: McapFile) -> None:
        """Add the totals of a channel. `numbering_code`: code whose tally counts the losses; see tally.h."""
        tally, numbering = self._tallies[code], self._tallies[numbering_code]
        if "sequences" in figure:
            first, last = figure["sequences"]
            step = (first + 1 - numbering.next_sequence + 2**31) % 2**32 - 2**31  # between numbers of 32 bits
            if not numbering.next_sequence:
                numbering.first_sequence = first
            elif step > 0:
                numbering.lost += step - 1
            numbering.next_sequence = last + 1
        numbering.lost += figure.get("lost", 0)
        times = figure["first_time"], figure["last_time"]
        if file.wall_time_converter is not None:
            times = file.wall_time_converter.find_wall_time_range(*times)
        if tally.messages:
            times = min(times[0], tally.first_time), max(times[1], tally.last_time)
        tally.first_time, tally.last_time = times
        tally.messages += figure["messages"]
        tally.bytes += figure["bytes"]
        tally.largest = max(tally.largest, figure["largest"])

    def build_endpoint_infos(self) -> dict[str, EndpointInfo]:
        """Return the totals by endpoint name."""
        infos: dict[str, EndpointInfo] = {}
        for info in self._iter_recorded_channels():
            infos[info.endpoint] = _merge_endpoint_infos(infos.get(info.endpoint), info)
        for channel in self._iter_channels_without_messages():
            endpoint, before = channel.endpoint, infos.get(channel.endpoint)
            info = EndpointInfo(endpoint, None, 0, 0, None, None, 0, 0, 0, kind=channel.message_source.kind)
            infos[endpoint] = _add_lost_messages(before or info, channel.boundary_losses.unrecorded_messages)
        return dict(sorted(infos.items()))

    def _iter_channels_without_messages(self) -> Iterator[RecordedChannel]:
        """Yield one channel of each numbering that has losses and no message.

        Losses without a message belong to the beginning.
        """
        if self._log_view.start_time > 0:
            return
        numberings = self._log_view.map_codes_to_numberings()
        begun = {numberings[code] for code, _ in self.iter_tallies()}
        for channel, numbering in zip(self._log_view.channels, numberings, strict=True):
            if channel.boundary_losses.unrecorded_messages and numbering not in begun:
                begun.add(numbering)
                yield channel

    def _iter_recorded_channels(self) -> Iterator[EndpointInfo]:
        begun: set[int] = set()  # numberings, whose losses count once
        hidden = self._log_view.collect_boundary_losses()
        numberings = self._log_view.map_codes_to_numberings()
        channels = zip(self._log_view.channels, self._tallies, numberings, strict=False)
        for channel, tally, numbering in channels:
            if tally.messages:
                lost = self._count_lost_messages(numbering, hidden.get(numbering, ())) if numbering not in begun else 0
                yield _make_endpoint_info(channel, tally, lost, int(numbering not in begun))
                begun.add(numbering)

    def _count_lost_messages(self, numbering: int, stated: Iterable[BoundaryLosses]) -> int | None:
        """Return the losses of a numbering: gaps, and losses before the first and after the last message."""
        tally = self._tallies[numbering]
        at_ends = count_boundary_losses(stated, tally.first_sequence, tally.next_sequence - 1)
        return None if at_ends is None else tally.lost + at_ends


def _make_endpoint_info(channel: RecordedChannel, tally: ChannelTally, lost: int | None, epochs: int) -> EndpointInfo:
    source = channel.message_source
    return EndpointInfo(
        endpoint=channel.endpoint,
        schema=channel.schema,
        messages=tally.messages,
        bytes=tally.bytes,
        first_time=tally.first_time,
        last_time=tally.last_time,
        lost=lost if channel.has_publisher_sequence else 0 if keeps_values(source.kind) else None,
        epochs=epochs,
        largest=tally.largest,
        tracked=channel.is_tracked,
        kind=source.kind,
        options=source.parse_options(),
        publishers=(source.publisher,) if source.publisher else (),
    )


def _add_lost_messages(info: EndpointInfo, lost: int) -> EndpointInfo:
    return replace(info, lost=None if info.lost is None else info.lost + lost)


def _sum_or_none(*times: int | None) -> list[int]:
    return [time for time in times if time is not None]


def _merge_endpoint_infos(before: EndpointInfo | None, info: EndpointInfo) -> EndpointInfo:
    if before is None:
        return info
    return replace(
        info,
        schema=info.schema or before.schema,
        messages=before.messages + info.messages,
        bytes=before.bytes + info.bytes,
        first_time=min(_sum_or_none(before.first_time, info.first_time), default=None),
        last_time=max(_sum_or_none(before.last_time, info.last_time), default=None),
        lost=None if before.lost is None or info.lost is None else before.lost + info.lost,
        epochs=before.epochs + info.epochs,
        largest=max(before.largest, info.largest),
        tracked=before.tracked or info.tracked,
        options=info.options or before.options,
        publishers=tuple(sorted({*before.publishers, *info.publishers})),
    )
