"""Overwrites: values of state that were replaced before they were recorded."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgq.lake.metrics import islands
from msgq.lake.metrics.partial_aggregates import compute_state_islands
from msgq.spark.tables.arrow_functions import map_arrow_groups, map_message_batches
from msgq.spark.tables.message_columns import select_state_messages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INPUT_COLUMNS = (*islands.EPOCH_KEY_COLUMNS, "key", "sequence", "log_time", "kind", "data")


def overwrites(messages: DataFrame) -> DataFrame:
    """Return the places at which values of vectors and boards were overwritten before they were recorded.

    Input: messages; only those of the kind "records" count. A change of a vector has its index, and the number of
    writes of this index. For a board, the sequence is the number of writes, in a separate epoch for each key.
    Duplicates, and changes out of order, count no overwrites. Overwrites before the first recorded change are unknown.

    Output, a row for each place:

    - run, endpoint, epoch.
    - key: key of a board, else NULL.
    - index: index of a vector's element, else NULL.
    - previous_sequence, next_sequence: write numbers before and after the place, 32 bits.
    - overwritten: number of values between the two writes.
    - from_time, to_time: log_time of the two writes, ns.
    """
    state_rows = map_message_batches(
        select_state_messages(messages),
        _INPUT_COLUMNS,
        compute_state_islands,
        islands.make_islands_schema(islands.STATE_KEY_COLUMNS),
    )
    function = partial(islands.find_sequence_gaps, keys=islands.STATE_KEY_COLUMNS)
    jumps = map_arrow_groups(
        state_rows, islands.STATE_KEY_COLUMNS, function, islands.make_gaps_schema(islands.STATE_KEY_COLUMNS)
    )
    return jumps.withColumnRenamed("lost", "overwritten")
