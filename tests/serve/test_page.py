"""The page of `msgq serve` in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import msgq
from tests.browser import BrowserPage, needs_browser
from tests.command import Process, start
from tests.serve.foxglove_client import Server
from tests.serve.test_websocket import publish
from tests.support import Child, hear, say
from visionipc import FrameFormat, VisionIpcServer

pytestmark = [pytest.mark.ci, needs_browser]

CELLS = """Object.fromEntries([...document.querySelectorAll('#endpoint-table tbody tr')].map((row) => [row.dataset.key,
Object.fromEntries([...row.cells].map((cell, index) =>
    [document.querySelectorAll('#endpoint-table th')[index].textContent, cell.textContent]))]))"""


def publish_on_request(prefix: str) -> None:
    """In a child: publish a message for each word of the parent."""
    with msgq.pub_sock("pulse", prefix=prefix) as pub:
        say("ready")
        while hear():
            pub.send(b"beat")


def wait_as_subscriber(prefix: str) -> None:
    """In a child: subscribe, and wait for the end."""
    with msgq.sub_sock("pulse", prefix=prefix):
        say("ready")
        hear()


@contextmanager
def opened_page(
    browser: BrowserPage, width: int = 1280, is_dark: bool = False, process: Process | None = None
) -> Iterator[Server]:
    """Open the page of a new server, and check at the end that the browser reports no error."""
    with Server(process) as server:
        browser.open(server.local_page, width, 900, is_dark)
        browser.wait_until("document.querySelector('#status')?.textContent.startsWith('live')")
        yield server
        assert browser.complaints == []


def test_page_shows_rates_and_killed_publisher_and_end_of_server(prefix: str, browser: BrowserPage) -> None:
    with Child(publish_on_request, prefix) as child:
        assert child.hear() == "ready"
        with opened_page(browser) as server:
            browser.wait_until(f"{CELLS}.pulse?.publishers.endsWith(' {child.pid}')")
            browser.wait_until(f"document.querySelector('#graph').textContent.includes('pid {child.pid}')")
            while not browser.evaluate(f"{CELLS}.pulse['messages/s'] > '0'"):
                child.say("next")
            child.kill()
            browser.wait_until(f"{CELLS}.pulse?.publishers.endsWith(' {child.pid} (dead)')")
            browser.wait_until("document.querySelector('#graph .dead')?.textContent.includes('dead')")
            browser.wait_until(f"{CELLS}.pulse['messages/s'] === '0'")
            server.process.terminate()
            browser.wait_until("document.querySelector('#status').textContent.includes('no connection')")
            browser.complaints.clear()  # complaints about the lost connection


def test_several_dead_processes_of_an_endpoint_are_one_node(prefix: str, browser: BrowserPage) -> None:
    with (
        publish("pulse", None),
        Child(wait_as_subscriber, prefix) as first,
        Child(wait_as_subscriber, prefix) as second,
        Child(wait_as_subscriber, prefix) as living,
    ):
        assert [child.hear() for child in (first, second, living)] == ["ready"] * 3
        first.kill()
        second.kill()
        with opened_page(browser):
            browser.wait_until("document.querySelector('#graph .dead')?.textContent.includes('2 dead processes')")
            assert browser.evaluate("document.querySelectorAll('#graph .dead').length") == 1
            title = browser.evaluate("document.querySelector('#graph .dead title').textContent")
            assert str(first.pid) in title
            assert str(second.pid) in title
            assert browser.evaluate(f"document.querySelector('#graph').textContent.includes('pid {living.pid}')")


def test_state_of_queue_takes_one_line_and_trend_has_axis(prefix: str, browser: BrowserPage) -> None:
    with msgq.MessageQueue("jobs", max_messages=128) as queue, publish("pose", None) as pub, opened_page(browser):
        browser.wait_until(f"{CELLS}['queue/jobs']?.kind.includes('of 128 waiting')")
        count_lines = """[...document.querySelectorAll('#endpoint-table tbody tr')].map((row) => {
            const text = document.createRange();
            text.selectNodeContents(row.cells[1]);
            return text.getClientRects().length; })"""
        assert set(browser.evaluate(count_lines)) == {1}
        trend = f"{CELLS}.pose['trend, 5 min']"
        while browser.evaluate(f"!{trend} || {trend} === '≤ 0'"):
            pub.send(b"{}")
        points = browser.evaluate("[...document.querySelectorAll('.spark polyline')].map((line) => "
            "line.getAttribute('points')).join(' ')")  # fmt: skip
        assert all(0 <= float(x) <= 300 for x in (point.split(",")[0] for point in points.split()))
        queue.unlink()


def test_keyboard_opens_newest_message_and_filters(prefix: str, browser: BrowserPage) -> None:
    schema = msgq.Schema("Pose", "json")
    with publish("pose", schema) as pub, publish("other", None), opened_page(browser):
        browser.wait_until(f"{CELLS}.pose && {CELLS}.other")
        browser.press_key("/", 191, "/")
        assert browser.evaluate("document.activeElement.id") == "filter"
        browser.call("Input.insertText", text="POS")
        browser.wait_until(f"JSON.stringify(Object.keys({CELLS})) === '[\"pose\"]'")
        browser.evaluate("document.querySelector('#endpoint-table tbody button').focus()")
        browser.press_key("Enter", 13, "\r")
        while not browser.evaluate("document.querySelector('pre')?.textContent.includes('\"x\": 1.5')"):
            pub.send(b'{"x": 1.5}')
        assert browser.evaluate("document.activeElement.textContent") == "pose"
        browser.press_key("Escape", 27)
        browser.wait_until("document.querySelector('pre') === null")


def test_names_and_payloads_are_shown_as_text(prefix: str, browser: BrowserPage) -> None:
    name = "<img src=x onerror=alert(1)>"
    with publish(name, msgq.Schema("<b>", "json")) as pub, opened_page(browser):
        browser.wait_until(f"{CELLS}[{json.dumps(name)}]")
        browser.evaluate("document.querySelector('#endpoint-table tbody button').click()")
        while not browser.evaluate("document.querySelector('pre')?.textContent.includes('<script>')"):
            pub.send(b'"<script>alert(1)</script>"')
        assert browser.evaluate("document.images.length") == 0


def test_hidden_page_costs_nothing_and_continues_when_shown(prefix: str, browser: BrowserPage) -> None:
    hide = """(isHidden) => { Object.defineProperty(document, 'hidden', {value: isHidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange')); }"""
    with publish("pose", None), opened_page(browser) as server:
        maps = Path(f"/proc/{server.process.pid}/maps")
        browser.wait_until(f"{CELLS}.pose")
        browser.evaluate(f"({hide})(true)")
        while f"msgq_{prefix}" in maps.read_text():
            browser.evaluate("0")
        with publish("later", None):
            browser.evaluate(f"({hide})(false)")
            browser.wait_until(f"{CELLS}.later")


def test_page_uses_token_for_events_and_websocket(prefix: str, browser: BrowserPage) -> None:
    process = start("serve", "--port", "0", "--address", "0.0.0.0", "--json")
    with opened_page(browser, process=process) as server:
        assert server.token is not None
        browser.wait_until("document.querySelectorAll('#client-table tbody tr').length === 1")


@pytest.mark.parametrize(("width", "is_dark"), [(390, True), (1280, False)])
def test_page_shows_pictures_and_fits_the_window(prefix: str, browser: BrowserPage, width: int, is_dark: bool) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:, :32] = (255, 0, 0)
    draw = """(() => { const canvas = document.createElement('canvas')
        .getContext('2d', {willReadFrequently: true});
        const image = document.querySelector('figure img');
        if (image.complete && image.naturalWidth === 64) canvas.drawImage(image, 0, 0);
        return [...canvas.getImageData(8, 24, 1, 1).data, ...canvas.getImageData(56, 24, 1, 1).data]; })()"""
    with VisionIpcServer(f"camera-{prefix}") as frames:
        frames.create_buffers(0, 4, 64, 48, FrameFormat.RGB24)
        frames.start_listener()
        with opened_page(browser, width, is_dark):
            browser.wait_until("document.querySelector('figure') !== null")
            browser.evaluate("document.querySelector('figure').scrollIntoView()")
            # The page replaces its picture again and again, and draws nothing while the next picture is loading.
            while (pixels := browser.evaluate(draw))[3] == 0:
                frames.send(0, picture.tobytes())
            red, _, _, _, *right, _ = pixels
            assert red > 240
            assert max(right) < 16
            assert browser.evaluate("document.documentElement.scrollWidth") <= width
            back = browser.evaluate("getComputedStyle(document.documentElement).backgroundColor")
            assert back == ("rgb(21, 24, 27)" if is_dark else "rgb(255, 255, 255)")
