"""`msgq lake replay`: messages of a lake, back on the bus."""

import tempfile
from pathlib import Path

import click

from msgq.cli import lake_options, options
from msgq.cli.render import echo_json, in_units


@click.command(epilog=options.EXIT_CODES)
@lake_options.lake
@lake_options.query
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
              help="How much faster than it was; inf: as fast as possible.")  # fmt: skip
@click.option("--backend", type=click.Choice(["msgq", "zmq", "fake"]), help="[default: the one in force]")
@options.prefix
@lake_options.on_spark
@options.as_json
def command(
    lake: str, query: str, rate: float, backend: str | None, prefix: str | None, master: str | None, table_format: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Play the messages that a query gives, in the order and at the distances of their times.

    The query must give endpoint, log_time and data: SELECT * FROM messages WHERE endpoint LIKE 'camera%'
    """
    from msgq.recording.player import Player
    from msgq.spark.export import write_log

    found = lake_options.open_lake(lake, master, table_format)
    answer = found.ask(query)
    with tempfile.TemporaryDirectory(prefix="msgq-replay-") as directory:
        path = Path(directory) / "rows.mcap"
        with lake_options.progress(found, "query"):
            write_log(answer, path)
        with Player(path, rate=rate, backend=backend, prefix=prefix) as player:
            player.run()
            stats = player.stats()
    if as_json:
        echo_json(stats)
    else:
        click.echo(f"{in_units(stats.messages)} messages played")
