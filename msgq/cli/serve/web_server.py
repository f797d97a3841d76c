"""One port with the page, the server-sent events of the page, and the websocket of Foxglove."""

from __future__ import annotations

import base64
import hashlib
from contextlib import aclosing, suppress
from importlib.resources import files

from aiohttp import web

from msgq.cli.common.web.access_control import AccessControl
from msgq.cli.common.web.http_server import Handler, HttpServer
from msgq.cli.serve.bus_monitor import BusMonitor
from msgq.cli.serve.foxglove_protocol import SUBPROTOCOLS
from msgq.cli.serve.message_forwarder import MessageForwarder

_HEARTBEAT_S = 20.0  # clients without an answer within this time are disconnected
_REQUEST_BYTES_MAX = 1 << 16
_CLIENTS_MAX = 64  # open pages and websockets
_SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",  # the address may contain the token
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class WebServer(HttpServer):
    """The web server. All methods run in one event loop."""

    def __init__(self, forwarder: MessageForwarder, monitor: BusMonitor, access: AccessControl) -> None:
        """Prepare the server. `start` opens the port."""
        super().__init__(access, {"/": self._answer_root, "/events": self._send_events})
        self._forwarder, self._monitor = forwarder, monitor
        self._client_count = 0
        self._page, self._content_policy = _load_page()

    async def close(self) -> None:
        """End all connections, and close the port."""
        await super().close()
        await self._forwarder.close()
        await self._monitor.close()

    async def _answer_root(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer with the page, or open a websocket."""
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._run_connection(request, self._serve_websocket)
        headers = {**_SECURITY_HEADERS, "Content-Security-Policy": self._content_policy}
        return web.Response(text=self._page, content_type="text/html", headers=headers)

    async def _serve_websocket(self, request: web.BaseRequest) -> web.StreamResponse:
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

    async def _send_events(self, request: web.BaseRequest) -> web.StreamResponse:
        return await self._run_connection(request, self._stream_states)

    async def _stream_states(self, request: web.BaseRequest) -> web.StreamResponse:
        """Send the state of the bus after each sample."""
        response = web.StreamResponse(headers={**_SECURITY_HEADERS, "Content-Type": "text/event-stream"})
        await response.prepare(request)
        with suppress(ConnectionResetError):
            async with aclosing(self._monitor.watch_states()) as states:
                async for state in states:
                    await response.write(b"data: %s\n\n" % state)
        return response

    async def _run_connection(self, request: web.BaseRequest, serve: Handler) -> web.StreamResponse:
        """Serve a long connection. `close` ends the connection."""
        if self._client_count >= _CLIENTS_MAX:
            raise web.HTTPServiceUnavailable(text=f"{_CLIENTS_MAX} clients are connected already\n")
        self.keep_open(request)
        self._client_count += 1
        try:
            return await serve(request)
        finally:
            self._client_count -= 1


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
