"""Gaps: where messages are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

_TURN = 1 << 32  # a sequence has 32 bits
_HALF = 1 << 31
_SPAN_NS = 60_000_000_000  # of log_time: 2**31 messages in a minute there will not be
_EPOCH = ("run", "endpoint", "epoch")
_PLACES = ("base", "base_time", "low", "low_time", "high", "high_time")
_ISLANDS = ", ".join(["run string, endpoint string, epoch long", *(f"{name} long" for name in _PLACES)])
_Integers = np.ndarray[Any, np.dtype[np.int64]]


def gaps(messages: DataFrame) -> DataFrame:
    """Return the places at which sequences jump.

    Input: run, endpoint, epoch, sequence, log_time. Duplicates and messages out of order make no gap.

    Output, a row for each gap: run, endpoint, epoch; before, after: the sequences around it; lost: messages between
    them; from_time, to_time: log_time around it, ns.

    The numbers of an epoch are unrolled first: a step of less than half a turn of the 32 bits goes on, a larger one is
    a step back. A gap that takes 2**31 numbers, with what is in the minutes around it, is not seen. Epoch 0 (a file
    that numbers no epochs) counts as one epoch, unless its sequence never leaves 0.

    Each batch of messages becomes its islands, stretches without a gap, wherever it is, so that no message is moved or
    sorted by Spark. What is between islands is a gap, if no island of another batch covers it.
    """
    whole = Window.partitionBy(*_EPOCH)
    recorded = whole.orderBy("base_time", "base")
    placed = (
        messages.select(*_EPOCH, "sequence", "log_time")
        .where(F.col("sequence").isNotNull() & F.col("log_time").isNotNull())
        .mapInArrow(_islands, _ISLANDS)
        .withColumn("step", _step("base", recorded))
        .withColumn("turned", F.first("base").over(recorded) + F.coalesce(F.sum("step").over(recorded), F.lit(0)))
        .withColumn("low", F.col("turned") + F.col("low"))
        .withColumn("end", F.struct((F.col("turned") + F.col("high")).alias("high"), "high_time"))
    )
    earlier = whole.orderBy("low", "low_time").rowsBetween(Window.unboundedPreceding, -1)
    found = placed.withColumn("former", F.max("end").over(earlier))
    return found.where(F.col("low") - F.col("former.high") > 1).select(
        *_EPOCH,
        F.pmod("former.high", F.lit(_TURN)).alias("before"),
        F.pmod("low", F.lit(_TURN)).alias("after"),
        (F.col("low") - F.col("former.high") - 1).alias("lost"),
        F.col("former.high_time").alias("from_time"),
        F.col("low_time").alias("to_time"),
    )


def _step(sequence: str, order: WindowSpec) -> Column:
    """Return how far a sequence went from the row before: less than half a turn forwards, else backwards."""
    step = F.pmod(F.col(sequence) - F.lag(sequence).over(order), F.lit(_TURN))
    return F.when(step < _HALF, step).otherwise(step - _TURN)


def _islands(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: give the stretches without a gap of each minute of an epoch in each batch.

    base, base_time : the sequence that came first in the minute, and when. low, high : the first and the last number of
    the stretch, counted from `base`; low_time, high_time: log_time of these.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        times, sequences = (np.asarray(batch.column(name), np.int64) for name in ("log_time", "sequence"))
        keys = [_codes(batch.column(name)) for name in _EPOCH] + [times // _SPAN_NS]
        order = np.lexsort((sequences, times, *reversed(keys)))
        begins = _begins([key[order] for key in keys])
        group = np.cumsum(begins) - 1
        first = order[begins]
        step = (np.diff(sequences[order], prepend=0) + _HALF) % _TURN - _HALF
        unrolled = np.cumsum(step)
        number = unrolled - unrolled[begins][group]
        counted = np.lexsort((times[order], number, group))
        order, number = order[counted], number[counted]
        begins |= np.diff(number, prepend=number[0]) > 1
        low = np.flatnonzero(begins)
        high = np.append(low[1:], len(order)) - 1
        base = first[group[low]]
        epochs = [batch.column(name).take(pa.array(base)) for name in _EPOCH]
        found = [sequences[base], times[base], number[low], times[order[low]], number[high], times[order[high]]]
        yield pa.RecordBatch.from_arrays([*epochs, *map(pa.array, found)], names=[*_EPOCH, *_PLACES])


def _codes(column: pa.Array) -> _Integers:
    """Return a number for each value, the same for the same."""
    return np.asarray(column.dictionary_encode("encode").indices, np.int64)


def _begins(keys: list[_Integers]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return where a row differs from the one before in one of the keys."""
    differs: np.ndarray[Any, np.dtype[np.bool_]] = np.any([np.diff(key, prepend=key[0] - 1) for key in keys], axis=0)
    return differs
