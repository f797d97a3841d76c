"""Hops: which endpoint's messages led to which, and how long that took."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common import timing
from msgq.lake.metrics import duration_stats
from msgq.lake.metrics.group_by import Groups, column, integers, rows_of, table_of
from msgq.lake.metrics.saturating_time import since

_EDGE = ("run", "parent", "endpoint")
_TEXTS: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in _EDGE]
#: What is needed of messages.
MESSAGES = pa.schema(
    [(name, pa.string()) for name in ("run", "endpoint")]
    + [(name, pa.int64()) for name in ("publish_time", "origin_time")]
)
#: Edges as they are added up: `hop_` from the parent's publish_time, `e2e_` from origin_time to the message's.
EDGES = pa.schema([*_TEXTS, ("messages", pa.int64()), *duration_stats.columns("hop_"), *duration_stats.columns("e2e_")])
HOPS = pa.schema([*_TEXTS, *((name, pa.int64()) for name in ("messages", "p50", "p99", "max", "e2e_p50"))])


def edges(messages: pa.Table) -> pa.Table:
    """Return the edges of the tree of endpoints: `EDGES`; see `msgq.spark.tables.hops`.

    Input: run, endpoint, publish_time, origin_time: all messages of each chain that there is one of.
    """
    is_timing = pc.starts_with(messages.column("endpoint"), timing.PREFIX)
    leads = pc.and_(pc.greater(messages.column("origin_time"), 0), pc.invert(is_timing))
    known = messages.filter(pc.and_(leads, pc.is_valid(messages.column("publish_time"))))
    run, endpoint = (Groups(column(known, name)).places() for name in ("run", "endpoint"))
    published, origin = integers(known, "publish_time"), integers(known, "origin_time")
    order = np.lexsort((endpoint, published, origin, run))
    run, endpoint, published, origin = run[order], endpoint[order], published[order], origin[order]
    follows = (np.diff(run, prepend=-1) == 0) & (np.diff(origin, prepend=-1) == 0)
    # An endpoint that speaks several times in a row has one parent for all of it: what was before the first one.
    turn = ~follows | (np.diff(endpoint, prepend=-1) != 0)
    first = np.maximum.accumulate(np.where(turn, np.arange(len(order)), 0)) if len(order) else order
    has_parent = follows[first]
    parent = np.maximum(first - 1, 0)
    groups = Groups(run, np.where(has_parent, endpoint[parent], -1), endpoint)
    names = column(known, "endpoint")
    chosen = order[groups.first]
    made = rows_of(known, ["run", "endpoint"], chosen) | {
        "parent": names.take(pa.array(order[parent[groups.first]], mask=~has_parent[groups.first])),
        "messages": groups.sizes,
        **duration_stats.spread(groups, since(published, published[parent]), has_parent, "hop_"),
        **duration_stats.spread(groups, since(published, origin), np.ones(len(order), np.bool_), "e2e_"),
    }
    return table_of(EDGES, made)


def hops(edges: pa.Table) -> pa.Table:
    """Return the edges of all chains, with percentiles: `HOPS`. Input: `EDGES`, of parts of the chains."""
    groups = Groups(*(column(edges, name) for name in _EDGE))
    hop, age = (duration_stats.merged(groups, edges, prefix) for prefix in ("hop_", "e2e_"))
    made = rows_of(edges, _EDGE, groups.first) | {"messages": groups.sum(integers(edges, "messages"))}
    made |= duration_stats.percentiles(hop, {"p50": 0.5, "p99": 0.99}, "hop_")
    made |= duration_stats.percentiles(age, {"e2e_p50": 0.5}, "e2e_") | {"hop_max": hop["hop_max"]}
    return table_of(HOPS, {name.removeprefix("hop_").removeprefix("e2e_"): one for name, one in made.items()})
