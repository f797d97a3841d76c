"""`msgq serve`: its options, and the life of the server."""

import asyncio
import secrets
from dataclasses import dataclass
from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.selections import print_selection
from msgq.cli.common.signals import call_on_interrupt
from msgq.cli.serve.access_control import AccessControl, is_loopback_address
from msgq.cli.serve.bus_monitor import BusMonitor
from msgq.cli.serve.message_forwarder import MessageForwarder
from msgq.cli.serve.web_server import WebServer
from msgq.common.optional import require_extra
from msgq.monitor.endpoint_selection import EndpointSelection

_TOKEN_CHARACTERS_MIN = 16


def _read_token(_context: click.Context, _parameter: click.Parameter, path: Path | None) -> str | None:
    """Return the token in a file. Blanks around the token are ignored."""
    if path is None:
        return None
    token = path.read_text(errors="replace").strip()
    if len(token) < _TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isalnum():
        raise click.BadParameter(
            f"{path} does not contain a token; write at least {_TOKEN_CHARACTERS_MIN} letters and digits into the file"
        )
    return token


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@options.endpoints_argument
@click.option(
    "--address",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Network address to listen on, or 0.0.0.0 for all addresses. Other machines need the token.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8765,
    show_default=True,
    metavar="NUMBER",
    help="TCP port. 0 selects a free port.",
)
@click.option(
    "--token-file",
    "token",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    callback=_read_token,
    metavar="FILE",
    help="File with the token that all clients need.  [default: no token on a loopback address, "
    "else a new token at each start]",
)
@click.option(
    "--allow-host",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="Also accept requests for this host name, for example of a proxy. Repeatable.",
)
@click.option(
    "--allow-origin",
    "origins",
    multiple=True,
    metavar="ORIGIN",
    help="Also accept websockets of web pages of this origin, e.g. https://app.foxglove.dev. Repeatable.",
)
@options.interval_option(1.0, "Time between two updates of the page, in seconds.")
@options.auxiliary_option
@options.json_option
@options.prefix_option
def command(
    endpoints: tuple[str, ...],
    address: str,
    port: int,
    token: str | None,
    host_names: tuple[str, ...],
    origins: tuple[str, ...],
    interval: float,
    everything: bool,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Show the bus live in a browser, Foxglove or Lichtblick.

    One port serves a web page and the Foxglove websocket protocol. The page shows endpoints, rates, losses, and the
    graph of publishers and subscribers. Foxglove and Lichtblick show messages and pictures. Clients cannot publish.

    The server reads passively, and only the endpoints that a client requests. A client that is too slow loses
    messages, which are counted. The server never blocks a publisher or another client.

    With --json, the command prints one object with the addresses at the start.
    """
    require_extra("msgq serve", "serve", "cv2")
    if token is None and not is_loopback_address(address):
        token = secrets.token_hex(16)
    selection = EndpointSelection(endpoints, prefix, everything)
    print_selection(selection)
    access = AccessControl(token, frozenset(map(str.lower, host_names)), frozenset(origins))
    asyncio.run(_run_server(ServerPlace(address, port, as_json), selection, access, interval))


@dataclass(frozen=True)
class ServerPlace:
    """Where to listen, and the format of the printed addresses."""

    address: str
    port: int
    as_json: bool


async def _run_server(place: ServerPlace, selection: EndpointSelection, access: AccessControl, interval: float) -> None:
    """Serve until a signal."""
    forwarder = MessageForwarder(selection)
    server = WebServer(forwarder, BusMonitor(selection, interval, forwarder), access)
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    with call_on_interrupt(lambda: loop.call_soon_threadsafe(stop.set)):
        try:
            port = await server.start(place.address, place.port)
            _print_addresses(place, port, access.token)
            await stop.wait()
        finally:
            await server.close()


def _print_addresses(place: ServerPlace, port: int, token: str | None) -> None:
    host = f"[{place.address}]" if ":" in place.address else place.address
    query = f"?token={token}" if token else ""
    page, websocket = f"http://{host}:{port}/{query}", f"ws://{host}:{port}/{query}"
    if place.as_json:
        echo_json({"page": page, "websocket": websocket, "port": port, "token": token})
        return
    echo(f"page:      {page}")
    echo(f"websocket: {websocket}")
    echo(options.STOP_KEYS)
