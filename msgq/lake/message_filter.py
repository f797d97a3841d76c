"""A filter of messages, which selects files before any file is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A filter by endpoint and log_time.

    Attributes
    ----------
    endpoints : names of the wanted endpoints; None: all.
    start_time, end_time : wanted are messages with start_time <= log_time < end_time, ns since the epoch; None: no
        bound.
    """

    endpoints: frozenset[str] | None = None
    start_time: int | None = None
    end_time: int | None = None

    @property
    def expression(self) -> pc.Expression:
        """The filter as an expression for rows."""
        passes = pc.scalar(True)
        if self.endpoints is not None:
            passes &= pc.field("endpoint").isin(pa.array(sorted(self.endpoints), pa.string()))
        if self.start_time is not None:
            passes &= pc.field("log_time") >= self.start_time
        if self.end_time is not None:
            passes &= pc.field("log_time") < self.end_time
        return passes

    @property
    def column_bounds(self) -> Mapping[str, tuple[str | int | None, str | int | None]]:
        """The smallest and largest wanted value of each column; None: no bound."""
        bounds: dict[str, tuple[str | int | None, str | int | None]] = {}
        if self.endpoints:
            bounds["endpoint"] = min(self.endpoints), max(self.endpoints)
        if self.start_time is not None or self.end_time is not None:
            bounds["log_time"] = self.start_time, None if self.end_time is None else self.end_time - 1
        return bounds
