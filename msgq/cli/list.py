"""`msgq list`: the topics, channels and work queues, who sends and who receives."""

from collections.abc import Iterable, Sequence

import click
from rich.table import Table
from rich.text import Text

from msgq.cli.common import options
from msgq.cli.common.board import Board, Row
from msgq.cli.common.channels import ChannelRow, Channels
from msgq.cli.common.names import Names, topic_texts
from msgq.cli.common.queues import QueueRow, Queues
from msgq.cli.common.render import (
    age,
    console,
    echo_json,
    in_bytes,
    in_rate,
    in_units,
    publisher,
    stacked,
    subscribers,
)
from msgq.stats import ChannelPublisher, ChannelSubscriber


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
@options.as_json
@options.prefix
def command(endpoints: tuple[str, ...], interval: float, as_json: bool, prefix: str | None) -> None:
    """Show the topics, channels and queues of this machine, or those that are named.

    A channel is called channel/NAME, a work queue queue/NAME. Of a queue, those that sent are shown as publishers,
    those that received or wait for messages as subscribers.

    Only looks: it takes no place in any of them, and nobody notices. Stock publishers do not count their messages; of
    those the bytes a second are what goes through the ring.
    """
    channels, queues = Channels(endpoints, prefix), Queues(endpoints, prefix)
    texts = topic_texts(endpoints)
    rows = Board(Names(texts, prefix)).measure(interval) if texts or not endpoints else []
    channel_rows, queue_rows = channels.measure(interval), queues.measure(interval)
    if as_json:
        measured: list[Row | ChannelRow | QueueRow] = [*rows, *channel_rows, *queue_rows]
        for row in measured:
            echo_json(row.as_json())
    else:
        console().print(_table(rows, channel_rows, queue_rows))


def _table(rows: Sequence[Row], channels: Sequence[ChannelRow], queues: Sequence[QueueRow]) -> Table:
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
    for one in channels:
        channel = one.stats
        table.add_row(
            one.endpoint,
            "channel" if channel.kind == "pubsub" else f"channel, {channel.kind}",
            _named(who for who in channel.publishers if not who.left),
            _named(channel.subscribers),
            in_units(channel.messages),
            in_rate(one.rate),
            in_bytes(one.bytes),
            in_bytes(one.byte_rate),
            in_bytes(channel.hub_bytes + channel.pool_bytes),
            age(channel.created_ns),
        )
    for queue in queues:
        table.add_row(*_queue_cells(queue))
    return table


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


def _named(participants: Iterable[ChannelPublisher | ChannelSubscriber]) -> Text:
    """Who takes part in a channel, one a line."""
    return stacked([f"{one.node} {one.participant}" for one in participants] or ["-"])
