"""Rate and latency of many endpoints in the page's windows, as matrices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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

    Attributes:
        names: endpoint of each row.
        starts: start of each window, ns. The first window starts with the recording.
        rates: messages per second, shape (names, windows); 0 without messages.
        latencies: highest 90th percentile of the latency in ns, shape (names, windows); NaN if unknown.
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

    span = step, begin, min(end, (first + count) * step - 1)

    for row, window, messages in _split_values(gold, "throughput", "messages", names, span):
        covered = np.bincount(row.source, seconds[window], row.row_count)[row.source]
        np.add.at(rates, (row.name, window), messages / covered)
    for row, window, p90 in _split_values(gold, "latency", "p90", names, span):
        np.fmax.at(latencies, (row.name, window), p90)
    return EndpointWindows(list(names), edges[:-1], rates, latencies)


class _SourceRows(NamedTuple):
    """Rows of gold that values are from: index of the row, index of the endpoint, and number of all rows."""

    source: IntegerArray
    name: IntegerArray
    row_count: int


def _split_values(
    gold: GoldReader, table: str, column: str, names: Sequence[str], span: tuple[int, int, int]
) -> Iterator[tuple[_SourceRows, IntegerArray, IntegerArray]]:
    """Yield the values of a column for each window of the page that their windows cover, and the page's windows.

    `span`: length of the page's windows, begin and end, ns.
    """
    step, begin, end = span
    for piece in gold.iterate_pieces(table, ["endpoint", "window_start", "window_ns", column]):
        index = pc.index_in(piece["endpoint"], value_set=pa.array(names, pa.string()))
        chosen = piece.append_column("name", index).filter(index.is_valid())
        rows, starts, _ = split_windows(chosen, *span)
        window = np.minimum(starts, end) // step - begin // step
        found = _SourceRows(rows, get_integer_column(chosen, "name")[rows], len(chosen))
        yield found, window, get_integer_column(chosen, column)[rows]
