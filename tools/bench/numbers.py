"""The few statistics of the benchmark: medians and percentiles, and figures as people write them."""

from collections.abc import Sequence

# Shares of the calls that took at most the stored time; 0 is the fastest call, 1 the slowest.
_TENTHS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
SHARES = (*_TENTHS, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.99, 0.993, 0.995, 0.997, 0.998, 0.999, 1.0)


def median(values: Sequence[float]) -> float:
    """Return the middle of the values, which need no order; there must be one."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of sorted values by the nearest rank. `share`: 0 to 1."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def round_figure(value: float) -> float:
    """Return the value with five significant digits."""
    return float(f"{value:.5g}")


def list_latencies(values: Sequence[float]) -> list[float]:
    """Return the values at `SHARES`: the smallest value, percentiles, and the largest value."""
    ordered = sorted(values)
    return [round_figure(percentile(ordered, share)) for share in SHARES]


def time_ns(value: float) -> str:
    """Write a time given in nanoseconds: ``18.3 ns``, ``1,240 ns``, ``31.0 us``, ``2.41 s``."""
    if value < 100:
        return f"{value:.1f} ns"
    if value >= 1e9:
        return f"{value / 1e9:.2f} s"
    return f"{value:,.0f} ns" if value < 10_000 else f"{value / 1000:,.1f} us"


def ratio(value: float) -> str:
    """Format a ratio with two digits after the point; below 0.1, with two significant digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def rate(value: float) -> str:
    """Write a number of messages a second: ``394k/s``, ``2.9M/s``."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:,.0f}{unit}/s" if scaled >= 100 else f"{scaled:.3g}{unit}/s"
    return f"{value:.0f}/s"
