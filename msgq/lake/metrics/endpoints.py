"""Endpoints, and their publishers: what there is of each, in one row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.lake.metrics import duration_stats, histograms
from msgq.lake.metrics.group_by import Integers, RowGroups, build_table, column, integer_column, take_rows
from msgq.lake.metrics.saturating_time import saturating_subtract
from msgq.lake.metrics.windows import COUNTS, RANKS, sum_windows

_ENDPOINT_KEY = ("run", "endpoint")
_NEWEST = ("host", "encoding", "schema", "kind")
_TEXT, _NUMBER = pa.string(), pa.int64()
ENDPOINTS = pa.schema(
    [
        *((name, _TEXT) for name in ("run", "host", "endpoint", "encoding", "schema")),
        *((name, _NUMBER) for name in COUNTS),
        ("rate", pa.float64()),
        *((name, _NUMBER) for name in ("epochs", "lost", "sequence_gaps")),
        ("kind", _TEXT),
        *((name, _NUMBER) for name in ("publishers", "overwritten")),
    ]
)
PUBLISHERS = pa.schema(
    [
        *((name, _TEXT) for name in (*_ENDPOINT_KEY, "publisher")),
        *((name, _NUMBER) for name in COUNTS),
        ("rate", pa.float64()),
        *((name, _NUMBER) for name in ("count", "min", "max", *RANKS)),
        ("histogram", histograms.TYPE),
    ]
)


def endpoints(windows: pa.Table, gaps: pa.Table, overwrites: pa.Table) -> pa.Table:
    """Return a row for each endpoint of each run: `ENDPOINTS`; see `msgq.spark.tables.endpoints`.

    Input: windows of any width, of which the endpoint's last ones tell what is newest; and tables that have what was
    lost of whole runs: run, endpoint, lost or overwritten.
    """
    groups = RowGroups(*(column(windows, name) for name in _ENDPOINT_KEY))
    made = take_rows(windows, _ENDPOINT_KEY, groups.first_rows) | sum_windows(groups, windows)
    made |= take_rows(windows, _NEWEST, groups.last_rows(integer_column(windows, "end_time")))
    made["rate"] = _rate(made["messages"], made["start_time"], made["end_time"])
    made |= {f"{name}s": _distinct(groups, column(windows, name)) for name in ("epoch", "publisher")}
    lost, places = _sums(made, gaps, "lost")
    return build_table(
        ENDPOINTS, made | {"lost": lost, "sequence_gaps": places, "overwritten": _sums(made, overwrites, "lost")[0]}
    )


def publishers(windows: pa.Table) -> pa.Table:
    """Return a row for each publisher of each endpoint that may have several: `PUBLISHERS`. Input: windows."""
    named = windows.filter(pc.is_valid(windows.column("publisher")))
    keys = (*_ENDPOINT_KEY, "publisher")
    groups = RowGroups(*(column(named, name) for name in keys))
    made = take_rows(named, keys, groups.first_rows) | sum_windows(groups, named) | duration_stats.merge(groups, named)
    made["rate"] = _rate(made["messages"], made["start_time"], made["end_time"])
    return build_table(PUBLISHERS, made | duration_stats.percentiles(made, RANKS))


def _distinct(groups: RowGroups, values: pa.Array) -> Integers:
    """Return how many values there are in each group of rows, without NULL."""
    place = groups.group_ids()
    each = RowGroups(place, values)
    known = np.asarray(values.take(pa.array(each.first_rows)).is_valid(), np.bool_)
    return np.bincount(place[each.first_rows[known]], minlength=groups.count)


def _sums(endpoints: dict[str, pa.Array], missing: pa.Table, name: str) -> tuple[Integers, Integers]:
    """Return the sum of a column of what is missing, and how many rows, for each run and endpoint that was found."""
    both = [pa.concat_arrays([endpoints[key].cast(_TEXT), column(missing, key).cast(_TEXT)]) for key in _ENDPOINT_KEY]
    places = RowGroups(*both).group_ids()
    own, other = places[: len(endpoints["run"])], places[len(endpoints["run"]) :]
    most = int(places.max(initial=-1)) + 1
    values = np.zeros(most, np.int64)
    np.add.at(values, other, integer_column(missing, name))
    return values[own], np.bincount(other, minlength=most)[own]


def _rate(messages: Integers, first: Integers, last: Integers) -> pa.Array:
    """Return messages a second; NULL of a single one."""
    span = saturating_subtract(last, first)
    return pa.array((messages - 1) / np.maximum(span, 1) * NS_PER_S, mask=span == 0)
