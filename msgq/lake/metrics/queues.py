"""Deliveries of work queues, from the events of the queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.queue_events import EVENT_FIELDS, Event
from msgq.common.units import NS_PER_S
from msgq.decoding.queue_event_columns import read_event_heads
from msgq.lake.metrics import duration_stats
from msgq.lake.metrics.group_by import (
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)
from msgq.lake.metrics.saturating_time import MAX_TIME, compute_window_start, subtract_saturating
from msgq.lake.metrics.time_windows import HOUR_NS, choose_window_widths, is_message_of_kind
from msgq.workqueue.names import KIND as QUEUE

_EVENT_SOURCE_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", pa.string()),
    ("queue", pa.string()),
    ("epoch", pa.int64()),
    ("sequence", pa.int64()),
    ("publisher", pa.string()),
]
_NUMBER_TYPE, _TEXT_TYPE = pa.int64(), pa.string()
#: Fields of an event. sent_time is 0 if unknown.
QUEUE_EVENTS_SCHEMA = pa.schema([*_EVENT_SOURCE_COLUMNS, *((name, pa.int64()) for name, _ in EVENT_FIELDS)])

_QUEUE_KEY = ("run", "queue", "epoch")
_QUEUE_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", _TEXT_TYPE),
    ("queue", _TEXT_TYPE),
    ("epoch", _NUMBER_TYPE),
]
#: A delivery of a message, or a message that was never taken, or refused.
QUEUE_DELIVERIES_SCHEMA = pa.schema(
    [
        *_QUEUE_KEY_COLUMNS,
        *((name, _NUMBER_TYPE) for name in ("number", "deliveries")),
        ("priority", pa.int32()),
        *(
            (name, _NUMBER_TYPE)
            for name in (
                "size_bytes",
                "sent_time",
                "delivered_time",
                "queue_time_ns",
                "ended_time",
                "processing_time_ns",
            )
        ),
        ("outcome", _TEXT_TYPE),
        ("handle", pa.int32()),
        ("pid", _NUMBER_TYPE),
        ("publisher", _TEXT_TYPE),
    ]
)
QUEUE_DURATION_NAMES = ("queue_time", "processing_time")
QUEUE_PERCENTILE_RANKS = {"p50": 0.5, "p99": 0.99}
QUEUE_COUNT_COLUMNS = ("sent", "delivered", "acknowledged", "requeued", "rejected", "redelivered")
_DURATION_COLUMNS = [field for name in QUEUE_DURATION_NAMES for field in duration_stats.list_stats_columns(f"{name}_")]
_PERCENTILE_COLUMNS = [
    field
    for name in QUEUE_DURATION_NAMES
    for field in duration_stats.list_stats_columns(f"{name}_", QUEUE_PERCENTILE_RANKS)
]
_COUNT_FIELDS: list[tuple[str, pa.DataType]] = [(name, _NUMBER_TYPE) for name in QUEUE_COUNT_COLUMNS]
#: Sums of the events of a queue in one second. change: growth of the number of waiting messages.
QUEUE_AGGREGATES = pa.schema(
    [*_QUEUE_KEY_COLUMNS, ("window_start", _NUMBER_TYPE), *_COUNT_FIELDS, ("change", _NUMBER_TYPE), *_DURATION_COLUMNS]
)
QUEUE_WINDOWS_SCHEMA = pa.schema(
    [
        *_QUEUE_KEY_COLUMNS,
        ("window_start", _NUMBER_TYPE),
        ("window_ns", _NUMBER_TYPE),
        *_COUNT_FIELDS,
        ("backlog", _NUMBER_TYPE),
        *_PERCENTILE_COLUMNS,
    ]
)
QUEUE_SUMMARY_SCHEMA = pa.schema(
    [*_QUEUE_KEY_COLUMNS[:2], *_COUNT_FIELDS, ("backlog", _NUMBER_TYPE), *_PERCENTILE_COLUMNS]
)
#: Events that end or replace a delivery. If a delivery has several, the first of this list counts.
_DELIVERY_END_EVENTS = (Event.REFUSED, Event.ACKNOWLEDGED, Event.RECEIVED, Event.RETURNED)
OUTCOME_BY_EVENT = {
    Event.REFUSED: "rejected",
    Event.ACKNOWLEDGED: "acknowledged",
    Event.RECEIVED: "received",
    Event.RETURNED: "requeued",
}
_UNKNOWN_TIME_NS = MAX_TIME  # marks an unknown time


def make_queue_endpoint(queue: str) -> str:
    """Return the endpoint of a queue. `queue`: the name in the tables of queues."""
    return QUEUE.name_prefix + queue


def read_queue_events(messages: pa.Table) -> pa.Table:
    """Return the parsed events of queues: `QUEUE_EVENTS_SCHEMA`. An unknown sent_time is 0.

    Input: run, endpoint, epoch, sequence, publisher, kind, data. Messages that are not events are omitted.
    """
    is_queue = is_message_of_kind(messages, QUEUE.name)
    if not is_queue.any():
        return QUEUE_EVENTS_SCHEMA.empty_table()
    rows = np.flatnonzero(is_queue)
    whole, headers = read_event_heads(get_column(messages, "data").take(pa.array(rows)))
    columns = take_column_rows(messages, ["run", "endpoint", "epoch", "sequence", "publisher"], rows[whole])
    numbers = {name: headers[name].astype(np.int64) for name, _ in EVENT_FIELDS}
    sent = np.where(numbers["event"] == Event.SENT, numbers["publish_time"], 0)
    numbers["sent_time"] = np.where(numbers["sent_time"] > 0, numbers["sent_time"], sent)
    queue = pc.utf8_slice_codeunits(columns["endpoint"], len(QUEUE.name_prefix), np.iinfo(np.int32).max)
    return build_typed_table(QUEUE_EVENTS_SCHEMA, columns | numbers | {"queue": queue})


def compute_event_hours(events: pa.Table) -> IntegerArray:
    """Return the hour of each event. All events of a message belong to the hour in which the message was sent.

    A rejected message was never sent, so the time of its event counts. -1: unknown.
    """
    sent, happened = get_integer_column(events, "sent_time"), get_integer_column(events, "publish_time")
    refused = get_integer_column(events, "event") == Event.REFUSED
    return np.where(refused, happened // HOUR_NS, np.where(sent > 0, sent // HOUR_NS, -1))


def compute_queue_deliveries(events: pa.Table) -> pa.Table:
    """Return each delivery of each message: `QUEUE_DELIVERIES_SCHEMA`. Input: `QUEUE_EVENTS_SCHEMA`, in any order.

    For the columns, see `msgq.spark.tables.queue_deliveries`.
    """
    event, happened, sequence = (get_integer_column(events, name) for name in ("event", "publish_time", "sequence"))
    refused = event == Event.REFUSED
    keys: list[pa.Array | IntegerArray] = [get_column(events, name) for name in _QUEUE_KEY]
    # After a kill of a sender, a number can occur again with another time. Refused messages have no number.
    keys += [np.where(refused, -1, get_integer_column(events, "number")), get_integer_column(events, "sent_time")]
    keys += [np.where(refused, sequence, -1), np.where(refused, happened, -1)]
    groups = RowGroups(*keys, get_integer_column(events, "deliveries"))
    message = RowGroups(*keys).compute_group_ids()[groups.first_rows]
    deliveries = get_integer_column(events, "deliveries")[groups.first_rows]
    sent = get_integer_column(events, "sent_time")[groups.first_rows]
    ends = {end: _find_first_times(groups, happened, event == end) for end in _DELIVERY_END_EVENTS}
    before = get_integer_column(events, "taken_time")
    taken_at = [
        _find_first_times(groups, happened, event == Event.TAKEN),
        _find_first_times(groups, before, before > 0),
        ends[Event.RECEIVED],
    ]
    delivered_time, ended = _select_first_known_time(taken_at), _select_first_known_time(list(ends.values()))
    outcome = np.where(deliveries == 0, "pending", "in_flight")
    for end in reversed(_DELIVERY_END_EVENTS):
        outcome = np.where(ends[end] < _UNKNOWN_TIME_NS, OUTCOME_BY_EVENT[end], outcome)
    begun = _find_waiting_begins(message, deliveries, sent, ended)
    is_processed = np.isin(outcome, ("acknowledged", "requeued"))
    columns = {
        "number": pa.array(get_integer_column(events, "number")[groups.first_rows], mask=refused[groups.first_rows]),
        "deliveries": deliveries,
        "priority": groups.max_by_group(get_integer_column(events, "priority")),
        "size_bytes": groups.max_by_group(get_integer_column(events, "size")),
        "sent_time": pa.array(sent, mask=sent <= 0),
        "delivered_time": pa.array(delivered_time, mask=delivered_time == _UNKNOWN_TIME_NS),
        "queue_time_ns": pa.array(
            subtract_saturating(delivered_time, begun),
            mask=(delivered_time == _UNKNOWN_TIME_NS) | (begun == _UNKNOWN_TIME_NS),
        ),
        "ended_time": pa.array(ended, mask=ended == _UNKNOWN_TIME_NS),
        "processing_time_ns": pa.array(
            subtract_saturating(ended, delivered_time), mask=~is_processed | (delivered_time == _UNKNOWN_TIME_NS)
        ),
        "outcome": pa.array(outcome.tolist(), _TEXT_TYPE),
        **_take_consumer_columns(events, groups),
    }
    rows = build_typed_table(QUEUE_DELIVERIES_SCHEMA, take_column_rows(events, _QUEUE_KEY, groups.first_rows) | columns)
    was_taken = np.zeros(int(message.max(initial=-1)) + 1, np.bool_)
    was_taken[message[deliveries > 0]] = True
    return rows.filter(pa.array((deliveries > 0) | ~was_taken[message]))


def _find_first_times(
    groups: RowGroups, times: IntegerArray, is_selected: np.ndarray[Any, np.dtype[np.bool_]]
) -> IntegerArray:
    """Return the first selected time of each group."""
    return groups.min_by_group(np.where(is_selected, times, _UNKNOWN_TIME_NS))


def _find_waiting_begins(
    message: IntegerArray, deliveries: IntegerArray, sent: IntegerArray, ended: IntegerArray
) -> IntegerArray:
    """Return the time at which the waiting for each delivery began: the send, or the end of the previous delivery."""
    follows = (np.diff(message, prepend=-1) == 0) & (np.diff(deliveries, prepend=0) == 1)
    return np.where(
        deliveries == 1,
        np.where(sent > 0, sent, _UNKNOWN_TIME_NS),
        np.where(follows, np.roll(ended, 1), _UNKNOWN_TIME_NS),
    )


def _take_consumer_columns(events: pa.Table, groups: RowGroups) -> dict[str, pa.ChunkedArray]:
    """Return handle, pid and publisher of each delivery; null: only an event RETURNED is known.

    Another handle may return the message of a dead consumer. RETURNED therefore does not name the consumer.
    """
    event, sequence = get_integer_column(events, "event"), get_integer_column(events, "sequence")
    actor = groups.find_last_rows(np.where(event != Event.RETURNED, -sequence, -_UNKNOWN_TIME_NS))
    rows = pa.array(actor, mask=event[actor] == Event.RETURNED)
    return {name: get_column(events, name).take(rows) for name in ("handle", "pid", "publisher")}


def _select_first_known_time(times: list[IntegerArray]) -> IntegerArray:
    """Return the first known time of several columns."""
    earliest = times[-1]
    for candidates in reversed(times[:-1]):
        earliest = np.where(candidates < _UNKNOWN_TIME_NS, candidates, earliest)
    return earliest


def count_queue_events(work: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return the events of queues in windows of `width` ns: `QUEUE_AGGREGATES`.

    Input: `QUEUE_DELIVERIES_SCHEMA`, with all deliveries of each message.
    """
    outcome = get_column(work, "outcome")
    rejected, requeued = (np.asarray(pc.equal(outcome, name), np.bool_) for name in ("rejected", "requeued"))
    done = np.asarray(pc.is_in(outcome, pa.array(["acknowledged", "received"])), np.bool_)
    deliveries, ended = get_integer_column(work, "deliveries"), get_integer_column(work, "ended_time", _UNKNOWN_TIME_NS)
    sent, take_times = (
        get_integer_column(work, "sent_time", _UNKNOWN_TIME_NS),
        get_integer_column(work, "delivered_time", _UNKNOWN_TIME_NS),
    )
    taken_at = np.where(deliveries > 0, np.where(take_times < _UNKNOWN_TIME_NS, take_times, ended), _UNKNOWN_TIME_NS)
    keys = [get_column(work, name) for name in (*_QUEUE_KEY, "number")]
    message = RowGroups(*keys, sent, np.where(rejected, ended, -1)).compute_group_ids()
    order = np.lexsort((deliveries, message))
    first, following = np.zeros(len(order), np.bool_), np.full(len(order), _UNKNOWN_TIME_NS)
    begins = np.diff(message[order], prepend=-1) != 0
    first[order[begins]] = True
    following[order[:-1]] = np.where(begins[1:], _UNKNOWN_TIME_NS, taken_at[order[1:]])
    queue_time, processing_time = (
        get_integer_column(work, name, _UNKNOWN_TIME_NS) for name in ("queue_time_ns", "processing_time_ns")
    )
    points = _EventPoints(len(order))
    points.add_points(
        np.where(first & ~rejected, np.where(sent < _UNKNOWN_TIME_NS, sent, taken_at), _UNKNOWN_TIME_NS),
        sent=1,
        change=1,
    )
    points.add_points(
        taken_at, delivered=1, redelivered=(deliveries > 1).astype(np.int64), change=-1, queue_time=queue_time
    )
    points.add_points(np.where(done, ended, _UNKNOWN_TIME_NS), acknowledged=1, processing_time=processing_time)
    points.add_points(
        np.where(requeued, ended, _UNKNOWN_TIME_NS), requeued=1, change=1, processing_time=processing_time
    )
    points.add_points(np.where(rejected, ended, _UNKNOWN_TIME_NS), rejected=1)
    # The message was taken again, so it had returned to the queue, without an event.
    points.add_points(np.where(requeued, _UNKNOWN_TIME_NS, following), change=1)
    return points.sum_by_window(work, width)


