"""The tables of gold, made of partial aggregates hour by hour, and then of whole runs.

Tables whose names begin with _ are between the two: of each hour what the totals of its run need, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from msgq.lake.metrics import dropouts, endpoints, islands, partial_aggregates, queues, stages, time_windows
from msgq.lake.metrics import hops as hop_tables
from msgq.lake.metrics.checks import CHECKS_SCHEMA, CheckThresholds, checks
from msgq.lake.metrics.islands import EPOCH_KEY, STATE_KEY

#: The columns of the tables that are made of each hour.
HOURLY_SCHEMAS: dict[str, pa.Schema] = {
    "traffic_windows": time_windows.WINDOWS_SCHEMA,
    "throughput": time_windows.THROUGHPUT_SCHEMA,
    "latency": time_windows.LATENCY_SCHEMA,
    "stages": stages.STAGES_SCHEMA,
    "frames": partial_aggregates.FRAMES_SCHEMA,
    "queue_deliveries": queues.DELIVERIES_SCHEMA,
    "_hours": time_windows.WINDOWS_SCHEMA,
    "_intervals": dropouts.INTERVALS_SCHEMA,
    "_islands": islands.islands_schema(EPOCH_KEY),
    "_key_islands": islands.islands_schema(STATE_KEY),
    "_stages": stages.STAGE_AGGREGATES,
    "_edges": hop_tables.EDGES_SCHEMA,
    "_queues": queues.QUEUE_AGGREGATES,
}
_OVERWRITES_SCHEMA = islands.gaps_schema(STATE_KEY)
#: The columns of the tables that are made of each run.
RUN_SCHEMAS: dict[str, pa.Schema] = {
    "sequence_gaps": islands.gaps_schema(EPOCH_KEY),
    "overwrites": _OVERWRITES_SCHEMA.set(
        _OVERWRITES_SCHEMA.get_field_index("lost"), _OVERWRITES_SCHEMA.field("lost").with_name("overwritten")
    ),
    "endpoints": endpoints.ENDPOINTS_SCHEMA,
    "publishers": endpoints.PUBLISHERS_SCHEMA,
    "dropouts": dropouts.DROPOUTS_SCHEMA,
    "latency_summary": pa.schema(
        [field for field in time_windows.LATENCY_SCHEMA if field.name not in ("window_start", "window_ns")]
    ),
    "hops": hop_tables.HOPS_SCHEMA,
    "stage_summary": stages.SUMMARY_SCHEMA,
    "queue_windows": queues.WINDOWS_SCHEMA,
    "queue_summary": queues.SUMMARY_SCHEMA,
    "checks": CHECKS_SCHEMA,
}


def hourly_tables(aggregates: Mapping[str, pa.Table], at_least: int) -> dict[str, pa.Table]:
    """Return the tables `HOURLY_SCHEMAS` of an hour of a run.

    Parameters
    ----------
    aggregates : what `compute_aggregates` made of all its messages; and `origins`: run, endpoint, publish_time and
        origin_time of those whose origin_time is in the hour.
    at_least : the least width of windows, ns.
    """
    made = {name: schema.empty_table() for name, schema in HOURLY_SCHEMAS.items()}
    for name, make in _HOURLY_TABLE_MAKERS.items():
        if aggregates[name].num_rows:  # of most there is nothing, and hours are many
            made |= make(aggregates[name], at_least)
    return made


def _make_window_tables(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    base = time_windows.merge_windows(rows)
    wide = time_windows.coarsen_windows(base, at_least)
    return {
        "traffic_windows": wide,
        "throughput": time_windows.throughput(wide),
        "latency": time_windows.latency(wide),
        "_hours": time_windows.merge_windows(base, time_windows.HOUR_NS),
        "_intervals": dropouts.message_intervals(base),
    }


def _make_stage_tables(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    said = stages.merge_windows(rows)
    return {
        "stages": stages.coarsen_windows(said, at_least),
        "_stages": stages.merge_windows(said, time_windows.HOUR_NS),
    }


def _make_queue_tables(rows: pa.Table, _: int) -> dict[str, pa.Table]:
    done = queues.queue_deliveries(rows)
    return {"queue_deliveries": done, "_queues": queues.count_queue_events(done)}


#: Makes the tables of an hour of each partial aggregate. The least width of windows is given, too.
_HOURLY_TABLE_MAKERS: dict[str, Callable[[pa.Table, int], dict[str, pa.Table]]] = {
    "traffic_windows": _make_window_tables,
    "islands": lambda rows, _: {"_islands": islands.join_islands(rows, EPOCH_KEY)},
    "key_islands": lambda rows, _: {"_key_islands": islands.join_islands(rows, STATE_KEY)},
    "stages": _make_stage_tables,
    "events": _make_queue_tables,
    "frames": lambda rows, _: {"frames": rows},
    "origins": lambda rows, _: {"_edges": hop_tables.edges(rows)},
}


def run_tables(aggregates: Mapping[str, pa.Table], at_least: int, thresholds: CheckThresholds) -> dict[str, pa.Table]:
    """Return the tables `RUN_SCHEMAS` of whole runs.

    Parameters
    ----------
    aggregates : those of `HOURLY_SCHEMAS` whose names begin with _, of all hours.
    at_least : the least width of windows, ns.
    thresholds : of `checks`.
    """
    gaps, cells = (
        islands.find_gaps(aggregates["_islands"], EPOCH_KEY),
        islands.find_gaps(aggregates["_key_islands"], STATE_KEY),
    )
    queue_windows = queues.coarsen_windows(queues.queue_windows(aggregates["_queues"]), at_least)
    made = {
        "sequence_gaps": gaps,
        "overwrites": cells.rename_columns(RUN_SCHEMAS["overwrites"].names),
        "endpoints": endpoints.endpoints(aggregates["_hours"], gaps, cells),
        "publishers": endpoints.publishers(aggregates["_hours"]),
        "dropouts": dropouts.find_dropouts(aggregates["_intervals"]),
        "latency_summary": time_windows.group_latency(aggregates["_hours"]),
        "hops": hop_tables.hops(aggregates["_edges"]),
        "stage_summary": stages.stage_summary(aggregates["_stages"]),
        "queue_windows": queue_windows,
        "queue_summary": queues.queue_summary(queue_windows),
    }
    return made | {"checks": checks(made, thresholds)}
