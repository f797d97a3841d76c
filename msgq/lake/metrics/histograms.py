"""Histograms of durations whose counts can be added: logarithmic buckets, 16 for each factor of 2.

The bucket of a duration of d ns is ``sign(d) * (1 + floor(16 * log2(abs(d))))``, and 0 for 0 ns. A histogram is the
sorted list of non-empty buckets with their counts: `HISTOGRAM_TYPE`. To merge histograms, the counts of each bucket are
added, so ranks stay exact. A percentile is the middle of its bucket, ``sign(bucket) * 2 ** ((abs(bucket) - 0.5) /
16)``. A percentile is at most 2.2 % off, and always between the minimum and the maximum duration.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from msgq.lake.metrics.group_by import IntegerArray, RowGroups

#: Arrow type of a column of histograms.
HISTOGRAM_TYPE = pa.list_(pa.struct([("bucket", pa.int32()), ("count", pa.int64())]))
_BUCKETS_PER_OCTAVE = 16  # buckets between a duration and its double
_LARGEST_DURATION_NS = np.nextafter(2.0**63, 0)  # the largest duration that fits into 64 bits
_BUCKET_ID_OFFSET = 1024  # more than there are buckets of one sign, a power of 2


def find_duration_buckets(durations: IntegerArray) -> IntegerArray:
    """Return the bucket of each duration, ns."""
    sizes = np.abs(durations.astype(np.float64))
    with np.errstate(divide="ignore"):
        steps = np.floor(_BUCKETS_PER_OCTAVE * np.log2(sizes))
    return np.where(durations == 0, 0, np.sign(durations) * (1 + np.where(sizes > 0, steps, 0).astype(np.int64)))


def compute_bucket_centers(ids: IntegerArray) -> IntegerArray:
    """Return the middle of each bucket, in ns."""
    sizes = np.exp2((np.abs(ids) - 0.5) / _BUCKETS_PER_OCTAVE)
    return np.where(ids == 0, 0, np.sign(ids) * np.minimum(np.rint(sizes), _LARGEST_DURATION_NS).astype(np.int64))


def build_duration_histograms(
    ids: IntegerArray, durations: IntegerArray, groups: int, counts: IntegerArray | None = None
) -> pa.Array:
    """Return a histogram of the durations of each group.

    Args:
        ids: group of each duration, from 0, in any order.
        groups: number of groups. A group without durations has an empty histogram.
        counts: count of each duration; None: 1.
    """
    return build_bucket_histograms(ids, find_duration_buckets(durations), groups, counts)


def build_bucket_histograms(
    ids: IntegerArray, bucket_ids: IntegerArray, groups: int, counts: IntegerArray | None = None
) -> pa.Array:
    """Return a histogram of each group, as `build_duration_histograms`, from the buckets of durations."""
    key = ids * (2 * _BUCKET_ID_OFFSET) + bucket_ids + _BUCKET_ID_OFFSET
    order: np.ndarray[Any, Any] | None = None
    if counts is None:
        key = np.sort(key)
    else:
        order = np.argsort(key, kind="stable")
        key = key[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    sizes = np.diff(starts, append=len(key))
    if counts is not None:
        sizes = np.add.reduceat(counts[order], starts) if len(starts) else sizes
    key = key[starts]
    offsets = np.searchsorted(key, np.arange(groups + 1) * (2 * _BUCKET_ID_OFFSET)).astype(np.int32)
    values = [
        pa.array((key % (2 * _BUCKET_ID_OFFSET) - _BUCKET_ID_OFFSET).astype(np.int32)),
        pa.array(sizes.astype(np.int64)),
    ]
    return pa.ListArray.from_arrays(
        pa.array(offsets), pa.StructArray.from_arrays(values, ["bucket", "count"]), HISTOGRAM_TYPE
    )


def merge_histograms(groups: RowGroups, histograms: pa.Array) -> pa.Array:
    """Return one histogram for each group of rows. `histograms`: histogram of each row; NULL counts as empty."""
    bucket_ids, count, lengths = _flatten_histograms(histograms)
    return build_bucket_histograms(np.repeat(groups.compute_group_ids(), lengths), bucket_ids, groups.count, count)


def compute_histogram_percentile(
    histograms: pa.Array, rank: float, least: IntegerArray, most: IntegerArray
) -> pa.Array:
    """Return the duration at a rank of each histogram, ns; NULL for an empty histogram.

    Args:
        rank: 0 to 1, the share of durations that are at most as long as the result.
        least: minimum duration of each histogram.
        most: maximum duration of each histogram.
    """
    bucket_ids, count, lengths = _flatten_histograms(histograms)
    ends = np.cumsum(lengths)
    until = np.concatenate(([0], np.cumsum(count)))
    before, total = until[ends - lengths], until[ends] - until[ends - lengths]
    rank_counts = np.maximum(1, np.ceil(rank * total - 1e-9).astype(np.int64))
    index = np.minimum(np.searchsorted(until[1:], before + rank_counts), max(0, len(bucket_ids) - 1))
    values = (
        np.clip(compute_bucket_centers(bucket_ids)[index], least, most)
        if len(bucket_ids)
        else np.zeros(len(histograms), np.int64)
    )
    return pa.array(values, mask=total == 0)


def estimate_typical_intervals(histograms: pa.Array) -> IntegerArray:
    """Return the duration-weighted median interval of each histogram, ns; 0: no intervals.

    Of n intervals, the sqrt(n) longest are ignored, because they may be dropouts. Weighting by duration reduces the
    effect of the many short intervals within bursts.
    """
    bucket_ids, count, lengths = _flatten_histograms(histograms)
    rows = np.repeat(np.arange(len(lengths)), lengths)
    until = np.cumsum(count)
    ends = np.concatenate(([0], until))[np.cumsum(lengths)]
    total = np.diff(ends, prepend=0)
    last = ends - np.minimum(np.sqrt(total).astype(np.int64), np.maximum(total - 1, 0))
    kept = np.clip(last[rows] - (until - count), 0, count)
    time = kept * compute_bucket_centers(bucket_ids).astype(np.float64)
    whole = np.bincount(rows, time, len(lengths))
    time /= np.maximum(whole, 1)[rows]
    index = np.searchsorted(np.cumsum(time), np.cumsum(whole > 0) - 0.5)
    return (
        np.where(whole > 0, compute_bucket_centers(bucket_ids)[np.minimum(index, len(bucket_ids) - 1)], 0)
        if len(bucket_ids)
        else total
    )


def _flatten_histograms(histograms: pa.Array) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
    """Return the buckets and counts of all histograms in sequence, and the number of buckets of each histogram."""
    lengths = np.asarray(pc.list_value_length(histograms).fill_null(0), np.int64)
    flat = histograms.flatten()
    return np.asarray(flat.field("bucket"), np.int64), np.asarray(flat.field("count"), np.int64), lengths
