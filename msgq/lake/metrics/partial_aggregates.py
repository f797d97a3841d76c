"""Partial aggregates of messages, from which the gold tables are built. The writer of the messages computes them.

A worker that writes a bronze file calls `compute_aggregates` for each of its row groups. The worker writes the result
to the tables `aggregates/VERSION/NAME`, with `bronze_file` as an additional column. All rows can be computed again from
bronze.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.decoding.fixed_headers import read_fixed_headers
from msgq.kinds import Kind, list_kinds
from msgq.lake.metrics import islands
from msgq.lake.metrics.group_by import (
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)
from msgq.lake.metrics.queues import QUEUE_EVENTS_SCHEMA, compute_event_hours, read_queue_events
from msgq.lake.metrics.stages import STAGE_AGGREGATES, compute_stage_windows
from msgq.lake.metrics.time_windows import (
    HOUR_NS,
    TRAFFIC_WINDOWS_SCHEMA,
    compute_traffic_windows,
    is_message_of_kind,
    is_value_change,
)

_SEQUENCE_MODULUS = 1 << 32
_BOUNDARY_LOSS_MAX = (1 << 30) - 2  # messages lost at an end; both ends of one message are less than half a turn apart
FRAMES_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "endpoint")),
        *((name, pa.int64()) for name in ("epoch", "sequence", "log_time")),
        ("format", pa.string()),
        ("size_bytes", pa.int64()),
    ]
)
#: Hours since the epoch that the log_time of messages does not tell; `about` is "origins": those in which origins of
#: messages were; or "events": those in which messages of queues were sent whose events these are.
HOURS_SCHEMA = pa.schema([("about", pa.string()), ("run", pa.string()), ("hour", pa.int64())])
#: Version of the tables of `compute_aggregates`: with another number, all are computed again.
AGGREGATES_VERSION = 1
#: The tables that `compute_aggregates` makes, and their columns, without `bronze_file`.
AGGREGATE_SCHEMAS: dict[str, pa.Schema] = {
    "traffic_windows": TRAFFIC_WINDOWS_SCHEMA,
    "islands": islands.make_islands_schema(islands.EPOCH_KEY_COLUMNS),
    "key_islands": islands.make_islands_schema(islands.STATE_KEY_COLUMNS),
    "stages": STAGE_AGGREGATES,
    "events": QUEUE_EVENTS_SCHEMA,
    "frames": FRAMES_SCHEMA,
    "hours": HOURS_SCHEMA,
}


def compute_aggregates(rows: pa.Table) -> dict[str, pa.Table]:
    """Return the tables `AGGREGATE_SCHEMAS` of messages. Tables without data have no rows.

    Args:
        rows: messages as in a bronze file. log_time and sequence are never NULL. Fast if sorted by run, endpoint, epoch
            and log_time, with texts as dictionaries.
    """
    table_makers: dict[str, Callable[[pa.Table], pa.Table]] = {
        "traffic_windows": compute_traffic_windows,
        "islands": compute_epoch_islands,
        "key_islands": compute_state_islands,
        "stages": compute_stage_windows,
        "events": read_queue_events,
        "frames": find_frames,
    }
    aggregates = {name: make(rows) for name, make in table_makers.items()}
    return aggregates | {"hours": _find_other_hours(rows, aggregates["events"])}


def compute_epoch_islands(rows: pa.Table) -> pa.Table:
    """Return the islands of each epoch, except for state.

    Input: run, endpoint, epoch, sequence, log_time, kind, and optionally lost_before and lost_after.
    """
    is_state = is_value_change(rows)
    messages = rows.filter(pa.array(~is_state)) if is_state.any() else rows
    return islands.find_sequence_islands(_add_boundary_losses(messages), islands.EPOCH_KEY_COLUMNS)


def _add_boundary_losses(rows: pa.Table) -> pa.Table:
    """Add a row for losses before the first or after the last message, so that they appear as a gap.

    A gap has at most `_BOUNDARY_LOSS_MAX` losses, because islands cannot detect a step of half of the range.
    """
    numbered = rows.select([*islands.EPOCH_KEY_COLUMNS, "sequence", "log_time"])
    ends = [numbered]
    for name, direction in (("lost_before", -1), ("lost_after", 1)):
        if name in rows.column_names and get_column(rows, name).null_count < len(rows):
            lost = np.minimum(get_integer_column(rows, name), _BOUNDARY_LOSS_MAX)
            far = (get_integer_column(rows, "sequence") + direction * (lost + 1)) % _SEQUENCE_MODULUS
            ended = numbered.set_column(numbered.schema.get_field_index("sequence"), "sequence", pa.array(far))
            ends.append(ended.filter(pa.array(lost > 0)))
    return pa.concat_tables(ends) if len(ends) > 1 else numbered


def compute_state_islands(rows: pa.Table) -> pa.Table:
    """Return the islands of each element and each key, for kinds that keep values.

    Input: run, endpoint, epoch, sequence, log_time, kind, key, data. Changes without a key that are shorter than the
    header of their kind are omitted.
    """
    columns = [*islands.EPOCH_KEY_COLUMNS, "key", "sequence", "log_time", "data"]
    changes = [
        _number_value_changes(rows.select(columns).filter(pa.array(is_kind)), kind)
        for kind in list_kinds()
        if kind.keeps_values and (is_kind := is_message_of_kind(rows, kind.name)).any()
    ]
    if not changes:
        return AGGREGATE_SCHEMAS["key_islands"].empty_table()
    return islands.find_sequence_islands(pa.concat_tables(changes), islands.STATE_KEY_COLUMNS)


def _number_value_changes(changes: pa.Table, kind: Kind) -> pa.Table:
    """Return changes with their `index` (NULL for changes with a key), and the number of the change as `sequence`."""
    has_key = np.asarray(get_column(changes, "key").is_valid())
    has_header, index, count = np.zeros(len(changes), np.bool_), *np.zeros((2, len(changes)), np.int64)
    if kind.change_header:
        header_type = np.dtype(list(kind.change_header))
        prefixes = pc.binary_slice(get_column(changes, "data"), 0, header_type.itemsize)
        has_header, headers = read_fixed_headers(prefixes, header_type)
        index[has_header], count[has_header] = headers["index"], headers["count"] % _SEQUENCE_MODULUS
    sequence = np.where(has_key, get_integer_column(changes, "sequence"), count)
    numbered = changes.drop_columns(["sequence", "data"]).append_column("index", pa.array(index, mask=has_key))
    return numbered.append_column("sequence", pa.array(sequence)).filter(pa.array(has_key | has_header))


def find_frames(rows: pa.Table) -> pa.Table:
    """Return references to the messages that are pictures.

    Input: the columns of `FRAMES_SCHEMA`, with picture for format.
    """
    indexes = np.flatnonzero(np.asarray(get_column(rows, "picture").is_valid()))
    if not len(indexes):
        return FRAMES_SCHEMA.empty_table()
    columns = take_column_rows(rows, [*(name for name in FRAMES_SCHEMA.names if name != "format"), "picture"], indexes)
    return build_typed_table(FRAMES_SCHEMA, columns | {"format": columns["picture"]})


def _find_other_hours(rows: pa.Table, events: pa.Table) -> pa.Table:
    tables = [HOURS_SCHEMA.empty_table()]
    origin = get_column(rows, "origin_time")
    if origin.null_count < len(origin) and (has_origin := get_integer_column(rows, "origin_time") > 0).any():
        chosen = rows.select(["run", "origin_time"]).filter(pa.array(has_origin))
        tables.append(_make_hour_rows("origins", chosen, get_integer_column(chosen, "origin_time") // HOUR_NS))
    if len(events):
        tables.append(_make_hour_rows("events", events, compute_event_hours(events)))
    return pa.concat_tables(tables)


def _make_hour_rows(about: str, rows: pa.Table, hour: IntegerArray) -> pa.Table:
    groups = RowGroups(get_column(rows, "run"), hour)
    named = {"about": pa.array([about] * groups.count, pa.string()), "hour": hour[groups.first_rows]}
    return build_typed_table(HOURS_SCHEMA, take_column_rows(rows, ["run"], groups.first_rows) | named)
