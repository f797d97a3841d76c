"""`msgq list`: the topics, who publishes them and who subscribes."""

from collections.abc import Sequence

import click
from rich.table import Table

from msgq.cli import options
from msgq.cli.board import Board, Row
from msgq.cli.names import Names
from msgq.cli.render import age, console, echo_json, in_bytes, in_rate, in_units, publisher, subscribers


@click.command(epilog=options.EXIT_CODES)
@options.endpoints
@click.option(
    "--interval", type=click.FloatRange(0.0, 3600.0), default=0.2, show_default=True, metavar="SECONDS",
    help="For how long rates are measured; 0 leaves them out.",
)
@options.as_json
@options.prefix
def command(endpoints: tuple[str, ...], interval: float, as_json: bool, prefix: str | None) -> None:
    """Show the topics of this machine, or those that are named.

    Only looks: it takes no place in any topic, and nobody notices. Stock publishers do not count their messages; of
    those the bytes a second are what goes through the ring.
    """  # fmt: skip
    rows = Board(Names(endpoints, prefix)).measure(interval)
    if as_json:
        for row in rows:
            echo_json(row.as_json())
    else:
        console().print(_table(rows))


def _table(rows: Sequence[Row]) -> Table:
    table = Table("endpoint", "kind", "publisher", "subscribers", title=None)
    for column in ("messages", "messages/s", "bytes", "bytes/s", "ring", "age"):
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
    return table
