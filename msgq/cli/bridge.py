"""`msgq bridge`: forwards topics and channels between this host and other hosts through ZMQ."""

import time
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import asdict

import click
from rich.live import Live

from msgq.bridge import Bridge, FlowStats
from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, RATE_RANK, TableColumn, format_table, print_table
from msgq.cli.common.console import get_console, join_display_lines
from msgq.cli.common.render import echo_json
from msgq.cli.common.selections import print_selection
from msgq.cli.common.signals import call_on_interrupt
from msgq.common import settings
from msgq.common.formatting import format_bytes, format_count
from msgq.common.selection import PATTERN_SIGNS
from msgq.errors import InvalidValueError
from msgq.kinds import kind_of
from msgq.monitor.endpoint_selection import EndpointSelection

_RatedFlow = tuple[FlowStats, float, float]  # statistics, messages per second, bytes per second
_FlowColumn = TableColumn[_RatedFlow]
_FLOW_COLUMNS = (
    _FlowColumn("endpoint", lambda row: row[0].topic, NAME_RANK, text_width=20),
    _FlowColumn("direction", lambda row: _format_direction(row[0]), text_width=8),
    _FlowColumn("messages", lambda row: format_count(row[0].messages)),
    _FlowColumn("messages/s", lambda row: format_count(row[1]), RATE_RANK),
    _FlowColumn("bytes/s", lambda row: format_bytes(row[2])),
    _FlowColumn("lost", lambda row: format_count(row[0].lost), LOST_RANK),
    _FlowColumn("dropped", lambda row: format_count(row[0].dropped), LOST_RANK),
    _FlowColumn("state", lambda row: row[0].state, RATE_RANK, text_width=10),
)


@click.command(epilog=options.EXIT_CODES_ENDLESS)
@click.option(
    "--out",
    metavar="NAME|PATTERN",
    multiple=True,
    shell_complete=options.complete_bridged_endpoint,
    help="Publish this topic or channel (channel/NAME) of this host on ZMQ. A PATTERN matches whole names. Repeatable.",
)
@click.option(
    "--in",
    "into",
    metavar="NAME[@HOST]",
    multiple=True,
    help="Publish the ZMQ topic NAME of HOST on this host. With channel/NAME, publish on the channel NAME. Repeatable.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Host of the --in topics without @HOST.",
)
@click.option(
    "--bind",
    metavar="HOST",
    help="Network interface to publish on, or * for all interfaces.  [default: $MSGQ_ZMQ_BIND if set; "
    "* if $MSGQ_ZMQ_STOCK is set; else 127.0.0.1 (this host only)]",
)
@click.option(
    "--segment-size",
    type=click.IntRange(min=0),
    default=0,
    metavar="BYTES",
    help="Size of the rings for incoming topics, in bytes: at least three times the largest message.  "
    "[default: existing size, or 1 MiB for new rings]",
)
@click.option(
    "--interval",
    type=options.NumberRange(0.1, 86400.0),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Time between two reports, in seconds.",
)
@options.json_option
@options.prefix_option
def command(
    out: Sequence[str],
    into: Sequence[str],
    host: str,
    bind: str | None,
    segment_size: int,
    interval: float,
    as_json: bool,
    prefix: str | None,
) -> None:
    """Forward topics and channels between hosts through ZMQ.

    On ZMQ, a channel (channel/NAME) appears as the topic NAME. This topic has the messages of all publishers of the
    channel.

    On a terminal, the counts are shown live. Otherwise, a summary is printed at the end. With --json, the command
    prints one object for each topic and interval. At the end, the command prints one more object for each topic, with
    the totals.
    """
    if not out and not into:
        raise click.UsageError("nothing to forward: give --out, --in, or both")
    sources = _parse_sources(into, host)
    screen = get_console()
    live = Live(console=screen, auto_refresh=False, transient=True) if screen.is_terminal and not as_json else None
    report = FlowReport()
    with (
        settings.overrides(prefix, bind),
        _make_bridge(out, sources, segment_size) as bridge,
        call_on_interrupt(bridge.stop),
    ):
        _print_outgoing_endpoints(out, prefix)
        with live or nullcontext():
            while bridge.run(interval):
                lines = report.compute_recent_rates(bridge.flows())
                if as_json:
                    _print_json(lines, final=False)
                elif live is not None:
                    live.update(join_display_lines(format_table(_FLOW_COLUMNS, lines)), refresh=True)
        lines = report.compute_overall_rates(bridge.flows())
    if as_json:
        _print_json(lines, final=True)
    else:
        print_table(_FLOW_COLUMNS, lines)


def _print_outgoing_endpoints(out: Sequence[str], prefix: str | None) -> None:
    """Print the selected endpoints. Endpoints that do not exist yet are forwarded when they appear."""
    if out:
        names = EndpointSelection(out, prefix)
        print_selection(names, lambda name: kind_of(name).has_part("bridge"))


def _make_bridge(out: Sequence[str], sources: dict[str, str], segment_size: int) -> Bridge:
    try:
        return Bridge(out, sources, segment_size)
    except InvalidValueError as error:
        raise click.ClickException(str(error)) from None


def _parse_sources(into: Iterable[str], host: str) -> dict[str, str]:
    """Return the publisher's host by topic."""
    sources: dict[str, str] = {}
    for text in into:
        name, at, where = text.partition("@")
        if at and not where:
            raise click.UsageError(
                f"--in {text!r}: host missing after '@'; give NAME@HOST, or NAME for the host of --host"
            )
        if not PATTERN_SIGNS.isdisjoint(name):
            raise click.UsageError(f"--in {name!r} is a pattern, but ZMQ cannot list topics; give a name")
        if name in sources:
            raise click.UsageError(f"--in {name!r} is given twice; give one host for each topic")
        sources[name] = where or host
    return sources


class FlowReport:
    """Converts the bridge's counters into rates: messages and bytes per second."""

    def __init__(self) -> None:
        self._begin_s = self._shown_s = time.monotonic()
        self._before: dict[str, FlowStats] = {}

    def compute_recent_rates(self, flows: Sequence[FlowStats]) -> list[_RatedFlow]:
        """Return each flow with its rates since the previous call."""
        now_s = time.monotonic()
        lines = [_add_flow_rates(flow, self._before.get(flow.topic), now_s - self._shown_s) for flow in flows]
        self._before, self._shown_s = {flow.topic: flow for flow in flows}, now_s
        return lines

    def compute_overall_rates(self, flows: Sequence[FlowStats]) -> list[_RatedFlow]:
        """Return each flow with its rates since the start."""
        return [_add_flow_rates(flow, None, time.monotonic() - self._begin_s) for flow in flows]


def _format_direction(flow: FlowStats) -> str:
    return f"in from {flow.host}" if flow.host else flow.direction


def _add_flow_rates(flow: FlowStats, before: FlowStats | None, seconds: float) -> _RatedFlow:
    messages = flow.messages - (before.messages if before else 0)
    size = flow.bytes - (before.bytes if before else 0)
    return flow, messages / seconds, size / seconds


def _print_json(lines: Iterable[_RatedFlow], final: bool) -> None:
    for flow, rate, byte_rate in lines:
        echo_json({**asdict(flow), "rate": round(rate, 3), "byte_rate": round(byte_rate, 3), "final": final})
