"""Hops: messages of one endpoint that led to messages of another, and the time between them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common import timing
from msgq.lake.metrics import duration_stats
from msgq.lake.metrics.group_by import RowGroups, build_typed_table, get_column, get_integer_column, take_column_rows
from msgq.lake.metrics.saturating_time import subtract_saturating
from msgq.records.tracing_rules import find_parents

_EDGE_KEY = ("run", "parent", "endpoint")
_EDGE_COLUMNS: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in _EDGE_KEY]
#: Columns of messages that hops are computed from.
HOP_INPUT_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("run", "endpoint")]
    + [(name, pa.int64()) for name in ("publish_time", "origin_time")]
)
#: Edges as they are added up: `hop_` from the parent's publish_time, `e2e_` from origin_time to the message's.
EDGES_SCHEMA = pa.schema(
    [
        *_EDGE_COLUMNS,
        ("messages", pa.int64()),
        *duration_stats.list_stats_columns("hop_"),
        *duration_stats.list_stats_columns("e2e_"),
    ]
)
HOPS_SCHEMA = pa.schema(
    [*_EDGE_COLUMNS, *((name, pa.int64()) for name in ("messages", "p50", "p99", "max", "e2e_p50"))]
)


def compute_edges(messages: pa.Table) -> pa.Table:
    """Return the edges of the tree of endpoints: `EDGES_SCHEMA`; see `msgq.spark.tables.hops`.

    Input: run, endpoint, publish_time, origin_time, with all messages of each chain.
    """
    is_timing = pc.starts_with(messages.column("endpoint"), timing.TIMING_TOPIC_PREFIX)
    leads = pc.and_(pc.greater(messages.column("origin_time"), 0), pc.invert(is_timing))
    timed_messages = messages.filter(pc.and_(leads, pc.is_valid(messages.column("publish_time"))))
    run, endpoint = (RowGroups(get_column(timed_messages, name)).compute_group_ids() for name in ("run", "endpoint"))
    published, origin = (
        get_integer_column(timed_messages, "publish_time"),
        get_integer_column(timed_messages, "origin_time"),
    )
    order = np.lexsort((endpoint, published, origin, run))
    run, endpoint, published, origin = run[order], endpoint[order], published[order], origin[order]
    follows = (np.diff(run, prepend=-1) == 0) & (np.diff(origin, prepend=-1) == 0)
    parent = find_parents(~follows, endpoint)
    has_parent = parent >= 0
    groups = RowGroups(run, np.where(has_parent, endpoint[parent], -1), endpoint)
    names = get_column(timed_messages, "endpoint")
    chosen = order[groups.first_rows]
    columns = take_column_rows(timed_messages, ["run", "endpoint"], chosen) | {
        "parent": names.take(pa.array(order[parent[groups.first_rows]], mask=~has_parent[groups.first_rows])),
        "messages": groups.sizes,
        **duration_stats.compute_duration_stats(
            groups, subtract_saturating(published, published[parent]), has_parent, "hop_"
        ),
        **duration_stats.compute_duration_stats(
            groups, subtract_saturating(published, origin), np.ones(len(order), np.bool_), "e2e_"
        ),
    }
    return build_typed_table(EDGES_SCHEMA, columns)


def compute_hops(edges: pa.Table) -> pa.Table:
    """Return the edges of all chains, with percentiles: `HOPS_SCHEMA`. Input: `EDGES_SCHEMA` of parts of the chains."""
    groups = RowGroups(*(get_column(edges, name) for name in _EDGE_KEY))
    hop, age = (duration_stats.merge_duration_stats(groups, edges, prefix) for prefix in ("hop_", "e2e_"))
    columns = take_column_rows(edges, _EDGE_KEY, groups.first_rows) | {
        "messages": groups.sum_by_group(get_integer_column(edges, "messages"))
    }
    columns |= duration_stats.compute_duration_percentiles(hop, {"p50": 0.5, "p99": 0.99}, "hop_")
    columns |= duration_stats.compute_duration_percentiles(age, {"e2e_p50": 0.5}, "e2e_") | {"hop_max": hop["hop_max"]}
    return build_typed_table(
        HOPS_SCHEMA, {name.removeprefix("hop_").removeprefix("e2e_"): values for name, values in columns.items()}
    )
