"""Checks of built pages: what a reader would see as broken, although Markdown and links are correct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from msgq.cli.app import app
from tools.site.commands import iterate_contexts

COMMAND_PAGE = "reference/cli/index.html"
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_VERB_HEADINGS = ("h2", "h3")
_VOID_TAGS = frozenset({"br", "col", "hr", "img", "input", "link", "meta", "source", "wbr"})
_PERMALINK = "¶"


@dataclass
class Heading:
    """A heading of a page: its tag, its id and its text."""

    tag: str
    id: str
    text: str = ""


@dataclass
class TableRow:
    """A row of a table: the title above each cell, and the text of the cell."""

    cells: list[tuple[str, str]] = field(default_factory=list)


class BuiltPage(HTMLParser):
    """The content of a built page.

    Attributes:
        headings: headings of the article, in the order of the page.
        rows: rows of all tables.
        text: text of the article.
    """

    def __init__(self, html: str) -> None:
        super().__init__()
        self.headings: list[Heading] = []
        self.rows: list[TableRow] = []
        self.text = ""
        self._open_tags: list[str] = []
        self._titles: list[str] = []
        self._cell = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        if tag in _VOID_TAGS:
            return
        self._open_tags.append(tag)
        if tag in _HEADINGS:
            self.headings.append(Heading(tag, dict(attrs).get("id") or ""))
        elif tag == "table":
            self._titles = []
        elif tag == "tr":
            self.rows.append(TableRow())
        elif tag in ("td", "th"):
            self._cell = ""

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        while self._open_tags and self._open_tags.pop() != tag:
            pass
        if tag in _HEADINGS:
            self.headings[-1].text = " ".join(self.headings[-1].text.split())
        elif tag == "th":
            self._titles.append(self._cell.strip())
        elif tag == "td" and self.rows:
            cells = self.rows[-1].cells
            title = self._titles[len(cells)] if len(cells) < len(self._titles) else ""
            cells.append((title, self._cell.strip()))

    def handle_data(self, data: str) -> None:
        """Add text to the article, and to the open heading and cell."""
        if "article" not in self._open_tags or "script" in self._open_tags or "style" in self._open_tags:
            return
        self.text += data
        self._cell += data
        if self.headings and any(tag in _HEADINGS for tag in self._open_tags):
            self.headings[-1].text += data.replace(_PERMALINK, "")


def find_site_faults(site: Path) -> list[str]:
    """Return the faults of all pages of a built site."""
    return [
        f"{path.relative_to(site)}: {fault}"
        for path in sorted(site.rglob("*.html"))
        for fault in find_page_faults(BuiltPage(path.read_text()), path.relative_to(site).as_posix() == COMMAND_PAGE)
    ]


def find_page_faults(page: BuiltPage, lists_commands: bool = False) -> Iterator[str]:
    """Yield the faults of a page. `lists_commands`: its headings are verbs."""
    if "Sentinel" in page.text:
        yield "shows a default as `Sentinel`"
    for row in page.rows:
        if any(title == "Description" and not text for title, text in row.cells):
            yield f"no description of {row.cells[0][1]}"
    counts = Counter(heading.id for heading in page.headings if heading.id)
    yield from (f"{count} headings have the id {name}" for name, count in counts.items() if count > 1)
    if lists_commands:
        shown = Counter(heading.text for heading in page.headings if heading.tag in _VERB_HEADINGS)
        verbs = Counter(context.command_path for context in iterate_contexts(app, "msgq"))
        yield from (f"the heading {name!r} is no verb" for name in shown - verbs)
        yield from (f"the verb {name!r} has no heading" for name in verbs - shown)
