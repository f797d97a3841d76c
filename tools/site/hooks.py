"""Hooks of the documentation site.

README.md is the home page, links out of docs/ become names of files, and the page of the command line lists all verbs.
After the build, the built pages are checked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError

from msgq.cli.app import app
from tools.site.built_pages import find_site_faults
from tools.site.commands import describe_commands

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[([^\]]*)\]\(([^)#:\s]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Return the text of a page with its links adapted to the site."""
    path = page.file.src_uri
    folder = ROOT / "docs" / Path(path).parent
    if path == "index.md":
        markdown, folder = (ROOT / "README.md").read_text(), ROOT
    elif path == "reference/cli.md":
        return f"{markdown}\n{describe_commands(app, 'msgq')}"

    def adapt_link(match: re.Match[str]) -> str:
        target = (folder / match[2]).resolve()
        if not target.is_relative_to(ROOT / "docs"):
            return f"`{target.relative_to(ROOT)}`"
        return match[0].replace("](docs/", "](") if folder == ROOT else match[0]

    return _LINK.sub(adapt_link, markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Fail if a built page has faults."""
    if faults := find_site_faults(Path(config["site_dir"])):
        raise PluginError("\n".join(["the built pages have faults:", *faults]))
