"""The built site: its pages as files, and three of them in a real browser."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from msgq.cli.app import app
from tests.browser import BrowserPage, needs_browser
from tests.meta.sources import ROOT
from tools.site.built_pages import BuiltPage
from tools.site.commands import iterate_contexts

pytestmark = [pytest.mark.ci, pytest.mark.xdist_group("site")]
HEADINGS = "[...document.querySelectorAll('article h1, article h2')].map(heading => heading.textContent)"
TABS = "[...document.querySelectorAll('.md-tabs__link')].map(tab => tab.textContent.trim())"
RESULT = "[...document.querySelectorAll('.md-search-result__link')].find(link => link.hash === '#msgq-bag-recover')"


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the built site."""
    directory = tmp_path_factory.mktemp("site") / "built"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(directory)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Return the address of a server of the site."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def read_page(site: Path, name: str) -> BuiltPage:
    return BuiltPage((site / name / "index.html").read_text())


def test_page_of_command_line_has_heading_and_usage_of_each_verb(site: Path) -> None:
    page = read_page(site, "reference/cli")
    contexts = [*iterate_contexts(app, "msgq")]
    shown = {(heading.id, heading.text) for heading in page.headings}
    assert {(context.command_path.replace(" ", "-"), context.command_path) for context in contexts} <= shown
    for context in contexts:
        assert context.get_usage().removeprefix("Usage: ") in page.text


def test_headings_of_api_are_names(site: Path) -> None:
    for path in sorted((site / "reference/api").glob("*/index.html")):
        headings = [heading for heading in BuiltPage(path.read_text()).headings if heading.tag in ("h2", "h3")]
        assert headings
        words = [heading.text.split() for heading in headings]  # a name, then perhaps labels such as "property"
        assert [name for name, *labels in words if not name.isidentifier() or "(" in "".join(labels)] == []


def test_tables_of_api_show_name_type_and_description_of_parameters(site: Path) -> None:
    rows = [row.cells for row in read_page(site, "reference/api/topics").rows]
    expected = [
        ("Name", "endpoint"),
        ("Type", "str | bytes"),
        ("Description", "name of the topic."),
        ("Default", "required"),
    ]
    assert expected in rows


@needs_browser
def test_pages_in_browser_have_tabs_and_headings_of_their_files(site: Path, address: str, browser: BrowserPage) -> None:
    for name in ("", "reference/cli", "reference/api/topics"):
        page = browser.open(f"{address}/{name}{'/' if name else ''}", 1280, 900)
        expected = [heading.text for heading in read_page(site, name).headings if heading.tag in ("h1", "h2")]
        assert [" ".join(text.replace("¶", "").split()) for text in page.evaluate(HEADINGS)] == expected
        assert page.evaluate(TABS) == ["Start", "Guides", "How-to", "Reference", "Internals"]
        assert page.complaints == []
        assert [url for url in page.requests if not url.startswith(address)] == []


@needs_browser
def test_search_result_leads_to_its_heading(address: str, browser: BrowserPage) -> None:
    page = browser.open(f"{address}/", 1280, 900)
    page.evaluate("document.querySelector('.md-search__input').focus()")
    page.call("Input.insertText", text="bag recover")
    page.wait_until(RESULT)
    page.evaluate(f"{RESULT}.click()")
    page.wait_until("location.hash && document.querySelector(':target')")
    assert page.evaluate("document.querySelector(':target').textContent.toLowerCase()").startswith("msgq bag recover")
