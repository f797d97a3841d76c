"""The few statistics of the benchmark: medians and percentiles, and figures as people write them."""

from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """Return the middle of the values, which need no order; there must be one."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which that share (0 to 1) of the sorted values lies; the nearest rank."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spread(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p90, p99, p99.9 and the maximum."""
    ordered = sorted(values)
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}
    return {**{name: percentile(ordered, at) for name, at in shares.items()}, "max": ordered[-1]}


def time_ns(value: float) -> str:
    """Write a time given in nanoseconds: ``18.3 ns``, ``1,240 ns``, ``31.0 us``."""
    if value < 100:
        return f"{value:.1f} ns"
    return f"{value:,.0f} ns" if value < 10_000 else f"{value / 1000:,.1f} us"


def rate(value: float) -> str:
    """Write a number of messages a second: ``394k/s``, ``2.9M/s``."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            scaled = value / limit
            return f"{scaled:,.0f}{unit}/s" if scaled >= 100 else f"{scaled:.3g}{unit}/s"
    return f"{value:.0f}/s"
