"""Rate and latency of many endpoints in the page's windows, as matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.lake.metrics.group_by import IntegerArray, get_integer_column
from msgq.lake.report.gold_reader import GoldReader
from msgq.lake.report.report_data import split_windows

_FloatMatrix = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class EndpointWindows:
    """Rate and latency of endpoints over time.

    Attributes
    ----------
    names : endpoint of each row.
    starts : start of each window, ns. The first window starts with the recording.
    rates : messages per second, shape (names, windows); 0 without messages.
    latencies : highest 90th percentile of the latency in ns, shape (names, windows); NaN if unknown.
    """

    names: list[str]
    starts: IntegerArray
    rates: _FloatMatrix
    latencies: _FloatMatrix


def read_endpoint_windows(gold: GoldReader, names: Sequence[str], step: int, begin: int, end: int) -> EndpointWindows:
    """Return rate and latency of the endpoints `names` in windows of `step` ns, from `begin` to `end`.

    A longer window of gold is spread over the windows that it covers.
    """
    first, last = begin // step, end // step
    count = max(1, last - first + int(end % step > step // 2))  # a short rest counts in the last window
    edges = np.array([begin, *((first + window) * step for window in range(1, count)), end], np.int64)
    seconds = np.maximum(np.diff(edges), 1) / NS_PER_S
    rates, latencies = np.zeros((len(names), count)), np.full((len(names), count), np.nan)

    def add_messages(row: IntegerArray, window: IntegerArray, values: IntegerArray, parts: IntegerArray) -> None:
        np.add.at(rates, (row, window), values / parts / seconds[window])

    def add_latency(row: IntegerArray, window: IntegerArray, values: IntegerArray, _: IntegerArray) -> None:
        np.fmax.at(latencies, (row, window), values)

    span = step, begin, min(end, (first + count) * step - 1)
    _add_windows(gold, "throughput", "messages", names, span, count, add_messages)
    _add_windows(gold, "latency", "p90", names, span, count, add_latency)
    return EndpointWindows(list(names), edges[:-1], rates, latencies)


def _add_windows(
    gold: GoldReader,
    name: str,
    value: str,
    names: Sequence[str],
    span: tuple[int, int, int],
    count: int,
    add: Callable[[IntegerArray, IntegerArray, IntegerArray, IntegerArray], None],
) -> None:
    """Call `add` with rows and columns of the matrix, values, and the number of page windows of each value."""
    step, begin, _ = span
    for piece in gold.iterate_pieces(name, ["endpoint", "window_start", "window_ns", value]):
        index = pc.index_in(piece["endpoint"], value_set=pa.array(names, pa.string()))
        chosen = piece.append_column("row", index).filter(index.is_valid())
        rows, starts, parts = split_windows(chosen, *span)
        window = np.minimum(starts // step - begin // step, count - 1)
        add(get_integer_column(chosen, "row")[rows], window, get_integer_column(chosen, value)[rows], parts[rows])
