"""Texts that stay short, however much they are about."""

from __future__ import annotations

from collections.abc import Iterable


def some(texts: Iterable[str], most: int = 3, separator: str = ", ") -> str:
    """Return the first `most` of these texts, and how many more there are."""
    every = list(texts)
    more = len(every) - most
    return separator.join(every[:most]) + (f" and {more} more" if more > 0 else "")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: "1 endpoint", "2 endpoints"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
