"""Lists and counts in short texts."""

from __future__ import annotations

from msgq.common.formatting import format_count

TYPE_CHECKING = False  # avoids the import of `typing`; see msgq/__init__.py
if TYPE_CHECKING:
    from collections.abc import Iterable


def suggest_name(name: str, existing: Iterable[str]) -> str:
    """Return "; did you mean 'imu'?" for the existing name that is most similar to `name`; "": none is similar."""
    from difflib import get_close_matches  # late: the import takes as long as that of sockets

    return "".join(f"; did you mean {found!r}?" for found in get_close_matches(name, list(existing), 1))


def join_first_texts(texts: Iterable[str], most: int = 3, separator: str = ", ") -> str:
    """Return the first `most` of these texts, and the number of the others."""
    every = list(texts)
    remaining = len(every) - most
    return separator.join(every[:most]) + (f" and {remaining} more" if remaining > 0 else "")


def format_count_noun(count: float | None, noun: str) -> str:
    """Return a count with its noun: "1 endpoint", "1,000 messages"; "- messages" if the count is unknown."""
    return f"{format_count(count)} {noun}{'' if count == 1 else 's'}"
