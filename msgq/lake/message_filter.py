"""A filter of messages, which selects files before any file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

_TIME_MIN, _TIME_MAX = -(1 << 63), (1 << 63) - 1  # limits of log_time, a signed number of 64 bits


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter by endpoint and log_time.

    Attributes:
        endpoints: names of the wanted endpoints; None: all.
        start_time: first log_time of selected messages, ns since the epoch; None: no bound.
        end_time: end of selected messages: log_time < end_time, ns since the epoch; None: no bound.
    """

    endpoints: frozenset[str] | None = None
    start_time: int | None = None
    end_time: int | None = None

    def intersect(self, other: MessageFilter) -> MessageFilter:
        """Return the filter of the messages that pass both filters."""
        names = [selection for selection in (self.endpoints, other.endpoints) if selection is not None]
        starts = [time for time in (self.start_time, other.start_time) if time is not None]
        ends = [time for time in (self.end_time, other.end_time) if time is not None]
        endpoints = frozenset.intersection(*names) if names else None
        return MessageFilter(endpoints, max(starts, default=None), min(ends, default=None))

    @property
    def expression(self) -> pc.Expression:
        """The filter as an expression for rows."""
        if self.selects_nothing:
            return pc.scalar(False)
        passes = pc.scalar(True)
        if self.endpoints is not None:
            passes &= pc.field("endpoint").isin(pa.array(sorted(self.endpoints), pa.string()))
        first, last = self.column_bounds.get("log_time", (None, None))
        if first is not None:
            passes &= pc.field("log_time") >= first
        if last is not None:
            passes &= pc.field("log_time") <= last
        return passes

    @property
    def selects_nothing(self) -> bool:
        """Whether no message can pass."""
        start = _TIME_MIN if self.start_time is None else self.start_time
        end = _TIME_MAX + 1 if self.end_time is None else self.end_time
        return self.endpoints == frozenset() or max(start, _TIME_MIN) >= min(end, _TIME_MAX + 1)

    @property
    def column_bounds(self) -> Mapping[str, tuple[str | int | None, str | int | None]]:
        """The smallest and largest wanted value of each column; None: no bound. For filters that select messages."""
        bounds: dict[str, tuple[str | int | None, str | int | None]] = {}
        if self.endpoints:
            bounds["endpoint"] = min(self.endpoints), max(self.endpoints)
        if self.start_time is not None or self.end_time is not None:
            start = None if self.start_time is None else max(self.start_time, _TIME_MIN)
            bounds["log_time"] = start, None if self.end_time is None else min(self.end_time - 1, _TIME_MAX)
        return bounds
