"""Islands: blocks of consecutive sequences. A gap between islands means missing messages.

Sequences have 32 bits. A step of less than half of their range continues the numbering, a larger step is a step back.
Islands of parts can be joined to the islands of the whole, so each message is read only once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from msgq.common.units import NS_PER_S
from msgq.lake.metrics.group_by import (
    BooleanArray,
    IntegerArray,
    RowGroups,
    build_typed_table,
    get_column,
    get_integer_column,
    take_column_rows,
)

_SEQUENCE_MODULUS = 1 << 32  # a sequence has 32 bits
_HALF_SEQUENCE_MODULUS = 1 << 31
_MINUTE_NS = 60 * NS_PER_S  # step of log_time, in which there are never 2**31 messages
EPOCH_KEY_COLUMNS = ("run", "endpoint", "epoch")
STATE_KEY_COLUMNS = (*EPOCH_KEY_COLUMNS, "key", "index")
#: Columns of an island. base, base_time: sequence and time of the first message of the same minute, or of all joined
#: minutes; turned: distance from `base` to the base of the last minute; low, high: the first and the last number of the
#: block, counted from `base`; low_time, high_time: log_time of these.
_ISLAND_COLUMNS = ("base", "base_time", "turned", "low", "low_time", "high", "high_time")
_KEY_COLUMN_TYPES: dict[str, pa.DataType] = dict.fromkeys(("run", "endpoint", "key"), pa.string()) | dict.fromkeys(
    ("epoch", "index"), pa.int64()
)
_GAP_COLUMNS = ("previous_sequence", "next_sequence", "lost", "from_time", "to_time")


def make_islands_schema(keys: Sequence[str]) -> pa.Schema:
    """Return the columns of islands."""
    return pa.schema({name: _KEY_COLUMN_TYPES[name] for name in keys} | dict.fromkeys(_ISLAND_COLUMNS, pa.int64()))


def make_gaps_schema(keys: Sequence[str]) -> pa.Schema:
    """Return the columns of gaps."""
    return pa.schema({name: _KEY_COLUMN_TYPES[name] for name in keys} | dict.fromkeys(_GAP_COLUMNS, pa.int64()))


def find_sequence_islands(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the islands of `sequence` for each key and minute of log_time: `make_islands_schema`.

    Input: keys, sequence, log_time. The last two are never NULL. Fast if the rows are sorted by key and time.
    """
    if not len(rows):
        return make_islands_schema(keys).empty_table()
    times, sequences = get_integer_column(rows, "log_time"), get_integer_column(rows, "sequence")
    groups = RowGroups(*(get_column(rows, name) for name in keys), times // _MINUTE_NS)
    group, time, sequence = groups.sorted_ids, groups.sort_by_group(times), groups.sort_by_group(sequences)
    inside = np.diff(group, prepend=-1) == 0
    if (np.diff(time, prepend=0)[inside] < 0).any() or (
        np.diff(sequence, prepend=0)[inside & _is_equal_to_previous(time)] < 0
    ).any():
        order = np.lexsort((sequence, time, group))
        time, sequence = time[order], sequence[order]
    else:
        order = None
    unrolled = np.cumsum(np.where(inside, _compute_sequence_steps(sequence), 0))
    starts = np.flatnonzero(~inside)
    number = unrolled - unrolled[starts][group]
    base, base_time = sequence[starts], time[starts]
    if (np.diff(number, prepend=0)[inside] < 0).any():
        again = np.lexsort((time, number, group))
        number, time = number[again], time[again]
    begins = ~inside | (np.diff(number, prepend=0) > 1)
    low = np.flatnonzero(begins)
    high = np.append(low[1:], len(number)) - 1
    key_id = group[low]
    places = (
        base[key_id],
        base_time[key_id],
        np.zeros(len(low), np.int64),
        number[low],
        time[low],
        number[high],
        time[high],
    )
    kept = take_column_rows(rows, keys, groups.first_rows[key_id])
    return build_typed_table(make_islands_schema(keys), kept | dict(zip(_ISLAND_COLUMNS, places, strict=True)))


def _compute_sequence_steps(sequence: IntegerArray) -> IntegerArray:
    """Return the difference of each sequence from the previous one."""
    steps: IntegerArray = (
        (np.diff(sequence, prepend=0) + _HALF_SEQUENCE_MODULUS) & (_SEQUENCE_MODULUS - 1)
    ) - _HALF_SEQUENCE_MODULUS
    return steps


def _is_equal_to_previous(values: IntegerArray) -> BooleanArray:
    is_same: BooleanArray = np.diff(values, prepend=values[:1] - 1) == 0
    return is_same


class _SortedIslands(NamedTuple):
    """Islands of each key, sorted by sequence, with the previous island of each."""

    key_groups: RowGroups
    row_order: IntegerArray  # order of the rows
    first_sequence: IntegerArray  # sequence of each key's first message
    last_minute_distance: IntegerArray  # distance from there to the last minute's, of each key
    first_message_row: IntegerArray  # the row of each key in which its first message is
    low_sequence: IntegerArray
    high_sequence: IntegerArray
    farthest_end_row: IntegerArray  # the row, in `order`, that reaches farthest of those up to each one
    is_block_start: BooleanArray  # True if the row does not touch the previous rows


def _sort_islands(rows: pa.Table, keys: Sequence[str]) -> _SortedIslands:
    groups = RowGroups(*(get_column(rows, name) for name in keys))
    place = groups.sort_by_group(np.arange(len(rows)))
    bases, times, turns = (get_integer_column(rows, name)[place] for name in ("base", "base_time", "turned"))
    recorded = np.lexsort((bases, times, groups.sorted_ids))
    place, bases, times, turns = place[recorded], bases[recorded], times[recorded], turns[recorded]
    inside = np.diff(groups.sorted_ids, prepend=-1) == 0
    other = ~(inside & _is_equal_to_previous(bases) & _is_equal_to_previous(times))
    reached = np.roll(bases + turns, 1)  # end of the previous one
    step = (
        ((bases - reached + _HALF_SEQUENCE_MODULUS) & (_SEQUENCE_MODULUS - 1))
        - _HALF_SEQUENCE_MODULUS
        + np.roll(turns, 1)
    )
    unrolled = np.cumsum(np.where(inside & other, step, 0))
    starts = np.flatnonzero(~inside)
    shift = unrolled - unrolled[starts][groups.sorted_ids] + bases[starts][groups.sorted_ids]
    ends = np.append(starts[1:], len(place)) - 1 if len(starts) else starts
    turned = shift[ends] + turns[ends] - bases[starts]
    base = place[starts]
    low, high = shift + get_integer_column(rows, "low")[place], shift + get_integer_column(rows, "high")[place]
    low_time, high_time = get_integer_column(rows, "low_time")[place], get_integer_column(rows, "high_time")[place]
    order = np.lexsort((low_time, low, groups.sorted_ids))
    place, low, high, high_time = place[order], low[order], high[order], high_time[order]
    rank = np.empty(len(order), np.int64)
    by_rank = np.lexsort((high_time, high, groups.sorted_ids))
    rank[by_rank] = np.arange(len(order))
    until = by_rank[np.maximum.accumulate(rank)] if len(rank) else by_rank
    former = high[np.roll(until, 1)] if len(rank) else high
    begins = ~inside | (low - former > 1)
    return _SortedIslands(groups, place, bases[starts], turned, base, low, high, until, begins)


def join_sequence_islands(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the islands of the whole from the islands of parts: `make_islands_schema`."""
    islands = _sort_islands(rows, keys)
    low = np.flatnonzero(islands.is_block_start)
    high = islands.farthest_end_row[np.append(low[1:], len(islands.low_sequence)) - 1] if len(low) else low
    key_id = islands.key_groups.sorted_ids[low]
    places = [
        islands.first_sequence[key_id],
        get_integer_column(rows, "base_time")[islands.first_message_row[key_id]],
        islands.last_minute_distance[key_id],
        islands.low_sequence[low] - islands.first_sequence[key_id],
        get_integer_column(rows, "low_time")[islands.row_order[low]],
        islands.high_sequence[high] - islands.first_sequence[key_id],
        get_integer_column(rows, "high_time")[islands.row_order[high]],
    ]
    return build_typed_table(
        make_islands_schema(keys),
        take_column_rows(rows, keys, islands.first_message_row[key_id])
        | dict(zip(_ISLAND_COLUMNS, places, strict=True)),
    )


def find_sequence_gaps(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the gaps between islands: `make_gaps_schema`. Input: islands.

    `previous_sequence`, `next_sequence`: sequences before and after the gap. `lost`: number of missing sequences.
        from_time,
    `to_time`: log_time before and after, ns.
    """
    islands = _sort_islands(rows, keys)
    jumped = islands.is_block_start.copy()
    jumped[np.flatnonzero(np.diff(islands.key_groups.sorted_ids, prepend=-1))] = False
    after = np.flatnonzero(jumped)
    before = islands.farthest_end_row[after - 1]
    places = [
        islands.high_sequence[before] & (_SEQUENCE_MODULUS - 1),
        islands.low_sequence[after] & (_SEQUENCE_MODULUS - 1),
        islands.low_sequence[after] - islands.high_sequence[before] - 1,
        get_integer_column(rows, "high_time")[islands.row_order[before]],
        get_integer_column(rows, "low_time")[islands.row_order[after]],
    ]
    return build_typed_table(
        make_gaps_schema(keys),
        take_column_rows(rows, keys, islands.row_order[after]) | dict(zip(_GAP_COLUMNS, places, strict=True)),
    )
