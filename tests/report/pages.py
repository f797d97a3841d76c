"""Reports in a browser."""

from __future__ import annotations

from pathlib import Path

from tests.browser import BrowserPage


def open_report(browser: BrowserPage, page: Path, width: int, height: int, is_dark: bool = False) -> BrowserPage:
    """Open a report, and wait until all its plots are drawn."""
    browser.open(page.as_uri(), width, height, is_dark)
    browser.wait_until("[...document.querySelectorAll('.plot')].every(plot => plot.dataset.drawn)")
    return browser
