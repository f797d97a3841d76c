"""Gold tables: from partial aggregates for each hour, then for whole runs.

Tables with names that begin with "_" are intermediate: they have the data of an hour for the totals of its run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from msgq.lake.metrics import dropouts, endpoints, islands, partial_aggregates, queues, stages, time_windows
from msgq.lake.metrics import hops as hop_tables
from msgq.lake.metrics.checks import CHECKS_SCHEMA, CheckThresholds, compute_checks
from msgq.lake.metrics.islands import EPOCH_KEY_COLUMNS, STATE_KEY_COLUMNS

#: The columns of the tables that are made of each hour.
HOURLY_SCHEMAS: dict[str, pa.Schema] = {
    "traffic_windows": time_windows.TRAFFIC_WINDOWS_SCHEMA,
    "throughput": time_windows.THROUGHPUT_SCHEMA,
    "latency": time_windows.LATENCY_SCHEMA,
    "stages": stages.STAGES_SCHEMA,
    "frames": partial_aggregates.FRAMES_SCHEMA,
    "queue_deliveries": queues.QUEUE_DELIVERIES_SCHEMA,
    "_hours": time_windows.TRAFFIC_WINDOWS_SCHEMA,
    "_intervals": dropouts.INTERVALS_SCHEMA,
    "_islands": islands.make_islands_schema(EPOCH_KEY_COLUMNS),
    "_key_islands": islands.make_islands_schema(STATE_KEY_COLUMNS),
    "_stages": stages.STAGE_AGGREGATES,
    "_edges": hop_tables.EDGES_SCHEMA,
    "_queues": queues.QUEUE_AGGREGATES,
}
_OVERWRITES_SCHEMA = islands.make_gaps_schema(STATE_KEY_COLUMNS)
#: The columns of the tables that are made of each run.
RUN_SCHEMAS: dict[str, pa.Schema] = {
    "sequence_gaps": islands.make_gaps_schema(EPOCH_KEY_COLUMNS),
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
    "stage_summary": stages.STAGE_SUMMARY_SCHEMA,
    "queue_windows": queues.QUEUE_WINDOWS_SCHEMA,
    "queue_summary": queues.QUEUE_SUMMARY_SCHEMA,
    "checks": CHECKS_SCHEMA,
}


def make_hourly_tables(aggregates: Mapping[str, pa.Table], at_least: int) -> dict[str, pa.Table]:
    """Return the tables `HOURLY_SCHEMAS` of one hour of each run.

    Args:
        aggregates: result of `compute_aggregates` for all messages of the hours; and `origins`: run, endpoint,
            publish_time and origin_time of messages with an origin_time in the hour.
        at_least: minimum width of windows, ns.
    """
    return _make_tables(HOURLY_SCHEMAS, _HOURLY_TABLE_MAKERS, aggregates, at_least)


def _make_tables(
    schemas: Mapping[str, pa.Schema],
    makers: Mapping[str, Callable[[pa.Table, int], dict[str, pa.Table]]],
    inputs: Mapping[str, pa.Table],
    at_least: int,
) -> dict[str, pa.Table]:
    """Return a table for each schema, without rows where the input has none: most runs have no queues and stages."""
    tables = {name: schema.empty_table() for name, schema in schemas.items()}
    for name, make in makers.items():
        if inputs[name].num_rows:
            tables |= make(inputs[name], at_least)
    return tables


def _make_window_tables(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    base = time_windows.merge_traffic_windows(rows)
    wide = time_windows.coarsen_traffic_windows(base, at_least)
    return {
        "traffic_windows": wide,
        "throughput": time_windows.compute_throughput(wide),
        "latency": time_windows.compute_latency(wide),
        "_hours": time_windows.merge_traffic_windows(base, time_windows.HOUR_NS),
        "_intervals": dropouts.compute_message_intervals(base),
    }


def _make_stage_tables(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    stage_windows = stages.merge_stage_windows(rows)
    return {
        "stages": stages.coarsen_stage_windows(stage_windows, at_least),
        "_stages": stages.merge_stage_windows(stage_windows, time_windows.HOUR_NS),
    }


def _make_queue_tables(rows: pa.Table, _: int) -> dict[str, pa.Table]:
    done = queues.compute_queue_deliveries(rows)
    return {"queue_deliveries": done, "_queues": queues.count_queue_events(done)}


#: Makes the tables of an hour of each partial aggregate. The least width of windows is given, too.
_HOURLY_TABLE_MAKERS: dict[str, Callable[[pa.Table, int], dict[str, pa.Table]]] = {
    "traffic_windows": _make_window_tables,
    "islands": lambda rows, _: {"_islands": islands.join_sequence_islands(rows, EPOCH_KEY_COLUMNS)},
    "key_islands": lambda rows, _: {"_key_islands": islands.join_sequence_islands(rows, STATE_KEY_COLUMNS)},
    "stages": _make_stage_tables,
    "events": _make_queue_tables,
    "frames": lambda rows, _: {"frames": rows},
    "origins": lambda rows, _: {"_edges": hop_tables.compute_edges(rows)},
}


def make_run_tables(
    aggregates: Mapping[str, pa.Table], at_least: int, thresholds: CheckThresholds
) -> dict[str, pa.Table]:
    """Return the tables `RUN_SCHEMAS` of whole runs.

    Args:
        aggregates: the intermediate tables of `HOURLY_SCHEMAS` (with "_"), of all hours.
        at_least: minimum width of windows, ns.
        thresholds: thresholds of `compute_checks`.
    """
    tables = _make_tables(RUN_SCHEMAS, _RUN_TABLE_MAKERS, aggregates, at_least)
    tables["endpoints"] = endpoints.compute_endpoints(
        aggregates["_hours"], tables["sequence_gaps"], tables["overwrites"]
    )
    return tables | {"checks": compute_checks(tables, thresholds)}


def _make_total_tables(hours: pa.Table, _: int) -> dict[str, pa.Table]:
    return {
        "publishers": endpoints.compute_publishers(hours),
        "latency_summary": time_windows.compute_grouped_latency(hours),
    }


def _make_overwrite_table(rows: pa.Table, _: int) -> dict[str, pa.Table]:
    cells = islands.find_sequence_gaps(rows, STATE_KEY_COLUMNS)
    return {"overwrites": cells.rename_columns(RUN_SCHEMAS["overwrites"].names)}


def _make_queue_window_tables(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    windows = queues.coarsen_queue_windows(queues.compute_queue_windows(rows), at_least)
    return {"queue_windows": windows, "queue_summary": queues.summarize_queues(windows)}


#: Makes the tables of runs of each intermediate table. The least width of windows is given, too.
_RUN_TABLE_MAKERS: dict[str, Callable[[pa.Table, int], dict[str, pa.Table]]] = {
    "_hours": _make_total_tables,
    "_intervals": lambda rows, _: {"dropouts": dropouts.find_dropouts(rows)},
    "_islands": lambda rows, _: {"sequence_gaps": islands.find_sequence_gaps(rows, EPOCH_KEY_COLUMNS)},
    "_key_islands": _make_overwrite_table,
    "_stages": lambda rows, _: {"stage_summary": stages.summarize_stages(rows)},
    "_edges": lambda rows, _: {"hops": hop_tables.compute_hops(rows)},
    "_queues": _make_queue_window_tables,
}
