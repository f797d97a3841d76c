"""A real browser without a window, driven by the DevTools protocol through pipes. It reaches only this machine."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support import DEADLINE

_PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_browser = pytest.mark.skipif(_PROGRAM is None, reason="no chromium on this machine: apt-get install chromium")
_SWITCHES = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-pipe",
)


class NavigationError(Exception):
    """The page was left while it computed a value."""


class BrowserPage:
    """A page in a browser.

    Attributes:
        requests: URLs that the page requested, without the page itself.
        complaints: exceptions, console messages and log entries that the page caused.
    """

    def __init__(self, send_fd: int, receive_fd: int) -> None:
        self._commands, self._answers = os.fdopen(send_fd, "wb", 0), os.fdopen(receive_fd, "rb")
        self._received, self._number = b"", 0
        self._target: str | None = None
        self._session: str | None = None
        self._address = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []

    def open(self, address: str, width: int, height: int, is_dark: bool = False) -> Self:
        """Open an address in a window of this size, in CSS pixels, and wait until the page is loaded."""
        previous, self._session = self._target, None
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        if previous is not None:
            self.call("Target.closeTarget", targetId=previous)
        self._session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self._address, self.requests, self.complaints = address, [], []
        self.call("Page.navigate", url=address)
        self.wait_until("location.href !== 'about:blank' && document.readyState === 'complete'")
        return self

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the protocol, and return its result."""
        self._number += 1
        number, session = self._number, {"sessionId": self._session} if self._session else {}
        message = {"id": number, "method": method, "params": parameters, **session}
        self._commands.write(json.dumps(message).encode() + b"\0")
        for answer in self._iterate_messages():
            if answer.get("id") == number:
                if "navigated" in answer.get("error", {}).get("message", ""):
                    raise NavigationError(answer)
                assert "error" not in answer, answer
                return answer["result"]
            self._note_event(answer.get("method", ""), answer.get("params", {}))
        raise EOFError("the browser ended")

    def _iterate_messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._received:
                piece = self._answers.read1(1 << 16)
                if not piece:
                    return
                self._received += piece
            message, _, self._received = self._received.partition(b"\0")
            yield json.loads(message)

    def _note_event(self, method: str, parameters: dict[str, Any]) -> None:
        if method == "Network.requestWillBeSent":
            url = parameters["request"]["url"]
            self.requests += [] if url == self._address or url.startswith("data:") else [url]
        elif method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(json.dumps(parameters))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression. Promises are awaited."""
        options = {"returnByValue": True, "awaitPromise": True}
        found = self.call("Runtime.evaluate", expression=expression, **options)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait_until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true. The browser checks the condition before each picture."""
        loop = f"const check = () => ({condition}) ? done(true) : requestAnimationFrame(check); check();"
        limit = f"setTimeout(() => done(false), {1000 * DEADLINE / 2});"
        while True:
            with suppress(NavigationError):  # a link was followed: ask the next page
                assert self.evaluate(f"new Promise(done => {{ {limit} {loop} }})"), condition
                return

    def close(self) -> None:
        """Close the pipes. The browser then ends."""
        self._commands.close()
        self._answers.close()

    def press_key(self, key: str, code: int, text: str = "") -> None:
        """Press and release a key of the keyboard. `code`: number of the key on Windows."""
        known = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **known)
        self.call("Input.dispatchKeyEvent", type="keyUp", **known)

    def drag_mouse(self, points: Sequence[tuple[float, float]]) -> None:
        """Press the left button at the first point, move over the others, and release it at the last point."""
        kinds = ["mousePressed", *["mouseMoved"] * (len(points) - 1), "mouseReleased"]
        for kind, (x, y) in zip(kinds, [*points, points[-1]], strict=True):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


@contextmanager
def start_browser(profile: Path) -> Iterator[BrowserPage]:
    """Start a browser with an empty profile, and end it after the block."""
    command_read, command_write = map(_move_up, os.pipe())
    answer_read, answer_write = map(_move_up, os.pipe())

    def place_pipes() -> None:
        os.dup2(command_read, 3)
        os.dup2(answer_write, 4)

    command = [str(_PROGRAM), *_SWITCHES, f"--user-data-dir={profile}"]
    environment = {**os.environ, "TMPDIR": str(profile.parent)}
    with open(profile.with_suffix(".log"), "wb") as log:
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log, "pass_fds": (3, 4)}
        browser = subprocess.Popen(command, env=environment, preexec_fn=place_pipes, **streams)
    os.close(command_read)
    os.close(answer_write)
    page = BrowserPage(command_write, answer_read)
    try:
        yield page
    finally:
        page.close()
        try:
            browser.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            browser.kill()
            raise


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    """A browser for all tests of the process."""
    with start_browser(tmp_path_factory.mktemp("browser") / "profile") as page:
        yield page


def _move_up(fd: int) -> int:
    """Return a copy of a file descriptor above those that the browser uses, and close the original."""
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(fd)
    return moved
