"""`msgq list`: lists endpoints of all kinds with their publishers and subscribers."""

from collections import Counter

import click

from msgq.cli.common import options
from msgq.cli.common.columns import LOST_RANK, NAME_RANK, RATE_RANK, TableColumn, print_table
from msgq.cli.common.render import echo, echo_json
from msgq.common import settings
from msgq.common.formatting import format_bytes, format_count, format_rate
from msgq.common.shm_paths import list_prefixes
from msgq.common.texts import format_count_noun, join_first_texts
from msgq.kinds import find_reported_subject
from msgq.kinds.stats import AnyEndpointRow, format_age
from msgq.monitor.endpoint_selection import EndpointSelection
from msgq.monitor.live_endpoints import LiveEndpoints
from msgq.stats import endpoint_inodes

_ListColumn = TableColumn[AnyEndpointRow]
_LIST_COLUMNS = (
    _ListColumn("endpoint", lambda row: row.endpoint, NAME_RANK, text_width=24),
    _ListColumn("kind", lambda row: row.kind, text_width=7),
    _ListColumn("publisher", lambda row: row.publishers or "-", text_width=16),
    _ListColumn("subscribers", lambda row: row.subscribers or "-", text_width=16),
    _ListColumn("messages", lambda row: format_count(row.messages)),
    _ListColumn("messages/s", lambda row: format_rate(row.rate), RATE_RANK),
    _ListColumn("bytes/s", lambda row: format_bytes(row.byte_rate)),
    _ListColumn("lost", lambda row: format_count(row.lost), LOST_RANK),
    _ListColumn("memory", lambda row: format_bytes(row.memory)),
    _ListColumn("age", lambda row: format_age(row.stats.created_ns)),
    _ListColumn("note", lambda row: row.note_text, text_width=12),
)


@click.command(epilog=options.EXIT_CODES)
@options.endpoints_argument
@options.measured_duration_option(
    0.2, "Duration of the measurement of rates, in seconds. With 0, no rates are shown.", least=0.0
)
@click.option(
    "-a",
    "--all",
    "everything",
    is_flag=True,
    help="Include dead endpoints, timing topics, and channels of queue events.",
)
@options.json_option
@options.prefix_option
def command(endpoints: tuple[str, ...], duration: float, everything: bool, as_json: bool, prefix: str | None) -> None:
    """List the endpoints of this machine.

    An endpoint is a topic (NAME), a channel (channel/NAME), a work queue (queue/NAME), or a vector or board
    (records/NAME). For a queue, publishers are senders, and subscribers are receivers. For records, publishers are
    writers, and messages are written elements. Readers of records leave no trace.

    The command hides dead topics and channels, timing topics (for `msgq stages`), and channels of queue events. A
    topic or channel is dead if no living process uses the topic or channel. To show hidden endpoints, name them or
    give --all. A pattern selects a channel of queue events only after the removal of the queue.

    The command is passive, and takes no slot of a subscriber. Stock publishers do not count their messages. For a
    stock publisher, bytes/s is the traffic through the ring.
    """
    names = EndpointSelection(endpoints, prefix, everything)
    found = LiveEndpoints(names).measure(duration)
    rows = [row for row in found if everything or endpoints or not row.is_dead]
    if as_json:
        for row in rows:
            echo_json(row.to_json_fields())
    elif rows:
        print_table(_LIST_COLUMNS, rows)
    names.require_matched()
    if as_json or endpoints:
        return
    if not rows:
        missing = "live endpoints" if found else "endpoints"
        echo(f"msgq: no {missing} {_describe_prefix(prefix)}", err=True)
    if not everything and (hidden := _describe_hidden_endpoints(prefix, len(found) - len(rows))):
        echo(f"hidden: {hidden}; to list all, give --all")


def _describe_prefix(prefix: str | None) -> str:
    """Return a text about the searched prefix, and about other prefixes with endpoints."""
    searched = settings.resolve_prefix(prefix)
    others = [name for name in list_prefixes() if name != searched and endpoint_inodes(name)]
    hint = f"; prefixes with endpoints: {join_first_texts(others)}" if others else ""
    return (f"under the prefix {searched!r}" if searched else "without a prefix") + hint


def _describe_hidden_endpoints(prefix: str | None, dead_count: int) -> str:
    """Return a text with the numbers of hidden endpoints."""
    subjects = filter(None, map(find_reported_subject, endpoint_inodes(prefix)))
    counts = Counter(subject.noun for subject in subjects)
    texts = [format_count_noun(count, noun) for noun, count in counts.items()]
    return " and ".join([*texts, *([format_count_noun(dead_count, "dead endpoint")] if dead_count else [])])
