"""Hooks of the documentation site: README.md is the home page, and links out of docs/ become names of files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with its links adapted to the site."""
    path = page.file.src_uri
    folder = ROOT / "docs" / Path(path).parent
    if path == "index.md":
        markdown, folder = (ROOT / "README.md").read_text(), ROOT

    def adapt_link(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if not target.is_relative_to(ROOT / "docs"):
            return f"`{target.relative_to(ROOT)}`"
        return match[0].replace("](docs/", "](") if folder == ROOT else match[0]

    return _LINK.sub(adapt_link, markdown)
