"""Work: what became of each message of a work queue, by what the queue's events tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.decoding.events import event_heads
from msgq.kinds import QUEUE
from msgq.queue_events import FIELDS, HEAD_BYTES, Event
from msgq.spark.tables.sources import kind, said
from msgq.spark.tables.spreads import merged, spreads, with_percentiles
from msgq.spark.tables.windows import NS, window_start

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DURATIONS = ("waiting", "service")
_COUNTS = ("sent", "taken", "acknowledged", "returned", "refused", "redelivered")
_QUEUE = ("run", "queue", "epoch")
_ABOUT = ("run", "endpoint", "epoch", "sequence", "publisher")  # of the message that an event is
_NUMBERS = tuple(name for name, _ in FIELDS)
_EVENTS = "run string, endpoint string, epoch long, sequence long, publisher string, " + ", ".join(
    f"{name} long" for name in _NUMBERS
)
#: What ends a delivery, or takes its place. The first of these that is told counts.
_ENDS = (Event.REFUSED, Event.ACKNOWLEDGED, Event.RECEIVED, Event.RETURNED)
#: What makes a message of a queue the same one. A number may come again after a sender was killed, at another time.
#: `attempt`: of one that was refused, which never got a number.
_MESSAGE = (*_QUEUE, "number", "sent_time", "attempt")


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
    # One shuffle serves the deliveries and the messages that they are of.
    told = _events(messages).repartition(*_MESSAGE)
    whole = Window.partitionBy(*_MESSAGE)
    former = F.lag(F.struct("deliveries", "ended_time")).over(whole.orderBy("deliveries"))
    follows = F.col("former.deliveries") == F.col("deliveries") - 1
    since = F.when(F.col("deliveries") == 1, F.col("sent_time")).when(follows, F.col("former.ended_time"))
    was_taken = F.max("deliveries").over(whole) > 0
    known = _deliveries(told).withColumns({"former": former, "was_taken": was_taken})
    shown = known.where((F.col("deliveries") > 0) | ~F.col("was_taken"))
    has_service = F.col("outcome").isin("acknowledged", "returned")
    return shown.select(
        *_QUEUE,
        *("number", "deliveries", "priority", "size", "sent_time", "taken_time"),
        (F.col("taken_time") - since).alias("waiting_ns"),
        "ended_time",
        F.when(has_service, F.col("ended_time") - F.col("taken_time")).alias("service_ns"),
        "outcome",
        *(F.col(f"who.{name}").alias(name) for name in ("row", "pid", "publisher")),
    )


def _events(messages: DataFrame) -> DataFrame:
    """Return the heads of events: `_QUEUE`, sequence, publisher, the fields of a head, and `attempt`."""
    chosen = messages.where(kind(messages) == QUEUE.name).withColumn("publisher", said(messages, "publisher"))
    heads = chosen.select(*_ABOUT, F.expr(f"substring(data, 1, {HEAD_BYTES})").alias("head"))
    sent = F.when(F.col("sent_time") > 0, F.col("sent_time")).when(_is(Event.SENT), F.col("publish_time"))
    return heads.mapInArrow(_heads, _EVENTS).withColumns(
        {
            "queue": F.substring("endpoint", len(QUEUE.mark) + 1, 1 << 30),
            "number": F.when(~_is(Event.REFUSED), F.col("number")),
            "sent_time": sent,
            "attempt": F.when(_is(Event.REFUSED), F.struct("sequence", "publish_time")),
        }
    )


def _heads(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: read the heads of events, column by column."""
    for batch in batches:
        whole, heads = event_heads(batch.column("head"))
        about = batch.select(list(_ABOUT)).filter(pa.array(whole))
        numbers = [pa.array(heads[name].astype(np.int64)) for name in _NUMBERS]
        yield pa.RecordBatch.from_arrays([*about.columns, *numbers], names=[*_ABOUT, *_NUMBERS])


def _is(event: Event) -> Column:
    return F.col("event") == int(event)