class _EventPoints:
    """Events of rows of `QUEUE_DELIVERIES_SCHEMA`, with their times."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._point_columns: list[dict[str, IntegerArray]] = []

    def add_points(self, time: IntegerArray, **values: int | IntegerArray) -> None:
        """Add an event with a time for each row; `_UNKNOWN_TIME_NS`: the row has no such event."""
        rows = np.flatnonzero(time < _UNKNOWN_TIME_NS)
        every = (
            dict.fromkeys((*QUEUE_COUNT_COLUMNS, "change"), 0)
            | dict.fromkeys(QUEUE_DURATION_NAMES, _UNKNOWN_TIME_NS)
            | values
        )
        columns = {name: np.broadcast_to(value, (self._rows,))[rows].astype(np.int64) for name, value in every.items()}
        self._point_columns.append({"row_number": rows, "window_start": time[rows], **columns})

    def sum_by_window(self, work: pa.Table, width: int) -> pa.Table:
        """Return the sums in each window."""
        columns = {
            name: np.concatenate([points[name] for points in self._point_columns]) for name in self._point_columns[0]
        }
        rows = work.select(list(_QUEUE_KEY)).take(pa.array(columns["row_number"]))
        window = compute_window_start(columns["window_start"], width)
        groups = RowGroups(*(get_column(rows, name) for name in _QUEUE_KEY), window)
        sums: dict[str, pa.Array | IntegerArray] = {"window_start": window[groups.first_rows]}
        sums |= {name: groups.sum_by_group(columns[name]) for name in (*QUEUE_COUNT_COLUMNS, "change")}
        for name in QUEUE_DURATION_NAMES:
            sums |= duration_stats.compute_duration_stats(
                groups, columns[name], columns[name] < _UNKNOWN_TIME_NS, f"{name}_"
            )
        return build_typed_table(QUEUE_AGGREGATES, take_column_rows(rows, _QUEUE_KEY, groups.first_rows) | sums)


def compute_queue_windows(points: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return the events and backlogs of queues in each window: `QUEUE_WINDOWS_SCHEMA`.

    Input: `QUEUE_AGGREGATES` of whole runs, in windows of `width` ns. A window may have several rows.
    """
    groups = RowGroups(*(get_column(points, name) for name in (*_QUEUE_KEY, "window_start")))
    sums = _sum_window_groups(groups, points, (*_QUEUE_KEY, "window_start"))
    queues = RowGroups(*(get_column(sums, name) for name in _QUEUE_KEY))
    waits = np.cumsum(get_integer_column(sums, "change"))
    before = np.where(queues.first_rows > 0, waits[queues.first_rows - 1], 0) if len(sums) else waits
    backlog, widths = waits - before[queues.sorted_ids], np.full(len(sums), width)
    return _add_duration_percentiles(
        sums.append_column("backlog", pa.array(backlog)).append_column("window_ns", pa.array(widths)),
        QUEUE_WINDOWS_SCHEMA,
    )


