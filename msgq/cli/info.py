"""`msgq info`: all that is known of a topic."""

import os
import stat
from collections.abc import Iterator

import click

from msgq.cli import options
from msgq.cli.board import Board, Row
from msgq.cli.names import Names
from msgq.cli.render import age, echo, echo_json, in_bytes, in_rate, in_units, publisher, who
from msgq.schema import Schema
from msgq.stats import SubscriberInfo


@click.command(epilog=options.EXIT_CODES)
@options.some_endpoints
@options.interval(0.5, "For how long rates are measured.")
@options.as_json
@options.prefix
def command(endpoints: tuple[str, ...], interval: float, as_json: bool, prefix: str | None) -> None:
    """Show all that is known of these topics: files, publisher, schema, and each subscriber with its lag and losses.

    Only looks, as `msgq list` does.
    """
    names = Names(endpoints, prefix)
    missing = names.plain - names.existing().keys()
    if missing:
        raise click.ClickException(f"no such topic: {', '.join(sorted(missing))}; `msgq list` shows those that exist")
    for row in Board(names).measure(interval):
        if as_json:
            echo_json({**row.as_json(), **_file(row.stats.path)})
        else:
            for line in _lines(row):
                echo(line)


def _file(path: str) -> dict[str, str | int | None]:
    """Whose the ring is, and who else may open it."""
    try:
        found = os.stat(path)
    except FileNotFoundError:  # removed just now; the mapping is still good
        return {"owner": None, "mode": None}
    return {"owner": found.st_uid, "mode": f"{stat.S_IMODE(found.st_mode):o}"}


def _lines(row: Row) -> Iterator[str]:
    topic, file = row.stats, _file(row.stats.path)
    yield topic.endpoint
    yield f"  ring         {topic.path}, {in_bytes(topic.data_bytes)}; a message may take a third of it"
    side = "side segment" if topic.created_ns else "no side segment: only stock programs were here"
    yield f"  file         {side}, user {file['owner']}, mode {file['mode']}, age {age(topic.created_ns)}"
    yield f"  publisher    {publisher(topic)}"
    yield f"  published    {in_units(topic.messages)} messages, {in_bytes(topic.bytes)}"
    yield f"  rate         {in_rate(row.rate)} messages/s, {in_bytes(row.byte_rate)}/s"
    yield f"  schema       {_schema(topic.schema)}"
    yield f"  position     lap {topic.write_position[0]}, offset {topic.write_position[1]}"
    yield f"  subscribers  {len(topic.subscribers)}, and {topic.stock_subscribers} stock"
    for subscriber in topic.subscribers:
        yield f"    {_subscriber(subscriber)}"


def _schema(schema: Schema | None) -> str:
    return "none" if schema is None else f"{schema.name}, {schema.encoding}, {len(schema.data)} bytes of definition"


def _subscriber(one: SubscriberInfo) -> str:
    lost = "an unknown number of" if one.lost is None else in_units(one.lost)
    lag = "lapped" if one.lag_bytes is None else f"{in_bytes(one.lag_bytes)} to read"
    return f"{who(one.participant)}: {in_units(one.received)} received, {lost} lost in {one.resets} laps, {lag}"
