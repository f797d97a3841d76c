"""A headless Chromium that a test controls through the DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support import DEADLINE, wait_until

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine: apt-get install chromium")


class Page:
    """A page of the browser. `complaints` has the errors of its console."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket, self._numbers = socket, itertools.count(1)
        self.complaints: list[str] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while True:
            answer = await self._socket.receive_json(timeout=DEADLINE)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note_complaint(answer)

    def _note_complaint(self, event: dict[str, Any]) -> None:
        if event.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(event["params"]))
        elif event.get("method") == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            self.complaints.append(event["params"]["entry"]["text"])

    async def open(self, address: str, width: int = 1280, height: int = 900, is_dark: bool = False) -> None:
        """Open an address in a window of this size."""
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        sizes = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self.call("Emulation.setDeviceMetricsOverride", **sizes)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=address)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        answer = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def wait_for(self, expression: str) -> Any:
        """Return the value of an expression when it is true."""
        async with asyncio.timeout(DEADLINE):
            while not (value := await self.evaluate(expression)):
                pass
        return value

    async def press(self, key: str, text: str = "") -> None:
        """Press a key of the keyboard. `text` : text that the key enters."""
        await self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text)
        await self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    async def save_picture(self, path: Path) -> None:
        """Save a picture of the whole page."""
        answer = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))


@asynccontextmanager
async def open_browser() -> AsyncIterator[Page]:
    """Start Chromium, and yield its first page."""
    assert BROWSER is not None
    with tempfile.TemporaryDirectory(prefix="msgq-browser-", ignore_cleanup_errors=True) as profile:
        options = (
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--remote-debugging-port=0",
        )
        command = [BROWSER, *options, f"--user-data-dir={profile}", "about:blank"]
        environment = {**os.environ, "TMPDIR": profile}
        streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
        with subprocess.Popen(command, **streams) as process:
            try:
                ports = Path(profile, "DevToolsActivePort")
                port = wait_until(lambda: ports.exists() and ports.read_text().split("\n")[0], "the browser listens")
                async with aiohttp.ClientSession() as session:
                    async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                        address = next(one for one in await answer.json() if one["type"] == "page")
                    async with session.ws_connect(address["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                        page = Page(socket)
                        yield page
                        await page.call("Browser.close")
                process.wait(DEADLINE)
            finally:
                process.kill()
