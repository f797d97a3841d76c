"""`msgq stat`: prints a line per second with the totals of all endpoints, like vmstat."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import click

from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, RATE_RANK, StreamingTable, TableColumn
from msgq.cli.common.limits import RunLimit
from msgq.cli.common.render import echo, echo_json
from msgq.cli.common.selections import print_selection
from msgq.cli.common.signals import end_on_interrupt
from msgq.common.formatting import format_bytes, format_rate
from msgq.common.optional import require_extra
from msgq.common.shm_paths import SHARED_MEMORY
from msgq.impl.base import clock
from msgq.kinds import Kind, kind_of, list_stored_kinds
from msgq.kinds.stats import AnyEndpointRow, sum_known_values
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints


@dataclass(frozen=True)
class StatLine:
    """Totals of all endpoints at one moment. Unknown values are None.

    Attributes:
        endpoint_counts: number of endpoints by kind (plural); topics that announce frames count as topics.
        publishers: number of living publishers, senders and writers.
        dead_participants: number of dead participants.
        subscribers: number of living subscribers and receivers. Readers of records leave no trace.
        rate: messages per second.
        byte_rate: bytes per second.
        lost_rate: lost messages per second.
        silent_endpoints: number of endpoints without a message since the previous line.
        shm_used_bytes: used bytes of the shared memory.
        shm_free_bytes: free bytes of the shared memory.
    """

    time_ns: int
    publishers: int
    dead_participants: int
    subscribers: int
    rate: float | None
    byte_rate: float | None
    lost_rate: float | None
    silent_endpoints: int
    shm_used_bytes: int
    shm_free_bytes: int
    endpoint_counts: dict[str, int]

    def to_json_fields(self) -> dict[str, Any]:
        """Return the fields. Each kind's count is a separate field."""
        fields = asdict(self)
        kinds: dict[str, int] = fields.pop("endpoint_counts")
        return fields | kinds


_LOOPBACK_ADDRESS = "127.0.0.1"
StatColumn = TableColumn[StatLine]
_STAT_COLUMNS = (  # columns after those of the kinds
    StatColumn("publ", lambda line: str(line.publishers)),
    StatColumn("dead", lambda line: str(line.dead_participants)),
    StatColumn("subs", lambda line: str(line.subscribers)),
    StatColumn("messages/s", lambda line: format_rate(line.rate), RATE_RANK, 11),
    StatColumn("bytes/s", lambda line: format_bytes(line.byte_rate), RATE_RANK, 8),
    StatColumn("lost/s", lambda line: format_rate(line.lost_rate), LOST_RANK, 7),
    StatColumn("silent", lambda line: str(line.silent_endpoints)),
    StatColumn("shm used", lambda line: format_bytes(line.shm_used_bytes)),
    StatColumn("shm free", lambda line: format_bytes(line.shm_free_bytes)),
)


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@options.endpoints_argument
@options.interval_option(1.0)
@options.count_option
@options.once_option
@options.duration_option
@options.auxiliary_option
@click.option(
    "--prometheus",
    "port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve the counters of each endpoint for Prometheus on this TCP port, and print no lines. 0 selects a free "
    "port.",
)
@click.option(
    "--address",
    metavar="ADDRESS",
    help="Network address for --prometheus, or 0.0.0.0 for all addresses. No token is required.  "
    f"[default: {_LOOPBACK_ADDRESS}]",
)
@options.allow_host_option
@options.json_option
@options.prefix_option
def command(
    endpoints: tuple[str, ...],
    interval: float,
    count: int | None,
    once: bool,
    duration: float | None,
    everything: bool,
    port: int | None,
    address: str | None,
    host_names: frozenset[str],
    as_json: bool,
    prefix: str | None,
) -> None:
    """Print totals of all endpoints, one line per second.

    Columns:

    \b
    topics, channels, records, queues   endpoints of each kind
    publ                 living publishers, senders and writers
    dead                 dead participants
    subs                 living subscribers and receivers
    messages/s, bytes/s  published or sent (no bytes of queues and boards)
    lost/s               messages lost by subscribers
    silent               endpoints without a message since the last line
    shm used, shm free   shared memory of the machine

    With --prometheus, the command reads the endpoints only when Prometheus asks for http://ADDRESS:PORT/metrics.
    """
    names = EndpointSelection(endpoints, prefix, everything)
    if port is not None:
        if once or count is not None:
            raise click.UsageError("--prometheus prints no lines; omit --count and --once")
        print_selection(names)
        place = (address or _LOOPBACK_ADDRESS, port)
        _serve_metrics(names, place, host_names, RunLimit(None, duration), as_json)
        return
    if address is not None or host_names:
        raise click.UsageError("--address and --allow-host need --prometheus; give a port")
    board = LiveEndpoints(names)
    table = StreamingTable([*map(_make_kind_column, list_stored_kinds("stats")), *_STAT_COLUMNS])
    board.poll()
    print_selection(names)
    lines, limit = 0, RunLimit(1 if once else count, duration)
    with end_on_interrupt():
        while not limit.is_reached(lines):
            time.sleep(max(0, min(interval, limit.remaining_s)))
            line = sum_endpoints(board.poll())
            if as_json:
                echo_json(line.to_json_fields())
            else:
                table.print_rows([line])
            lines += 1
        names.require_matched()


def _serve_metrics(
    names: EndpointSelection, place: tuple[str, int], host_names: frozenset[str], limit: RunLimit, as_json: bool
) -> None:
    """Serve metrics until an interrupt, or until the end of the duration. `place`: network address and TCP port."""
    require_extra("msgq stat --prometheus", "prometheus", "aiohttp", "prometheus_client")
    from msgq.cli.common.web.access_control import AccessControl
    from msgq.cli.common.web.http_server import HttpServer, serve_until_interrupt
    from msgq.cli.common.web.metrics_handler import MetricsHandler

    def print_url(number: int) -> None:
        url = f"http://{place[0]}:{number}/metrics"
        echo_json({"url": url}) if as_json else echo(f"metrics for Prometheus: {url}")

    async def serve() -> None:
        server = HttpServer(AccessControl(host_names=host_names), {"/metrics": MetricsHandler(names).send_metrics})
        await serve_until_interrupt(server, *place, print_url, limit.remaining_s)

    asyncio.run(serve())


def sum_endpoints(rows: Sequence[AnyEndpointRow]) -> StatLine:
    """Return the totals of all endpoints."""
    counts = Counter(kind_of(row.endpoint) for row in rows)
    space = shutil.disk_usage(SHARED_MEMORY)
    return StatLine(
        time_ns=clock.time_ns(),
        publishers=sum(row.live_publisher_count for row in rows),
        dead_participants=sum(row.dead_participant_count for row in rows),
        subscribers=sum(row.live_subscriber_count or 0 for row in rows),
        rate=sum_known_values(row.rate for row in rows),
        byte_rate=sum_known_values(row.byte_rate for row in rows),
        lost_rate=sum_known_values(row.lost_rate for row in rows),
        silent_endpoints=sum(not row.rate and not row.byte_rate for row in rows),
        shm_used_bytes=space.used,
        shm_free_bytes=space.free,
        endpoint_counts={kind.plural_name: counts[kind] for kind in list_stored_kinds("stats")},
    )


def _make_kind_column(kind: Kind) -> StatColumn:
    return StatColumn(kind.plural_name, lambda line: str(line.endpoint_counts[kind.plural_name]))
