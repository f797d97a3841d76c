"""A web server that clients cannot block: connections have deadlines and limits.

A connection waits for its request, and ends after the answer to it. Both states have a limit: a new connection replaces
the oldest waiting one, so connections without a request cannot shut out other clients, and a request above the limit of
answers is refused.
"""

from __future__ import annotations

import asyncio
import math
import resource
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, cast

from aiohttp import web

from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.common.web.access_control import AccessControl
from msgq.cli.common.web.refusal_log import RefusalLog

_REQUEST_S = 10.0  # deadline of a request's head, after the connection
_ANSWER_S = 30.0  # deadline of an answer, after the head
_WAITING_MAX = 64  # connections without a complete head
_ANSWERS_MAX = 128  # requests that are answered at the same time
_ADDRESS_SHARE = 0.75  # share of both limits for one address
_DESCRIPTORS_SHARE = 0.25  # share of the process's descriptors for each limit
_ACCEPT_PAUSE_S = 1.0  # delay until the next try, if descriptors or memory are exhausted
_LISTEN_BACKLOG = 128  # connections that wait in the kernel
_SHUTDOWN_S = 2.0  # maximum time for the answers to end at `close`
_PRINTED_STATUSES = {401, 403, 503}  # refusals that the server prints
_ALLOWED_METHODS = ("GET", "HEAD")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


class _HttpConnection(web.RequestHandler):
    """A connection. `HttpServer` decides when the connection ends."""

    address = ""
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, server: HttpServer, manager: web.Server, loop: asyncio.AbstractEventLoop) -> None:
        # No path reads a body. Its connection would keep a descriptor, outside of the limits, until the body's end.
        unread = {"auto_decompress": False, "lingering_time": 0.0}
        super().__init__(manager, loop=loop, access_log=None, **unread)  # type: ignore[arg-type]
        self._server, self._event_loop = server, loop
        self._connection_transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self._connection_transport = cast(asyncio.Transport, transport)
        self.address = (transport.get_extra_info("peername") or ("",))[0]
        self._server.add_connection(self)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the connection's place."""
        self.set_deadline(None)
        self._server.remove_connection(self)
        super().connection_lost(exc)

    def set_deadline(self, delay_s: float | None) -> None:
        """Replace the deadline. None: the connection has no deadline any more."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if delay_s is not None:
            self._deadline = self._event_loop.call_later(delay_s, self._server.end_late_connection, self)

    def abort(self) -> None:
        """End the connection at once. Unsent bytes are dropped."""
        if self._connection_transport is not None:
            self._connection_transport.abort()

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Answer a malformed request, which is no error of this program, and report other errors with a traceback."""
        if status != web.HTTPBadRequest.status_code:
            return super().handle_error(request, status, exc, message)
        reason = (message or "").partition("\n")[0].strip(" :")
        self._server.refusals.report("malformed", f"{self.address} refused: malformed HTTP request: {reason:.100}")
        response = web.Response(status=status, text="malformed HTTP request\n")
        response.force_close()
        return response


