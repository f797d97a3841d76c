"""Totals of endpoints, and of their publishers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.units import NS_PER_S
from msgq.lake.metrics import duration_stats, histograms
from msgq.lake.metrics.group_by import (
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)
from msgq.lake.metrics.saturating_time import subtract_saturating
from msgq.lake.metrics.time_windows import LATENCY_PERCENTILE_RANKS, TRAFFIC_COUNT_COLUMNS, sum_window_counts

_ENDPOINT_KEY = ("run", "endpoint")
_NEWEST_VALUE_COLUMNS = ("host", "encoding", "schema", "kind")
_TEXT_TYPE, _NUMBER_TYPE = pa.string(), pa.int64()
ENDPOINTS_SCHEMA = pa.schema(
    [
        *((name, _TEXT_TYPE) for name in ("run", "host", "endpoint", "encoding", "schema")),
        *((name, _NUMBER_TYPE) for name in TRAFFIC_COUNT_COLUMNS),
        ("rate", pa.float64()),
        *((name, _NUMBER_TYPE) for name in ("epochs", "lost", "sequence_gaps")),
        ("kind", _TEXT_TYPE),
        *((name, _NUMBER_TYPE) for name in ("publishers", "overwritten")),
    ]
)
PUBLISHERS_SCHEMA = pa.schema(
    [
        *((name, _TEXT_TYPE) for name in (*_ENDPOINT_KEY, "publisher")),
        *((name, _NUMBER_TYPE) for name in TRAFFIC_COUNT_COLUMNS),
        ("rate", pa.float64()),
        *((name, _NUMBER_TYPE) for name in ("count", "min", "max", *LATENCY_PERCENTILE_RANKS)),
        ("histogram", histograms.HISTOGRAM_TYPE),
    ]
)


def compute_endpoints(windows: pa.Table, gaps: pa.Table, overwrites: pa.Table) -> pa.Table:
    """Return a row for each endpoint of each run: `ENDPOINTS_SCHEMA`; see `msgq.spark.tables.endpoints`.

    Input: windows of any width, of which the last one has the newest properties of an endpoint; and tables of losses
    in whole runs: run and endpoint, with lost in `gaps` and overwritten in `overwrites`.
    """
    groups = RowGroups(*(get_column(windows, name) for name in _ENDPOINT_KEY))
    columns = take_column_rows(windows, _ENDPOINT_KEY, groups.first_rows) | sum_window_counts(groups, windows)
    columns |= take_column_rows(
        windows, _NEWEST_VALUE_COLUMNS, groups.find_last_rows(get_integer_column(windows, "end_time"))
    )
    columns["rate"] = _compute_message_rate(columns["messages"], columns["start_time"], columns["end_time"])
    columns |= {
        f"{name}s": _count_distinct_values(groups, get_column(windows, name)) for name in ("epoch", "publisher")
    }
    lost, places = _sum_losses_by_endpoint(columns, gaps, "lost")
    return build_typed_table(
        ENDPOINTS_SCHEMA,
        columns
        | {
            "lost": lost,
            "sequence_gaps": places,
            "overwritten": _sum_losses_by_endpoint(columns, overwrites, "overwritten")[0],
        },
    )


def compute_publishers(windows: pa.Table) -> pa.Table:
    """Return a row for each publisher of endpoints that may have several: `PUBLISHERS_SCHEMA`. Input: windows."""
    named = windows.filter(pc.is_valid(windows.column("publisher")))
    keys = (*_ENDPOINT_KEY, "publisher")
    groups = RowGroups(*(get_column(named, name) for name in keys))
    columns = (
        take_column_rows(named, keys, groups.first_rows)
        | sum_window_counts(groups, named)
        | duration_stats.merge_duration_stats(groups, named)
    )
    columns["rate"] = _compute_message_rate(columns["messages"], columns["start_time"], columns["end_time"])
    return build_typed_table(
        PUBLISHERS_SCHEMA, columns | duration_stats.compute_duration_percentiles(columns, LATENCY_PERCENTILE_RANKS)
    )


def _count_distinct_values(groups: RowGroups, values: pa.Array) -> IntegerArray:
    """Return the number of different values in each group of rows, without NULL."""
    place = groups.compute_group_ids()
    each = RowGroups(place, values)
    has_value = np.asarray(values.take(pa.array(each.first_rows)).is_valid(), np.bool_)
    return np.bincount(place[each.first_rows[has_value]], minlength=groups.count)


def _sum_losses_by_endpoint(
    endpoints: dict[str, pa.Array], missing: pa.Table, name: str
) -> tuple[IntegerArray, IntegerArray]:
    """Return for each run and endpoint the sum of a column of losses, and the number of their rows."""
    both = [
        pa.concat_arrays([endpoints[key].cast(_TEXT_TYPE), get_column(missing, key).cast(_TEXT_TYPE)])
        for key in _ENDPOINT_KEY
    ]
    places = RowGroups(*both).compute_group_ids()
    own, other = places[: len(endpoints["run"])], places[len(endpoints["run"]) :]
    most = int(places.max(initial=-1)) + 1
    values = np.zeros(most, np.int64)
    np.add.at(values, other, get_integer_column(missing, name))
    return values[own], np.bincount(other, minlength=most)[own]


def _compute_message_rate(messages: IntegerArray, first: IntegerArray, last: IntegerArray) -> pa.Array:
    """Return messages per second; NULL for a single message."""
    span = subtract_saturating(last, first)
    return pa.array((messages - 1) / np.maximum(span, 1) * NS_PER_S, mask=span == 0)
