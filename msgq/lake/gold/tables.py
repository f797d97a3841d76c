"""The tables of gold, made of partial aggregates hour by hour, and then of whole runs.

Tables whose names begin with _ are between the two: of each hour what the totals of its run need, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

from msgq.lake.metrics import dropouts, endpoints, islands, partial_aggregates, queues, stages, windows
from msgq.lake.metrics import hops as hop_tables
from msgq.lake.metrics.checks import CHECKS, CheckThresholds, checks
from msgq.lake.metrics.islands import EPOCH_KEY, STATE_KEY

#: The columns of the tables that are made of each hour.
HOURLY: dict[str, pa.Schema] = {
    "traffic_windows": windows.WINDOWS,
    "throughput": windows.THROUGHPUT,
    "latency": windows.LATENCY,
    "stages": stages.STAGES,
    "frames": partial_aggregates.FRAMES,
    "queue_deliveries": queues.DELIVERIES,
    "_hours": windows.WINDOWS,
    "_intervals": dropouts.INTERVALS,
    "_islands": islands.schema(EPOCH_KEY),
    "_key_islands": islands.schema(STATE_KEY),
    "_stages": stages.STAGE_AGGREGATES,
    "_edges": hop_tables.EDGES,
    "_queues": queues.QUEUE_AGGREGATES,
}
_OVERWRITES = islands.gaps_schema(STATE_KEY)
#: The columns of the tables that are made of each run.
TOTALS: dict[str, pa.Schema] = {
    "sequence_gaps": islands.gaps_schema(EPOCH_KEY),
    "overwrites": _OVERWRITES.set(
        _OVERWRITES.get_field_index("lost"), _OVERWRITES.field("lost").with_name("overwritten")
    ),
    "endpoints": endpoints.ENDPOINTS,
    "publishers": endpoints.PUBLISHERS,
    "dropouts": dropouts.DROPOUTS,
    "latency_summary": pa.schema(
        [field for field in windows.LATENCY if field.name not in ("window_start", "window_ns")]
    ),
    "hops": hop_tables.HOPS,
    "stage_summary": stages.TOTALS,
    "queue_windows": queues.WINDOWS,
    "queue_summary": queues.TOTALS,
    "checks": CHECKS,
}


def hourly_tables(aggregates: Mapping[str, pa.Table], at_least: int) -> dict[str, pa.Table]:
    """Return the tables `HOURLY` of an hour of a run.

    Parameters
    ----------
    aggregates : what `compute_aggregates` made of all its messages; and `origins`: run, endpoint, publish_time and
        origin_time of those whose origin_time is in the hour.
    at_least : the least width of windows, ns.
    """
    made = {name: schema.empty_table() for name, schema in HOURLY.items()}
    for name, make in _MADE.items():
        if aggregates[name].num_rows:  # of most there is nothing, and hours are many
            made |= make(aggregates[name], at_least)
    return made


def _of_windows(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    base = windows.merge_windows(rows)
    wide = windows.coarsen_windows(base, at_least)
    return {
        "traffic_windows": wide,
        "throughput": windows.throughput(wide),
        "latency": windows.latency(wide),
        "_hours": windows.merge_windows(base, windows.HOUR),
        "_intervals": dropouts.message_intervals(base),
    }


def _of_stages(rows: pa.Table, at_least: int) -> dict[str, pa.Table]:
    said = stages.merge_windows(rows)
    return {"stages": stages.coarsen_windows(said, at_least), "_stages": stages.merge_windows(said, windows.HOUR)}


def _of_events(rows: pa.Table, _: int) -> dict[str, pa.Table]:
    done = queues.queue_deliveries(rows)
    return {"queue_deliveries": done, "_queues": queues.queue_points(done)}


#: Makes the tables of an hour of each partial aggregate. The least width of windows is given, too.
_MADE: dict[str, Callable[[pa.Table, int], dict[str, pa.Table]]] = {
    "traffic_windows": _of_windows,
    "islands": lambda rows, _: {"_islands": islands.join_islands(rows, EPOCH_KEY)},
    "key_islands": lambda rows, _: {"_key_islands": islands.join_islands(rows, STATE_KEY)},
    "stages": _of_stages,
    "events": _of_events,
    "frames": lambda rows, _: {"frames": rows},
    "origins": lambda rows, _: {"_edges": hop_tables.edges(rows)},
}


def run_tables(aggregates: Mapping[str, pa.Table], at_least: int, thresholds: CheckThresholds) -> dict[str, pa.Table]:
    """Return the tables `TOTALS` of whole runs.

    Parameters
    ----------
    aggregates : those of `HOURLY` whose names begin with _, of all hours.
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
        "overwrites": cells.rename_columns(TOTALS["overwrites"].names),
        "endpoints": endpoints.endpoints(aggregates["_hours"], gaps, cells),
        "publishers": endpoints.publishers(aggregates["_hours"]),
        "dropouts": dropouts.find_dropouts(aggregates["_intervals"]),
        "latency_summary": windows.latency_by(aggregates["_hours"]),
        "hops": hop_tables.hops(aggregates["_edges"]),
        "stage_summary": stages.stage_summary(aggregates["_stages"]),
        "queue_windows": queue_windows,
        "queue_summary": queues.queue_summary(queue_windows),
    }
    return made | {"checks": checks(made, thresholds)}