class HttpServer:
    """A web server for a few paths. All methods run in one event loop.

    Attributes:
        refusals: log of refused clients.
    """

    def __init__(self, access: AccessControl, handlers: Mapping[str, Handler]) -> None:
        """Prepare the server; `start` opens the port. `handlers`: callables for accepted requests by path."""
        self._access, self._handlers = access, handlers
        self.refusals = RefusalLog()
        self._manager = web.Server(self._answer_request)
        self._listeners: list[socket.socket] = []
        self._accepting: set[asyncio.Task[Any]] = set()
        self._waiting: dict[_HttpConnection, None] = {}  # waiting connections, from the oldest to the newest
        self._answers: dict[_HttpConnection, asyncio.Task[Any] | None] = {}
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        most = math.inf if descriptors == resource.RLIM_INFINITY else max(4, int(descriptors * _DESCRIPTORS_SHARE))
        self._waiting_max, self._answers_max = min(_WAITING_MAX, most), min(_ANSWERS_MAX, most)

    async def start(self, address: str, port: int) -> int:
        """Open the port, and return its number. `port`: 0 for any free port.

        Raises:
            OSError: the address does not exist, or the port is in use.
        """
        loop = asyncio.get_running_loop()
        bound = await loop.create_server(asyncio.Protocol, address, port, start_serving=False)
        with bound.sockets[0].dup() as first:
            number: int = first.getsockname()[1]
        self._listeners = [listener.dup() for listener in bound.sockets]
        bound.close()
        for listener in self._listeners:
            listener.setblocking(False)
            listener.listen(_LISTEN_BACKLOG)
            loop.add_reader(listener, self._accept_connection, listener)
        return number

    async def close(self) -> None:
        """End all connections, and close the port."""
        listeners, self._listeners = self._listeners, []
        for listener in listeners:
            asyncio.get_running_loop().remove_reader(listener)
            listener.close()
        tasks = [task for task in self._answers.values() if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_SHUTDOWN_S)
        await self._manager.shutdown(_SHUTDOWN_S)

    def keep_open(self, request: web.BaseRequest) -> None:
        """Remove the deadline of an answer that lasts until its client leaves."""
        cast(_HttpConnection, request.protocol).set_deadline(None)

    # Connections

    def _accept_connection(self, listener: socket.socket) -> None:
        """Accept one connection here, because servers of asyncio log each failure 100 times with a traceback."""
        loop = asyncio.get_running_loop()
        try:
            accepted, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            self._free_descriptors(listener, error)
            return
        accepted.setblocking(False)
        task = loop.create_task(
            loop.connect_accepted_socket(lambda: _HttpConnection(self, self._manager, loop), accepted)
        )
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    def _free_descriptors(self, listener: socket.socket, error: OSError) -> None:
        """End the oldest waiting connection, or pause, because descriptors or memory are exhausted."""
        loop = asyncio.get_running_loop()
        self.refusals.report(
            "descriptors", f"new connections wait: {error.strerror}; raise the limit of open files (ulimit -n)"
        )
        for connection in self._waiting:
            self.remove_connection(connection)
            connection.abort()
            return
        loop.remove_reader(listener)
        loop.call_later(_ACCEPT_PAUSE_S, self._resume_accepting, listener)

    def _resume_accepting(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            asyncio.get_running_loop().add_reader(listener, self._accept_connection, listener)

    def add_connection(self, connection: _HttpConnection) -> None:
        """Add a connection without a request. If there are too many, the oldest one ends."""
        connection.set_deadline(_REQUEST_S)
        self._waiting[connection] = None
        same_address = [other for other in self._waiting if other.address == connection.address]
        if len(same_address) > self._waiting_max * _ADDRESS_SHARE:
            self._replace_connection(same_address[0])
        elif len(self._waiting) > self._waiting_max:
            self._replace_connection(next(iter(self._waiting)))

    def remove_connection(self, connection: _HttpConnection) -> None:
        """Release the place of a connection."""
        self._waiting.pop(connection, None)
        self._answers.pop(connection, None)

    def _replace_connection(self, connection: _HttpConnection) -> None:
        self.refusals.report("waiting", f"{connection.address} disconnected: too many connections without a request")
        self.remove_connection(connection)
        connection.abort()

    def end_late_connection(self, connection: _HttpConnection) -> None:
        """End a connection at its deadline."""
        if connection in self._waiting:
            text = f"no complete request within {_REQUEST_S:g} s"
        else:
            text = f"no complete answer within {_ANSWER_S:g} s"
        self.refusals.report(text, f"{connection.address} disconnected: {text}")
        connection.abort()

    # Requests

    async def _answer_request(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer the only request of a connection."""
        try:
            self._begin_answer(request)
            refusal = self._access.find_refusal(request)
            if refusal is not None:
                raise refusal
            if request.path not in self._handlers:
                raise web.HTTPNotFound
            if request.method not in _ALLOWED_METHODS:
                raise web.HTTPMethodNotAllowed(request.method, _ALLOWED_METHODS)
            response = await self._handlers[request.path](request)
        except web.HTTPException as error:
            if error.status in _PRINTED_STATUSES:
                self.refusals.report(error.reason, f"{request.remote} refused: {(error.text or '').strip():.200}")
            error.force_close()
            raise
        response.force_close()
        return response

    def _begin_answer(self, request: web.BaseRequest) -> None:
        """Give the request a place.

        Raises:
            HTTPServiceUnavailable: there is none.
        """
        connection = cast(_HttpConnection, request.protocol)
        self.remove_connection(connection)
        connection.set_deadline(_ANSWER_S)
        same_address = sum(other.address == connection.address for other in self._answers)
        if len(self._answers) >= self._answers_max or same_address >= self._answers_max * _ADDRESS_SHARE:
            raise web.HTTPServiceUnavailable(text="too many requests are answered already\n")
        self._answers[connection] = asyncio.current_task()


async def serve_until_interrupt(
    server: HttpServer, address: str, port: int, announce: Callable[[int], None], duration_s: float = math.inf
) -> None:
    """Serve until Ctrl-C, SIGTERM, or the end of the duration. `announce` gets the number of the open port.

    Raises:
        OSError: the address does not exist, or the port is in use.
    """
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    with call_on_interrupt(lambda: loop.call_soon_threadsafe(stop.set)):
        try:
            announce(await server.start(address, port))
            with suppress(TimeoutError):
                async with asyncio.timeout(duration_s):
                    await stop.wait()
        finally:
            await server.close()
