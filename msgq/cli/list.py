"""`msgq list`: the topics, who publishes them and who subscribes."""

import time
from collections.abc import Sequence

import click
from rich.table import Table

from msgq.cli import options
from msgq.cli.render import console, echo_json, in_bytes, in_units, publisher, subscribers
from msgq.stats import TopicStats, topics


@click.command(epilog=options.EXIT_CODES)
@options.as_json
@options.prefix
def command(as_json: bool, prefix: str | None) -> None:
    """Show the topics of this machine.

    Only looks: it takes no place in any topic, and nobody notices.
    """
    found = topics(prefix)
    if as_json:
        for topic in found:
            echo_json(topic)
    else:
        console().print(_table(found))


def _table(found: Sequence[TopicStats]) -> Table:
    table = Table("endpoint", "publisher", "subscribers", title=None)
    for column in ("messages", "bytes", "ring", "age"):
        table.add_column(column, justify="right")
    for topic in found:
        table.add_row(
            topic.endpoint,
            publisher(topic),
            subscribers(topic),
            in_units(topic.messages),
            in_bytes(topic.bytes),
            in_bytes(topic.data_bytes),
            _age(topic.created_ns),
        )
    return table


def _age(created_ns: int | None) -> str:
    if not created_ns:
        return "-"
    seconds = max(0, time.time_ns() - created_ns) // 1_000_000_000
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"
