"""Overwrites: where values of state took the place of others before anybody recorded these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from msgq.decoding.heads import heads
from msgq.spark.tables.gaps import PLACES, islands, jumps
from msgq.spark.tables.sources import said, state

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How the message of a vector's change begins; its publish_time and value follow.
_CHANGE = np.dtype([("index", "<u4"), ("count", "<u8")])
_CELL = ("run", "endpoint", "epoch", "key", "index")
_TURN = 1 << 32


def overwrites(messages: DataFrame) -> DataFrame:
    """Return the places at which values of vectors and boards were overwritten before they were recorded.

    Input: messages; those of the kind "records" count. A change of a vector says its index, and the how manieth of this
    index it is; one of a board says that by its sequence, in an epoch for each key. Duplicates, and changes out of
    order, overwrite nothing; what was there before the first change that was recorded is not known.

    Output, a row for each place: run, endpoint, epoch; key: of a board, else NULL; index: of a vector, else NULL;
    before, after: the counts around it, of which there are 32 bits; overwritten: values between them; from_time,
    to_time: log_time around it, ns.
    """
    known = state(messages).withColumns({"key": said(messages, "key"), "head": F.expr("substring(data, 1, 12)")})
    numbered = known.select("run", "endpoint", "epoch", "key", "sequence", "log_time", "head")
    schema = f"run string, endpoint string, epoch long, key string, index long, {PLACES}"
    found = numbered.dropna(subset=["sequence", "log_time"]).mapInArrow(_cells, schema)
    return jumps(found, _CELL).withColumnRenamed("lost", "overwritten")


def _cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On a worker: give the islands of each index and key."""
    yield from islands((_counted(batch) for batch in batches), _CELL)


def _counted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return changes with the index and count of those of vectors; those of vectors that are too short are left out."""
    is_board = np.asarray(batch.column("key").is_valid())
    whole, changes = heads(batch.column("head"), _CHANGE)
    index, count = np.zeros((2, len(batch)), np.int64)
    index[whole], count[whole] = changes["index"], changes["count"] % _TURN
    sequence = np.where(is_board, np.asarray(batch.column("sequence")), count)
    columns = [batch.column(name) for name in ("run", "endpoint", "epoch", "key")]
    columns += [pa.array(index, mask=is_board), pa.array(sequence), batch.column("log_time")]
    made = pa.RecordBatch.from_arrays(columns, names=(*_CELL, "sequence", "log_time"))
    return made.filter(pa.array(is_board | whole))
