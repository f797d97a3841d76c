"""`msgq list`: the topics, channels, work queues, vectors and boards, who sends and who receives."""

from collections.abc import Iterable, Sequence

import click
from rich.table import Table
from rich.text import Text

from msgq import timing
from msgq.cli.common import options
from msgq.cli.common.board import Board, Row
from msgq.cli.common.channels import ChannelRow, Channels
from msgq.cli.common.names import Names, topic_texts
from msgq.cli.common.queues import QueueRow, Queues
from msgq.cli.common.records import RecordRow, Records
from msgq.cli.common.render import (
    age,
    console,
    echo,
    echo_json,
    in_bytes,
    in_rate,
    in_units,
    publisher,
    stacked,
    subscribers,
)
from msgq.stats import ChannelPublisher, ChannelSubscriber

_Other = ChannelRow | QueueRow | RecordRow


@click.command(epilog=options.EXIT_CODES)
@options.all_kinds
@click.option(
    "--interval",
    type=click.FloatRange(0.0, 3600.0),
    default=0.2,
    show_default=True,
    metavar="SECONDS",
    help="For how long rates are measured; 0 leaves them out.",
)
@click.option("-a", "--all", "everything", is_flag=True, help="Timing topics, too, which `msgq stages` reads.")
@options.as_json
@options.prefix
def command(endpoints: tuple[str, ...], interval: float, everything: bool, as_json: bool, prefix: str | None) -> None:
    """Show the topics, channels, queues and records of this machine, or those that are named.

    A channel is called channel/NAME, a work queue queue/NAME, a vector or board records/NAME. Of a queue, those that
    sent are shown as publishers, those that received or wait for messages as subscribers. Of records, those that write
    are shown as publishers, elements that were written as messages; who reads leaves no trace.

    Timing topics, on which stages say how long they handled messages, are left out, unless names or patterns select
    them.

    Only looks: it takes no place in any of them, and nobody notices. Stock publishers do not count their messages; of
    those the bytes a second are what goes through the ring.
    """
    channels, queues, records = Channels(endpoints, prefix), Queues(endpoints, prefix), Records(endpoints, prefix)
    texts = topic_texts(endpoints)
    rows = Board(Names(texts, prefix)).measure(interval) if texts or not endpoints else []
    listed = rows if everything or endpoints else [row for row in rows if not timing.timed(row.stats.endpoint)]
    others: list[_Other] = [*channels.measure(interval), *queues.measure(interval), *records.measure(interval)]
    if as_json:
        measured: list[Row | _Other] = [*listed, *others]
        for row in measured:
            echo_json(row.as_json())
    else:
        console().print(_table(listed, others))
        if hidden := len(rows) - len(listed):
            echo(f"{hidden} timing topics are not shown; `msgq stages` reads them, --all lists them")


def _table(rows: Sequence[Row], others: Sequence[_Other]) -> Table:
    table = Table("endpoint", "kind", "publisher", "subscribers", title=None)
    for column in ("messages", "messages/s", "bytes", "bytes/s", "memory", "age"):
        table.add_column(column, justify="right")
    for row in rows:
        topic = row.stats
        table.add_row(
            topic.endpoint,
            "ring, stock" if row.stock else "ring",
            publisher(topic),
            subscribers(topic),
            in_units(topic.messages),
            in_rate(row.rate),
            in_bytes(topic.bytes),
            in_bytes(row.byte_rate),
            in_bytes(topic.data_bytes),
            age(topic.created_ns),
        )
    for one in others:
        table.add_row(*_cells(one))
    return table


def _cells(row: _Other) -> tuple[str | Text, ...]:
    if isinstance(row, RecordRow):
        return _record_cells(row)
    return _channel_cells(row) if isinstance(row, ChannelRow) else _queue_cells(row)


def _channel_cells(row: ChannelRow) -> tuple[str | Text, ...]:
    channel = row.stats
    return (
        row.endpoint,
        "channel" if channel.kind == "pubsub" else f"channel, {channel.kind}",
        _named(who for who in channel.publishers if not who.left),
        _named(channel.subscribers),
        in_units(channel.messages),
        in_rate(row.rate),
        in_bytes(row.bytes),
        in_bytes(row.byte_rate),
        in_bytes(channel.hub_bytes + channel.pool_bytes),
        age(channel.created_ns),
    )


def _queue_cells(row: QueueRow) -> tuple[str | Text, ...]:
    queue = row.stats
    senders = [str(one.participant) for one in queue.handles if one.sent or "sending" in one.waits]
    receivers = [
        str(one.participant) for one in queue.handles if one.received or {"receiving", "watching"} & {*one.waits}
    ]
    return (
        row.endpoint,
        f"queue, {in_units(queue.depth)} of {in_units(queue.max_messages)} wait",
        stacked(senders or ["-"]),
        stacked(receivers or ["-"]),
        in_units(queue.sent),
        in_rate(row.rate),
        in_bytes(None),
        in_bytes(None),
        in_bytes(queue.bytes),
        age(queue.created_ns),
    )


def _record_cells(row: RecordRow) -> tuple[str | Text, ...]:
    record = row.stats
    keys = f"board, {in_units(record.key_count)} of {in_units(record.length)} keys"
    return (
        row.endpoint,
        keys if record.kind == "board" else f"vector of {in_units(record.length)}",
        stacked([str(one.participant) for one in record.writers] or ["-"]),
        stacked(["-"]),
        in_units(record.written),
        in_rate(row.rate),
        in_bytes(None),
        in_bytes(None),
        in_bytes(record.bytes),
        age(record.created_ns),
    )


def _named(participants: Iterable[ChannelPublisher | ChannelSubscriber]) -> Text:
    """Who takes part in a channel, one a line."""
    return stacked([f"{one.node} {one.participant}" for one in participants] or ["-"])
