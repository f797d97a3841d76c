"""Start, addresses and end of the server."""

from __future__ import annotations

import asyncio
import secrets
import socket
from dataclasses import dataclass

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.web.access_control import AccessControl, is_loopback_address
from msgq.cli.common.web.http_server import serve_until_interrupt
from msgq.cli.serve.bus_monitor import BusMonitor
from msgq.cli.serve.message_forwarder import MessageForwarder
from msgq.cli.serve.web_server import WebServer
from msgq.monitor.endpoint_selection import EndpointSelection

_ALL_ADDRESSES = ("0.0.0.0", "::")


@dataclass(frozen=True)
class ServerOptions:
    """Options of a server.

    Attributes:
        address: address to listen at.
        port: port to listen at; 0: any free port.
        token: token that clients need; None: no token on a loopback address, else a new token.
        host_names: see `AccessControl`.
        origins: see `AccessControl`.
        interval_s: seconds between two samples for the page.
    """

    address: str
    port: int
    token: str | None
    host_names: frozenset[str]
    origins: frozenset[str]
    interval_s: float


def run_server(server: ServerOptions, selection: EndpointSelection, as_json: bool) -> None:
    """Print the addresses, and serve until a signal.

    Raises:
        OSError: the address does not exist, or the port is in use.
    """
    asyncio.run(_serve_bus(server, selection, as_json))


async def _serve_bus(place: ServerOptions, selection: EndpointSelection, as_json: bool) -> None:
    is_local = is_loopback_address(place.address)
    token = place.token or (None if is_local else secrets.token_hex(16))
    forwarder = MessageForwarder(selection)
    monitor = BusMonitor(selection, place.interval_s, forwarder)
    server = WebServer(forwarder, monitor, AccessControl(token, place.host_names, place.origins))
    await serve_until_interrupt(
        server, place.address, place.port, lambda port: _print_addresses(place.address, port, token, as_json)
    )


def _print_addresses(address: str, port: int, token: str | None, as_json: bool) -> None:
    name = socket.gethostname() if address in _ALL_ADDRESSES else address
    host = f"[{name}]" if ":" in name else name
    query = f"?token={token}" if token else ""
    page, websocket = f"http://{host}:{port}/{query}", f"ws://{host}:{port}/{query}"
    if as_json:
        echo_json({"page": page, "websocket": websocket, "port": port, "token": token})
        return
    echo(f"page:      {page}")
    echo(f"websocket: {websocket}")
    echo(options.STOP_KEYS)
