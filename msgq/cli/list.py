"""`msgq list`: lists endpoints of all kinds with their publishers and subscribers."""

from collections import Counter
from collections.abc import Sequence

import click
from rich.table import Table

from msgq.cli.common import options
from msgq.cli.common.render import echo, echo_json, get_console, join_display_lines
from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.texts import format_count_noun
from msgq.kinds import find_reported_subject
from msgq.kinds.stats import AnyEndpointRow, format_age
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints
from msgq.stats import endpoint_inodes


@click.command(epilog=options.EXIT_CODES)
@options.endpoints_argument
@options.measured_duration_option(
    0.2, "Duration of the measurement of rates, in seconds. With 0, no rates are shown.", least=0.0
)
@options.auxiliary_option
@options.json_option
@options.prefix_option
def command(endpoints: tuple[str, ...], duration: float, everything: bool, as_json: bool, prefix: str | None) -> None:
    """List the endpoints of this machine.

    An endpoint is a topic (NAME), a channel (channel/NAME), a work queue (queue/NAME), or a vector or board
    (records/NAME). For a queue, publishers are senders, and subscribers are receivers. For records, publishers are
    writers, and messages are written elements. Readers of records leave no trace.

    The command hides timing topics (for `msgq stages`) and channels of queue events. To show hidden endpoints, name
    them or give --all. A pattern selects a channel of queue events only after the removal of the queue.

    The command is passive, and takes no slot of a subscriber. Stock publishers do not count their messages. For a
    stock publisher, bytes/s is the traffic through the ring.
    """
    names = EndpointSelection(endpoints, prefix, everything)
    rows = LiveEndpoints(names).measure(duration)
    if as_json:
        for row in rows:
            echo_json(row.to_json_fields())
    elif rows or not endpoints:
        get_console().print(_make_table(rows))
    names.require_matched()
    if not as_json and not everything and not endpoints and (hidden := _describe_hidden_endpoints(prefix)):
        echo(f"hidden: {hidden}; to list all, give --all")


def _describe_hidden_endpoints(prefix: str | None) -> str:
    """Return a text with the number of hidden auxiliary endpoints."""
    subjects = filter(None, map(find_reported_subject, endpoint_inodes(prefix)))
    counts = Counter(subject.noun for subject in subjects)
    return " and ".join(format_count_noun(count, noun) for noun, count in counts.items())


def _make_table(rows: Sequence[AnyEndpointRow]) -> Table:
    table = Table("endpoint", "kind", "publisher", "subscribers", title=None)
    for column in ("messages", "messages/s", "bytes/s", "lost", "memory", "age"):
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(
            row.endpoint,
            ", ".join(filter(None, (row.kind, row.note_text))),
            join_display_lines(row.publishers or ["-"]),
            join_display_lines(row.subscribers or ["-"]),
            format_count(row.messages),
            format_rate(row.rate),
            format_bytes(row.byte_rate),
            format_count(row.lost),
            format_bytes(row.memory),
            format_age(row.stats.created_ns),
        )
    return table
