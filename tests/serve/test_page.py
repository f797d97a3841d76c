"""The page of `msgq serve` in a real browser."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import numpy as np
import pytest

import msgq
from tests.command import Process, start
from tests.serve.browser import Page, needs_browser, open_browser
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


def use_page(
    use: Callable[[Page, Server], Awaitable[None]],
    width: int = 1280,
    is_dark: bool = False,
    process: Process | None = None,
) -> None:
    """Open the page of a new server, and check that the browser reports no error."""

    async def open_page(server: Server) -> None:
        async with open_browser() as page:
            await page.open(server.local_page, width, is_dark=is_dark)
            await page.wait_for("document.querySelector('#status')?.textContent.startsWith('live')")
            await use(page, server)
            assert page.complaints == []

    with Server(process) as server:
        asyncio.run(open_page(server))


def test_page_shows_rates_and_killed_publisher_and_end_of_server(prefix: str) -> None:
    async def use(page: Page, server: Server) -> None:
        await page.wait_for(f"{CELLS}.pulse?.publishers.endsWith(' {child.pid}')")
        await page.wait_for(f"document.querySelector('#graph').textContent.includes('pid {child.pid}')")
        while not await page.evaluate(f"{CELLS}.pulse['messages/s'] > '0'"):
            child.say("next")
        child.kill()
        await page.wait_for(f"{CELLS}.pulse?.publishers.endsWith(' {child.pid} (dead)')")
        await page.wait_for("document.querySelector('#graph .dead')?.textContent.includes('dead')")
        await page.wait_for(f"{CELLS}.pulse['messages/s'] === '0'")
        server.process.terminate()
        await page.wait_for("document.querySelector('#status').textContent.includes('no connection')")
        page.complaints.clear()  # of the lost connection

    with Child(publish_on_request, prefix) as child:
        assert child.hear() == "ready"
        use_page(use)


def test_keyboard_opens_newest_message_and_filters(prefix: str) -> None:
    async def use(page: Page, server: Server) -> None:
        await page.wait_for(f"{CELLS}.pose && {CELLS}.other")
        await page.press("/", "/")
        assert await page.evaluate("document.activeElement.id") == "filter"
        await page.call("Input.insertText", text="POS")
        await page.wait_for(f"JSON.stringify(Object.keys({CELLS})) === '[\"pose\"]'")
        await page.evaluate("document.querySelector('#endpoint-table tbody button').focus()")
        await page.press("Enter", "\r")
        while not await page.evaluate("document.querySelector('pre')?.textContent.includes('\"x\": 1.5')"):
            pub.send(b'{"x": 1.5}')
        assert await page.evaluate("document.activeElement.textContent") == "pose"
        await page.press("Escape")
        await page.wait_for("document.querySelector('pre') === null")

    with publish("pose", msgq.Schema("Pose", "json")) as pub, publish("other", None):
        use_page(use)


def test_names_and_payloads_are_shown_as_text(prefix: str) -> None:
    name = "<img src=x onerror=alert(1)>"

    async def use(page: Page, server: Server) -> None:
        await page.wait_for(f"{CELLS}[{json.dumps(name)}]")
        await page.evaluate("document.querySelector('#endpoint-table tbody button').click()")
        while not await page.evaluate("document.querySelector('pre')?.textContent.includes('<script>')"):
            pub.send(b'"<script>alert(1)</script>"')
        assert await page.evaluate("document.images.length") == 0

    with publish(name, msgq.Schema("<b>", "json")) as pub:
        use_page(use)


def test_hidden_page_costs_nothing_and_continues_when_shown(prefix: str) -> None:
    hide = """(isHidden) => { Object.defineProperty(document, 'hidden', {value: isHidden, configurable: true});
        document.dispatchEvent(new Event('visibilitychange')); }"""

    async def use(page: Page, server: Server) -> None:
        maps = Path(f"/proc/{server.process.pid}/maps")
        await page.wait_for(f"{CELLS}.pose")
        await page.evaluate(f"({hide})(true)")
        while f"msgq_{prefix}" in maps.read_text():
            await page.evaluate("0")
        with publish("later", None):
            await page.evaluate(f"({hide})(false)")
            await page.wait_for(f"{CELLS}.later")

    with publish("pose", None):
        use_page(use)


def test_page_uses_token_for_events_and_websocket(prefix: str) -> None:
    async def use(page: Page, server: Server) -> None:
        assert server.token is not None
        await page.wait_for("document.querySelectorAll('#client-table tbody tr').length === 1")

    use_page(use, process=start("serve", "--port", "0", "--address", "0.0.0.0", "--json"))


@pytest.mark.parametrize(("width", "is_dark"), [(390, True), (1280, False)])
def test_page_shows_pictures_and_fits_the_window(prefix: str, tmp_path: Path, width: int, is_dark: bool) -> None:
    picture = np.zeros((48, 64, 3), np.uint8)
    picture[:, :32] = (255, 0, 0)

    async def use(page: Page, _server: Server) -> None:
        await page.wait_for("document.querySelector('figure') !== null")
        await page.evaluate("document.querySelector('figure').scrollIntoView()")
        draw = """(() => { const canvas = document.createElement('canvas').getContext('2d');
            const image = document.querySelector('figure img');
            if (image.complete && image.naturalWidth === 64) canvas.drawImage(image, 0, 0);
            return [...canvas.getImageData(8, 24, 1, 1).data, ...canvas.getImageData(56, 24, 1, 1).data]; })()"""
        # The page replaces its picture again and again, and draws nothing while the next picture is loading.
        while (pixels := await page.evaluate(draw))[3] == 0:
            frames.send(0, picture.tobytes())
        red, _, _, _, *right, _ = pixels
        assert red > 240
        assert max(right) < 16
        assert await page.evaluate("document.documentElement.scrollWidth") <= width
        back = await page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert back == ("rgb(21, 24, 27)" if is_dark else "rgb(255, 255, 255)")

    with VisionIpcServer(f"camera-{prefix}") as frames:
        frames.create_buffers(0, 4, 64, 48, FrameFormat.RGB24)
        frames.start_listener()
        use_page(use, width, is_dark)
