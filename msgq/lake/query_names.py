"""The tables that an SQL query names, for engines that compare names without regard to case."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

from msgq.errors import InvalidValueError


def find_named_tables(query: str, names: Sequence[str], quote: str) -> list[str]:
    """Return the tables that a query may name. Of names that differ only in case, this is the one of the query.

    Args:
        query: text of the query.
        names: names of all tables.
        quote: character that encloses a name in the query.

    Raises:
        InvalidValueError: names of tables differ only in case, and the query has none or several of them.
    """
    text = query.replace(2 * quote, quote)
    lower = text.lower()
    similar_names: dict[str, list[str]] = defaultdict(list)
    for name in names:
        if name.lower() in lower and _has_word(lower, name.lower()):
            similar_names[name.lower()].append(name)
    return [_choose_name(text, similar) for similar in similar_names.values()]


def _has_word(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None


def _choose_name(text: str, similar: Sequence[str]) -> str:
    exact = [name for name in similar if _has_word(text, name)]
    if len(similar) > 1 and len(exact) != 1:
        texts = " and ".join(map(repr, similar))
        raise InvalidValueError(f"tables {texts} differ only in case; name exactly one of them in the query")
    return similar[0] if len(similar) == 1 else exact[0]
