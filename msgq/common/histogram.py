"""Latency histograms of constant size."""

from __future__ import annotations

_SUB_BUCKET_BITS = 5  # 32 buckets an octave: a percentile is at most 3 % off


class Histogram:
    """Counts of durations in nanoseconds, in buckets that grow with their value."""

    def __init__(self) -> None:
        self._counts = [0] * ((65 - _SUB_BUCKET_BITS) << _SUB_BUCKET_BITS)

    def add(self, value_ns: int) -> None:
        """Count one duration of 0 to 2**64 - 1 ns."""
        shift = value_ns.bit_length() - _SUB_BUCKET_BITS - 1
        if shift < 0:
            shift = 0
        self._counts[(shift << _SUB_BUCKET_BITS) + (value_ns >> shift)] += 1

    def percentiles_us(self, *shares: float) -> tuple[float, ...]:
        """Return percentiles in microseconds. `shares`: 0 to 1, ascending. Without durations, the result is 0."""
        percentiles: list[float] = []
        total, passed = sum(self._counts), 0
        for bucket, count in enumerate(self._counts):
            passed += count
            while count and len(percentiles) < len(shares) and passed >= shares[len(percentiles)] * total:
                percentiles.append(round(_compute_bucket_middle_ns(bucket) / 1000, 1))
        return tuple(percentiles) or (0.0,) * len(shares)


def _compute_bucket_middle_ns(bucket: int) -> float:
    shift = max(0, (bucket >> _SUB_BUCKET_BITS) - 1)
    return ((bucket - (shift << _SUB_BUCKET_BITS)) + 0.5) * (1 << shift)
