"""Work: what became of each message of a work queue, by what the queue's events tell."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from msgq.kinds import QUEUE
from msgq.lake.figures import work as arrow
from msgq.spark.tables.arrow import arrow_fields, of_keys, of_messages
from msgq.spark.tables.sources import kind
from msgq.spark.tables.windows import NS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS = ("run", "endpoint", "epoch", "sequence", "publisher", "kind", "data")
_QUEUE = ("run", "queue")


def work(messages: DataFrame) -> DataFrame:
    """Return each delivery of each message of work queues: when it was sent, taken, and done with.

    Input: messages; those of the kind "queue" count, which are events of queues. They may come in any order and twice,
    and each may be missing: what is told again by a later event is known by that. What is no event is left out.

    Output, a row for each time that a message was taken, and one for a message that was never taken, or was refused:
    run; queue: its name without the mark; epoch: of its events; number: of the message in its queue, NULL if it was
    refused; deliveries: the how manieth time, 0 if never; priority; size: bytes; sent_time; taken_time; waiting_ns:
    until it was taken, since it was sent or was returned; ended_time; service_ns: from taken until acknowledged or
    returned; outcome; row, pid, publisher: who took it; who sent it, where nobody did. Times are ns since the epoch.
    What nobody told is NULL.

    outcome is "acknowledged"; "received": taken and acknowledged in one; "returned"; "open": it was taken, and no end
    is known; "waiting": it was never taken; "refused": there was no room.
    """
    told = messages.where(kind(messages) == QUEUE.name)
    events = of_messages(told, _COLUMNS, arrow.events, arrow.EVENTS)
    # One shuffle serves the deliveries and the messages that they are of.
    return of_keys(events, (*_QUEUE, "epoch", "number", "sent_time"), arrow.work, arrow.WORK)


def work_windows(work: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return what became of the messages of each queue in each window of `window_ns` of the time when it happened.

    Input: `work` as the function of this name makes it. Output: run, queue, epoch; time: the window's beginning, ns;
    width: `window_ns`; sent; taken; acknowledged: those that were received among both; returned; refused; redelivered:
    taken not for the first time; backlog: messages that waited at the window's end, as far as anything tells of them;
    for each of waiting, of what was taken in the window, and service, of what ended in it: as `stages` has them. A
    window in which nothing happened has no row: the backlog is that of the last one.
    """
    points = partial(arrow.work_points, width=window_ns)
    found = of_keys(work, (*_QUEUE, "epoch", "number", "sent_time"), points, arrow.SPREADS)
    return of_keys(found, _QUEUE, partial(arrow.work_windows, width=window_ns), arrow.WINDOWS)


def work_totals(work_windows: DataFrame, *by: str) -> DataFrame:
    """Return the same of each run, queue, and what else is named, by adding, histograms among it.

    Input: what `work_windows` gives, perhaps with a coarser run, and more columns. Output: the same columns, without
    epoch, time and width; backlog is that of the last window.
    """
    fields = list(arrow.TOTALS)
    schema = pa.schema([*fields[:2], *arrow_fields(work_windows, by), *fields[2:]])
    return of_keys(work_windows, _QUEUE, partial(_totals, by=by), schema)


def _totals(windows: pa.Table, by: tuple[str, ...]) -> pa.Table:
    return arrow.work_totals(windows, *by)
