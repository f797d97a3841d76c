"""Work: what became of each message of a work queue, by what the queue's events tell."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.common.queue_events import EVENT_FIELDS, Event
from msgq.common.units import NS_PER_S
from msgq.decoding.queue_event_columns import read_event_heads
from msgq.lake.metrics import duration_stats
from msgq.lake.metrics.group_by import IntegerArray, RowGroups, build_table, column, integer_column, take_rows
from msgq.lake.metrics.saturating_time import MAX_TIME, saturating_subtract, window_begin
from msgq.lake.metrics.time_windows import HOUR_NS, choose_window_widths, is_of_kind
from msgq.workqueue.names import KIND as QUEUE

_EVENT_SOURCE_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", pa.string()),
    ("queue", pa.string()),
    ("epoch", pa.int64()),
    ("sequence", pa.int64()),
    ("publisher", pa.string()),
]
_NUMBER_TYPE, _TEXT_TYPE = pa.int64(), pa.string()
#: What an event says; sent_time is 0 where nobody told it.
EVENTS_SCHEMA = pa.schema([*_EVENT_SOURCE_COLUMNS, *((name, pa.int64()) for name, _ in EVENT_FIELDS)])

_QUEUE_KEY = ("run", "queue", "epoch")
_QUEUE_KEY_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("run", _TEXT_TYPE),
    ("queue", _TEXT_TYPE),
    ("epoch", _NUMBER_TYPE),
]
#: A delivery of a message, or a message that was never taken, or refused.
DELIVERIES_SCHEMA = pa.schema(
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
DURATION_NAMES = ("queue_time", "processing_time")
PERCENTILE_RANKS = {"p50": 0.5, "p99": 0.99}
COUNT_COLUMNS = ("sent", "delivered", "acknowledged", "requeued", "rejected", "redelivered")
_DURATION_COLUMNS = [field for name in DURATION_NAMES for field in duration_stats.stats_columns(f"{name}_")]
_PERCENTILE_COLUMNS = [
    field for name in DURATION_NAMES for field in duration_stats.stats_columns(f"{name}_", PERCENTILE_RANKS)
]
_COUNT_FIELDS: list[tuple[str, pa.DataType]] = [(name, _NUMBER_TYPE) for name in COUNT_COLUMNS]
#: What happened to a queue in a second, as it is added up. change: of the messages that wait.
QUEUE_AGGREGATES = pa.schema(
    [*_QUEUE_KEY_COLUMNS, ("window_start", _NUMBER_TYPE), *_COUNT_FIELDS, ("change", _NUMBER_TYPE), *_DURATION_COLUMNS]
)
WINDOWS_SCHEMA = pa.schema(
    [
        *_QUEUE_KEY_COLUMNS,
        ("window_start", _NUMBER_TYPE),
        ("window_ns", _NUMBER_TYPE),
        *_COUNT_FIELDS,
        ("backlog", _NUMBER_TYPE),
        *_PERCENTILE_COLUMNS,
    ]
)
SUMMARY_SCHEMA = pa.schema([*_QUEUE_KEY_COLUMNS[:2], *_COUNT_FIELDS, ("backlog", _NUMBER_TYPE), *_PERCENTILE_COLUMNS])
#: What ends a delivery, or takes its place. The first of these that is told counts.
_END_EVENTS = (Event.REFUSED, Event.ACKNOWLEDGED, Event.RECEIVED, Event.RETURNED)
OUTCOMES_BY_EVENT = {
    Event.REFUSED: "rejected",
    Event.ACKNOWLEDGED: "acknowledged",
    Event.RECEIVED: "received",
    Event.RETURNED: "requeued",
}
_UNKNOWN_TIME = MAX_TIME  # stands for a time that nobody told


def read_events(messages: pa.Table) -> pa.Table:
    """Return what events of queues say: `EVENTS_SCHEMA`; sent_time is 0 where nobody told it.

    Input: run, endpoint, epoch, sequence, publisher, kind, data. What is no event is left out.
    """
    is_queue = is_of_kind(messages, QUEUE.name)
    if not is_queue.any():
        return EVENTS_SCHEMA.empty_table()
    rows = np.flatnonzero(is_queue)
    whole, headers = read_event_heads(column(messages, "data").take(pa.array(rows)))
    made = take_rows(messages, ["run", "endpoint", "epoch", "sequence", "publisher"], rows[whole])
    numbers = {name: headers[name].astype(np.int64) for name, _ in EVENT_FIELDS}
    sent = np.where(numbers["event"] == Event.SENT, numbers["publish_time"], 0)
    numbers["sent_time"] = np.where(numbers["sent_time"] > 0, numbers["sent_time"], sent)
    queue = pc.utf8_slice_codeunits(made["endpoint"], len(QUEUE.name_prefix), np.iinfo(np.int32).max)
    return build_table(EVENTS_SCHEMA, made | numbers | {"queue": queue})


def event_hours(events: pa.Table) -> IntegerArray:
    """Return the hour to which each event belongs: all of one message to the one in which it was sent.

    One that was refused was never sent, and is known by its own time. -1: nobody told.
    """
    sent, happened = integer_column(events, "sent_time"), integer_column(events, "publish_time")
    refused = integer_column(events, "event") == Event.REFUSED
    return np.where(refused, happened // HOUR_NS, np.where(sent > 0, sent // HOUR_NS, -1))


def queue_deliveries(events: pa.Table) -> pa.Table:
    """Return each delivery of each message: `DELIVERIES_SCHEMA`. Input: `EVENTS_SCHEMA`, in any order.

    The columns are described in `msgq.spark.tables.queue_deliveries`.
    """
    event, happened, sequence = (integer_column(events, name) for name in ("event", "publish_time", "sequence"))
    refused = event == Event.REFUSED
    keys: list[pa.Array | IntegerArray] = [column(events, name) for name in _QUEUE_KEY]
    # A number may come again after a sender was killed, at another time. What was refused never got a number.
    keys += [np.where(refused, -1, integer_column(events, "number")), integer_column(events, "sent_time")]
    keys += [np.where(refused, sequence, -1), np.where(refused, happened, -1)]
    groups = RowGroups(*keys, integer_column(events, "deliveries"))
    message = RowGroups(*keys).group_ids()[groups.first_rows]
    deliveries, sent = (
        integer_column(events, "deliveries")[groups.first_rows],
        integer_column(events, "sent_time")[groups.first_rows],
    )
    ends = {end: groups.min(np.where(event == end, happened, _UNKNOWN_TIME)) for end in _END_EVENTS}
    before = integer_column(events, "taken_time")
    taken_at = [
        groups.min(np.where(event == Event.TAKEN, happened, _UNKNOWN_TIME)),
        groups.min(np.where(before > 0, before, _UNKNOWN_TIME)),
        ends[Event.RECEIVED],
    ]
    delivered_time, ended = _first_known_time(taken_at), _first_known_time(list(ends.values()))
    outcome = np.where(deliveries == 0, "pending", "in_flight")
    for end in reversed(_END_EVENTS):
        outcome = np.where(ends[end] < _UNKNOWN_TIME, OUTCOMES_BY_EVENT[end], outcome)
    follows = (np.diff(message, prepend=-1) == 0) & (np.diff(deliveries, prepend=0) == 1)
    begun = np.where(
        deliveries == 1, np.where(sent > 0, sent, _UNKNOWN_TIME), np.where(follows, np.roll(ended, 1), _UNKNOWN_TIME)
    )
    is_processed = np.isin(outcome, ("acknowledged", "requeued"))
    actor = groups.last_rows(np.where(event != Event.RETURNED, -sequence, -_UNKNOWN_TIME))
    nobody = event[actor] == Event.RETURNED  # who returned it may be another one: whoever found its taker dead
    made = {
        "number": pa.array(integer_column(events, "number")[groups.first_rows], mask=refused[groups.first_rows]),
        "deliveries": deliveries,
        "priority": groups.max(integer_column(events, "priority")),
        "size_bytes": groups.max(integer_column(events, "size")),
        "sent_time": pa.array(sent, mask=sent <= 0),
        "delivered_time": pa.array(delivered_time, mask=delivered_time == _UNKNOWN_TIME),
        "queue_time_ns": pa.array(
            saturating_subtract(delivered_time, begun),
            mask=(delivered_time == _UNKNOWN_TIME) | (begun == _UNKNOWN_TIME),
        ),
        "ended_time": pa.array(ended, mask=ended == _UNKNOWN_TIME),
        "processing_time_ns": pa.array(
            saturating_subtract(ended, delivered_time), mask=~is_processed | (delivered_time == _UNKNOWN_TIME)
        ),
        "outcome": pa.array(outcome.tolist(), _TEXT_TYPE),
        **{name: column(events, name).take(pa.array(actor, mask=nobody)) for name in ("handle", "pid", "publisher")},
    }
    rows = build_table(DELIVERIES_SCHEMA, take_rows(events, _QUEUE_KEY, groups.first_rows) | made)
    was_taken = np.zeros(int(message.max(initial=-1)) + 1, np.bool_)
    was_taken[message[deliveries > 0]] = True
    return rows.filter(pa.array((deliveries > 0) | ~was_taken[message]))


def _first_known_time(times: list[IntegerArray]) -> IntegerArray:
    """Return the first of several times that is known."""
    earliest = times[-1]
    for candidates in reversed(times[:-1]):
        earliest = np.where(candidates < _UNKNOWN_TIME, candidates, earliest)
    return earliest


def count_queue_events(work: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return the events of queues by windows of `width` ns: `QUEUE_AGGREGATES`.

    Input: `DELIVERIES_SCHEMA`, whole messages.
    """
    outcome = column(work, "outcome")
    rejected, requeued = (np.asarray(pc.equal(outcome, name), np.bool_) for name in ("rejected", "requeued"))
    done = np.asarray(pc.is_in(outcome, pa.array(["acknowledged", "received"])), np.bool_)
    deliveries, ended = integer_column(work, "deliveries"), integer_column(work, "ended_time", _UNKNOWN_TIME)
    sent, known = (
        integer_column(work, "sent_time", _UNKNOWN_TIME),
        integer_column(work, "delivered_time", _UNKNOWN_TIME),
    )
    taken_at = np.where(deliveries > 0, np.where(known < _UNKNOWN_TIME, known, ended), _UNKNOWN_TIME)
    keys = [column(work, name) for name in (*_QUEUE_KEY, "number")]
    message = RowGroups(*keys, sent, np.where(rejected, ended, -1)).group_ids()
    order = np.lexsort((deliveries, message))
    first, following = np.zeros(len(order), np.bool_), np.full(len(order), _UNKNOWN_TIME)
    begins = np.diff(message[order], prepend=-1) != 0
    first[order[begins]] = True
    following[order[:-1]] = np.where(begins[1:], _UNKNOWN_TIME, taken_at[order[1:]])
    queue_time, processing_time = (
        integer_column(work, name, _UNKNOWN_TIME) for name in ("queue_time_ns", "processing_time_ns")
    )
    points = _EventPoints(len(order))
    points.add(
        np.where(first & ~rejected, np.where(sent < _UNKNOWN_TIME, sent, taken_at), _UNKNOWN_TIME), sent=1, change=1
    )
    points.add(taken_at, delivered=1, redelivered=(deliveries > 1).astype(np.int64), change=-1, queue_time=queue_time)
    points.add(np.where(done, ended, _UNKNOWN_TIME), acknowledged=1, processing_time=processing_time)
    points.add(np.where(requeued, ended, _UNKNOWN_TIME), requeued=1, change=1, processing_time=processing_time)
    points.add(np.where(rejected, ended, _UNKNOWN_TIME), rejected=1)
    # It was taken again, so that it had come back, though nobody told.
    points.add(np.where(requeued, _UNKNOWN_TIME, following), change=1)
    return points.windows(work, width)


