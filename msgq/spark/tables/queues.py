"""Work: what became of each message of a work queue, by what the queue's events tell."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from msgq.lake.metrics import queues as arrow
from msgq.spark.tables.arrow_functions import list_arrow_fields, map_arrow_groups, map_message_batches
from msgq.spark.tables.message_columns import make_kind_column
from msgq.spark.tables.time_windows import NS
from msgq.workqueue.names import KIND as QUEUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INPUT_COLUMNS = ("run", "endpoint", "epoch", "sequence", "publisher", "kind", "data")
_QUEUE_KEY = ("run", "queue")


def queue_deliveries(messages: DataFrame) -> DataFrame:
    """Return each delivery of each message of work queues: when it was sent, taken, and done with.

    Input: messages; those of the kind "queue" count, which are events of queues. They may come in any order and twice,
    and each may be missing: what is told again by a later event is known by that. What is no event is left out.

    Output, a row for each delivery, and one for a message that was never delivered, or was rejected: run; queue: its
    name without the prefix; epoch: of its events; number: of the message in its queue, NULL if it was rejected;
    deliveries: the index of this delivery, from 1; 0 without any; priority; size_bytes; sent_time; delivered_time;
    queue_time_ns: from sent or requeued until delivered; ended_time; processing_time_ns: from delivered until
    acknowledged or requeued; outcome; handle, pid, publisher: of the receiver; of the sender if there was none. Times
    are ns since the epoch. Unknown values are NULL.

    outcome is "acknowledged"; "received": delivered and acknowledged in one step; "requeued"; "in_flight": delivered,
    and no end is known; "pending": never delivered; "rejected": the queue was full.
    """
    queue_messages = messages.where(make_kind_column(messages) == QUEUE.name)
    events = map_message_batches(queue_messages, _INPUT_COLUMNS, arrow.read_queue_events, arrow.QUEUE_EVENTS_SCHEMA)
    # One shuffle serves the deliveries and the messages that they are of.
    return map_arrow_groups(
        events,
        (*_QUEUE_KEY, "epoch", "number", "sent_time"),
        arrow.compute_queue_deliveries,
        arrow.QUEUE_DELIVERIES_SCHEMA,
    )


def queue_windows(work: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return what became of the messages of each queue in each window of `window_ns` of the time when it happened.

    Input: `queue_deliveries` as the function of this name makes it. Output: run, queue, epoch; window_start: ns;
    window_ns: `window_ns`; sent; delivered; acknowledged: both include received messages; requeued; rejected;
    redelivered: delivered not for the first time; backlog: pending messages at the window's end, as far as events tell;
    queue_time of deliveries in the window and processing_time of those that ended in it: columns as in `stages`. A
    window without events has no row: the backlog is that of the last one.
    """
    points = partial(arrow.count_queue_events, width=window_ns)
    points_table = map_arrow_groups(work, (*_QUEUE_KEY, "epoch", "number", "sent_time"), points, arrow.QUEUE_AGGREGATES)
    return map_arrow_groups(
        points_table, _QUEUE_KEY, partial(arrow.compute_queue_windows, width=window_ns), arrow.QUEUE_WINDOWS_SCHEMA
    )


def queue_summary(queue_windows: DataFrame, *by: str) -> DataFrame:
    """Return the same of each run, queue, and what else is named, by adding, histograms among it.

    Input: what `queue_windows` gives, perhaps with a coarser run, and more columns. Output: the same columns, without
    epoch, window_start and window_ns; backlog is that of the last window.
    """
    fields = list(arrow.QUEUE_SUMMARY_SCHEMA)
    schema = pa.schema([*fields[:2], *list_arrow_fields(queue_windows, by), *fields[2:]])
    return map_arrow_groups(queue_windows, _QUEUE_KEY, partial(_summarize_queues, by=by), schema)


def _summarize_queues(windows: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.summarize_queues(windows, *by)
