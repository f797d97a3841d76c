"""Texts that are shortened to the width of a column. Different texts stay different."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from rich.cells import cell_len, set_cell_size

_OMITTED_TEXT = "…"
_DISTINCT_WIDTH_MIN = 4  # characters: below, equal beginnings and ends leave no room for a difference


def shorten_text(text: str, width: int) -> str:
    """Return a text in at most `width` characters of the terminal. The middle is omitted."""
    if cell_len(text) <= width:
        return text
    tail = width // 2
    head = max(0, width - 1 - tail)
    return f"{set_cell_size(text, head)}{_OMITTED_TEXT}{set_cell_size(text[::-1], tail)[::-1]}"


def shorten_texts(texts: Iterable[str], width: int) -> dict[str, str]:
    """Return each text in at most `width` characters. Texts that differ only in the middle keep the difference."""
    groups: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        groups.setdefault(shorten_text(text, width), []).append(text)
    shortened: dict[str, str] = {}
    for short, group in groups.items():
        shortened |= {group[0]: short} if len(group) == 1 else _shorten_group(group, width)
    return shortened


def _shorten_group(group: Sequence[str], width: int) -> dict[str, str]:
    """Return texts with equal beginnings and ends in at most `width` characters each."""
    if width < _DISTINCT_WIDTH_MIN:
        return {text: shorten_text(text, width) for text in group}
    start = _count_common_characters(group)
    end = _count_common_characters([text[start:][::-1] for text in group])
    middles = {text: text[start : len(text) - end] for text in group}
    if max(map(cell_len, middles.values())) + 2 > width:
        short = shorten_texts(middles.values(), width - 1)
        return {text: _OMITTED_TEXT + short[middle] for text, middle in middles.items()}
    return {text: _frame_middle(text, start, end, width) for text in group}


def _count_common_characters(texts: Sequence[str]) -> int:
    """Return the length of the beginning that all texts have."""
    pairs = zip(min(texts), max(texts), strict=False)  # all other texts are between these two
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _frame_middle(text: str, start: int, end: int, width: int) -> str:
    """Return a text with its whole middle, and with as much of its beginning and end as fits."""
    middle = text[start : len(text) - end]
    room = width - cell_len(middle) - 2  # 2: ellipses
    tail = min(end, room // 2)
    head = min(start, room - tail)
    return shorten_text(f"{text[:head]}{_OMITTED_TEXT}{middle}{_OMITTED_TEXT}{text[len(text) - tail :]}", width)
