"""Gaps: where messages are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Window
from pyspark.sql import functions as F

from msgq.spark.tables.sources import not_state

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.window import WindowSpec

_TURN = 1 << 32  # a sequence has 32 bits
_HALF = 1 << 31
_SPAN_NS = 60_000_000_000  # of log_time: 2**31 messages in a minute there will not be
_EPOCH = ("run", "endpoint", "epoch")
_PLACES = ("base", "base_time", "low", "low_time", "high", "high_time")
PLACES = ", ".join(f"{name} long" for name in _PLACES)  # what `islands` gives beside its keys
_Integers = np.ndarray[Any, np.dtype[np.int64]]


def gaps(messages: DataFrame) -> DataFrame:
    """Return the places at which sequences jump.

    Input: run, endpoint, epoch, sequence, log_time, and kind where it is there. Duplicates and messages out of order
    make no gap. All publishers of a channel number together. State (kind "records") has no gaps: see `overwrites`.

    Output, a row for each gap: run, endpoint, epoch; before, after: the sequences around it; lost: messages between
    them; from_time, to_time: log_time around it, ns.

    The numbers of an epoch are unrolled first: a step of less than half a turn of the 32 bits goes on, a larger one is
    a step back. A gap that takes 2**31 numbers, with what is in the minutes around it, is not seen. Epoch 0 (a file
    that numbers no epochs) counts as one epoch, unless its sequence never leaves 0.
    """
    numbered = not_state(messages).select(*_EPOCH, "sequence", "log_time").dropna(subset=["sequence", "log_time"])
    found = numbered.mapInArrow(
        lambda rows: islands(rows, _EPOCH), f"run string, endpoint string, epoch long, {PLACES}"
    )
    return jumps(found, _EPOCH)


def jumps(found: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the places at which the numbers of each key jump: the keys, and what `gaps` says of each.

    Input: what `islands` makes of the rows. Each batch of rows becomes its islands, stretches without a jump, wherever
    it is, so that no row is moved or sorted by Spark. What is between islands is a jump, if no island of another batch
    covers it.
    """
    whole = Window.partitionBy(*keys)
    recorded = whole.orderBy("base_time", "base")
    placed = (
        found.withColumn("step", _step("base", recorded))
        .withColumn("turned", F.first("base").over(recorded) + F.coalesce(F.sum("step").over(recorded), F.lit(0)))
        .withColumn("low", F.col("turned") + F.col("low"))
        .withColumn("end", F.struct((F.col("turned") + F.col("high")).alias("high"), "high_time"))
    )
    earlier = whole.orderBy("low", "low_time").rowsBetween(Window.unboundedPreceding, -1)
    covered = placed.withColumn("former", F.max("end").over(earlier))
    return covered.where(F.col("low") - F.col("former.high") > 1).select(
        *keys,
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


def islands(batches: Iterable[pa.RecordBatch], of: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """On a worker: give the stretches without a jump of `sequence` of each minute of a key in each batch.

    of : the columns that make a key. base, base_time : the sequence that came first in the minute, and when.
    low, high : the first and the last number of the stretch, counted from `base`; low_time, high_time: log_time of
    these.
    """
    for batch in batches:
        if not batch.num_rows:
            continue
        times, sequences = (np.asarray(batch.column(name), np.int64) for name in ("log_time", "sequence"))
        keys = [_codes(batch.column(name)) for name in of] + [times // _SPAN_NS]
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
        kept = [batch.column(name).take(pa.array(base)) for name in of]
        found = [sequences[base], times[base], number[low], times[order[low]], number[high], times[order[high]]]
        yield pa.RecordBatch.from_arrays([*kept, *map(pa.array, found)], names=[*of, *_PLACES])


def _codes(column: pa.Array) -> _Integers:
    """Return a number for each value, the same for the same."""
    return np.asarray(column.dictionary_encode("encode").indices, np.int64)


def _begins(keys: list[_Integers]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return where a row differs from the one before in one of the keys."""
    differs: np.ndarray[Any, np.dtype[np.bool_]] = np.any([np.diff(key, prepend=key[0] - 1) for key in keys], axis=0)
    return differs
