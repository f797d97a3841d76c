"""Deliveries of work queues, from the events of the queues."""

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
    """Return each delivery of each message of work queues: times of sending, taking and end.

    Input: messages; only those of the kind "queue" count, which are events of queues. Events may be in any order,
    repeated or missing. A later event may repeat the values of a missing one. Messages that are not events are omitted.

    Output, a row for each delivery, and a row for each message that was never delivered or was rejected. Times are ns
    since the epoch, and unknown values are NULL:

    - run, queue: run, and bare name of the queue.
    - epoch: epoch of the queue's events.
    - number: number of the message in its queue; NULL if it was rejected.
    - deliveries: index of this delivery, from 1; 0: no delivery.
    - priority, size_bytes: of the message.
    - sent_time, delivered_time, ended_time: times of sending, delivery, and end.
    - queue_time_ns: time from sent or requeued until delivered.
    - processing_time_ns: time from delivered until acknowledged or requeued.
    - outcome: see below.
    - handle, pid, publisher: of the receiver, or of the sender if there is no receiver.

    Values of outcome:

    - "acknowledged": the consumer acknowledged the message.
    - "received": the message was delivered and acknowledged in one step.
    - "requeued": the message returned to the queue.
    - "in_flight": the message was delivered, and its end is unknown.
    - "pending": the message was never delivered.
    - "rejected": the queue was full.
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
    """Return the events of each queue in windows of `window_ns` of their time.

    Input: `queue_deliveries`, from the function of this name. A window without events has no row, and its backlog is
    that of the previous window.

    Output:

    - run, queue, epoch.
    - window_start, window_ns: start and length of the window, ns.
    - sent, requeued, rejected: number of these events.
    - delivered, acknowledged: number of these events, both including received messages.
    - redelivered: number of deliveries after the first one.
    - backlog: pending messages at the end of the window, according to the events.
    - queue_time: durations of deliveries in the window, with columns as in `stages`.
    - processing_time: durations of deliveries that ended in the window, with columns as in `stages`.
    """
    points = partial(arrow.count_queue_events, width=window_ns)
    points_table = map_arrow_groups(work, (*_QUEUE_KEY, "epoch", "number", "sent_time"), points, arrow.QUEUE_AGGREGATES)
    return map_arrow_groups(
        points_table, _QUEUE_KEY, partial(arrow.compute_queue_windows, width=window_ns), arrow.QUEUE_WINDOWS_SCHEMA
    )


def queue_summary(queue_windows: DataFrame, *by: str) -> DataFrame:
    """Return totals by run, queue, and the columns `by`, with added histograms.

    Input: result of `queue_windows`. You may make run coarser and add columns before. Output: the same columns, without
    epoch, window_start and window_ns. backlog is that of the last window.
    """
    fields = list(arrow.QUEUE_SUMMARY_SCHEMA)
    schema = pa.schema([*fields[:2], *list_arrow_fields(queue_windows, by), *fields[2:]])
    return map_arrow_groups(queue_windows, _QUEUE_KEY, partial(_summarize_queues, by=by), schema)


def _summarize_queues(windows: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.summarize_queues(windows, *by)
