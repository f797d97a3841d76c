"""A proxy in front of an S3 server, which counts requests, loses connections and refuses requests."""

from __future__ import annotations

import socket
import sys
from collections import Counter
from collections.abc import Callable
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Self
from urllib.parse import urlsplit

#: Faults of a request; "": none.
LOST_REQUEST, LOST_RESPONSE, TORN_RESPONSE = "lost request", "lost response", "torn response"
EXPIRED, BUSY, SLOW = "expired", "busy", "slow"
_REFUSALS = {EXPIRED: (403, "ExpiredToken"), BUSY: (503, "SlowDown")}
_SLOW_PIECE_BYTES = 64  # bytes of a piece of a slow response
_HOP_HEADERS = ("connection", "transfer-encoding", "content-length", "keep-alive", "expect")


class StoreProxy:
    """A server that passes requests on. Use it in a `with` block.

    Attributes:
        endpoint: URL of the proxy.
        requests: methods and paths of the requests since `inject`.
        response_bytes: bytes of the responses since `inject`, by path.
    """

    def __init__(self, target: str) -> None:
        self._server = _ProxyServer(("127.0.0.1", 0), _ProxyHandler)
        self._server.proxy = self
        self._target, self._lock = urlsplit(target).netloc, Lock()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.inject(lambda _: "")

    def inject(self, choose_fault: Callable[[int], str]) -> None:
        """Count requests from 0 again. `choose_fault`: gets the number of a request, and returns what happens to it."""
        with self._lock:
            self._choose_fault = choose_fault
            self.requests: list[str] = []
            self.response_bytes = Counter[str]()

    def take_request(self, request: str) -> str:
        """Count a request, and return what happens to it."""
        with self._lock:
            self.requests.append(request)
            return self._choose_fault(len(self.requests) - 1)

    def count_response(self, path: str, size: int) -> None:
        """Count the bytes of a response."""
        with self._lock:
            self.response_bytes[path.partition("?")[0]] += size

    def pass_on(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[HTTPResponse, bytes]:
        """Send a request to the server, and return the response and its body."""
        connection = HTTPConnection(self._target)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response, response.read()
        finally:
            connection.close()

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # clients keep connections open
    request_queue_size = 64
    proxy: StoreProxy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing if a client has hung up: delta-rs does so when it has enough of a response."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _ProxyHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _ProxyServer

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing."""

    def _handle(self) -> None:
        body, proxy = self._read_body(), self.server.proxy
        headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP_HEADERS}
        fault = proxy.take_request(f"{self.command} {self.path}")
        if fault == LOST_REQUEST:
            self._hang_up()
        elif fault in _REFUSALS:
            status, code = _REFUSALS[fault]
            text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>refused</Message></Error>"
            self._respond(status, [("Content-Type", "application/xml")], text.encode(), len(text), fault)
        else:
            response, data = proxy.pass_on(self.command, self.path, body, headers)
            if fault == LOST_RESPONSE:
                self._hang_up()
                return
            kept = [item for item in response.getheaders() if item[0].lower() not in _HOP_HEADERS]
            length = int(response.headers.get("Content-Length") or len(data))
            self._respond(response.status, kept, data, length, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():  # trailers
            continue
        return b"".join(chunks)

    def _respond(self, status: int, headers: list[tuple[str, str]], data: bytes, length: int, fault: str) -> None:
        self.send_response_only(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        data = b"" if self.command == "HEAD" else data
        self.server.proxy.count_response(self.path, len(data))
        if fault == TORN_RESPONSE:
            self.wfile.write(data[: len(data) // 2])
            self._hang_up()
            return
        step = _SLOW_PIECE_BYTES if fault == SLOW else max(1, len(data))
        for first in range(0, len(data), step):
            self.wfile.write(data[first : first + step])

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)
