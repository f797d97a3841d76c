"""Lists and counts in short texts."""

from __future__ import annotations

from collections.abc import Iterable


def join_first_texts(texts: Iterable[str], most: int = 3, separator: str = ", ") -> str:
    """Return the first `most` of these texts, and the number of the others."""
    every = list(texts)
    remaining = len(every) - most
    return separator.join(every[:most]) + (f" and {remaining} more" if remaining > 0 else "")


def format_count_noun(count: int, noun: str) -> str:
    """Return a count with its noun: "1 endpoint", "2 endpoints"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