def _deliveries(events: DataFrame) -> DataFrame:
    """Return what is told of each delivery, and of what was sent or refused as delivery 0; the same of events twice."""
    told = events.groupBy(*_MESSAGE, "deliveries").agg(
        F.max("priority").cast("int").alias("priority"),
        F.max("size").alias("size"),
        F.min(F.when(F.col("taken_time") > 0, F.col("taken_time"))).alias("taken_before"),
        _at(Event.TAKEN).alias("taken"),
        *(_at(event).alias(event.name.lower()) for event in _ENDS),
        # Who returned it may be another one: whoever found its taker dead.
        F.min_by(
            F.struct(F.col("row").cast("int").alias("row"), "pid", "publisher"),
            F.when(~_is(Event.RETURNED), F.col("sequence")),
        ).alias("who"),
    )
    names = [event.name.lower() for event in _ENDS]
    ends = [F.when(F.col(name).isNotNull(), name) for name in names]
    return told.withColumns(
        {
            "taken_time": F.coalesce("taken", "taken_before", "received"),
            "ended_time": F.coalesce(*names),
            "outcome": F.coalesce(*ends, F.when(F.col("deliveries") == 0, "waiting"), F.lit("open")),
        }
    )


def _at(event: Event) -> Column:
    """Return when an event happened."""
    return F.min(F.when(_is(event), F.col("publish_time")))


def work_windows(work: DataFrame, window_ns: int = NS) -> DataFrame:
    """Return what became of the messages of each queue in each window of `window_ns` of the time when it happened.

    Input: `work` as the function of this name makes it. Output: run, queue, epoch; time: the window's beginning, ns;
    sent; taken; acknowledged: those that were received among both; returned; refused; redelivered: taken not for the
    first time; backlog: messages that waited at the window's end, as far as anything tells of them; for each of
    waiting, of what was taken in the window, and service, of what ended in it: see `spreads`. A window in which nothing
    happened has no row: the backlog is that of the last one.
    """
    found = (
        _points(work)
        .groupBy(*_QUEUE, window_start("time", window_ns).alias("time"))
        .agg(*(F.sum(name).alias(name) for name in (*_COUNTS, "change")), *spreads(DURATIONS))
    )
    past = Window.partitionBy(*_QUEUE).orderBy("time").rowsBetween(Window.unboundedPreceding, 0)
    backlog = F.sum("change").over(past).alias("backlog")
    return found.select(*_QUEUE, "time", *_COUNTS, backlog, *with_percentiles(DURATIONS))


def work_totals(work_windows: DataFrame, *by: str) -> DataFrame:
    """Return the same of each run, queue, and what else is named, by adding, and by merging sketches.

    Input: what `work_windows` gives, perhaps with a coarser run, and more columns. Output: the same columns, without
    epoch and time; backlog is that of the last window.
    """
    found = work_windows.groupBy("run", "queue", *by).agg(
        *(F.sum(name).alias(name) for name in _COUNTS),
        F.max_by("backlog", F.struct("time", "epoch")).alias("backlog"),
        *merged(DURATIONS),
    )
    return found.select("run", "queue", *by, *_COUNTS, "backlog", *with_percentiles(DURATIONS))


def _points(work: DataFrame) -> DataFrame:
    """Return what happened when: `_QUEUE`, time, `_COUNTS`, change: of the messages that wait, waiting, service."""
    outcome, ended = F.col("outcome"), F.col("ended_time")
    is_refused, is_returned = outcome == "refused", outcome == "returned"
    is_done = outcome.isin("acknowledged", "received")
    # Those that were refused have no number: by their times no task has all of them.
    message = (*_QUEUE, "number", "sent_time", F.when(is_refused, ended))
    deliveries = Window.partitionBy(*message).orderBy("deliveries")
    taken = F.when(F.col("deliveries") > 0, F.coalesce("taken_time", ended))
    placed = work.withColumn("taken", taken).withColumns(
        {"is_first": F.row_number().over(deliveries) == 1, "next": F.lead("taken").over(deliveries)}
    )
    points = F.array(
        _point(F.when(F.col("is_first") & ~is_refused, F.coalesce("sent_time", "taken")), sent=1, change=1),
        _point(F.col("taken"), taken=1, redelivered=F.col("deliveries") > 1, change=-1, waiting=F.col("waiting_ns")),
        _point(F.when(is_done, ended), acknowledged=1, service=F.col("service_ns")),
        _point(F.when(is_returned, ended), returned=1, change=1, service=F.col("service_ns")),
        _point(F.when(is_refused, ended), refused=1),
        # It was taken again, so that it had come back, though nobody told.
        _point(F.when(~is_returned, F.col("next")), change=1),
    )
    return placed.select(*_QUEUE, F.explode(points).alias("point")).select(*_QUEUE, "point.*").dropna(subset=["time"])


def _point(time: Column, **values: Column | int) -> Column:
    """Return what happened at a time; NULL: it did not."""
    every = dict.fromkeys((*_COUNTS, "change"), 0) | dict.fromkeys(DURATIONS) | values
    return F.struct(time.alias("time"), *(F.lit(value).cast("long").alias(name) for name, value in every.items()))
