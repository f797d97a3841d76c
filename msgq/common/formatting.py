"""Numbers as text with units; "-" for an unknown number."""

from __future__ import annotations


def format_bytes(count: float | None) -> str:
    """Return a number of bytes with a decimal unit: "3.5 MB"."""
    if count is None:
        return "-"
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def format_count(count: float | None) -> str:
    """Return a count with separators: "1,000,000"; "-" if unknown."""
    return "-" if count is None else f"{count:,.0f}"


def format_microseconds(duration: float | None) -> str:
    """Return a number of microseconds: "12.3", "12,345". Only small numbers have tenths."""
    if duration is None:
        return "-"
    return f"{duration:,.1f}" if duration < 1000 else f"{duration:,.0f}"


def format_rate(rate: float | None) -> str:
    """Return a number per second: "0.25", "99.9", "1,000,000". Only small numbers have fractions."""
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 1000 or rate == 0 else f"{rate:.4g}"
