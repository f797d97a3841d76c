"""Conversion of a file's times from the host's clock, which has no steps, to the wall clock."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import add
from typing import TYPE_CHECKING, Any

from msgq.recording.mcap_io.core import TIME_MAX, ScanColumns

if TYPE_CHECKING:
    import numpy as np

_NANOSECONDS_PATTERN = re.compile(r"-?[0-9]{1,19}")
_NANOSECONDS_MAX = 1 << 62


class WallTimeConverter:
    """Converts times of a file from the host's clock to the wall clock, with the offsets stored by the recorder.

    The wall clock is the host's clock plus an offset. Setting the wall clock changes this offset. All times of a
    message use the offset at its log_time, so differences between them stay unchanged.

    Attributes:
        recorded_offsets_ns: wall clock minus the host's clock in ns, one value for each stored reading.
    """

    def __init__(self, notes: Iterable[Mapping[str, str]]) -> None:
        """Read the Metadata records `RECORDING_METADATA` and `CLOCK_METADATA` of `metadata_keys`.

        Raises:
            ValueError: a record is invalid, or the records belong to several runs with different clocks.
        """
        readings = sorted(map(_parse_clock_record, (note for note in notes if "wall_offset_ns" in note)))
        self.recorded_offsets_ns = tuple(offset for _, offset, _ in readings)
        self._offset_start_times, self._offsets_ns = [0], [*self.recorded_offsets_ns[:1]] or [0]
        for since, offset, _ in readings:
            if offset != self._offsets_ns[-1]:
                self._offset_start_times.append(since)
                self._offsets_ns.append(offset)
        if self.is_clock_stepped and len({run for _, _, run in readings}) > 1:
            raise ValueError("the file has several runs, whose clocks differ")

    @property
    def is_clock_stepped(self) -> bool:
        """True if the wall clock was set during the recording."""
        return len(self._offsets_ns) > 1

    def find_wall_time_range(self, first: int, last: int) -> tuple[int, int]:
        """Return the earliest and the latest wall-clock time between two times of the host's clock."""
        begin, end = self._find_offset_index(first), self._find_offset_index(last)
        steps = self._offset_start_times[begin + 1 : end + 1]
        since, until = [first, *steps], [*(step - 1 for step in steps), last]
        offsets = self._offsets_ns[begin : end + 1]
        return (
            _clamp_time(min(map(add, since, offsets))),
            _clamp_time(max(map(add, until, offsets))),
        )

    def _find_offset_index(self, time: int) -> int:
        return bisect_right(self._offset_start_times, time) - 1

    def find_host_time_range(self, start: int, end: int) -> tuple[int, int]:
        """Return the range of the host's clock that contains all wall-clock times with start <= time < end."""
        first = 0 if start <= 0 else _clamp_time(start - max(self._offsets_ns))
        return first, TIME_MAX if end >= TIME_MAX else _clamp_time(end - min(self._offsets_ns))

    def convert_columns(self, columns: ScanColumns, first: int, start: int, end: int) -> None:
        """Convert the times of row `first` and all later rows, and keep rows with start <= log_time < end."""
        import numpy as np  # imported late: the summary of a file needs no array

        rows = slice(first, columns.row_count)
        times = columns.log_time[rows]
        offsets = np.array(self._offsets_ns)[np.searchsorted(self._offset_start_times, times, side="right") - 1]
        for column in (columns.publish_time[rows], columns.origin_time[rows]):
            column[:] = np.where(column > 0, _shift_times(column, offsets), column)  # 0: it is not known
        times[:] = _shift_times(times, offsets)
        if self.is_clock_stepped:  # else `find_host_time_range` was exact
            columns.keep_rows(first, (times >= start) & (times < end))


def _shift_times(times: np.ndarray[Any, np.dtype[np.int64]], offsets: Any) -> Any:
    """Return times plus offsets, limited to 0 to TIME_MAX. For negative times the result is undefined."""
    import numpy as np

    return np.maximum(np.minimum(times, TIME_MAX - 1 - np.maximum(offsets, 0)) + offsets, 0)


def _clamp_time(time: int) -> int:
    return min(max(time, 0), TIME_MAX)


def _parse_clock_record(note: Mapping[str, str]) -> tuple[int, int, str]:
    """Return the time of a clock record, its offset of the wall clock in ns, and its run."""
    since = _parse_nanoseconds(note, "since_ns")
    if since < 0:
        raise ValueError(f"since_ns {since} of a clock record is negative")
    return (
        since,
        _parse_nanoseconds(note, "wall_offset_ns") - _parse_nanoseconds(note, "clock_offset_ns"),
        note.get("run", ""),
    )


def _parse_nanoseconds(note: Mapping[str, str], name: str) -> int:
    text = note.get(name, "")
    if not _NANOSECONDS_PATTERN.fullmatch(text) or abs(int(text)) >= _NANOSECONDS_MAX:
        raise ValueError(f"{name} {text[:40]!r} of a clock record is not a number of nanoseconds")
    return int(text)
