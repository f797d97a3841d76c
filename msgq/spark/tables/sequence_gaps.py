"""Gaps in sequences: missing messages."""

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
    """Return the gaps in the sequences.

    Input: run, endpoint, epoch, sequence, log_time, and optionally kind, lost_before and lost_after. Duplicates and
    messages out of order make no gap. All publishers of a channel share a numbering. State (kind "records") has no
    gaps: see `overwrites`.

    Output, a row for each gap: run, endpoint, epoch; previous_sequence, next_sequence: sequences before and after the
    gap; lost: number of messages between them; from_time, to_time: log_time before and after, ns. For losses before the
    first message of an epoch, or after its last one, both times are those of that message, and one sequence is of no
    message.

    Sequences have 32 bits. A step of less than half of their range continues the numbering, a larger step is a step
    back. A gap of 2**31 numbers or more, counted with the messages of the minutes around it, is not detected. Epoch 0
    (a file without epochs) counts as one epoch, unless all its sequences are 0.
    """
    # Each piece of messages becomes its islands, blocks without a jump, wherever it is, so that no message is moved.
    islands_table = map_message_batches(
        messages, _INPUT_COLUMNS, compute_epoch_islands, islands.make_islands_schema(islands.EPOCH_KEY_COLUMNS)
    )
    function = partial(islands.find_sequence_gaps, keys=islands.EPOCH_KEY_COLUMNS)
    return map_arrow_groups(
        islands_table, islands.EPOCH_KEY_COLUMNS, function, islands.make_gaps_schema(islands.EPOCH_KEY_COLUMNS)
    )
