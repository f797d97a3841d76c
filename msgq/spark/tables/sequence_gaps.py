"""Gaps: where messages are missing."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgq.lake.metrics import islands
from msgq.lake.metrics.partial_aggregates import compute_epoch_islands
from msgq.spark.tables.arrow_functions import map_arrow_groups, map_message_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_INPUT_COLUMNS = (*islands.EPOCH_KEY_COLUMNS, "sequence", "log_time", "kind", "lost_before", "lost_after")


def sequence_gaps(messages: DataFrame) -> DataFrame:
    """Return the places at which sequences jump.

    Input: run, endpoint, epoch, sequence, log_time, and where they are there kind, lost_before and lost_after.
    Duplicates and messages out of order make no gap. All publishers of a channel number together. State (kind
    "records") has no gaps: see `overwrites`.

    Output, a row for each gap: run, endpoint, epoch; previous_sequence, next_sequence: around it; lost: messages
    between them; from_time, to_time: log_time around it, ns. For losses before the first message of an epoch, or after
    its last one, both times are those of that message, and the sequence on the far side is of no message.

    The numbers of an epoch are unrolled first: a step of less than half a turn of the 32 bits goes on, a larger one is
    a step back. A gap that takes 2**31 numbers, with what is in the minutes around it, is not seen. Epoch 0 (a file
    that numbers no epochs) counts as one epoch, unless its sequence never leaves 0.
    """
    # Each piece of messages becomes its islands, blocks without a jump, wherever it is, so that no message is moved.
    islands_table = map_message_batches(
        messages, _INPUT_COLUMNS, compute_epoch_islands, islands.make_islands_schema(islands.EPOCH_KEY_COLUMNS)
    )
    function = partial(islands.find_sequence_gaps, keys=islands.EPOCH_KEY_COLUMNS)
    return map_arrow_groups(
        islands_table, islands.EPOCH_KEY_COLUMNS, function, islands.make_gaps_schema(islands.EPOCH_KEY_COLUMNS)
    )
