"""What stands on a page of a report."""

from __future__ import annotations

import html
import re


def sections(text: str) -> dict[str, str]:
    """Return what is in each section of a page, by its heading."""
    sections = re.findall(r"<section><h2>(.*?)</h2>(.*?)</section>", text, flags=re.DOTALL)
    assert len({title for title, _ in sections}) == len(sections)
    return dict(sections)


def table(section: str) -> list[dict[str, str]]:
    """Return the rows of the table in a section, by the headings of its columns."""
    names = re.findall(r"<th>(.*?)</th>", section)
    rows = re.findall(r"<tr>((?:<td>.*?</td>)+)</tr>", section, flags=re.DOTALL)
    cells = [[html.unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", row)] for row in rows]
    return [dict(zip(names, row, strict=True)) for row in cells]
