"""`msgq serve`: its options."""

from pathlib import Path

import click

from msgq.cli.common import options
from msgq.cli.common.selections import print_selection
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
@options.allow_host_option
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
    host_names: frozenset[str],
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
    messages. The server counts lost messages. The server never blocks a publisher or another client.

    With --json, the command prints one object with the addresses at the start.
    """
    require_extra("msgq serve", "serve", "aiohttp", "cv2", "mcap")
    from msgq.cli.serve.server_lifetime import ServerOptions, run_server  # late: aiohttp takes 0.2 s, also for --help

    selection = EndpointSelection(endpoints, prefix, everything)
    print_selection(selection)
    server = ServerOptions(address, port, token, host_names, frozenset(origins), interval)
    run_server(server, selection, as_json)