class _EventPoints:
    """What happened to rows of `DELIVERIES_SCHEMA`, and when."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._point_columns: list[dict[str, IntegerArray]] = []

    def add(self, time: IntegerArray, **values: int | IntegerArray) -> None:
        """Add what happened at a time of each row; `_UNKNOWN_TIME`: it did not."""
        rows = np.flatnonzero(time < _UNKNOWN_TIME)
        every = dict.fromkeys((*COUNT_COLUMNS, "change"), 0) | dict.fromkeys(DURATION_NAMES, _UNKNOWN_TIME) | values
        columns = {name: np.broadcast_to(value, (self._rows,))[rows].astype(np.int64) for name, value in every.items()}
        self._point_columns.append({"row_number": rows, "window_start": time[rows], **columns})

    def windows(self, work: pa.Table, width: int) -> pa.Table:
        """Return them by window."""
        columns = {
            name: np.concatenate([points[name] for points in self._point_columns]) for name in self._point_columns[0]
        }
        rows = work.select(list(_QUEUE_KEY)).take(pa.array(columns["row_number"]))
        window = window_begin(columns["window_start"], width)
        groups = RowGroups(*(column(rows, name) for name in _QUEUE_KEY), window)
        made: dict[str, pa.Array | IntegerArray] = {"window_start": window[groups.first_rows]}
        made |= {name: groups.sum(columns[name]) for name in (*COUNT_COLUMNS, "change")}
        for name in DURATION_NAMES:
            made |= duration_stats.compute_stats(groups, columns[name], columns[name] < _UNKNOWN_TIME, f"{name}_")
        return build_table(QUEUE_AGGREGATES, take_rows(rows, _QUEUE_KEY, groups.first_rows) | made)


def queue_windows(points: pa.Table, width: int = NS_PER_S) -> pa.Table:
    """Return what happened to queues in each window: `WINDOWS_SCHEMA`.

    Input: `QUEUE_AGGREGATES` of whole runs, in windows of `width` ns; several may be of one time.
    """
    groups = RowGroups(*(column(points, name) for name in (*_QUEUE_KEY, "window_start")))
    sums = _sum_groups(groups, points, (*_QUEUE_KEY, "window_start"))
    queues = RowGroups(*(column(sums, name) for name in _QUEUE_KEY))
    waits = np.cumsum(integer_column(sums, "change"))
    before = np.where(queues.first_rows > 0, waits[queues.first_rows - 1], 0) if len(sums) else waits
    backlog, widths = waits - before[queues.sorted_ids], np.full(len(sums), width)
    return _add_percentiles(
        sums.append_column("backlog", pa.array(backlog)).append_column("window_ns", pa.array(widths)), WINDOWS_SCHEMA
    )


def coarsen_windows(windows: pa.Table, at_least: int = NS_PER_S) -> pa.Table:
    """Return windows as wide as they need to be, by what happened: `WINDOWS_SCHEMA`. Input: the same."""
    happened = np.sum([integer_column(windows, name) for name in COUNT_COLUMNS], axis=0)
    width = choose_window_widths(windows.append_column("messages", pa.array(happened)), ("run", "queue"), at_least)
    time = integer_column(windows, "window_start")
    wide = windows.drop_columns(["window_start", "window_ns"]).append_column(
        "window_start", pa.array(window_begin(time, width))
    )
    wide = wide.append_column("window_ns", pa.array(width))
    keys = (*_QUEUE_KEY, "window_start", "window_ns")
    groups = RowGroups(*(column(wide, name) for name in keys))
    backlog = integer_column(wide, "backlog")[groups.last_rows(time)]
    return _add_percentiles(_sum_groups(groups, wide, keys).append_column("backlog", pa.array(backlog)), WINDOWS_SCHEMA)


def queue_summary(windows: pa.Table, *by: str) -> pa.Table:
    """Return the same of each run, queue, and what else is named: `SUMMARY_SCHEMA`. Input: `WINDOWS_SCHEMA`."""
    keys = ("run", "queue", *by)
    groups = RowGroups(*(column(windows, name) for name in keys))
    newest = RowGroups(integer_column(windows, "window_start"), integer_column(windows, "epoch")).group_ids()
    backlog = integer_column(windows, "backlog")[groups.last_rows(newest)]
    sums = _sum_groups(groups, windows, keys).append_column("backlog", pa.array(backlog))
    fields = list(SUMMARY_SCHEMA)
    return _add_percentiles(sums, pa.schema([*fields[:2], *(windows.schema.field(name) for name in by), *fields[2:]]))


def _sum_groups(groups: RowGroups, rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    counts = [name for name in (*COUNT_COLUMNS, "change") if name in rows.column_names]
    made = take_rows(rows, keys, groups.first_rows) | {name: groups.sum(integer_column(rows, name)) for name in counts}
    for name in DURATION_NAMES:
        made |= duration_stats.merge_stats(groups, rows, f"{name}_")
    return pa.table(dict(made))


def _add_percentiles(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    columns: Mapping[str, pa.Array] = {name: column(rows, name) for name in rows.column_names}
    made = {
        key: values
        for name in DURATION_NAMES
        for key, values in duration_stats.compute_percentiles(columns, PERCENTILE_RANKS, f"{name}_").items()
    }
    return build_table(schema, dict(columns) | made)
