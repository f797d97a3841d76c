"""The page in a real browser: three widths, light and dark, mouse and keyboard, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msgq.lake.report.gold_reader import open_lake_tables
from msgq.lake.report.report_page import write_report
from tests.browser import BrowserPage, needs_browser
from tests.report.pages import open_report
from tests.report.recordings import TROUBLES, ingest_recording, write_recording

pytestmark = needs_browser
ROWS = "[...document.querySelectorAll('.anomalies tbody tr')]"
TIME_PLOTS = "[...document.querySelectorAll('.plot[data-time] .canvas')]"
ZOOM_INPUTS = "[...document.querySelectorAll('.zoom input')]"
AXIS_RANGE = "(canvas => canvas._fullLayout.xaxis.range.map(time => time.replace('T', ' ')))"
BEGIN, END = "2026-05-01 22:39", "2026-05-01 22:44"


def test_all_troubled_endpoints_are_on_the_first_screen(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "trouble.html", 1280, 800)
    visible = page.evaluate(
        f"{ROWS}.filter(row => row.getBoundingClientRect().bottom <= innerHeight)"
        ".map(row => [...row.cells].slice(0, 2).map(cell => cell.textContent))"
    )
    expected = {(trouble.kind.title(), trouble.endpoint) for trouble in TROUBLES}
    assert {tuple(row) for row in visible} == expected
    assert page.evaluate("document.querySelector('section') === document.querySelector('.anomalies').parentElement")
    shares: list[Any] = page.evaluate(f"{ROWS}.map(row => parseFloat(row.cells[5].textContent))")
    assert shares == sorted(shares, reverse=True)
    assert (page.requests, page.complaints) == ([], [])


def test_page_of_healthy_recording_says_that_nothing_stands_out(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "healthy.html", 1280, 800)
    text = page.evaluate("document.querySelector('section').innerText")
    assert "No anomalies." in text
    assert "Examined: the latency of 300, the dropouts of 300 and the losses of 300 of 300 endpoints" in text
    assert page.evaluate("document.querySelector('.anomalies')") is None


@pytest.mark.parametrize("is_dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280, 2560])
def test_page_fits_each_width_in_both_colors(folder: Path, browser: BrowserPage, width: int, is_dark: bool) -> None:
    page = open_report(browser, folder / "trouble.html", width, 800, is_dark)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "no horizontal scrolling"
    outside = page.evaluate(
        "[...document.querySelectorAll('.plot .main-svg, section > *')]"
        ".filter(part => part.getBoundingClientRect().right > innerWidth + 1).map(part => part.outerHTML.slice(0, 99))"
    )
    assert outside == []
    assert page.evaluate("document.querySelectorAll('.plot[data-drawn]').length") >= 12 + 6
    color = "rgb(13, 17, 23)" if is_dark else "rgb(255, 255, 255)"
    backs = page.evaluate(
        "[document.body, ...document.querySelectorAll('.plot .main-svg:first-of-type')]"
        ".map(part => getComputedStyle(part).backgroundColor)"
    )
    assert set(backs) == {color}
    assert (page.requests, page.complaints) == ([], [])


def read_ranges(page: BrowserPage) -> Any:
    return page.evaluate(f"{TIME_PLOTS}.map({AXIS_RANGE}).map(range => range.map(time => time.slice(0, 16)))")


def test_time_axes_are_clipped_to_recording_and_linked(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "trouble.html", 1280, 800)
    ranges = read_ranges(page)
    assert len(ranges) >= 12 + 6
    assert all(one == [BEGIN, END] for one in ranges)
    points = page.evaluate(f"{TIME_PLOTS}.flatMap(canvas => canvas.data).flatMap(line => line.x).filter(time => time)")
    times = [str(time).replace("T", " ") for time in points]
    assert BEGIN <= min(times) <= max(times) <= END + ":01"
    page.evaluate(f"{TIME_PLOTS}[0].scrollIntoView()")
    area = f"{TIME_PLOTS}[0].querySelector('.nsewdrag').getBoundingClientRect()"
    left, top, width, height = page.evaluate(f"['x', 'y', 'width', 'height'].map(name => {area}[name])")
    page.drag_mouse([(left + width * part, top + height / 2) for part in (0.2, 0.3, 0.5, 0.8)])
    page.wait_until(f"new Set({TIME_PLOTS}.map({AXIS_RANGE}).map(String)).size === 1 && {ZOOM_INPUTS}[0].value > 0")
    assert {end for _, end in read_ranges(page)} <= {"2026-05-01 22:42", "2026-05-01 22:43"}
    seconds = page.evaluate(f"{ZOOM_INPUTS}.map(input => Number(input.value))")
    assert seconds == pytest.approx([60, 240], abs=2)


def test_keyboard_sets_time_range_and_sorts_table(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "trouble.html", 1280, 800)
    page.evaluate("document.querySelector('.zoom input').select()")
    for key in "60":
        page.press_key(key, ord(key), key)
    page.press_key("Tab", 9)
    page.wait_until(f"{TIME_PLOTS}.map({AXIS_RANGE}).every(range => range[0].startsWith('2026-05-01 22:40'))")
    assert page.evaluate("document.activeElement === document.querySelectorAll('.zoom input')[1]")
    page.press_key("Tab", 9)
    page.press_key("Enter", 13, "\r")
    page.wait_until(f"{TIME_PLOTS}.map({AXIS_RANGE}).every(range => range[0].startsWith('{BEGIN}'))")
    page.evaluate("document.querySelectorAll('table.sortable th button')[11].focus()")
    page.press_key(" ", 32, " ")
    assert page.evaluate("document.activeElement.parentElement.getAttribute('aria-sort')") == "descending"
    first = page.evaluate("[...document.querySelectorAll('table.sortable tbody tr')].map(r => r.cells[0].innerText)")
    assert set(first[:5]) == {trouble.endpoint for trouble in TROUBLES if trouble.kind == "latency"}
    assert len(first) == 300


def test_search_shows_matching_endpoints(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "trouble.html", 1280, 800)
    page.evaluate("document.querySelector('input[type=search]').focus()")
    for key in "/01":
        page.press_key(key, ord(key), key)
    shown = page.evaluate(
        "[...document.querySelectorAll('table.sortable tbody tr')].filter(row => row.offsetHeight)"
        ".map(row => row.cells[0].innerText)"
    )
    assert sorted(shown) == [f"sensor/01{digit}" for digit in range(10)]
    assert page.evaluate("document.querySelector('output').textContent") == "10 of 300 rows"


def test_worst_endpoints_come_first_with_marks(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "trouble.html", 1280, 800)
    listed = page.evaluate(f"{ROWS}.map(row => row.cells[1].textContent)")
    multiples = page.evaluate("[...document.querySelectorAll('.plot[data-endpoint]')].map(p => p.dataset.endpoint)")
    assert multiples == listed[:12]
    shapes = page.evaluate(f"{TIME_PLOTS}.map(canvas => canvas.layout.shapes.length)")
    assert set(shapes) == {1, 13}, "a small plot has the marks of its endpoint, each other plot has all"
    (names,) = page.evaluate(
        "[...document.querySelectorAll('.canvas')].map(canvas => canvas.data[0])"
        ".filter(trace => trace.type === 'heatmap' && trace.meta).map(trace => trace.y)"
    )
    assert names[:13] == listed
    assert len(names) == 300


def test_copy_button_copies_the_command(folder: Path, browser: BrowserPage) -> None:
    page = open_report(browser, folder / "trouble.html", 1280, 800)
    page.evaluate(
        "navigator.clipboard.writeText = text => { document.copied = text; return Promise.resolve(); };"
        "document.querySelector('.copy').focus()"
    )
    page.press_key("Enter", 13, "\r")
    page.wait_until("document.querySelector('.copy').textContent === 'Copied'")
    assert page.evaluate("document.copied") == page.evaluate("document.querySelector('.anomalies code').textContent")


def test_heat_map_has_1000_endpoints(browser: BrowserPage, tmp_path: Path) -> None:
    recording = write_recording(tmp_path / "many.mcap", endpoints=1000, seconds=60)
    page_path = tmp_path / "many.html"
    write_report(open_lake_tables(ingest_recording(recording, tmp_path / "lake")), page_path)
    assert page_path.stat().st_size < 6_500_000
    page = open_report(browser, page_path, 1280, 800)
    rows = page.evaluate(
        "[...document.querySelectorAll('.canvas')].flatMap(canvas => canvas.data)"
        ".filter(trace => trace.type === 'heatmap').map(trace => [trace.y.length, trace.z.length])"
    )
    assert rows == [[1000, 1000], [1000, 1000]]
    assert "No anomalies." in page.evaluate("document.querySelector('section').innerText")
    assert (page.requests, page.complaints) == ([], [])