def coarsen_queue_windows(windows: pa.Table, at_least: int = NS_PER_S) -> pa.Table:
    """Return wider windows for queues with few events: `QUEUE_WINDOWS_SCHEMA`. Input: the same."""
    happened = np.sum([get_integer_column(windows, name) for name in QUEUE_COUNT_COLUMNS], axis=0)
    width = choose_window_widths(windows.append_column("messages", pa.array(happened)), ("run", "queue"), at_least)
    time = get_integer_column(windows, "window_start")
    wide = windows.drop_columns(["window_start", "window_ns"]).append_column(
        "window_start", pa.array(compute_window_start(time, width))
    )
    wide = wide.append_column("window_ns", pa.array(width))
    keys = (*_QUEUE_KEY, "window_start", "window_ns")
    groups = RowGroups(*(get_column(wide, name) for name in keys))
    backlog = get_integer_column(wide, "backlog")[groups.find_last_rows(time)]
    return _add_duration_percentiles(
        _sum_window_groups(groups, wide, keys).append_column("backlog", pa.array(backlog)), QUEUE_WINDOWS_SCHEMA
    )


def summarize_queues(windows: pa.Table, *by: str) -> pa.Table:
    """Return `QUEUE_SUMMARY_SCHEMA` by run, queue and the columns `by`.

    Input: `QUEUE_WINDOWS_SCHEMA`.
    """
    keys = ("run", "queue", *by)
    groups = RowGroups(*(get_column(windows, name) for name in keys))
    newest = RowGroups(
        get_integer_column(windows, "window_start"), get_integer_column(windows, "epoch")
    ).compute_group_ids()
    backlog = get_integer_column(windows, "backlog")[groups.find_last_rows(newest)]
    sums = _sum_window_groups(groups, windows, keys).append_column("backlog", pa.array(backlog))
    fields = list(QUEUE_SUMMARY_SCHEMA)
    return _add_duration_percentiles(
        sums, pa.schema([*fields[:2], *(windows.schema.field(name) for name in by), *fields[2:]])
    )


def _sum_window_groups(groups: RowGroups, rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    counts = [name for name in (*QUEUE_COUNT_COLUMNS, "change") if name in rows.column_names]
    columns = take_column_rows(rows, keys, groups.first_rows) | {
        name: groups.sum_by_group(get_integer_column(rows, name)) for name in counts
    }
    for name in QUEUE_DURATION_NAMES:
        columns |= duration_stats.merge_duration_stats(groups, rows, f"{name}_")
    return pa.table(dict(columns))


def _add_duration_percentiles(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: Mapping[str, pa.Array] = {name: get_column(rows, name) for name in rows.column_names}
    percentiles = {
        key: values
        for name in QUEUE_DURATION_NAMES
        for key, values in duration_stats.compute_duration_percentiles(
            columns, QUEUE_PERCENTILE_RANKS, f"{name}_"
        ).items()
    }
    return build_typed_table(schema, dict(columns) | percentiles)
