"""One port with the page, the server-sent events of the page, and the websocket of Foxglove."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from importlib.resources import files
from typing import Any

from aiohttp import web

from msgq.cli.serve.access_control import AccessControl
from msgq.cli.serve.bus_monitor import BusMonitor
from msgq.cli.serve.foxglove_protocol import SUBPROTOCOLS
from msgq.cli.serve.message_forwarder import MessageForwarder

_HEARTBEAT_S = 20.0  # clients without an answer within this time are disconnected
_REQUEST_BYTES_MAX = 1 << 16
_CONNECTIONS_MAX = 64  # open pages and websockets
_SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address may contain the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_logger = logging.getLogger(__name__)


class WebServer:
    """The web server. All methods run in one event loop."""

    def __init__(self, forwarder: MessageForwarder, monitor: BusMonitor, access: AccessControl) -> None:
        """Prepare the server. `start` opens the port."""
        self._forwarder, self._monitor, self._access = forwarder, monitor, access
        self._connections: set[asyncio.Task[Any] | None] = set()
        self._page, self._content_policy = _load_page()
        application = web.Application(middlewares=[self._check_access])
        application.router.add_get("/", self._answer_root)
        application.router.add_get("/events", self._send_events)
        application.on_shutdown.append(self._end_connections)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False, shutdown_timeout=2.0)

    async def start(self, address: str, port: int) -> int:
        """Open the port, and return its number. `port` : 0 for any free port.

        Raises
        ------
        OSError : the address does not exist, or the port is in use.
        """
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port).start()
        number: int = self._runner.addresses[0][1]
        return number

    async def close(self) -> None:
        """End all connections, and close the port."""
        await self._runner.cleanup()
        await self._forwarder.close()
        await self._monitor.close()

    @web.middleware
    async def _check_access(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        refusal = self._access.find_refusal(request)
        if refusal is not None:
            _logger.warning("%s refused: %s", request.remote, (refusal.text or "").strip())
            raise refusal
        return await handler(request)

    async def _answer_root(self, request: web.Request) -> web.StreamResponse:
        """Answer with the page, or open a websocket."""
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._run_connection(request, self._serve_websocket)
        headers = {**_SECURITY_HEADERS, "Content-Security-Policy": self._content_policy}
        return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def _serve_websocket(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS,
            heartbeat=_HEARTBEAT_S,
            compress=False,
            max_msg_size=_REQUEST_BYTES_MAX,
            timeout=1.0,
        )
        await socket.prepare(request)
        if socket.ws_protocol is None:
            await socket.close(message=f"subprotocol {' or '.join(SUBPROTOCOLS)} is required".encode())
            return socket
        try:
            await self._forwarder.serve_client(socket, request.remote or "")
        finally:
            await socket.close()
        return socket

    async def _send_events(self, request: web.Request) -> web.StreamResponse:
        return await self._run_connection(request, self._stream_states)

    async def _stream_states(self, request: web.Request) -> web.StreamResponse:
        """Send the state of the bus after each sample."""
        response = web.StreamResponse(headers={**_SECURITY_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionResetError):
            async with aclosing(self._monitor.watch_states()) as states:
                async for state in states:
                    await response.write(b"data: %s\n\n" % state)
        return response

    async def _run_connection(
        self, request: web.Request, serve: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Serve a long connection. `close` ends the connection."""
        if len(self._connections) >= _CONNECTIONS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{_CONNECTIONS_MAX} clients are connected already\n")
        task = asyncio.current_task()
        self._connections.add(task)
        try:
            return await serve(request)
        finally:
            self._connections.discard(task)

    async def _end_connections(self, _application: web.Application) -> None:
        tasks = [task for task in self._connections if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _load_page() -> tuple[str, str]:
    """Return the page with its script, and the policy for browsers: only this script, and only this server."""
    folder = files("msgq.cli.serve")
    script = folder.joinpath("page.js").read_text()
    page = folder.joinpath("page.html").read_text().replace("<script></script>", f"<script>{script}</script>")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src blob: data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
